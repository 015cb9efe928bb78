// The annotations of a profile: what the page shows, what the server has, and how both become one.
import { untrack } from "svelte";
import { get, put, shared, type Annotation, type Annotations as Answer } from "../api/client";
import * as format from "../lib/format";
import { served } from "../lib/profile.svelte";
import { resource, type Resource } from "../lib/resource.svelte";
import { place } from "../lib/router.svelte";
import { alike, between, COLORS, complete, fileOf, contentOf, inOrder, merged, MOST, read, type Note } from "./notes";
import { keep } from "./sheet";
import { SNAP } from "./snap";
import type { Window } from "./view";

const PAUSE = 300; // ms from the last change until it is saved
const STEP = 10; // px of an arrow key, more than SNAP: it leaves the edge that it is on
const UNDONE = 100; // changes that can be taken back

/** Where a note comes to rest. */
export interface Rest {
  time: number;
  anchor: Note["anchor"];
  /** The edge, in words. */
  text: string;
}

/** What the timeline knows. */
export interface Surroundings {
  view: () => Window | undefined;
  /** px of the view. */
  width: () => number;
  /** The selected time. */
  area: () => Window | undefined;
  /** Where a note goes that has no place yet. */
  cursor: () => number;
  /** The nearest edge of the visible events, at most `within` ns away. */
  edge: (time: number, within: number) => Rest | undefined;
  show: (window: Window, kept?: boolean) => void;
  /** Go back to the window before. */
  back: () => void;
}

type Part = "all" | "start" | "end";
type Changed = ReadonlyMap<string, Note | undefined>;
interface Change {
  what: string;
  /** The notes as they were, and as they became; undefined: they were not there. */
  before: Changed;
  after: Changed;
}

const notesOf = (changed: Changed): Note[] => [...changed.values()].filter((note) => note !== undefined);
const fresh = (): string => Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");

/** What the page had of a run when it went elsewhere: it may not be saved yet. */
const left = new Map<string | undefined, { base: Note[]; list: Note[] }>();

export class Annotations {
  list = $state.raw<Note[]>([]);
  /** The last answer of the server. */
  answer = $state.raw<Answer>();
  /** Why the notes are not saved, or a file not loaded. */
  trouble = $state("");
  /** What two wrote at the same time. */
  conflict = $state("");
  /** Why they are not known. */
  readonly loaded: Resource<{ run: string | undefined; writes: number; answer: Answer }>;
  /** Goes up when the focus belongs to the flag of the selected note, or to the lanes without one. */
  turns = $state(0);
  /** For the status region. */
  said = $state("");
  private changes = $state.raw<Change[]>([]);
  private base: Note[] = [];
  private run: string | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private saving = $state(false);
  private writes = 0;
  private focused = $state(0);
  private drag = $state.raw<{ note: Note; part: Part; x: number; moved: boolean }>();

  constructor(private readonly around: Surroundings) {
    this.loaded = resource(() => {
      served.version;
      this.focused;
      const query = shared("annotations");
      return async (signal) => {
        const writes = this.writes;
        if (query.run !== this.run) void this.save(); // of the run before
        return { run: query.run as string | undefined, writes, answer: await get<Answer>("annotations", query, signal) };
      };
    });
    $effect(() => {
      const data = this.loaded.data;
      untrack(() => {
        // What was asked before something was written is older than what the server has said then.
        if (data && (data.run !== this.run || (data.writes === this.writes && !this.saving))) this.arrive(data.answer, data.run);
      });
    });
    $effect(() => {
      const look = (): void => void this.focused++;
      const leave = (event: BeforeUnloadEvent): void => {
        if (!alike(this.base, this.list)) event.preventDefault();
      };
      window.addEventListener("focus", look); // others may have written
      window.addEventListener("beforeunload", leave);
      return () => {
        window.removeEventListener("focus", look);
        window.removeEventListener("beforeunload", leave);
        this.leave();
        void this.save();
      };
    });
  }

  // --- what is selected: the address says it

