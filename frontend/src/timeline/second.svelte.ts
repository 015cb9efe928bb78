// A second recording on the axis of the first: which one, where it lies, and what differs in the step at which they are
// aligned. The address says which; the server matches the operators.
import { ask, bytes, get, type Alignment, type Colors, type Flows, type Query, type StepDifference, type Timeline } from "../api/client";
import * as format from "../lib/format";
import { served } from "../lib/profile.svelte";
import { resource, type Resource } from "../lib/resource.svelte";
import { href, place } from "../lib/router.svelte";
import { Shares } from "./shares.svelte";
import { type Lane, type Piece } from "./differences";
import { isOther, joined, joinedColors, OTHER, otherTrack, otherWorker, ownWorker } from "./sides";
import { Store } from "./store";
import { Texts } from "./texts.svelte";
import { moved, type Shifts, type Window } from "./view";

const ENDING = /(_dldb)?\.sqlite$|(\.pt)?(\.trace)?\.json(\.gz)?$|\.tar\.gz$/;

/** What is kept of a recording as long as the view is open. */
interface Kept {
  store: Store;
  texts: Texts;
  shares: Shares;
}

const capital = (text: string): string => text.slice(0, 1).toUpperCase() + text.slice(1);

export class Second {
  private readonly answer: Resource<Timeline>;
  private readonly colors: Resource<Colors>;
  private readonly labels: Resource<number[]>;
  private readonly aligned: Resource<Alignment>;
  readonly difference: Resource<StepDifference>;
  private readonly kept = new Map<string, Kept>();

  /** `base`: the timeline of the first; `to`: how it is aligned; `at`: the time of the step or collective there; `by`: what
   * colors stand for; `arrived`: called when a picture may be better. */
  constructor(
    private readonly base: () => Timeline | undefined,
    private readonly alignment: () => Alignment | undefined,
    by: () => string,
    private readonly arrived: () => void,
  ) {
    const of = <T>(path: string, query: Query = {}): ((signal: AbortSignal) => Promise<T>) | undefined => {
      served.version;
      const { run } = this;
      return run && this.base() ? (signal) => get<T>(path, { run, ...query }, signal) : undefined;
    };
    this.answer = resource(() => of<Timeline>("timeline"));
    this.colors = resource(() => (by() === "roofline" ? undefined : of<Colors>("timeline/colors", { by: by() })));
    this.labels = resource(() => (this.run ? (served.version, ask<number[]>("timeline/labels", { other: this.run })) : undefined));
    this.aligned = resource(() => {
      served.version;
      const [run, to, first, mine] = [this.run, this.alignment(), this.base(), this.answer.data];
      if (!run || !to || !first || !mine) return undefined;
      const [own, time] = [this.chosen, this.median(to)];
      // If it counts from another number: the one at the same time since the start.
      const at = own !== undefined || time === undefined ? undefined : Math.round(time - first.start + mine.start);
      return (signal) => get<Alignment>("timeline/alignment", { run, to: `${to.by}:${own ?? to.number}`, at }, signal);
    });
    this.difference = resource(() => {
      served.version;
      const [other, to, own] = [this.run, this.alignment(), this.aligned.data];
      if (!other || to?.by !== "step" || own?.by !== "step") return undefined;
      return ask<StepDifference>("timeline/step_difference", {
        other,
        number: to.number,
        other_number: own.number,
        worker: place.get("worker"),
      });
    });
  }

  get run(): string | undefined {
    return place.get("other");
  }

  /** The number of the step or collective that the address names, where it is another one than that of the base. */
  private get chosen(): number | undefined {
    const number = Number(place.get("other_step") ?? NaN);
    return Number.isSafeInteger(number) ? number : undefined;
  }

  /** Of both, as `run` names them. */
  private get runs(): readonly [string, string] {
    return [place.get("run") ?? served.profile?.runs[0]?.name ?? "", this.run ?? ""];
  }

  /** Whether it is the first itself. */
  isFirst(run: string): boolean {
    return run === this.runs[0];
  }

  /** Names of both, without what files of their kind end with. */
  get names(): readonly [string, string] {
    const [base, other] = this.runs.map((name) => name.replace(ENDING, "")) as [string, string];
    if (base !== other) return [base, other];
    return this.isFirst(this.run ?? "") ? [base, `${other} (new)`] : this.runs;
  }

