// The server's breakdowns as charts: which colour a part has.
import type { Breakdown } from "../api/client";
import type { Slice } from "../charts/Donut.svelte";
import { colour, type Meaning } from "./colours";
import { served } from "./profile.svelte";

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
  no_phase: "cpu",
  // Causes of idle time, as in the timeline.
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

/** Phases of work on a device, beside causes of idle time in the colors of the host. */
const ON_DEVICE: Record<string, Meaning> = {
  forward: "kernel",
  backward: "tc",
  recompute: "memset",
  optimizer: "compute",
  no_phase: "overlap",
};

export function meaning(breakdown: string, part: string): Meaning {
  const key = part.replace(/_ns$/, "");
  if (served.gpu && breakdown === "step_time" && key in ON_DEVICE) return ON_DEVICE[key]!;
  return WHOLE[breakdown]?.[key] ?? PARTS[key] ?? "other";
}

export function slices(breakdown: Breakdown): Slice[] {
  return breakdown.parts.map((part) => ({
    key: part.key,
    label: part.heading,
    value: part.unit === "%" ? part.share : part.value,
    share: part.share,
    colour: colour(meaning(breakdown.key, part.key)),
    text: part.text,
  }));
}