  get current(): Note | undefined {
    return this.named("note");
  }
  /** The one that the others are compared with. */
  get versus(): Note | undefined {
    return this.named("vs");
  }
  private named(key: string): Note | undefined {
    const id = place.get(key);
    return id ? this.list.find((note) => note.id === id) : undefined;
  }
  /** What is added up: between the two, or in the one. */
  get span(): Window | undefined {
    return between(this.current, this.versus);
  }
  get open(): boolean {
    return place.get("notes") === "on";
  }
  get zoomed(): boolean {
    return place.get("between") === "on";
  }
  get dragging(): boolean {
    return this.drag?.moved ?? false;
  }
  /** Whether something is on its way to the server. */
  get pending(): boolean {
    return this.saving || this.timer !== undefined;
  }
  get last(): string | undefined {
    return this.changes.at(-1)?.what;
  }
  inView(view: Window): Note[] {
    return this.list.filter((note) => (note.end ?? note.start) >= view.from && note.start <= view.to);
  }

  /** Those of the view as they are drawn: the selected one above the others. */
  drawn(view: Window): Note[] {
    const id = this.current?.id;
    return this.inView(view).sort((a, b) => Number(a.id === id) - Number(b.id === id));
  }

  toggle(): void {
    this.conflict = this.trouble = "";
    place.set(this.open ? { notes: undefined, note: undefined, vs: undefined, between: undefined } : { notes: "on" }, true);
  }
  select(note: Note | undefined): void {
    place.set(note ? { note: note.id, notes: "on" } : { note: undefined }, true);
    this.follow();
    if (note) {
      this.reveal(note);
      this.say(note);
    }
  }
  compare(id: string): void {
    place.set({ vs: id || undefined }, true);
    this.follow();
  }
  /** Show what is between two notes, or what was shown before. */
  zoom(on: boolean): void {
    place.set({ between: on ? "on" : undefined }, true);
    if (on) this.follow();
    else this.around.back();
  }
  private follow(): void {
    const span = this.zoomed ? this.span : undefined;
    if (span) this.around.show(span, true);
  }
  private reveal(note: Note): void {
    const view = this.around.view();
    const end = note.end ?? note.start;
    if (!view || this.zoomed || (end >= view.from && note.start <= view.to)) return;
    const by = (note.start + end - view.from - view.to) / 2;
    this.around.show({ from: view.from + by, to: view.to + by });
  }
  /** Go to the next note, or the one before; without a selected one, from the middle of the view. */
  walk(step: 1 | -1): void {
    const [view, total] = [this.around.view(), this.list.length];
    if (!view || !total) return;
    const at = this.list.findIndex(({ id }) => id === this.current?.id);
    const middle = (view.from + view.to) / 2;
    const later = this.list.findIndex(({ start }) => start >= middle);
    const next = at >= 0 ? at + step : step > 0 ? Math.max(later, 0) : (later < 0 ? total : later) - 1;
    this.select(this.list[(next + total) % total]);
  }

  // --- changes

  /** A note at a time, by default that of the cursor; or of the selected time. */
  add(time?: number): void {
    if (this.list.length >= MOST) {
      this.trouble = `A profile has at most ${MOST} annotations.`;
      place.set({ notes: "on" }, true);
      return;
    }
    const [at, area] = [time ?? this.around.cursor(), this.around.area()];
    const rest = area ? undefined : this.rest(at);
    const note: Note = {
      id: fresh(),
      name: "",
      text: "",
      start: area?.from ?? rest?.time ?? Math.round(at),
      end: area?.to ?? null,
      color: this.list.length % COLORS.length,
      anchor: rest?.anchor ?? null,
      created: new Date().toISOString(),
    };
    this.change("new annotation", new Map([[note.id, note]]));
    if (area) place.set({ area: undefined, versus: undefined }, true);
    this.select(note);
    this.say(note, rest?.text);
  }
  edit(note: Note, changes: Partial<Note>): void {
    this.change(`change ${Object.keys(changes).join()}`, new Map([[note.id, { ...note, ...changes }]]), true);
  }
  remove(note: Note): void {
    this.change(`delete ${this.label(note)}`, new Map([[note.id, undefined]]));
    if (place.get("note") === note.id) place.set({ note: undefined }, true);
    this.conflict = "";
    this.said = `Deleted: ${this.label(note)}.`;
  }
  undo(): void {
    const last = this.changes.at(-1);
    if (!last) return;
    this.changes = this.changes.slice(0, -1);
    // What others have made of them since stays.
    const now = this.list.filter(({ id }) => last.before.has(id));
    const { notes } = merged(notesOf(last.after), notesOf(last.before), now, fresh);
    this.apply(
      new Map([...[...last.before.keys()].map((id) => [id, undefined] as const), ...notes.map((note) => [note.id, note] as const)]),
    );
    this.said = `Undone: ${last.what}.`;
  }
  /** Add the notes of a file; one that is there and says something else is there twice. */
  load(text: string): void {
    try {
      const { notes, profile } = read(text);
      const known = new Set(this.list.map(({ id }) => id));
      const contents = new Set(this.list.map(contentOf));
      const added = notes.filter((note) => !contents.has(contentOf(note)));
      const beside = added.filter(({ id }) => known.has(id)).length;
      if (this.list.length + added.length > MOST) throw new Error(`With this file there would be more than ${MOST} annotations.`);
      this.change(
        "load a file",
        new Map(added.map((note) => (known.has(note.id) ? { ...note, id: fresh() } : note)).map((note) => [note.id, note])),
      );
      const own = this.answer?.profile;
      const foreign = own && ((profile.events ?? own.events) !== own.events || (profile.end ?? own.end) !== own.end);
      this.trouble = foreign ? "The file is of another recording: its times may not fit." : "";
      this.said = `${format.count(added.length)} annotations are loaded${beside ? `, ${format.count(beside)} of them beside others that have changed` : ""}.`;
    } catch (error) {
      this.trouble = error instanceof Error ? error.message : String(error);
    }
  }
  download(): void {
    const name = this.answer?.profile.name ?? "profile";
    keep(new Blob([fileOf(this.list, this.answer?.profile)], { type: "application/json" }), `${name}.notes.json`);
  }