  get name(): string {
    return this.names[1];
  }

  /** Its timeline, once it is there. */
  get timeline(): Timeline | undefined {
    return this.run ? this.answer.data : undefined;
  }

  private has(worker: string): boolean {
    return this.timeline?.workers.some(({ id }) => String(id) === worker) ?? false;
  }

  /** Whether it has not the step or collective of the base. */
  get alone(): boolean {
    return this.aligned.error !== undefined;
  }

  /** What of it cannot be shown, in sentences. */
  get problems(): string[] {
    if (!this.run) return [];
    const failed = this.current?.store.failed;
    const worker = place.get("worker");
    const texts = [
      this.answer.error?.detail,
      this.aligned.error && `${this.name} lies at its start. ${this.aligned.error.detail}`,
      this.difference.error?.detail,
      this.timeline && worker && !this.has(worker) ? `${this.name} has no worker ${worker}, which the header chose.` : undefined,
      failed instanceof Error ? `Part of ${this.name} could not be read. ${failed.message}` : undefined,
    ];
    return [...new Set(texts.filter((text) => text !== undefined))];
  }

  /** Both in one, or the base alone. */
  readonly data = $derived.by((): Timeline | undefined => {
    const base = this.base();
    return base && this.timeline ? joined(base, this.timeline, this.names) : base;
  });

  /** Colors of both with one number for a label. */
  coloring(base: Colors | undefined): { colors: Colors | undefined; other: Colors | undefined; labels: readonly number[] | undefined } {
    const own = this.timeline && this.colors.data;
    const [colors, other] = base && own && base.of === own.of ? joinedColors(base, own) : [base, undefined];
    return { colors, other, labels: this.timeline && this.labels.data };
  }

  // --- where it lies

  private median(to: Alignment): number | undefined {
    const one = to.ranks.find(({ time }) => time !== null);
    return one && one.time! + one.shift;
  }

  /** How its ranks are aligned, as the address of the base says it. */
  get to(): string | undefined {
    const own = this.alignment() && this.aligned.data;
    return own && `${own.by}:${own.number}`;
  }

  /** The step or collective of it that is where that of the base is. */
  get moment(): Alignment | undefined {
    return this.to ? this.aligned.data : undefined;
  }

  /** What is added to the times of its median rank. */
  readonly offset = $derived.by((): number => {
    const [base, own, to] = [this.base(), this.timeline, this.alignment()];
    if (!base || !own) return 0;
    const [first, second] = [to && this.median(to), this.moment && this.median(this.moment)];
    return first !== undefined && second !== undefined ? first - second : base.start - own.start;
  });

  /** What is added to the times of its workers. */
  readonly shifts = $derived.by((): Shifts => {
    const ranks = new Map(this.moment?.ranks.map(({ worker, shift }) => [worker, shift]));
    return new Map(this.timeline?.workers.map(({ id }) => [otherWorker(id), this.offset + (ranks.get(id) ?? 0)]));
  });

  /** Whether it is known where it lies, or that it is not there. */
  get ready(): boolean {
    if (!this.run) return true;
    if (!this.timeline) return this.answer.error !== undefined;
    return !this.alignment() || this.aligned.data !== undefined || this.aligned.error !== undefined;
  }

  /** What the address has to say so that it goes a step, or collective, on with the base. */
  walk(direction: "before" | "after"): Record<string, string | undefined> {
    const [own, to] = [this.moment, this.alignment()];
    const number = own?.[direction];
    return own && to && number != null && (this.chosen !== undefined || own.number !== to.number) ? { other_step: String(number) } : {};
  }

  choose(direction: "before" | "after"): void {
    const number = this.moment?.[direction];
    if (number != null) place.set({ other_step: String(number) }, true);
  }

  /** Show a recording beside the first, none for "". Returns whether one is shown. */
  show(run: string): boolean {
    place.set({ other: run || undefined, other_step: undefined, piece: undefined });
    return Boolean(run);
  }

  // --- what differs

  /** Lanes that have something: modules only where the recording knows of any. */
  readonly lanes = $derived.by((): Lane[] => {
    const found = this.run ? this.difference.data : undefined;
    return found?.lanes.filter(({ key, row }) => row.length && (key !== "module" || found.modules.length > 1)) ?? [];
  });

