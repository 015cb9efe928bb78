// Events that a search finds: how many, where, and the way from one to the next.
import { ask, get, shared, type EventHits, type SearchHits } from "../api/client";
import { served } from "../lib/profile.svelte";
import { resource, type Resource } from "../lib/resource.svelte";
import { place } from "../lib/router.svelte";
import type { Window } from "./view";

export type EventHit = EventHits["hits"][number];
export const PAGE = 50; // rows of the list
const BUCKETS = 1024;
const MOST = 500; // of a track of hits that are drawn each

/** Whether the hits have a track of their own. */
export const pinned = (): boolean => place.get("hits") === "on" && Boolean(place.get("find"));

export class Search {
  /** All hits, and where they are in the run. */
  readonly whole: Resource<SearchHits>;
  /** Where they are in the view. */
  readonly near: Resource<SearchHits>;
  /** The part of the list that is shown. */
  readonly page: Resource<EventHits>;
  /** Number of the hit that was walked to, from 0. */
  at = $state<number>();
  hit = $state.raw<EventHit>();
  listed = $state(false);
  first = $state(0);
  private steps: Promise<void> = Promise.resolve();

  /** `run`: all of the time, once it is known; `view`: what is visible, once it rests. */
  constructor(
    run: () => Window | undefined,
    private readonly view: () => Window | undefined,
    private readonly reveal: (hit: EventHit) => void,
  ) {
    const where = (window: Window | undefined, most = 0): ((signal: AbortSignal) => Promise<SearchHits>) | undefined => {
      served.version;
      const find = this.text;
      if (!find || !window || window.to <= window.from) return undefined;
      return ask<SearchHits>("timeline/search", { find, start: window.from, end: window.to, buckets: BUCKETS, most });
    };
    this.whole = resource(() => where(run()));
    this.near = resource(() => (this.total ? where(view(), pinned() ? MOST : 0) : undefined));
    this.page = resource(() => {
      served.version;
      const of = { find: this.text, offset: this.first, limit: PAGE, sort: this.sort };
      return this.listed && this.total ? ask<EventHits>("timeline/hits", of) : undefined;
    });
    $effect(() => {
      this.text;
      this.forget();
    });
  }

  get text(): string {
    return place.get("find") ?? "";
  }

  /** How many hits there are, once that is known. */
  get total(): number | undefined {
    return this.whole.data?.find === this.text ? this.whole.data.total : undefined;
  }

  /** How the list is sorted: start, dur or name, with - the largest first. Walking is always in the order of starts. */
  get sort(): string {
    const sort = place.get("hits.s") ?? "start";
    return /^-?(start|dur|name)$/.test(sort) ? sort : "start";
  }

  sortBy(sort: string): void {
    this.first = 0;
    place.set({ "hits.s": sort === "start" ? undefined : sort }, true);
  }

  set(text: string): void {
    place.set({ find: text.trim() || undefined }, true);
  }

  /** Find events, and go to the longest one of those that touch a window. */
  async longest(text: string, { from, to }: Window): Promise<void> {
    this.set(text);
    const of = { ...shared("timeline/hits"), find: this.text, limit: 1, sort: "-dur" };
    const { places } = await get<EventHits>("timeline/hits", { ...of, start: Math.round(from), end: Math.round(to) });
    if (places[0] !== undefined) await this.go(0, places[0]);
  }

  pin(): void {
    place.set({ hits: pinned() ? undefined : "on" }, true);
  }

  private forget(): void {
    this.at = this.hit = undefined;
    this.first = 0;
  }

  /** Go to the hit after, or before, the last one; without one, to the first that begins in the view, or the last before it. */
  walk(step: 1 | -1): void {
    // One after the other: keys come faster than answers.
    this.steps = this.steps.then(() => this.go(step)).catch(() => undefined); // the search itself says what is wrong
  }

  /** Go to the first hit that begins at a time or later. */
  async from(at: number): Promise<void> {
    const of = { ...shared("timeline/hits"), find: this.text, limit: 1, at: Math.floor(at) };
    await this.go(0, (await get<EventHits>("timeline/hits", of)).offset);
  }

  async go(step: 1 | -1 | 0, number?: number): Promise<void> {
    const find = this.text;
    if (!find) return;
    const of = { ...shared("timeline/hits"), find, limit: 1 };
    let wanted = number ?? (this.at === undefined ? undefined : this.at + step);
    if (wanted === undefined) {
      const here = await get<EventHits>("timeline/hits", { ...of, at: this.view()?.from ?? 0 });
      wanted = step > 0 ? here.offset : here.offset - 1;
    }
    const total = this.total ?? (await get<EventHits>("timeline/hits", of)).total;
    if (!total) return;
    wanted = (wanted + total) % total;
    const hit = (await get<EventHits>("timeline/hits", { ...of, offset: wanted })).hits[0];
    if (!hit || find !== this.text) return;
    this.at = wanted;
    this.hit = hit;
    if (this.sort === "start") this.first = Math.floor(wanted / PAGE) * PAGE;
    this.reveal(hit);
  }
}
