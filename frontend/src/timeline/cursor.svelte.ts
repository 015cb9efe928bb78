// The cursor in the lanes: the selected event, the lane in which it is, and how keys move both. The address names the event, so
// that other views and the drawer know it.
import { untrack } from "svelte";
import { place } from "../lib/router.svelte";
import { toggle, without } from "./choice";
import { HEIGHT, type Placed } from "./lanes";
import { prefixOf, referenceOf } from "./references";
import type { Hit, Picture, Scene } from "./scene";
import type { Track } from "./store";
import { around, clamped, panned, type Window } from "./view";

/** What the cursor moves in: getters, and what moves the view. */
export interface Lanes {
  readonly scene: Scene | undefined;
  readonly picture: Picture | undefined;
  readonly run: Window;
  /** Goes up when events may have arrived. */
  readonly drawn: number;
  /** px */
  readonly height: number;
  show(window: Window, kept?: boolean): void;
  scrollTo(top: number): void;
}

export interface Place {
  track: Track;
  lane: number;
  time: number;
}

export class Cursor {
  selected = $state.raw<Hit>();
  at = $state.raw<Place>();

  constructor(private readonly lanes: Lanes) {
    $effect(() => {
      const name = place.get("d");
      this.lanes.drawn;
      untrack(() => {
        const now = this.selected && referenceOf(this.selected);
        if (!name) {
          if (now) this.selected = undefined;
        } else if (now !== name) {
          const one = this.named(name);
          if (one) this.select(one, false);
        }
      });
    });
  }

  /** `details`: whether the drawer shows it. */
  select(one: Hit | undefined, details = true): void {
    this.selected = one;
    if (one) this.at = { track: one.track, lane: one.lane, time: one.start };
    if (details) place.set({ d: one && referenceOf(one) }, true);
  }

  /** The event that the address names, if it is in view. */
  private named(name: string): Hit | undefined {
    const { scene, picture } = this.lanes;
    if (!scene || !picture) return undefined;
    for (const track of picture.timeline.tracks) {
      if (!name.startsWith(prefixOf(track))) continue;
      const one = scene.withId(picture, track, Number(name.slice(prefixOf(track).length)));
      if (one?.count === 1) return one;
    }
    return undefined;
  }

  /** Zoom to an event. */
  fit(one: Hit): void {
    this.lanes.show(around(one.start, one.end, this.lanes.run), true);
  }

  /** Select an event, and move the view so that it is seen. */
  reveal(one: Hit): void {
    this.select(one);
    const { window } = this.lanes.picture!;
    if (one.end < window.from || one.start > window.to) {
      const by = (one.start + one.end) / 2 - (window.from + window.to) / 2;
      this.lanes.show(clamped({ from: window.from + by, to: window.to + by }, this.lanes.run));
    }
    this.uncover(one);
    const { layout, scroll } = this.lanes.picture!;
    const row = layout.tracks.find(({ track }) => track === one.track);
    const top = row ? row.top + (one.lane - row.first) * HEIGHT : 0;
    if (top < scroll || top + HEIGHT > scroll + this.lanes.height) this.lanes.scrollTo(top - this.lanes.height / 3);
  }

  /** Show the lane of an event, if it is hidden, folded or left out by the filter. */
  private uncover({ track, lane }: Hit): void {
    const row = (): Placed | undefined => this.lanes.picture!.layout.tracks.find((one) => one.track === track);
    if (!row()) place.set({ hide: without("hide", track.id), closed: without("closed", track.worker), tracks: undefined }, true);
    const shown = row();
    if (shown && (lane < shown.first || lane >= shown.first + shown.lanes)) toggle("open", track.id);
  }

  /** Go to the event before or after, `alike`: of the same name. Without a selected event the view moves. */
  step(direction: 1 | -1, alike: boolean): void {
    const { scene, picture, run } = this.lanes;
    if (!scene || !picture) return;
    if (!this.selected) return this.lanes.show(panned(picture.window, direction * 0.1, run));
    const next = scene.next(picture, this.selected, direction, alike ? this.selected.name : undefined);
    if (next) this.reveal(next);
  }

  /** Go to the lane above or below. */
  vertical(direction: 1 | -1): void {
    const { scene, picture } = this.lanes;
    if (!scene || !picture?.layout.tracks.length) return;
    const { window, layout } = picture;
    const { selected } = this;
    const time = selected ? (selected.start + Math.min(selected.end, window.to)) / 2 : (this.at?.time ?? (window.from + window.to) / 2);
    const rows = layout.tracks.flatMap((one) =>
      Array.from({ length: one.lanes }, (_, lane) => ({ track: one.track, lane: one.first + lane })),
    );
    const now = this.at;
    const row = now ? rows.findIndex((row) => row.track === now.track && row.lane === now.lane) : direction > 0 ? -1 : rows.length;
    const next = rows[row + direction];
    if (!next) return;
    const one = scene.nearest(picture, next.track, next.lane, time, (window.to - window.from) / 2);
    this.at = { ...next, time };
    if (one) this.reveal(one);
    else this.select(undefined);
    this.at = { ...next, time };
  }

  /** Go to the first or the last event of the lane that is in the window. */
  end(first: boolean): void {
    const { scene, picture } = this.lanes;
    if (!scene || !picture || !this.at) return;
    const { from, to } = picture.window;
    const one = scene.nearest(picture, this.at.track, this.at.lane, first ? from : to, Infinity);
    if (one) this.reveal(one);
  }
}
