// Where the server's links lead: a report with filters is a view with a filtered table.
import type { Link } from "../api/client";
import { served } from "./profile.svelte";
import { place, type Params } from "./router.svelte";

const PLACES: Record<string, [view: string, table: string, params?: Params]> = {
  detail: ["operators", "ops", { by: "place" }],
  kernel: ["operators", "kernels", { by: "kernel" }],
  op_type: ["operators", "types", { by: "type" }],
  source_line: ["lines", "lines"],
  operator: ["operators", "operators"],
  kernel_summary: ["kernels", "kernels"],
  launches: ["kernels", "launches", { tab: "launches" }],
  iteration: ["kernels", "launches", { tab: "launches" }],
  iterations: ["iterations", "iterations", { tab: "kernels" }],
  step_time: ["workers", "steps"],
  overlap: ["workers", "overlap", { tab: "overlap" }],
  communication: ["workers", "communication", { tab: "communication" }],
  collectives: ["workers", "collectives", { tab: "communication" }],
  ranks: ["workers", "ranks", { tab: "ranks" }],
  stragglers: ["workers", "stragglers", { tab: "stragglers" }],
  idle: ["gpus", "idle"],
  gpu: ["gpus", "gpus"],
  memory: ["memory", "memory"],
  alive: ["memory", "alive"],
  memory_copies: ["memory", "copies", { tab: "copies" }],
  module: ["operators", "modules", { by: "module" }],
  group_node: ["operators", "groups", { by: "group" }],
  tensor: ["operators", "tensor", { by: "tensor" }],
  coverage: ["overview", "coverage"],
  summary: ["summaries", "summary"],
};

/** The address of a link; undefined where the page has no such view. */
export function linked(link: Link): string | undefined {
  // A report without a view of its own is in the view of all reports.
  const found = PLACES[link.report] ?? (served.report(link.report) ? ["reports", link.report, { report: link.report }] : undefined);
  if (!found) return undefined;
  const [view, table, more] = found as [string, string, Params?];
  const params: Params = { ...more };
  for (const filter of link.filters) {
    const colon = filter.indexOf(":");
    params[`${table}.f.${filter.slice(0, colon)}`] = filter.slice(colon + 1);
  }
  if (link.search) params[`${table}.q`] = link.search;
  if (link.filters.length || link.search) params.why = link.title;
  return place.to(view, params);
}

/** What finds the events of one operator, line or module on the timeline: its whole name. */
export const events = (key: string, name: string): string => `${key}:${/[\s"]/.test(name) ? `"=${name.replaceAll('"', "")}"` : `=${name}`}`;
