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
  | "no-phase"
  | "other"
  | "outside"
  | "idle";

export const colour = (meaning: Meaning): string => `var(--c-${meaning})`;

/** For things that have no meaning of their own, such as the operators of a donut: by rank, the rest grey. */
export const rank = (place: number): string => (place < 10 ? `var(--r-${place})` : "var(--c-outside)");

const PARTS: Record<string, Meaning> = {
  tc: "tc",
  kernel: "kernel",
  memory: "memory",
  dataloader: "dataloader",
  io: "io",
  cpu: "cpu",
  other: "other",
  memcpy: "memory",
  memset: "memset",
  communication: "communication",
  runtime: "runtime",
  idle: "idle",
  forward: "forward",
  recompute: "recompute",
  backward: "backward",
  optimizer: "optimizer",
  no_phase: "no-phase",
  // Causes of idle time, as in the timeline: what the device waits for has the color of that.
  data_loader: "dataloader",
  launch_bound: "cpu",
  synchronization: "runtime",
  host_copy: "memory",
  queued: "idle",
  not_recorded: "outside",
  using: "compute",
  busy: "compute",
  not_tc: "kernel",
  no_tc: "kernel",
  without: "kernel",
};
/** Where kernels are one part, with or without tensor cores, they have a colour of their own. */
const WHOLE: Record<string, Record<string, Meaning>> = {
  step_time: { kernel: "compute" },
  kernel_time: { other: "kernel" },
  tensor_cores: { other: "kernel" },
};

/** What a part of a breakdown means. */
export function meaningOf(breakdown: string, part: string): Meaning {
  const key = part.replace(/_ns$/, "");
  return WHOLE[breakdown]?.[key] ?? PARTS[key] ?? "other";
}
