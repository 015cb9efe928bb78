// Ranks on one axis: by the clock, or moved so that a step begins or a collective ends on all of them at once. The
// address says which; the server says by how much.
import { ask, get, type Alignment, type Timeline } from "../api/client";
import * as format from "../lib/format";
import { served } from "../lib/profile.svelte";
import { resource, type Resource } from "../lib/resource.svelte";
import { place } from "../lib/router.svelte";
import type { Hit } from "./scene";
import type { Second } from "./second.svelte";
import { isOther, ownWorker } from "./sides";
import { moved, shiftOf, type Shifts, type Window } from "./view";

export type By = "clock" | Alignment["by"];
const IN_TURN: readonly By[] = ["clock", "step", "collective"];
const BY_CLOCK: Shifts = new Map();

export class Ranks {
  private readonly answer: Resource<Alignment>;
  /** That there is no step or collective to choose from. */
  problem = $state<string>();

  /** `view`: the window, `selected`: the event whose collective is the first to be chosen, `second`: another recording. */
  constructor(
    private readonly view: () => Window | undefined,
    private readonly selected: () => Hit | undefined,
    private readonly second: () => Second,
  ) {
    this.answer = resource(() => {
      served.version;
      return this.to ? ask<Alignment>("timeline/alignment", { to: this.to }) : undefined;
    });
  }

  /** `step:12`, `collective:3`; undefined by the clock. */
  get to(): string | undefined {
    return place.get("align");
  }

  get by(): By {
    const by = this.to?.split(":")[0];
    return IN_TURN.find((one) => one === by) ?? "clock";
  }

  get data(): Alignment | undefined {
    return this.to ? this.answer.data : undefined;
  }

  get error(): string | undefined {
    return this.answer.error?.detail ?? this.problem;
  }

  /** Whether it is known by how much ranks move, or that they do not. */
  get ready(): boolean {
    const own = !this.to || this.answer.data !== undefined || this.answer.error !== undefined;
    return own && this.second().ready;
  }

  private readonly own = $derived.by((): Shifts =>
    this.data ? new Map(this.data.ranks.map(({ worker, shift }) => [worker, shift])) : BY_CLOCK,
  );

  readonly shifts = $derived.by((): Shifts => new Map([...this.own, ...this.second().shifts]));

  /** When a record is on the axis. */
  seen(one: Hit): Window {
    return moved({ from: one.start, to: one.end }, shiftOf(this.shifts, one.track.worker));
  }

  /** The time of all tracks on the axis. */
  extent(timeline: Timeline): Window {
    const ends = timeline.tracks.map((track) => moved({ from: track.start, to: track.end }, shiftOf(this.shifts, track.worker)));
    return { from: Math.min(...ends.map(({ from }) => from)), to: Math.max(...ends.map(({ to }) => to)) };
  }

  /** The stretch of the clock that has a window of the axis, whatever the rank. */
  clock({ from, to }: Window): Window {
    const shifts = this.data ? [...this.own.values()] : [0];
    return { from: from - Math.max(...shifts), to: to - Math.min(...shifts) };
  }

  /** Align by a step or a collective near the view, or at the selected event. Returns whether there is one. */
  async choose(by: By): Promise<boolean> {
    this.problem = undefined;
    if (by === "clock") {
      place.set({ align: undefined, other_step: undefined, piece: undefined });
      return true;
    }
    const [window, one] = [this.view(), this.selected()];
    const event = one?.track.kind === "stream" && !isOther(one.track.worker) ? one.id : undefined;
    const at = window && Math.round(by === "step" ? (window.from + window.to) / 2 : window.from);
    try {
      const { number } = await get<Alignment>("timeline/alignment", { run: place.get("run"), to: by, at, event });
      place.set({ align: `${by}:${number}`, other_step: undefined, piece: undefined });
      return true;
    } catch (error) {
      this.problem = error instanceof Error ? error.message : String(error);
      return false;
    }
  }

  /** Go to the next choice that there is. */
  async turn(): Promise<void> {
    const now = IN_TURN.indexOf(this.by);
    for (const step of [1, 2]) if (await this.choose(IN_TURN[(now + step) % IN_TURN.length]!)) return;
  }

  /** Go to the step or the collective before or after. */
  walk(direction: "before" | "after"): void {
    const number = this.data?.[direction];
    if (number != null) place.set({ align: `${this.by}:${number}`, piece: undefined, ...this.second().walk(direction) }, true);
  }

  /** How late a worker is, as its heading says it, and what is behind it. */
  late(worker: number): { text: string; tip: string; missing: boolean } | undefined {
    const data = isOther(worker) ? this.second().moment : this.data;
    const one = data?.ranks.find((rank) => rank.worker === ownWorker(worker));
    if (!one || !data || data.ranks.length < 2) return undefined;
    if (one.late === null) return { text: `no ${data.label}`, tip: `Not moved: it has no ${data.label}.`, missing: true };
    const text = one.late === 0 ? "as the median" : `${format.time(Math.abs(one.late))} ${one.late > 0 ? "late" : "early"}`;
    const how =
      data.by === "collective"
        ? "against the median rank, by the lengths of their kernels"
        : data.one_clock
          ? "against the median rank, by the clock"
          : "against the median rank, with the difference of their hosts' clocks";
    return { text, tip: `${format.number(one.late)} ns ${how}; moved by ${format.number(one.shift)} ns`, missing: false };
  }
}
