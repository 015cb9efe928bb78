// Tiles that were asked for, kept while there is room. A track is drawn from the finest complete level that is there.
import type { Timeline } from "../api/client";
import { decode, type Tile } from "./tiles";
import type { Window } from "./view";

export type Track = Timeline["tracks"][number];

const ROOM = 96 << 20; // bytes of tiles
const PARTS = 1000; // tiles of a request
const AT_ONCE = 2; // requests
const AGAIN = 2000; // ms from a failure to the next request

/** The tiles of a level that a window touches. */
export function numbers(shift: number, window: Window): [number, number] {
  const size = 2 ** shift;
  return [Math.floor(window.from / size), Math.floor(window.to / size)];
}

/** The coarsest level of a track whose buckets are no longer than `most` ns. */
export function levelFor(track: Track, most: number): number {
  let place = 0;
  while (place + 1 < track.levels.length && 2 ** track.levels[place + 1]![0] <= most) place++;
  return place;
}

export class Store {
  private readonly tiles = new Map<string, Tile | null>(); // null: the track has no records there
  private readonly asked = new Set<string>();
  private bytes = 0;
  private resting = false; // a request has failed: each frame would ask again
  underway = 0;
  failed: unknown;

  constructor(
    private readonly fetch_: (query: string) => Promise<ArrayBuffer>,
    private readonly arrived: () => void,
    /** Whether a tile can be had at all. */
    private readonly covers: (track: number, level: number, number: number) => boolean = () => true,
  ) {}

  /** The tiles of a track in a window, by time, or undefined while one is missing. */
  complete(track: Track, place: number, window: Window): Tile[] | undefined {
    const [level, shift] = track.levels[place]!;
    const [first, last] = numbers(shift, clip(window, track));
    const out: Tile[] = [];
    for (let number = first; number <= last; number++) {
      const key = `${level} ${number} ${track.id}`;
      const tile = this.tiles.get(key);
      if (tile === undefined) return undefined;
      if (tile === null) continue;
      this.tiles.delete(key); // to the end: the most recently used
      this.tiles.set(key, tile);
      out.push(tile);
    }
    return out;
  }

  /** Whether the tiles of a track in a window can be had. */
  has(track: Track, place: number, window: Window): boolean {
    const [level, shift] = track.levels[place]!;
    const [first, last] = numbers(shift, clip(window, track));
    for (let number = first; number <= last; number++) if (!this.covers(track.id, level, number)) return false;
    return true;
  }

  /** The wanted level of a track, or the next coarser one whose tiles can be had. */
  private nearest(track: Track, wanted: number, window: Window): number {
    for (let place = wanted; place < track.levels.length; place++) if (this.has(track, place, window)) return place;
    return wanted;
  }

  /** What to draw of a track: the level that is wanted, else a coarser, else a finer one that is complete. */
  best(track: Track, wanted: number, window: Window): Tile[] {
    for (let place = wanted; place < track.levels.length; place++) {
      const tiles = this.complete(track, place, window);
      if (tiles) return tiles;
    }
    for (let place = wanted - 1; place >= 0; place--) {
      const tiles = this.complete(track, place, window);
      if (tiles) return tiles;
    }
    return [];
  }

  /** Ask for what is missing of tracks at levels (places in their lists) in a window, and for one tile more on each side. */
  need(wanted: readonly (readonly [Track, number])[], window: Window): void {
    if (this.resting || this.underway >= AT_ONCE) return;
    const parts = new Map<string, number[]>();
    let count = 0;
    const add = (track: Track, level: number, number: number): void => {
      const key = `${level} ${number} ${track.id}`;
      if (this.tiles.has(key) || this.asked.has(key) || count >= PARTS || !this.covers(track.id, level, number)) return;
      this.asked.add(key);
      count++;
      const part = `${level}:${number}-${number}`;
      const tracks = parts.get(part);
      if (tracks) tracks.push(track.id);
      else parts.set(part, [track.id]);
    };
    for (const beyond of [0, 1]) {
      for (const [track, finest] of wanted) {
        const place = this.nearest(track, finest, window);
        const [level, shift] = track.levels[place]!;
        const [first, last] = numbers(shift, clip(window, track));
        const [low, high] = numbers(shift, { from: track.start, to: track.end });
        for (let number = Math.max(first - beyond, low); number <= Math.min(last + beyond, high); number++) add(track, level, number);
      }
    }
    if (count) void this.ask(parts);
  }

  private async ask(parts: Map<string, number[]>): Promise<void> {
    const query = [...parts].map(([part, tracks]) => `${part}:${tracks.join(",")}`);
    this.underway++;
    try {
      // An address has at most 16 KiB.
      for (let first = 0; first < query.length; first += 200) {
        const some = query.slice(first, first + 200);
        for (const tile of decode(await this.fetch_(some.join(";")))) this.put(`${tile.level} ${tile.number} ${tile.track}`, tile);
      }
      for (const [part, tracks] of parts) {
        const [level, number] = part.split(/:(.*)-(?=-?\d+$)/) as [string, string];
        for (const track of tracks) {
          const key = `${level} ${number} ${track}`;
          if (!this.tiles.has(key)) this.tiles.set(key, null);
        }
      }
      this.failed = undefined;
    } catch (error) {
      this.failed = error;
      if (!this.resting)
        setTimeout(() => {
          this.resting = false;
          this.arrived();
        }, AGAIN);
      this.resting = true;
    } finally {
      for (const [part, tracks] of parts) {
        const [level, number] = part.split(/:(.*)-(?=-?\d+$)/) as [string, string];
        for (const track of tracks) this.asked.delete(`${level} ${number} ${track}`);
      }
      this.underway--;
      this.arrived();
    }
  }

  private put(key: string, tile: Tile): void {
    this.tiles.set(key, tile);
    this.bytes += tile.bytes;
    for (const [old, one] of this.tiles) {
      if (this.bytes <= ROOM) break;
      if (one === null) continue;
      this.tiles.delete(old);
      this.bytes -= one.bytes;
    }
  }
}

/** The part of a window in which a track has events: nothing need be asked outside. */
function clip(window: Window, track: Track): Window {
  const from = Math.min(Math.max(window.from, track.start), track.end);
  return { from, to: Math.max(Math.min(window.to, track.end), from) };
}
