// Where an event of the timeline is in a table of another view.
import type { Hit } from "./scene";

/** The view and its parameters; undefined for events that are in no table. `text`: the name of the event. */
export function tableOf({ track, count, id }: Hit, text: string): [view: string, params: Record<string, string>] | undefined {
  if (track.kind === "stream")
    return ["kernels", { tab: "launches", ...(count === 1 ? { "launches.f.id": `=${id}`, d: `launch:${id}` } : { "launches.q": text }) }];
  if (track.kind === "idle") return ["gpus", { "idle.f.cause": `=${text}` }];
  // The report has calls without the version of their interface.
  if (track.kind === "api") return ["reports", { report: "api_calls", "api_calls.f.name": text.replace(/_v\d+$/, "") }];
  if (track.kind === "range" && text.includes("::")) return ["operators", { "operators.f.name": `=${text}` }];
  return undefined;
}
