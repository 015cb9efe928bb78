// Annotations as data: what two people changed, files of them, what is between two. No Svelte.
import type { Annotation, Annotations } from "../api/client";
import type { Window } from "./view";

export type Note = Required<Annotation>;

/** Their names, and variables of the page's style that have a contrast of 3 on both backgrounds. */
export const COLORS = [
  ["blue", "--accent"],
  ["red", "--bad"],
  ["green", "--good"],
  ["purple", "--c-communication"],
  ["brown", "--c-runtime"],
  ["orange", "--c-cpu"],
  ["gray", "--strong"],
  ["text", "--text"],
] as const;
export const variableOf = (note: Note): string => COLORS[note.color]?.[1] ?? COLORS[0][1];

export const MOST = 2000; // the server takes no more

/** Fields that somebody wrote: what two wrote at once is kept twice. Others are those of the last. */
const WRITTEN = ["name", "text"] as const;
/** Fields that change together. */
const PLACE = ["start", "end", "anchor"] as const;

export const alike = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b);

/** A note but for its id. */
export const contentOf = (note: Note): string => JSON.stringify({ ...note, id: "" });

const byId = (notes: readonly Note[]): Map<string, Note> => new Map(notes.map((note) => [note.id, note]));

export const inOrder = (notes: Iterable<Note>): Note[] =>
  [...notes].sort((a, b) => a.start - b.start || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0));

/** A note with all fields, in one order: answers and files may leave some out. */
export const complete = (one: Annotation): Note => ({
  id: one.id,
  name: one.name ?? "",
  text: one.text ?? "",
  start: one.start,
  end: one.end ?? null,
  color: one.color ?? 0,
  anchor: one.anchor ?? null,
  created: one.created ?? null,
});

/** What `own` and `theirs` made of `base`, with the changes of both. What one deleted and the other changed stays; of a
 * name or text that both wrote, the own one becomes a note of its own (`copies`), with an id of `fresh`. */
export function merged(
  base: readonly Note[],
  own: readonly Note[],
  theirs: readonly Note[],
  fresh: () => string,
): { notes: Note[]; copies: Note[] } {
  const [before, here, there] = [byId(base), byId(own), byId(theirs)];
  const [notes, copies]: [Note[], Note[]] = [[], []];
  for (const id of new Set([...there.keys(), ...here.keys()])) {
    const [old, a, b] = [before.get(id), here.get(id), there.get(id)];
    const one = alike(old, a) ? b : alike(old, b) ? a : a && b ? both(old, a, b) : (a ?? b);
    if (one) notes.push(one);
    if (one && a && b && WRITTEN.some((field) => one[field] !== a[field] && a[field] !== (old?.[field] ?? "")))
      copies.push({ ...a, id: fresh() });
  }
  return { notes: inOrder([...notes, ...copies]), copies };
}

function both(old: Note | undefined, own: Note, theirs: Note): Note {
  const out = { ...theirs };
  const changed = (field: keyof Note, one: Note): boolean => !alike(old?.[field], one[field]);
  for (const field of WRITTEN) if (changed(field, own) && !changed(field, theirs)) out[field] = own[field];
  if (changed("color", own)) out.color = own.color;
  return PLACE.some((field) => changed(field, own)) ? { ...out, start: own.start, end: own.end, anchor: own.anchor } : out;
}

/** The times between two notes, from start to start; of one alone, its stretch. */
export function between(one: Note | undefined, other: Note | undefined): Window | undefined {
  if (!one) return undefined;
  const [from, to] = other ? [Math.min(one.start, other.start), Math.max(one.start, other.start)] : [one.start, one.end ?? one.start];
  return to > from ? { from, to } : undefined;
}

/** A file of annotations: docs/timeline.md. */
export const fileOf = (notes: readonly Note[], profile: Annotations["profile"] | undefined): string =>
  `${JSON.stringify({ pyprof_notes: 1, profile, annotations: notes }, null, 1)}\n`;

/** The notes in a file, and the recording that they were made on. Throws an Error with a sentence. */
export function read(text: string): { notes: Note[]; profile: Partial<Annotations["profile"]> } {
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch {
    throw new Error("The file is not JSON.");
  }
  const { pyprof_notes, profile, annotations } = (content ?? {}) as Record<string, unknown>;
  if (typeof pyprof_notes !== "number" || !Array.isArray(annotations)) throw new Error("The file has no annotations of PyProf.");
  if (pyprof_notes > 1) throw new Error("The file was written by a newer version of PyProf.");
  if (annotations.length > MOST) throw new Error(`The file has more than ${MOST} annotations.`);
  return { notes: annotations.map((one: unknown, at) => checked(one, at)), profile: typeof profile === "object" && profile ? profile : {} };
}

function checked(one: unknown, at: number): Note {
  const note = complete((one ?? {}) as Annotation);
  const time = (value: unknown): boolean => typeof value === "number" && Number.isSafeInteger(value);
  const text = (value: unknown, most: number): boolean => typeof value === "string" && value.length <= most;
  const valid =
    text(note.id, 64) &&
    /^[A-Za-z0-9-]+$/.test(note.id) &&
    text(note.name, 200) &&
    text(note.text, 4000) &&
    time(note.start) &&
    (note.end === null || (time(note.end) && note.end >= note.start)) &&
    Number.isInteger(note.color) &&
    note.color >= 0 &&
    note.color < COLORS.length &&
    (note.created === null || (text(note.created, 40) && /^[0-9TZ:.+-]+$/.test(note.created))) &&
    (note.anchor === null ||
      (text(note.anchor.event, 64) &&
        /^(launch|range|call|gap):[0-9.]+$/.test(note.anchor.event) &&
        ["start", "end"].includes(note.anchor.edge)));
  if (!valid) throw new Error(`Annotation ${at + 1} of the file is not one of PyProf.`);
  return note;
}
