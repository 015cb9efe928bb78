import { readFileSync } from "node:fs";
import { expect, test, vi } from "vitest";
import { axisTicks } from "../src/timeline/axis";
import { onto } from "../src/timeline/colors";
import { layout, trackAt, type Choice } from "../src/timeline/lanes";
import { Row } from "../src/timeline/raster";
import { RANGES, rangeOf } from "../src/timeline/roofline";
import { levelFor, numbers, Store, type Track } from "../src/timeline/store";
import { before, decode, type Tile } from "../src/timeline/tiles";
import { around, clamped, everything, panned, stretchOf, textOf, zoomed } from "../src/timeline/view";

// Written by tests/timeline/test_golden.py, with what it says in tests/golden/timeline/tiles.json.
const bytes = readFileSync("../tests/golden/timeline/tiles.bin");
const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer;

test("tiles are read as Python wrote them", () => {
  const expected = JSON.parse(readFileSync("../tests/golden/timeline/tiles.json", "utf-8"));
  const found = decode(buffer).map((tile) => ({
    track: tile.track,
    level: tile.level,
    number: tile.number,
    lane: [...tile.start].map((_, at) => tile.lanes.findLastIndex((first) => first <= at)),
    start: [...tile.start],
    end: [...tile.end],
    busy: [...(tile.busy ?? tile.end.map((end, at) => end - tile.start[at]!))],
    events: [...(tile.count ?? tile.start.map(() => 1))],
    id: [...tile.id],
    name: [...tile.name],
    operator: [...tile.operator],
  }));
  expect(found).toEqual(expected);
});

test("bytes that are no tile throw", () => {
  expect(() => decode(buffer.slice(0, 100))).toThrow(RangeError);
  const wrong = buffer.slice(0);
  new Uint32Array(wrong)[6]! += 1; // records of the first lane
  expect(() => decode(wrong)).toThrow(RangeError);
});