  /** `joins`: the change before, if it is of the same kind and note, as letters of a word are. */
  private change(what: string, changed: Changed, joins = false): void {
    const last = this.changes.at(-1);
    const again = joins && last?.what === what && [...changed.keys()].every((id) => last.before.has(id));
    if (again) this.changes = [...this.changes.slice(0, -1), { ...last, after: new Map([...last.after, ...changed]) }];
    else this.remember(what, new Map([...changed.keys()].map((id) => [id, this.list.find((note) => note.id === id)])), changed);
    this.apply(changed);
  }
  private remember(what: string, before: Changed, after: Changed): void {
    this.changes = [...this.changes, { what, before, after }].slice(-UNDONE);
  }
  private apply(changed: Changed): void {
    const kept = this.list.filter(({ id }) => !changed.has(id));
    this.list = inOrder([...kept, ...notesOf(changed)]);
    this.later();
  }

  // --- moving

  private get pixel(): number {
    const view = this.around.view();
    return view ? (view.to - view.from) / Math.max(this.around.width(), 1) : 1;
  }
  private rest(time: number): Rest | undefined {
    return this.around.edge(time, SNAP * this.pixel);
  }
  private moved(note: Note, part: Part, time: number, rest: Rest | undefined): Note {
    const at = rest?.time ?? Math.round(time);
    const anchor = rest?.anchor ?? null;
    if (part === "all" || note.end === null)
      return { ...note, start: at, end: note.end === null ? null : note.end + at - note.start, anchor };
    const [start, end] = part === "start" ? [at, note.end] : [note.start, at];
    if (start > end) return { ...note, start: end, end: start, anchor: null };
    return { ...note, start, end, anchor: part === "start" ? anchor : note.anchor };
  }
  grab = (event: PointerEvent, note: Note, part: Part): void => {
    if (event.button) return;
    event.stopPropagation();
    (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
    this.drag = { note, part, x: event.clientX, moved: false };
  };
  pull = (event: PointerEvent): void => {
    if (!this.drag) return;
    const { note, part, x } = this.drag;
    if (!this.drag.moved && Math.abs(event.clientX - x) < 3) return;
    if (!this.drag.moved) this.drag = { ...this.drag, moved: true };
    const time = (part === "end" ? note.end! : note.start) + (event.clientX - x) * this.pixel;
    const next = this.moved(note, part, time, event.altKey ? undefined : this.rest(time));
    const { start, end, anchor } = next;
    this.list = inOrder(this.list.map((one) => (one.id === note.id ? { ...one, start, end, anchor } : one)));
  };
  drop = (): void => {
    const drag = this.drag;
    this.drag = undefined;
    const now = this.list.find(({ id }) => id === drag?.note.id);
    if (!drag || !now) return;
    if (drag.moved) this.remember("move", new Map([[now.id, drag.note]]), new Map([[now.id, now]]));
    this.later();
    place.set({ note: now.id, notes: "on" }, true);
    this.turns++;
    this.say(now);
  };
  /** By an arrow key: to the next edge within ten px, or by that; `fine`: by one px. */
  private push(note: Note, direction: 1 | -1, fine: boolean, part: Part): void {
    const from = part === "end" ? (note.end ?? note.start) : note.start;
    const time = from + direction * Math.max((fine ? 1 : STEP) * this.pixel, 1);
    const rest = fine ? undefined : this.rest(time);
    const next = this.moved(note, part, time, rest);
    this.change("move by keys", new Map([[note.id, next]]), true);
    this.reveal(next);
    this.say(next, rest?.text);
  }

  // --- keys

  /** Keys of the lanes; whether it was one of them. */
  key(event: KeyboardEvent): boolean {
    const graph = event.getModifierState("AltGraph"); // brackets of some keyboards
    if ((event.ctrlKey || event.metaKey) && !graph) {
      if (event.key.toLowerCase() !== "z" || !this.changes.length) return false;
      this.undo();
      return true;
    }
    if (event.altKey && !graph) return false;
    if (event.key.toLowerCase() === "m") this.add();
    else if (event.key === "[") this.walk(-1);
    else if (event.key === "]") this.walk(1);
    else if (event.key === "Escape" && this.current) this.select(undefined);
    else return false;
    this.turns++;
    return true;
  }
  /** Keys of a note's flag. */
  flagKey(event: KeyboardEvent, note: Note): boolean {
    if (event.ctrlKey || event.metaKey) return this.key(event);
    if (event.key === "ArrowLeft" || event.key === "ArrowRight")
      this.push(note, event.key === "ArrowLeft" ? -1 : 1, event.altKey, event.shiftKey && note.end !== null ? "end" : "all");
    else if (event.key === "Delete" || event.key === "Backspace") {
      this.remove(note);
      this.turns++;
    } else return this.key(event);
    return true;
  }

  // --- words

  label(note: Note): string {
    return note.name || `annotation at ${format.time(note.start)}`;
  }
  private say(note: Note, edge = ""): void {
    const where = note.end === null ? `at ${format.time(note.start)}` : `from ${format.time(note.start)} to ${format.time(note.end)}`;
    this.said = `${note.name || "Annotation"} ${where}${edge ? `, ${edge}` : ""}. ${this.list.findIndex(({ id }) => id === note.id) + 1} of ${this.list.length}.`;
  }

  // --- the server

  private leave(): void {
    if (this.answer) left.set(this.run, { base: this.base, list: this.list });
  }
  private later(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.save(), PAUSE);
  }
  /** Take what the server has, with what was changed here since. */
  private arrive(answer: Answer, run: string | undefined): void {
    const first = this.run !== run || !this.answer;
    if (first) {
      this.leave();
      const { base, list } = left.get(run) ?? { base: [], list: [] };
      left.delete(run);
      [this.base, this.list, this.changes, this.run] = [base, list, [], run];
    }
    const theirs = inOrder(answer.annotations.map(complete));
    const { notes, copies } = merged(this.base, this.list, theirs, fresh);
    this.base = theirs;
    if (!alike(notes, this.list)) this.list = notes;
    this.answer = answer;
    if (copies.length)
      this.conflict = `Somebody else has written ${copies.map((note) => this.label(note)).join(", ")} at the same time: both are kept.`;
    if (!alike(this.base, this.list)) this.later();
    if (first && this.current && place.get("from") === undefined) this.reveal(this.current);
  }
  private async save(): Promise<void> {
    clearTimeout(this.timer);
    this.timer = undefined;
    if (this.saving || !this.answer || this.drag) return;
    const run = this.run;
    this.saving = true;
    try {
      while (!alike(this.base, this.list) && run === this.run) {
        const sent = this.list;
        this.writes++;
        const body = { annotations: sent satisfies Annotation[] };
        const { changed, answer } = await put<Answer>("annotations", { run }, body, this.answer.version);
        if (!changed && left.has(run)) left.set(run, { base: sent, list: sent });
        if (run !== this.run) return;
        this.trouble = "";
        if (!changed) this.base = sent;
        this.arrive(answer, run);
      }
    } catch (problem) {
      this.trouble = `Not saved: ${problem instanceof Error ? problem.message : String(problem)}`;
    } finally {
      this.saving = false;
    }
  }
}