  /** What is added to the times of a lane's pieces. */
  shiftOf({ key }: Lane): number {
    const found = this.difference.data;
    if (!found) return 0;
    if (key === "only") return this.shifts.get(otherWorker(found.other.worker)) ?? 0;
    const rank = this.alignment()?.ranks.find(({ worker }) => worker === found.base.worker);
    return rank?.shift ?? 0;
  }

  /** The piece that the address names. */
  get piece(): Piece | undefined {
    const [key, number] = (place.get("piece") ?? "").split(".");
    const lane = this.lanes.find((one) => one.key === key);
    const at = Number(number ?? NaN);
    return lane && Number.isSafeInteger(at) && at >= 0 && at < lane.start.length ? { lane, at } : undefined;
  }

  private references({ lane, at }: Piece): [string | undefined, string | undefined] {
    const found = this.difference.data!;
    const [base, other] = [lane.base_event[at], lane.other_event[at]];
    return [base == null ? undefined : `${found.base.kind}:${base}`, other == null ? undefined : `${OTHER}${found.other.kind}:${other}`];
  }

  /** Select the events of a piece in both recordings. */
  select(piece: Piece | undefined): void {
    if (!piece) return place.set({ piece: undefined }, true);
    const [base, other] = this.references(piece);
    place.set({ piece: `${piece.lane.key}.${piece.at}`, d: base ?? other }, true);
  }

  /** The event of the other recording that an event, as the address says it, is compared with. */
  partnerOf(event: string | undefined): string | undefined {
    const both = this.piece && this.references(this.piece);
    return event && both?.includes(event) ? both.find((one) => one !== event) : undefined;
  }

  /** What differs, in words. */
  words(base: number | null, other: number | null): string {
    const [first, second] = this.names;
    if (base === null) return `only in ${second}, ${format.time(other)}: worse`;
    if (other === null) return `only in ${first}, ${format.time(base)}: better`;
    const by = other - base;
    if (!by) return `as long in both, ${format.time(base)}`;
    const both = `${format.time(base)} in ${first}, ${format.time(other)} in ${second}`;
    return `${second} takes ${format.time(Math.abs(by))} ${by > 0 ? "longer" : "less"} (${both}): ${by > 0 ? "worse" : "better"}`;
  }

  /** The steps that are compared. */
  get moments(): string {
    const [to, own] = [this.alignment(), this.moment];
    if (!to || !own) return "";
    const [first, second] = this.names;
    return to.label === own.label ? `Both at ${to.label}` : capital(`${to.label} of ${first}, ${own.label} of ${second}`);
  }

  // --- questions of it

  private get current(): Kept | undefined {
    const { run } = this;
    if (!run) return undefined;
    let one = this.kept.get(run);
    if (!one) {
      one = {
        store: new Store((q) => bytes("timeline/tiles", { run, q, v: this.timeline?.version }), this.arrived),
        texts: new Texts(this.arrived, () => run),
        shares: new Shares(this.arrived, () => run),
      };
      this.kept.set(run, one);
    }
    return one;
  }

  get store(): Store | undefined {
    return this.current?.store;
  }

  get texts(): Texts | undefined {
    return this.current?.texts;
  }

  get shares(): Shares | undefined {
    return this.current?.shares;
  }

  /** What a question of a worker of either recording asks for. */
  of(worker: number): { run: string | undefined; worker: number } {
    return { run: isOther(worker) ? this.run : place.get("run"), worker: ownWorker(worker) };
  }

  /** What a question of a stretch of its time asks for, beside the stretch. */
  get query(): Query {
    const worker = place.get("worker");
    return { run: this.run, align: this.to, worker: worker && this.has(worker) ? worker : undefined };
  }

  /** A stretch of the axis on the clock of its median rank. */
  clock(window: Window): Window {
    return moved(window, -this.offset);
  }

  /** Go to another view of it. */
  go(view: string, params: Record<string, string>): void {
    location.hash = href(view, { run: this.run!, ...params });
  }

  flows(of: string): (signal: AbortSignal) => Promise<Flows> {
    const { run } = this;
    return async (signal) => {
      const { flows, total } = await get<Flows>("timeline/flows", { run, of: of.slice(OTHER.length) }, signal);
      const moved = (end: Flows["flows"][number]["source"]): typeof end => ({ ...end, track: otherTrack(end.track) });
      return { total, flows: flows.map((flow) => ({ ...flow, source: moved(flow.source), target: moved(flow.target) })) };
    };
  }
}
