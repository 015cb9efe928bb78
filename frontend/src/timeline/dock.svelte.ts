// The panels of the timeline in this browser: where they are, which are shown, and what was there at first.
import { untrack } from "svelte";
import { keep, kept } from "../lib/kept";
import {
  activated,
  added,
  alike,
  checked,
  find,
  placed,
  put,
  removed,
  STANDARD,
  visible,
  type Arrangement,
  type Drop,
  type Widget,
} from "./dock";

/** A panel that comes and goes with what it shows. `open`: show that; undefined where there is nothing to show. */
export interface Content {
  shown: boolean;
  open?: (() => void) | undefined;
  close?: () => void;
}
const KEY = "timeline-panels";

export class Dock {
  /** Where they are, those that are not shown, too. */
  #all = $state.raw<Arrangement>(STANDARD);
  /** The layout that was chosen last, and what its panels were. */
  #base: Arrangement = STANDARD;
  /** Panels that were closed, though there is something to show. */
  #closed = $state.raw<readonly Widget[]>([]);
  trouble = $state("");
  #contents: () => Partial<Record<Widget, Content>>;
  #possible: () => ReadonlySet<Widget>;
  #wanted = new Set<Widget>();

  /** `contents`: of the panels that come and go; `possible`: those that the recording has something for. */
  constructor(contents: () => Partial<Record<Widget, Content>>, possible: () => ReadonlySet<Widget>) {
    [this.#contents, this.#possible] = [contents, possible];
    const stored = kept(KEY) as { now?: unknown; base?: unknown } | null;
    if (stored) {
      const [now, base] = [checked(stored.now), checked(stored.base)];
      if (now && base) [this.#all, this.#base] = [now, base];
      else this.trouble = "The panels that this browser kept cannot be read; they are where they are at first.";
    }
    $effect(() => {
      const now = this.#contents();
      untrack(() => {
        for (const widget of Object.keys(now) as Widget[]) {
          const { shown } = now[widget]!;
          if (shown && !this.#wanted.has(widget) && !this.#closed.includes(widget)) this.#all = added(this.#all, widget);
          if (shown) this.#wanted.add(widget);
          else this.#wanted.delete(widget);
        }
      });
    });
  }

  get all(): Arrangement {
    return this.#all;
  }
  /** Panels that are shown, each in a tab. */
  readonly shown: ReadonlySet<Widget> = $derived.by(() => {
    const contents = this.#contents();
    const possible = this.#possible();
    const there = placed(this.#all).filter((one) => possible.has(one) && !this.#closed.includes(one));
    return new Set(there.filter((one) => contents[one]?.shown ?? true));
  });
  readonly seen: Arrangement = $derived(visible(this.#all, this.shown));
  /** Those that can be shown or closed. */
  get choices(): Widget[] {
    const contents = this.#contents();
    return [...this.#possible()].filter((one) => this.shown.has(one) || !contents[one] || contents[one].open || contents[one].shown);
  }

  change(next: Arrangement): void {
    if (next === this.#all) return;
    this.#all = next;
    this.trouble = "";
    this.#keep();
  }
  put(widget: Widget, drop: Drop): void {
    this.change(put(this.#all, widget, drop));
  }
  open(widget: Widget): void {
    this.#closed = this.#closed.filter((one) => one !== widget);
    this.change(added(this.#all, widget));
    const content = this.#contents()[widget];
    if (content && !content.shown) content.open?.();
  }
  close(widget: Widget): void {
    const content = this.#contents()[widget];
    if (content?.close) return content.close(); // its place is kept for the next time
    if (content) this.#closed = [...this.#closed, widget];
    else this.change(removed(this.#all, widget));
  }
  activate(widget: Widget): void {
    this.change(activated(this.#all, widget));
  }
  /** The panels of a layout. */
  apply(next: Arrangement): void {
    this.#base = next;
    this.#closed = [];
    let all = next;
    for (const widget of this.#wanted) if (!find(all, widget)) all = added(all, widget); // in front is what the layout says
    for (const { active } of Object.values(next).flatMap(({ groups }) => groups)) all = activated(all, active);
    this.#all = all;
    this.trouble = "";
    this.#keep();
  }
  reset(): void {
    this.apply(this.#base);
  }
  /** Are the panels those of a layout? */
  is(one: Arrangement): boolean {
    const contents = this.#contents();
    return alike(this.#all, one, new Set([...this.#possible()].filter((widget) => !contents[widget])));
  }
  #keep(): void {
    keep(KEY, { now: this.#all, base: this.#base });
  }
}
