import { expect, test } from "vitest";
import type { Colors, Timeline } from "../src/api/client";
import { bars, counted, delta, largest, next, pieceAt, type Lane } from "../src/timeline/differences";
import { extentOf, isOther, joined, joinedColors, otherTrack, otherWorker, ownTrack, ownWorker, Stores } from "../src/timeline/sides";
import { Store } from "../src/timeline/store";

/** Pieces [start, end), in the base, in the other. */
const lane = (...pieces: [number, number, number | null, number | null][]): Lane => ({
  key: "operator",
  start: pieces.map(([start]) => start),
  end: pieces.map(([, end]) => end),
  base: pieces.map(([, , base]) => base),
  other: pieces.map(([, , , other]) => other),
  base_event: pieces.map((_, at) => at),
  other_event: pieces.map((_, at) => at),
  row: pieces.map((_, at) => at),
  left_out: 0,
});
const LANE = lane([0, 10, 10, 13], [10, 20, 8, 8], [40, 50, 9, 2], [50, 50, null, 4], [90, 99, 6, null]);

test("a difference counts what is not there as nothing", () => {
  expect(LANE.start.map((_, at) => delta({ lane: LANE, at }))).toEqual([3, 0, -7, 4, -6]);
  expect(largest([LANE])).toBe(7);
  expect(largest([])).toBe(1);
});

test("a pixel has the largest difference in it, of each direction", () => {
  const { longer, shorter } = bars(LANE, { from: 0, to: 100 }, 10);
  expect([...longer]).toEqual([3, 0, 0, 0, 0, 4, 0, 0, 0, 0]);
  expect([...shorter]).toEqual([0, 0, 0, 0, 7, 0, 0, 0, 0, 6]);
  expect([...bars(LANE, { from: 5, to: 15 }, 2).longer]).toEqual([3, 0]);
  expect([...bars(LANE, { from: 44, to: 46 }, 2).shorter]).toEqual([7, 7]); // inside of a piece
  expect([...bars(LANE, { from: 200, to: 300 }, 2).shorter]).toEqual([0, 0]);
});

test("the piece at a time, or near it the one that differs most", () => {
  const found = (time: number, within: number): number | undefined => pieceAt(LANE, time, within)?.at;
  expect([found(5, 0), found(15, 0), found(30, 0), found(45, 0)]).toEqual([0, 1, undefined, 2]);
  expect(found(15, 6)).toBe(0);
  expect(found(52, 3)).toBe(2);
  expect(found(-5, 3)).toBe(undefined);
});

test("from one difference to the next, past what is as long in both", () => {
  expect([next(LANE, 0, 1)?.at, next(LANE, 2, -1)?.at, next(LANE, -1, 1)?.at, next(LANE, 4, 1)]).toEqual([2, 0, 0, undefined]);
  expect(counted(LANE, 2)).toEqual({ of: 4, number: 2 });
});

const track = (id: number, worker: number, start: number, end: number): Timeline["tracks"][number] =>
  ({ id, worker, kind: "stream", start, end, levels: [[0, 4]], lanes: 1, name: "" }) as unknown as Timeline["tracks"][number];
const timeline = (start: number, end: number, workers: number): Timeline => ({
  version: "1",
  start,
  end,
  workers: Array.from({ length: workers }, (_, id) => ({ id, name: `rank${id}` })),
  tracks: Array.from({ length: workers }, (_, id) => track(id + 1, id, start, end)),
  counters: [],
  steps: [{ worker: 0, number: 3, start, end }],
  pauses: [{ worker: workers - 1, start, end }],
  causes: { [`cause ${workers}`]: "" },
});

test("workers, tracks and steps of the other recording are told apart", () => {
  const both = joined(timeline(0, 100, 2), timeline(50, 70, 1), ["a", "b"]);
  expect(both.workers.map(({ name }) => name)).toEqual(["base: a · rank0", "base: a · rank1", "new: b"]);
  expect(both.workers.map(({ id }) => isOther(id))).toEqual([false, false, true]);
  expect(both.tracks.map(({ id, worker }) => [ownTrack(id), ownWorker(worker), isOther(worker)])).toEqual([
    [1, 0, false],
    [2, 1, false],
    [1, 0, true],
  ]);
  expect(both.steps.map(({ worker }) => worker)).toEqual([0, otherWorker(0)]);
  expect(both.pauses.map(({ worker }) => worker)).toEqual([1, otherWorker(0)]);
  expect(Object.keys(both.causes)).toEqual(["cause 2", "cause 1"]);
  expect([extentOf(both, 1), extentOf(both, otherWorker(0))]).toEqual([
    { from: 0, to: 100 },
    { from: 50, to: 70 },
  ]);
});

test("one label has one color in both, and what has time in either comes first", () => {
  const colors = (groups: [string, number][], group: number[]): Colors => ({
    of: "operator",
    groups: groups.map(([label, time]) => ({ label, time })),
    group,
  });
  const [base, other] = joinedColors(
    colors([["conv", 9], ["relu", 5], ["view", 0]], [2, 1, 0, -1]),
    colors([["gelu", 8], ["conv", 7], ["view", 0]], [0, 1, 2, -1]),
  ); // prettier-ignore
  expect(base.groups.map(({ label }) => label)).toEqual(["conv", "relu", "gelu", "view"]);
  expect(other.groups).toBe(base.groups);
  expect([base.group, other.group]).toEqual([
    [3, 1, 0, -1],
    [2, 0, 3, -1],
  ]);
});

test("each recording is asked for its own tiles, by its own numbers", async () => {
  const asked: string[] = [];
  const store = (name: string): Store =>
    new Store(
      (query) => (asked.push(`${name} ${query}`), Promise.resolve(new ArrayBuffer(0))),
      () => undefined,
    );
  const both = joined(timeline(0, 15, 1), timeline(0, 15, 1), ["a", "b"]);
  const other = store("other");
  const stores = new Stores(store("base"), () => other);
  const window = { from: 0, to: 15 };
  stores.need(both.tracks.map((one) => [one, 0, window] as const));
  await Promise.resolve();
  expect(asked).toEqual(["base 0:0-0:1", "other 0:0-0:1"]);
  expect(both.tracks[1]!.id).toBe(otherTrack(1));
  await new Promise((done) => setTimeout(done));
  expect(both.tracks.map((one) => stores.complete(one, 0, window))).toEqual([[], []]);
  expect(stores.underway).toBe(0);
});
