// One meaning per colour, everywhere. The values are CSS variables (style.css), one set for light and one for dark.

export type Meaning =
  | "tc"
  | "kernel"
  | "compute"
  | "memory"
  | "memset"
  | "communication"
  | "overlap"
  | "runtime"
  | "dataloader"
  | "io"
  | "cpu"
  | "forward"
  | "recompute"
  | "backward"
  | "optimizer"
  | "other"
  | "outside"
  | "idle";

export const colour = (meaning: Meaning): string => `var(--c-${meaning})`;

/** For things that have no meaning of their own, such as the operators of a donut: by rank, the rest grey. */
export const rank = (place: number): string => (place < 10 ? `var(--r-${place})` : "var(--c-outside)");
