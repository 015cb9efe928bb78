// Two recordings as one timeline: workers and tracks of the other one have numbers beyond those of any recording.
import type { Colors, Counters, Timeline } from "../api/client";
import { middle } from "../lib/format";
import type { Store, Track } from "./store";
import type { Tile } from "./tiles";
import type { Window } from "./view";

const WORKERS = 2 ** 21;
const TRACKS = 2 ** 30;

export const isOther = (worker: number): boolean => worker >= WORKERS;
export const otherWorker = (worker: number): number => worker + WORKERS;
export const otherTrack = (track: number): number => track + TRACKS;
/** The number that a worker, a track, has in its own recording. */
export const ownWorker = (worker: number): number => worker % WORKERS;
export const ownTrack = (track: number): number => track % TRACKS;

/** What events of the other recording begin with in the address. */
export const OTHER = "other/";

const originals = new WeakMap<Track, Track>();

/** The timeline of the base with the workers, tracks, counters and steps of another below. `names`: of both. */
export function joined(base: Timeline, other: Timeline, names: readonly [string, string]): Timeline {
  const named = ({ workers }: Timeline, role: string, name: string): Timeline["workers"] =>
    workers.map((one) => ({ ...one, name: `${role}: ${middle(name, 18)}${workers.length > 1 ? ` · ${one.name}` : ""}` }));
  const moved = <T extends { worker: number }>(one: T): T => ({ ...one, worker: otherWorker(one.worker) });
  const tracks = other.tracks.map((track) => {
    const one = { ...moved(track), id: otherTrack(track.id) };
    originals.set(one, track);
    return one;
  });
  return {
    ...base,
    workers: [...named(base, "base", names[0]), ...named(other, "new", names[1]).map((one) => ({ ...one, id: otherWorker(one.id) }))],
    tracks: [...base.tracks, ...tracks],
    counters: [...base.counters, ...other.counters.map(moved)],
    steps: [...base.steps, ...other.steps.map(moved)],
    pauses: [...base.pauses, ...other.pauses.map(moved)],
    causes: { ...base.causes, ...other.causes },
  };
}

/** The time of the recording that a worker is of, on its own clock. */
export function extentOf(timeline: Timeline, worker: number): Window {
  if (!isOther(worker)) return { from: timeline.start, to: timeline.end };
  const tracks = timeline.tracks.filter((track) => isOther(track.worker));
  return { from: Math.min(...tracks.map(({ start }) => start)), to: Math.max(...tracks.map(({ end }) => end)) };
}

/** The groups of both, so that one label has one number: those of the base that have time first, then those of the other. */
export function joinedColors(base: Colors, other: Colors): readonly [Colors, Colors] {
  const groups = new Map<string, Colors["groups"][number]>();
  for (const timed of [true, false])
    for (const { groups: own } of [base, other])
      for (const one of own) if (one.time > 0 === timed && !groups.has(one.label)) groups.set(one.label, one);
  const all = [...groups.values()];
  const number = new Map(all.map(({ label }, at) => [label, at]));
  const recoded = (colors: Colors): Colors => {
    const codes = colors.groups.map(({ label }) => number.get(label)!);
    return { ...colors, groups: all, group: colors.group.map((group) => codes[group] ?? -1) };
  };
  return [recoded(base), recoded(other)];
}

/** Counters of a device as those of the other recording. */
export const asOther = (counters: Counters): Counters => ({ ...counters, worker: otherWorker(counters.worker) });

export type Tiles = Pick<Store, "complete" | "best" | "need">;

/** Tiles of both recordings, each from its own store. */
export class Stores implements Tiles {
  constructor(
    private readonly base: Store,
    private readonly other: () => Store | undefined,
  ) {}

  private of(track: Track): { store: Store | undefined; track: Track } {
    return isOther(track.worker) ? { store: this.other(), track: originals.get(track) ?? track } : { store: this.base, track };
  }

  complete(track: Track, place: number, window: Window): Tile[] | undefined {
    const own = this.of(track);
    return own.store?.complete(own.track, place, window);
  }

  best(track: Track, wanted: number, window: Window): Tile[] {
    const own = this.of(track);
    return own.store?.best(own.track, wanted, window) ?? [];
  }

  need(wanted: readonly (readonly [Track, number, Window])[]): void {
    this.base.need(wanted.filter(([track]) => !isOther(track.worker)));
    const others = wanted.filter(([track]) => isOther(track.worker));
    if (others.length) this.other()?.need(others.map(([track, place, window]) => [this.of(track).track, place, window] as const));
  }

  get underway(): number {
    return this.base.underway + (this.other()?.underway ?? 0);
  }
}
