// The views, with the names by which people know them from elsewhere.
import type { Component } from "svelte";

export interface View {
  id: string;
  label: string;
  group: string;
  /** Other names that find it, each with what it opens. */
  aliases: readonly { name: string; params?: Record<string, string> }[];
  load: () => Promise<{ default: Component }>;
}

export const VIEWS: readonly View[] = [
  {
    id: "overview",
    label: "Overview",
    group: "Summary",
    aliases: [{ name: "Dashboard" }, { name: "Expert Systems" }, { name: "Guidance" }, { name: "System Configuration" }],
    load: () => import("../views/Overview.svelte"),
  },
  {
    id: "timeline",
    label: "Timeline",
    group: "Summary",
    aliases: [{ name: "Trace" }, { name: "Trace View" }, { name: "Device Viewer" }],
    load: () => import("../views/Timeline.svelte"),
  },
  {
    id: "op-types",
    label: "Op types",
    group: "Operators",
    aliases: [{ name: "Op Type Summary" }],
    load: () => import("../views/OpTypes.svelte"),
  },
  {
    id: "groups",
    label: "Group ops",
    group: "Operators",
    aliases: [{ name: "Group Ops" }, { name: "Group Node Report" }],
    load: () => import("../views/GroupOps.svelte"),
  },
  {
    id: "ops",
    label: "Ops and kernels",
    group: "Operators",
    aliases: [{ name: "Ops and Kernels" }],
    load: () => import("../views/OpsKernels.svelte"),
  },
  {
    id: "operators",
    label: "Operators",
    group: "Operators",
    aliases: [{ name: "Operator View" }],
    load: () => import("../views/Operators.svelte"),
  },
  {
    id: "modules",
    label: "Modules",
    group: "Operators",
    aliases: [{ name: "Module View" }],
    load: () => import("../views/Modules.svelte"),
  },
  {
    id: "lines",
    label: "Source lines",
    group: "Operators",
    aliases: [{ name: "Call stacks" }, { name: "Code" }],
    load: () => import("../views/Lines.svelte"),
  },
  {
    id: "iterations",
    label: "Iterations",
    group: "Time",
    aliases: [
      { name: "Kernels by Iteration", params: { tab: "kernels" } },
      { name: "Kernels by Op", params: { tab: "ops" } },
      { name: "Re-aggregate" },
      { name: "Step Time Breakdown" },
    ],
    load: () => import("../views/Iterations.svelte"),
  },
  {
    id: "kernels",
    label: "Kernels",
    group: "Time",
    aliases: [{ name: "Kernel View" }, { name: "GPU Kernel" }, { name: "All launches", params: { tab: "launches" } }, { name: "Roofline" }],
    load: () => import("../views/Kernels.svelte"),
  },
  { id: "memory", label: "Memory", group: "Time", aliases: [{ name: "Memory View" }], load: () => import("../views/Memory.svelte") },
  { id: "gpus", label: "GPUs", group: "Machine", aliases: [{ name: "GPUs View" }], load: () => import("../views/Gpus.svelte") },
  {
    id: "workers",
    label: "Workers",
    group: "Machine",
    aliases: [
      { name: "Distributed View" },
      { name: "Communication", params: { tab: "communication" } },
      { name: "Stragglers", params: { tab: "stragglers" } },
      { name: "Device Information", params: { tab: "devices" } },
    ],
    load: () => import("../views/Workers.svelte"),
  },
  { id: "compare", label: "Compare", group: "Machine", aliases: [{ name: "Diff View" }], load: () => import("../views/Compare.svelte") },
  { id: "reports", label: "All reports", group: "More", aliases: [], load: () => import("../views/Reports.svelte") },
];

/** Addresses under the old names, and where they lead. */
export const OLD: Record<string, [string, Record<string, string>]> = {
  dashboard: ["overview", {}],
  "op-type-summary": ["op-types", {}],
  "group-ops": ["groups", {}],
  "ops-and-kernels": ["ops", {}],
  "kernels-by-iteration": ["iterations", { tab: "kernels" }],
  "kernels-by-op": ["iterations", { tab: "ops" }],
};
