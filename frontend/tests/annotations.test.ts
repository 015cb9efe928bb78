import { expect, test } from "vitest";
import { between, complete, fileOf, merged, MOST, read, type Note } from "../src/timeline/notes";
import { nearestEdge } from "../src/timeline/snap";
import type { Tile } from "../src/timeline/tiles";

const note = (id: string, changes: Partial<Note> = {}): Note => complete({ id, start: 0, name: "", text: "", color: 0, ...changes });
const fresh = (): string => "copy";
const merge = (base: Note[], own: Note[], theirs: Note[]): Note[] => merged(base, own, theirs, fresh).notes;

test("what one changed and the other did not is changed", () => {
  const [a, b] = [note("a"), note("b", { start: 5 })];
  expect(merge([a, b], [a, b], [a, b])).toEqual([a, b]);
  const [named, moved] = [note("a", { name: "x" }), note("b", { start: 9 })];
  expect(merge([a, b], [named, b], [a, moved])).toEqual([named, moved]);
  expect(merge([a, b], [a, moved], [named, b])).toEqual([named, moved]);
  expect(merge([a], [a, b], [a, note("c", { start: 7 })])).toEqual([a, b, note("c", { start: 7 })]);
  expect(merge([a, b], [a], [a, b])).toEqual([a]); // deleted here
  expect(merge([a, b], [a, b], [b])).toEqual([b]); // deleted there
  expect(merge([a, b], [a], [b])).toEqual([]);
});

test("fields of one annotation that two changed are merged", () => {
  const base = note("a", { start: 1, end: 5, anchor: { event: "launch:1", edge: "start" } });
  const own = { ...base, start: 2, anchor: null, color: 3 };
  const theirs = { ...base, name: "theirs", color: 4, end: 9 };
  // Its place is one thing, and that of the last one; so is the color.
  expect(merge([base], [own], [theirs])).toEqual([{ ...base, name: "theirs", start: 2, end: 5, anchor: null, color: 3 }]);
  expect(merge([base], [{ ...base, text: "own" }], [theirs])).toEqual([{ ...theirs, text: "own" }]);
});

test.each(["name", "text"] as const)("of a %s that both wrote there are two", (field) => {
  const base = note("a", { [field]: "base" });
  const [own, theirs] = [note("a", { [field]: "own", start: 3 }), note("a", { [field]: "theirs" })];
  const { notes, copies } = merged([base], [own], [theirs], fresh);
  expect(copies).toEqual([{ ...own, id: "copy" }]);
  expect(notes).toContainEqual({ ...own, id: "copy" });
  expect(notes.find(({ id }) => id === "a")?.[field]).toBe("theirs");
  expect(merged([base], [own], [own], fresh).copies).toEqual([]); // both wrote the same
  expect(merged([], [own], [theirs], fresh).copies).toHaveLength(1); // of no common origin
});

test("what one deleted and the other changed stays", () => {
  const [base, changed] = [note("a"), note("a", { text: "why?" })];
  expect(merge([base], [], [changed])).toEqual([changed]);
  expect(merge([base], [changed], [])).toEqual([changed]);
});

test("between two annotations is from start to start, in one its stretch", () => {
  const [a, b] = [note("a", { start: 10, end: 30 }), note("b", { start: 20 })];
  expect(between(a, b)).toEqual({ from: 10, to: 20 });
  expect(between(b, a)).toEqual({ from: 10, to: 20 });
  expect(between(a, undefined)).toEqual({ from: 10, to: 30 });
  expect(between(b, undefined)).toBeUndefined();
  expect(between(a, a)).toBeUndefined();
  expect(between(undefined, a)).toBeUndefined();
});

test("a file is read as it was written", () => {
  const notes = [note("a", { name: "<b>", text: "\u202e", end: 7 }), note("b", { start: -5 })];
  const profile = { name: "net", events: 3, end: 9 };
  expect(read(fileOf(notes, profile))).toEqual({ notes, profile });
  expect(read('{"pyprof_notes": 1, "annotations": [{"id": "a", "start": 4}]}').notes).toEqual([note("a", { start: 4 })]);
});

test.each([
  ["", /JSON/],
  ["null", /no annotations/],
  ["[]", /no annotations/],
  ['{"pyprof_notes": 1}', /no annotations/],
  ['{"pyprof_notes": 2, "annotations": []}', /newer/],
  [JSON.stringify({ pyprof_notes: 1, annotations: Array(MOST + 1).fill({}) }), /more than 2000/],
  ...[null, 7, {}, { start: 1 }, { id: "<", start: 1 }, { id: "a", start: 1.5 }, { id: "a", start: 2, end: 1 }].map((one) => [
    JSON.stringify({ pyprof_notes: 1, annotations: [{ id: "fine", start: 1 }, one] }),
    /Annotation 2 /,
  ]),
  ...[
    { name: 7 },
    { name: "x".repeat(201) },
    { text: [] },
    { color: 8 },
    { color: "1" },
    { end: "9" },
    { created: "<b>" },
    { anchor: 1 },
    { anchor: { event: "op:1", edge: "end" } },
  ].map((one) => [JSON.stringify({ pyprof_notes: 1, annotations: [{ id: "a", start: 1, ...one }] }), /Annotation 1 /]),
] as [string, RegExp][])("what is no file of annotations is a sentence: %s", (text, sentence) => {
  expect(() => read(text)).toThrow(sentence);
});

/** A tile of lanes, each with [start, end] of its records. */
function tile(...lanes: [number, number][][]): Tile {
  const firsts = new Uint32Array(lanes.length + 1);
  lanes.forEach((lane, at) => (firsts[at + 1] = firsts[at]! + lane.length));
  const all = lanes.flat();
  return { lanes: firsts, start: Float64Array.from(all, ([start]) => start), end: Float64Array.from(all, ([, end]) => end) } as Tile;
}

test("a time snaps to the nearest edge of its lane", () => {
  const two = tile(
    [[1000, 2000]],
    [
      [0, 10],
      [10, 40],
      [100, 100],
    ],
  );
  const near = (time: number, within = 6): number | undefined => nearestEdge(two, 1, time, within)?.time;
  expect([-6, -7, 4, 6, 12, 17, 37, 45, 47, 95, 106, 107].map((time) => near(time))).toEqual([
    0,
    undefined,
    0,
    10,
    10,
    undefined,
    40,
    40,
    undefined,
    100,
    100,
    undefined,
  ]);
  expect(nearestEdge(two, 1, 35, 6)).toEqual({ time: 40, at: 2, edge: "end" });
  expect(nearestEdge(two, 0, 35, 6)).toBeUndefined();
  expect(nearestEdge(two, 9, 35, 1e9)).toBeUndefined();
});

test("the nearest edge is that of all edges", () => {
  const lane: [number, number][] = [];
  for (let time = 0, at = 0; at < 200; at++) {
    const start = time + ((at * 7919) % 13);
    lane.push([start, (time = start + ((at * 104729) % 17))]);
  }
  const edges = lane.flat();
  for (let time = -5; time < edges.at(-1)! + 5; time++) {
    const away = Math.min(...edges.map((edge) => Math.abs(edge - time)));
    const one = nearestEdge(tile(lane), 0, time, 4);
    expect(one && Math.abs(one.time - time)).toBe(away <= 4 ? away : undefined);
  }
});
