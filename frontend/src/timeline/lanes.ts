// Which tracks are shown, in which order, and where.
import type { Timeline } from "../api/client";
import type { Track } from "./store";

export const HEIGHT = 16; // px of a lane
export const GAP = 6; // px between tracks
export const CURVE = 34; // px of a curve
const HEAD = 24; // px of a worker's heading
export const LISTED = 200; // events of a lane as a table
export const FEW = 8; // lanes of a track that is not unfolded

export interface Placed {
  track: Track;
  top: number;
  first: number; // lane at the top
  lanes: number; // shown
  pinned: boolean;
}

export interface Heading {
  worker: number;
  name: string;
  top: number;
  open: boolean;
}

/** How busy a device is over time: what its gaps leave. */
export interface Busy {
  idle: Track;
  top: number;
}

export type Counter = Timeline["counters"][number];

/** A counter of a device as a curve. */
export interface Counted {
  counter: Counter;
  top: number;
}

export interface Layout {
  /** Top of the track of a search's hits, if it has one. */
  hits: number | undefined;
  tracks: Placed[];
  busy: Busy[];
  counters: Counted[];
  headings: Heading[];
  height: number;
}

export interface Choice {
  pinned: readonly number[];
  hidden: readonly number[];
  unfolded: readonly number[];
  closed: readonly number[]; // workers
  search: string;
  /** Whether the hits of a search have a track. */
  hits: boolean;
  /** Whether devices have their counters below their tracks. */
  counters: boolean;
  /** The worker that the header chose; all without one. */
  worker?: number | undefined;
}

const ORDER = ["module", "function", "range", "overlap", "api", "file", "loader", "stream", "idle"];

/** Devices before the host, whose call stacks are deep: modules of a device above its streams, those of a thread above its ranges. */
function rank(track: Track): number[] {
  const host = track.device === null ? 1 : 0;
  return [host, track.device ?? 0, track.thread ?? 0, ORDER.indexOf(track.kind), track.stream ?? 0];
}

export function ordered(timeline: Timeline): Track[] {
  const keys = new Map(timeline.tracks.map((track) => [track, [track.worker, ...rank(track)]]));
  return [...timeline.tracks].sort((a, b) => {
    const [left, right] = [keys.get(a)!, keys.get(b)!];
    const at = left.findIndex((value, place) => value !== right[place]);
    return at < 0 ? a.id - b.id : left[at]! - right[at]!;
  });
}

export const KINDS: Record<Track["kind"], string> = {
  range: "ranges",
  function: "Python",
  overlap: "overlapping ranges",
  module: "modules",
  api: "API calls",
  file: "files",
  loader: "data loader",
  stream: "",
  idle: "idle",
};

export const title = (track: Track): string => [track.name, KINDS[track.kind]].filter(Boolean).join(" · ");

export function layout(timeline: Timeline, choice: Choice): Layout {
  const out: Layout = { hits: undefined, tracks: [], busy: [], counters: [], headings: [], height: 0 };
  let top = GAP;
  const put = (track: Track, pinned: boolean): void => {
    // A folded track begins below the lanes with one event each: where a program starts, those of its outer functions.
    const folded = track.lanes > FEW && !choice.unfolded.includes(track.id);
    const first = folded ? Math.min(track.outer, track.lanes - FEW) : 0;
    const lanes = folded ? FEW : track.lanes;
    out.tracks.push({ track, top, first, lanes, pinned });
    top += lanes * HEIGHT + GAP;
  };
  const search = choice.search.trim().toLowerCase();
  const shown = ordered(timeline).filter(
    (track) =>
      (choice.worker === undefined || track.worker === choice.worker) &&
      !choice.hidden.includes(track.id) &&
      (!search || title(track).toLowerCase().includes(search) || (track.kind === "idle" && "busy".includes(search))),
  );
  if (choice.hits) {
    out.hits = top;
    top += HEIGHT + GAP;
  }
  for (const id of choice.pinned) {
    const track = shown.find((one) => one.id === id);
    if (track) put(track, true);
  }
  for (const worker of timeline.workers) {
    const own = shown.filter((track) => track.worker === worker.id && !choice.pinned.includes(track.id));
    if (!own.length) continue;
    const open = !choice.closed.includes(worker.id);
    if (timeline.workers.length > 1) {
      out.headings.push({ worker: worker.id, name: worker.name, top, open });
      top += HEAD;
    }
    if (!open) continue;
    const drawn = new Set<number>();
    own.forEach((track, at) => {
      if (track.device !== null && !drawn.has(track.device)) {
        drawn.add(track.device);
        const idle = own.find((one) => one.kind === "idle" && one.device === track.device);
        if (idle) {
          out.busy.push({ idle, top });
          top += CURVE + GAP;
        }
      }
      put(track, false);
      if (!choice.counters || track.device === null || own[at + 1]?.device === track.device) return;
      for (const counter of timeline.counters) {
        if (counter.worker !== worker.id || counter.device !== track.device) continue;
        out.counters.push({ counter, top });
        top += CURVE + GAP;
      }
    });
  }
  out.height = top;
  return out;
}

/** The track at a height, and the lane in it. */
export function trackAt(layout_: Layout, y: number): { placed: Placed; lane: number } | undefined {
  for (const placed of layout_.tracks) {
    const lane = Math.floor((y - placed.top) / HEIGHT);
    if (lane >= 0 && lane < placed.lanes) return { placed, lane: placed.first + lane };
  }
  return undefined;
}
