// Pieces of a step in two recordings: which takes longer, where, and what is at a time. No DOM.
import type { StepDifference } from "../api/client";
import type { Window } from "./view";

export type Lane = StepDifference["lanes"][number];
/** A piece: its lane, and its place there. */
export interface Piece {
  lane: Lane;
  at: number;
}

/** How much longer a piece is in the new recording, ns; less than 0 where it is shorter. */
export const delta = ({ lane, at }: Piece): number => (lane.other[at] ?? 0) - (lane.base[at] ?? 0);

/** The largest difference of any piece, either way. */
export const largest = (lanes: readonly Lane[]): number =>
  Math.max(1, ...lanes.map((lane) => lane.start.reduce((most, _, at) => Math.max(most, Math.abs(delta({ lane, at }))), 0)));

/** The place of the last piece that begins at a time or before, -1 without one. */
function before(lane: Lane, time: number): number {
  let [low, high] = [0, lane.start.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane.start[middle]! <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** For each pixel of a window the largest difference of what is there: where the new one is longer, and where shorter. */
export function bars(lane: Lane, window: Window, width: number): { longer: Float64Array; shorter: Float64Array } {
  const [longer, shorter] = [new Float64Array(width), new Float64Array(width)];
  const scale = width / (window.to - window.from);
  for (let at = Math.max(before(lane, window.from), 0); at < lane.start.length && lane.start[at]! < window.to; at++) {
    const size = delta({ lane, at });
    if (!size || lane.end[at]! < window.from) continue;
    const into = size > 0 ? longer : shorter;
    const first = Math.max(Math.floor((lane.start[at]! - window.from) * scale), 0);
    const last = Math.min(Math.max(Math.ceil((lane.end[at]! - window.from) * scale) - 1, first), width - 1);
    for (let x = first; x <= last; x++) into[x] = Math.max(into[x]!, Math.abs(size));
  }
  return { longer, shorter };
}

/** The piece at a time, or of those at most `within` ns away the one of the largest difference. */
export function pieceAt(lane: Lane, time: number, within: number): Piece | undefined {
  let best: Piece | undefined;
  for (let at = before(lane, time + within); at >= 0; at--) {
    if (lane.end[at]! < time - within) break; // pieces do not overlap: all before end earlier
    const one = { lane, at };
    if (!best || Math.abs(delta(one)) > Math.abs(delta(best))) best = one;
  }
  return best;
}

/** The piece with a difference before or after a place of a lane. */
export function next(lane: Lane, at: number, step: 1 | -1): Piece | undefined {
  for (let place = at + step; place >= 0 && place < lane.start.length; place += step)
    if (delta({ lane, at: place })) return { lane, at: place };
  return undefined;
}

/** How many pieces of a lane differ, and which of them one is, from 1. */
export function counted(lane: Lane, at: number): { of: number; number: number } {
  let [of, number] = [0, 0];
  for (let place = 0; place < lane.start.length; place++) {
    if (delta({ lane, at: place })) of++;
    if (place === at) number = of;
  }
  return { of, number };
}
