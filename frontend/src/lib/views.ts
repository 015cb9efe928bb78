// The views, with the names by which people know them from elsewhere.
import type { Component } from "svelte";
import { backend, type Profile } from "../api/client";

export interface View {
  id: string;
  label: string;
  group: string;
  /** Other names that find it, each with what it opens. */
  aliases: readonly { name: string; params?: Record<string, string> }[];
  /** What it is called without a GPU; null: the menu does not have it then. */
  onCpu?: string | null;
  /** Why there is nothing in it, if there is nothing. */
  nothing?: (profile: Profile) => string | false;
  load: () => Promise<{ default: Component }>;
  /** Whether the summary of a fleet has something for it: the others need single events. */
  ofFleet?: boolean;
}

/** What a view shows of the summary of a fleet that has nothing for it. */
export const NO_EVENTS =
  "The summary of a fleet has no single events, which this view needs: open a rank at Run above, or from its row in the overview.";

export const NO_STACKS =
  "No call stack was recorded, so there are no source lines: record with pyprof.init(), or with_stack=True in torch.profiler.";

export const VIEWS: readonly View[] = [
  {
    id: "overview",
    label: "Overview",
    group: "Summary",
    aliases: [{ name: "Dashboard" }, { name: "Expert Systems" }, { name: "System Configuration" }],
    load: () => import("../views/Overview.svelte"),
    ofFleet: true,
  },
  {
    id: "timeline",
    label: "Timeline",
    group: "Summary",
    aliases: [{ name: "Trace" }, { name: "Trace View" }, { name: "Device Viewer" }],
    load: () => import("../views/Timeline.svelte"),
  },
  {
    id: "operators",
    label: "Operators",
    group: "Operators",
    aliases: [
      { name: "Operator View" },
      { name: "Op types", params: { by: "type" } },
      { name: "Op Type Summary", params: { by: "type" } },
      { name: "Modules", params: { by: "module" } },
      { name: "Module View", params: { by: "module" } },
      { name: "Group Ops", params: { by: "group" } },
      { name: "Group Node Report", params: { by: "group" } },
      { name: "Ops and Kernels", params: { by: "place" } },
      { name: "Kernels of all ops", params: { by: "kernel" } },
      { name: "Tensor cores", params: { by: "tensor" } },
      { name: "Operators by input shape", params: { "operators.o.by": "shapes" } },
      { name: "Operators by call stack", params: { "operators.o.by": "stack" } },
    ],
    load: () => import("../views/Operators.svelte"),
  },
  {
    id: "lines",
    label: "Source lines",
    group: "Operators",
    aliases: [{ name: "Call stacks" }, { name: "Code" }],
    nothing: (profile) => profile.counts.stacks === 0 && NO_STACKS,
    load: () => import("../views/Lines.svelte"),
  },
  {
    id: "iterations",
    label: "Iterations",
    group: "Time",
    aliases: [
      { name: "Kernels by Iteration", params: { tab: "kernels" } },
      { name: "Kernels by Op", params: { tab: "ops" } },
      { name: "Reaggregate" },
      { name: "Key Node Picker" },
      { name: "Step Time Breakdown" },
    ],
    load: () => import("../views/Iterations.svelte"),
  },
  {
    id: "kernels",
    label: "Kernels",
    group: "Time",
    aliases: [{ name: "Kernel View" }, { name: "GPU Kernel" }, { name: "All launches", params: { tab: "launches" } }, { name: "Roofline" }],
    onCpu: "Roofline",
    load: () => import("../views/Kernels.svelte"),
  },
  {
    id: "memory",
    label: "Memory",
    group: "Time",
    aliases: [{ name: "Memory View" }],
    nothing: (profile) =>
      profile.counts.memory_events === 0 &&
      "Allocations were not recorded: torch.profiler records them with profile_memory=True, pyprof.profile() with memory=True.",
    load: () => import("../views/Memory.svelte"),
  },
  {
    id: "gpus",
    label: "GPUs",
    group: "Machine",
    aliases: [{ name: "GPUs View" }],
    onCpu: null,
    load: () => import("../views/Gpus.svelte"),
  },
  {
    id: "workers",
    label: "Workers",
    group: "Machine",
    aliases: [
      { name: "Distributed View" },
      { name: "Communication", params: { tab: "communication" } },
      { name: "Heat map of ranks", params: { tab: "ranks" } },
      { name: "Stragglers", params: { tab: "stragglers" } },
      { name: "Device Information", params: { tab: "devices" } },
    ],
    load: () => import("../views/Workers.svelte"),
  },
  {
    id: "compare",
    label: "Compare",
    group: "Machine",
    aliases: [{ name: "Diff View" }],
    nothing: ({ runs, aggregations }) => runs.filter((run) => !run.fleet).length < 2 && aggregations.length < 2 && "There is only one run.",
    load: () => import("../views/Compare.svelte"),
  },
  {
    id: "summaries",
    label: "Other summaries",
    group: "More",
    aliases: [
      { name: "DLProf summary" },
      { name: "TensorBoard summary", params: { tab: "tensorboard" } },
      { name: "Performance Summary" },
      { name: "GPU Utilization" },
      { name: "Resource Usage Breakdown" },
      { name: "Total Kernel GPU Time" },
      { name: "Tensor Core Kernel Efficiency" },
      { name: "Iteration Summary" },
      { name: "Guidance" },
      { name: "Execution Summary", params: { tab: "tensorboard" } },
    ],
    load: () => import("../views/Summaries.svelte"),
  },
  { id: "reports", label: "All reports", group: "More", aliases: [], ofFleet: true, load: () => import("../views/Reports.svelte") },
];

/** The views that there can be: a file has nothing to compare with. */
export const offered = (): readonly View[] => (backend().live ? VIEWS : VIEWS.filter((view) => view.id !== "compare"));

/** Why there is nothing in a view of a profile, if there is nothing. */
export const nothingIn = (view: View, profile: Profile): string | false =>
  profile.fleet ? !view.ofFleet && NO_EVENTS : (view.nothing?.(profile) ?? false);

/** What the menu calls a view; null: it does not have it, because the recording has no GPU. */
export const called = (view: View, gpu: boolean): string | null => (gpu || view.onCpu === undefined ? view.label : view.onCpu);

/** Addresses of views that are parts of another now, and of DLProf's viewer. */
const OLD: Record<string, [string, Record<string, string>]> = {
  dashboard: ["overview", {}],
  "op-types": ["operators", { by: "type" }],
  "op-type-summary": ["operators", { by: "type" }],
  groups: ["operators", { by: "group" }],
  "group-ops": ["operators", { by: "group" }],
  modules: ["operators", { by: "module" }],
  ops: ["operators", { by: "place" }],
  "ops-and-kernels": ["operators", { by: "place" }],
  "kernels-by-iteration": ["iterations", { tab: "kernels" }],
  "kernels-by-op": ["iterations", { tab: "ops" }],
};
/** Tabs that the view of ops had. */
const OF_OPS: Record<string, string> = { all: "kernel", tensor: "tensor" };

/** Where an old address leads, with all that it says; undefined for one that is in use. */
export function moved(view: string, params: Record<string, string>): [string, Record<string, string>] | undefined {
  const found = OLD[view];
  if (!found) return undefined;
  const [now, preset] = found;
  const { tab, ...rest } = params;
  if (preset.by === "place" && tab) return [now, { ...rest, by: OF_OPS[tab] ?? "place" }];
  return [now, { ...params, ...preset }];
}