type Rgb = readonly [number, number, number];
const linear = (hex: string): Rgb => {
  const one = (at: number): number => {
    const value = parseInt(hex.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  return [one(1), one(3), one(5)];
};
const luminance = ([red, green, blue]: Rgb): number => 0.2126 * red + 0.7152 * green + 0.0722 * blue;
const contrast = (a: number, b: number): number => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
// How colors are seen without red or green cones: F. Vienot, H. Brettel, J. Mollon, Color Res. Appl. 24 (1999) 243.
const SEEN: Record<string, (color: Rgb) => Rgb> = {
  "all cones": (color) => color,
  "no red cones": ([r, g, b]) => [0.11238 * r + 0.88762 * g, 0.11238 * r + 0.88762 * g, 0.00401 * r - 0.00401 * g + b],
  "no green cones": ([r, g, b]) => [0.29275 * r + 0.70725 * g, 0.29275 * r + 0.70725 * g, -0.02234 * r + 0.02234 * g + b],
};

test.each(["light", "dark"])("ranges of the roofline are told apart by lightness alone, in the %s theme", (theme) => {
  const style = readFileSync("src/style.css", "utf-8");
  const part = style.split(':root[data-theme="dark"]')[theme === "dark" ? 1 : 0]!;
  const ink = (name: string): Rgb => linear(new RegExp(`${name}: (#[0-9a-f]{6});`).exec(part)![1]!);
  for (const [eyes, seen] of Object.entries(SEEN)) {
    const panel = luminance(seen(ink("--panel")));
    const levels = RANGES.map((range) => luminance(seen(ink(range.ink))));
    const strengths = levels.map((level) => contrast(level, panel));
    expect(Math.min(...strengths), eyes).toBeGreaterThanOrEqual(3);
    expect(strengths, eyes).toEqual([...strengths].sort((a, b) => b - a)); // the farthest stands out
    for (let at = 1; at < levels.length; at++) expect(contrast(levels[at]!, levels[at - 1]!), eyes).toBeGreaterThan(1.25);
  }
});

test("a share is in the range that begins with it", () => {
  const labels = [0, 9, 10, 24, 25, 50, 74, 75, 254, 255].map((percent) => rangeOf(percent)?.from);
  expect(labels).toEqual([0, 0, 10, 10, 25, 50, 50, 75, 75, undefined]);
});

const RUN = { from: 0, to: 1_000_000 };

test("the point under the pointer stays where it is", () => {
  for (const at of [0, 0.25, 1]) {
    const window = { from: 200_000, to: 400_000 };
    const time = window.from + at * 200_000;
    const next = zoomed(window, 0.5, at, RUN);
    expect(next.to - next.from).toBe(100_000);
    expect(Math.abs(next.from + at * 100_000 - time)).toBeLessThanOrEqual(1);
  }
});

test("windows stay near the run", () => {
  expect(panned({ from: 0, to: 1000 }, 0.25, RUN)).toEqual({ from: 250, to: 1250 });
  expect(panned({ from: 0, to: 1000 }, -9, RUN)).toEqual({ from: -500, to: 500 });
  expect(clamped({ from: 5, to: 6 }, RUN)).toEqual({ from: -4, to: 16 });
  expect(zoomed({ from: 0, to: 1_000_000 }, 100, 0.5, RUN)).toEqual({ from: -50_000, to: 1_050_000 });
  expect(everything(RUN)).toEqual({ from: -10_000, to: 1_010_000 });
  expect(around(1000, 2000, RUN)).toEqual({ from: 750, to: 2250 });
});

function tile(events: readonly (readonly [number, number, number?])[], level = 0): Tile {
  return {
    track: 0,
    level,
    number: 0,
    lanes: new Uint32Array([0, events.length]),
    start: new Float64Array(events.map(([start]) => start)),
    end: new Float64Array(events.map(([, end]) => end)),
    busy: level ? new Float64Array(events.map(([start, end, busy]) => busy ?? end - start)) : undefined,
    count: level ? new Float64Array(events.map(() => 2)) : undefined,
    id: new Float64Array(events.length),
    name: new Uint32Array(events.map((_, at) => at)),
    operator: new Uint32Array(events.length),
    bytes: 0,
  };
}

test("pixels are as covered as the events cover them", () => {
  let seed = 1;
  const random = (): number => (seed = (seed * 16807) % 2147483647) / 2147483647;
  for (let round = 0; round < 50; round++) {
    const events: [number, number][] = [];
    let time = random() * 100;
    while (events.length < 60) {
      const end = time + random() ** 4 * 400;
      events.push([time, end]);
      time = end + (random() < 0.5 ? 0 : random() ** 3 * 200);
    }
    const window = { from: 50, to: 50 + 1000 + random() * 2000 };
    const row = new Row(97);
    row.clear();
    row.add(tile(events), 0, events.length, window, () => 0);
    const scale = 97 / (window.to - window.from);
    for (let x = 0; x < 97; x++) {
      let exact = 0;
      for (const [start, end] of events) {
        exact += Math.max(Math.min((end - window.from) * scale, x + 1) - Math.max((start - window.from) * scale, x), 0);
      }
      expect(Math.abs(row.covered[x]! - exact)).toBeLessThan(1e-3);
    }
  }
});

test("a pixel has the color of what covers most of it, and what is thin is pale", () => {
  const row = new Row(10);
  row.clear();
  // 1 ns of color 0, then 4 of color 1, in one pixel of 10 ns; a record that is half busy over two pixels.
  row.add(
    tile([
      [0, 1],
      [1, 5],
    ]),
    0,
    2,
    { from: 0, to: 100 },
    (_, at) => (at ? 0x0000ff : 0x00ff00),
  );
  row.add(tile([[20, 40, 10]], 14), 0, 1, { from: 0, to: 100 }, () => 0xff0000);
  const out = new Uint32Array(10);
  row.write(out, 0, 0xffffff);
  const part = (at: number): number[] => [out[at]! & 255, (out[at]! >> 8) & 255, (out[at]! >> 16) & 255];
  expect(part(0)).toEqual([255, 128, 128]); // half red on white
  expect(part(1)).toEqual([255, 255, 255]);
  expect(part(2)).toEqual([128, 128, 255]);
  expect(part(3)).toEqual([128, 128, 255]);
  row.clear();
  row.add(tile([[7, 7]]), 0, 1, { from: 0, to: 100 }, () => 0);
  row.write(out, 0, 0xffffff);
  expect(part(0)).toEqual([217, 217, 217]); // nothing vanishes
});

const track = (id: number, more: Partial<Track> = {}): Track => ({
  id,
  worker: 0,
  kind: "stream",
  thread: null,
  device: 0,
  stream: id,
  name: `GPU 0 stream ${id}`,
  lanes: 1,
  outer: 0,
  events: 9,
  start: 0,
  end: 1000,
  levels: [
    [0, 26],
    [16, 28],
    [20, 32],
  ],
  ...more,
});
const NOTHING: Choice = { pinned: [], hidden: [], unfolded: [], closed: [], search: "", hits: false, counters: false };
const TIMELINE = {
  version: "",
  start: 0,
  end: 1000,
  counters: [{ worker: 0, device: 0, key: "hfu", title: "HFU", unit: "%", text: "" }],
  steps: [],
  pauses: [],
  causes: {},
  workers: [
    { id: 0, name: "rank0" },
    { id: 1, name: "rank1" },
  ],
  tracks: [
    track(0),
    track(1, { kind: "function", thread: 3, device: null, name: "main", lanes: 20, outer: 5 }),
    track(2, { worker: 1 }),
    track(3, { kind: "module" }),
  ],
};

test("a request that failed is made again after a while, not at each frame", async () => {
  vi.useFakeTimers();
  let asked = 0;
  const one = track(1, { start: 0, end: 100 });
  const store: Store = new Store(
    () => (asked++, Promise.reject(new Error("no answer"))),
    () => draw(),
  );
  const draw = (): void => store.need([[one, 0]], { from: 0, to: 100 });
  draw();
  await vi.advanceTimersByTimeAsync(1900);
  expect([asked, store.underway, store.failed]).toEqual([1, 0, new Error("no answer")]);
  await vi.advanceTimersByTimeAsync(2000);
  expect(asked).toBe(2);
  vi.useRealTimers();
});

test("each track is asked for in the window, with a tile on each side", () => {
  const asked: string[] = [];
  const store = new Store(
    (query) => (asked.push(query), new Promise(() => {})),
    () => undefined,
  );
  const [one, other] = [track(1, { end: 1 << 12, levels: [[0, 4]] }), track(2, { end: 1 << 12, levels: [[0, 5]] })];
  const both: [typeof one, number][] = [
    [one, 0], // tile 10 of 16 ns
    [other, 0], // tile 5 of 32 ns
  ];
  store.need(both, { from: 160, to: 170 });
  const tiles = asked.flatMap((query) => query.split(";"));
  expect(tiles.sort()).toEqual(["0:10-10:1", "0:11-11:1", "0:4-4:2", "0:5-5:2", "0:6-6:2", "0:9-9:1"]);
});

test("of tiles that cannot be had the coarser ones are asked for", () => {
  const asked: string[] = [];
  const store = new Store(
    (query) => (asked.push(query), new Promise(() => {})),
    () => undefined,
    (_track, level, number) => level === 20 || number === 3,
  );
  const levels = [
    [0, 4],
    [20, 32],
  ] as [number, number][];
  const [one, other] = [track(1, { end: 1 << 12, levels }), track(2, { end: 1 << 12, levels })];
  store.need([[one, 0]], { from: 50, to: 60 }); // tile 3
  store.need([[other, 0]], { from: 40, to: 60 }); // tiles 2 and 3
  expect(asked.flatMap((query) => query.split(";")).sort()).toEqual(["0:3-3:1", "20:0-0:2"]);
  expect(store.has(one, 0, { from: 50, to: 60 })).toBe(true);
  expect(store.has(other, 0, { from: 40, to: 60 })).toBe(false);
});

test("tracks stand by worker, devices before the host, modules first", () => {
  const all = layout(TIMELINE, NOTHING);
  expect(all.tracks.map((one) => one.track.id)).toEqual([3, 0, 1, 2]);
  expect(all.headings.map((one) => one.name)).toEqual(["rank0", "rank1"]);
  expect([all.tracks[2]!.first, all.tracks[2]!.lanes]).toEqual([5, 8]);
  expect(trackAt(all, all.tracks[2]!.top + 17)).toEqual({ placed: all.tracks[2], lane: 6 });
  expect(trackAt(all, 1)).toBeUndefined();
  const some = layout(TIMELINE, { ...NOTHING, pinned: [2], hidden: [3], unfolded: [1], closed: [1] });
  expect(some.tracks.map((one) => [one.track.id, one.lanes])).toEqual([
    [2, 1],
    [0, 1],
    [1, 20],
  ]);
  expect(layout(TIMELINE, { ...NOTHING, worker: 1 }).tracks.map((one) => one.track.id)).toEqual([2]);
  expect(layout(TIMELINE, { ...NOTHING, search: "MAIN" }).tracks.map((one) => one.track.id)).toEqual([1]);
});

test("counters stand below the tracks of their device", () => {
  const all = layout(TIMELINE, { ...NOTHING, counters: true });
  expect(all.counters.map((one) => one.counter.key)).toEqual(["hfu"]);
  expect(all.counters[0]!.top).toBeGreaterThan(all.tracks[1]!.top);
  expect(all.counters[0]!.top).toBeLessThan(all.tracks[2]!.top);
  expect(layout(TIMELINE, NOTHING).counters).toEqual([]);
});

test("the level is the coarsest whose buckets are no longer than asked", () => {
  expect([1, 2 ** 16 - 1, 2 ** 16, 2 ** 40].map((most) => levelFor(track(0), most))).toEqual([0, 0, 1, 2]);
  expect(numbers(10, { from: -1, to: 2048 })).toEqual([-1, 2]);
  expect(
    [-1, 0, 15, 99].map((time) =>
      before(
        tile([
          [0, 5],
          [10, 20],
        ]),
        0,
        time,
      ),
    ),
  ).toEqual([-1, 0, 1, 1]);
});

test("labels of the axis tell neighbors apart", () => {
  for (const [from, to] of [
    [0, 1.2e9],
    [300e6, 340e6],
    [8_790_000_000, 8_790_000_100],
    [-50, 50],
    [5_000_000_000, 5_000_400_000],
  ] as const) {
    const labels = axisTicks({ from, to }, 10).map((one) => one.label);
    expect(labels.length).toBeGreaterThan(2);
    expect(new Set(labels).size).toBe(labels.length);
  }
});

test("text is readable on every color", () => {
  const linear = (value: number): number => (value <= 10 ? value / 3294 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  for (let r = 0; r < 256; r += 15)
    for (let g = 0; g < 256; g += 15)
      for (let b = 0; b < 256; b += 15) {
        const own = 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
        const text = onto(r | (g << 8) | (b << 16)) === "#000" ? 0 : 1;
        expect((Math.max(own, text) + 0.05) / (Math.min(own, text) + 0.05)).toBeGreaterThan(4.5);
      }
});

test("a stretch of the address", () => {
  const stretch = { from: -5, to: 12 };
  expect(stretchOf(textOf(stretch))).toEqual(stretch);
  for (const text of [undefined, "", "7", "7_7", "9_7", "1_2_3", "1_x", "1.5_2", "_7", `0_${2 ** 60}`])
    expect(stretchOf(text)).toBe(undefined);
});
