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
  | "other"
  | "outside"
  | "idle";

export const LABELS: Record<Meaning, string> = {
  tc: "Using tensor cores",
  kernel: "Not using tensor cores",
  compute: "Kernel",
  memory: "Memory",
  memset: "Memset",
  communication: "Communication",
  overlap: "Computation and communication",
  runtime: "Runtime",
  dataloader: "Dataloader",
  io: "I/O",
  cpu: "CPU",
  other: "Other",
  outside: "Outside the profile",
  idle: "Idle",
};

export const colour = (meaning: Meaning): string => `var(--c-${meaning})`;

/** For things that have no meaning of their own, such as the operators of a donut: by rank, the rest grey. */
export const rank = (place: number): string => (place < 10 ? `var(--r-${place})` : "var(--c-outside)");
