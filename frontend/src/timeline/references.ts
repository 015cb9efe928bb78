// Records as the address names them: launch:ID, range:ID, call:ID, gap:WORKER.DEVICE.NUMBER.
import type { Hit } from "./scene";
import type { Track } from "./store";

const KIND: Partial<Record<Track["kind"], string>> = {
  stream: "launch",
  range: "range",
  function: "range",
  overlap: "range",
  api: "call",
  idle: "gap",
};

/** What is before the number of a record: a gap has the number that it has on its device. */
export const prefixOf = ({ kind, worker, device }: Track): string => `${KIND[kind]}:${kind === "idle" ? `${worker}.${device}.` : ""}`;

/** Undefined for several records in one, and for what has no details. */
export const referenceOf = ({ track, count, id }: Hit): string | undefined =>
  KIND[track.kind] && count === 1 ? `${prefixOf(track)}${id}` : undefined;
