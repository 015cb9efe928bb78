// Edges of events, on which what is moved comes to rest. No DOM.
import { before, type Tile } from "./tiles";

export const SNAP = 6; // px

export interface Edge {
  time: number;
  /** The record's place in its tile. */
  at: number;
  edge: "start" | "end";
}

/** The edge of a lane's records that is nearest to a time, at most `within` ns away. */
export function nearestEdge(tile: Tile, lane: number, time: number, within: number): Edge | undefined {
  const [first, last] = [tile.lanes[lane] ?? 0, tile.lanes[lane + 1] ?? 0];
  let best: Edge | undefined;
  const place = before(tile, lane, time);
  for (const at of [place, place + 1]) {
    if (at < first || at >= last) continue;
    for (const edge of ["start", "end"] as const) {
      const one = tile[edge][at]!;
      const away = Math.abs(one - time);
      if (away <= within && (!best || away < Math.abs(best.time - time))) best = { time: one, at, edge };
    }
  }
  return best;
}
