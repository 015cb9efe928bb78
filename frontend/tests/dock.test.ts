import { expect, test } from "vitest";
import {
  activated,
  added,
  alike,
  ANALYZE,
  checked,
  CODE,
  divided,
  dropAt,
  edged,
  find,
  flat,
  GAP,
  moved,
  placed,
  plan,
  put,
  removed,
  SIDES,
  sized,
  STANDARD,
  visible,
  WIDGETS,
  type Arrangement,
  type Box,
  type Direction,
  type Drop,
  type Side,
  type Widget,
} from "../src/timeline/dock";

const ALL = new Set(WIDGETS);
const TABBED = put(STANDARD, "list", { kind: "tab", of: "sums" });
const tabs = (all: Arrangement, side: Side): string => all[side].groups.map((group) => group.tabs.join("+")).join(" ");

test("a panel is put into tabs, beside another, or at a side", () => {
  let all = added(STANDARD, "durations");
  expect(tabs(all, "below")).toBe("sums durations");
  all = put(all, "list", { kind: "tab", of: "sums" });
  expect(tabs(all, "below")).toBe("sums+list durations");
  expect(find(all, "list")!.group.active).toBe("list");
  all = put(all, "hits", { kind: "beside", of: "durations", after: false });
  expect(tabs(all, "below")).toBe("sums+list hits durations");
  all = put(all, "sums", { kind: "side", side: "left" });
  expect([tabs(all, "left"), tabs(all, "below")]).toEqual(["sums", "list hits durations"]);
});

test("a panel that is let go at its own place stays there, and at the end of its tabs leaves them", () => {
  expect(put(STANDARD, "sums", { kind: "tab", of: "sums" })).toBe(STANDARD);
  expect(put(STANDARD, "sums", { kind: "beside", of: "sums", after: true })).toBe(STANDARD);
  expect(tabs(put(TABBED, "list", { kind: "beside", of: "list", after: true }), "below")).toBe("sums list");
});

test("a new panel has half of the room of the one that it is beside", () => {
  const all = put(divided(ANALYZE, "sums", "operators", 0.8), "hits", { kind: "beside", of: "sums", after: true });
  expect(all.below.groups.map(({ share }) => share)).toEqual([0.8, 0.8, 0.4]);
});

test("by keys a panel goes past the next group, and from the last one to a side", () => {
  const way = (widget: Widget, from: Arrangement, ...directions: Direction[]): Arrangement =>
    directions.reduce((all, direction) => moved(all, widget, direction, ALL), from);
  expect(tabs(way("operators", ANALYZE, "left"), "below")).toBe("operators sums");
  expect(tabs(way("operators", ANALYZE, "left", "left"), "left")).toBe("operators");
  expect(tabs(way("operators", ANALYZE, "up"), "above")).toBe("operators");
  expect(tabs(way("operators", ANALYZE, "right"), "right")).toBe("operators");
  expect(way("operators", ANALYZE, "down")).toBe(ANALYZE);
  expect(tabs(way("list", TABBED, "left"), "below")).toBe("list sums"); // out of its tabs
  expect(tabs(way("list", TABBED, "right"), "below")).toBe("sums list");
});

test("a group that is not shown is no place to go past", () => {
  const all = put(ANALYZE, "list", { kind: "beside", of: "sums", after: true });
  expect(tabs(all, "below")).toBe("sums list operators");
  expect(tabs(moved(all, "operators", "left", new Set(["sums", "operators"])), "below")).toBe("operators list sums");
});

test("a tab that is closed leaves the next one in front", () => {
  expect(find(removed(TABBED, "list"), "sums")!.group.active).toBe("sums");
  expect(placed(removed(STANDARD, "sums"))).toEqual([]);
  expect(removed(STANDARD, "hits")).toBe(STANDARD);
});

test("the panels that are not shown leave no room, and come back to where they were", () => {
  const all = put(put(STANDARD, "list", { kind: "side", side: "right" }), "hits", { kind: "tab", of: "sums" });
  const seen = visible(all, new Set(["sums"]));
  expect(placed(seen)).toEqual(["sums"]);
  expect(seen.below.groups[0]!.active).toBe("sums");
  expect(plan(seen, 1000, 600).lanes).toEqual({ x: 0, y: 0, width: 1000, height: 600 - 168 - GAP });
});

test("two arrangements are alike whichever tab is in front", () => {
  expect(alike(activated(TABBED, "sums"), TABBED, ALL)).toBe(true);
  expect(alike(added(STANDARD, "list"), STANDARD, new Set(["sums"]))).toBe(true);
  expect(alike(sized(STANDARD, "below", 0.5), STANDARD, ALL)).toBe(false);
  expect(alike(CODE, STANDARD, ALL)).toBe(false);
});

test("what is let go over the lanes is at the nearest side; over a panel, in its tabs or beside it", () => {
  const now = plan(ANALYZE, 1000, 1000); // below: from 640, two groups of 496 and 497 px
  const drop = (x: number, y: number): Drop | undefined => dropAt(now, x, y)?.drop;
  expect(drop(20, 300)).toEqual({ kind: "side", side: "left" });
  expect(drop(980, 300)).toEqual({ kind: "side", side: "right" });
  expect(drop(500, 20)).toEqual({ kind: "side", side: "above" });
  expect(drop(500, 600)).toEqual({ kind: "side", side: "below" });
  expect(drop(250, 900)).toEqual({ kind: "tab", of: "sums" });
  expect(drop(60, 900)).toEqual({ kind: "beside", of: "sums", after: false });
  expect(drop(980, 900)).toEqual({ kind: "beside", of: "operators", after: true });
  expect(drop(1200, 900)).toBeUndefined();
});

test("an edge is moved within its limits", () => {
  const [side, between] = plan(ANALYZE, 1000, 1000).edges;
  expect([side!.label, side!.now, side!.upright]).toEqual(["Height of the panels below", 36, false]);
  expect([between!.label, between!.now, between!.upright]).toEqual(["Sums and Operators", 50, true]);
  expect(edged(ANALYZE, side!, 45).below.size).toBe(0.45);
  expect(edged(ANALYZE, side!, 99).below.size).toBe(0.6);
  expect(edged(ANALYZE, between!, 25).below.groups.map(({ share }) => share)).toEqual([0.5, 1.5]);
  expect(edged(ANALYZE, between!, -5).below.groups.map(({ share }) => share)).toEqual([0.2, 1.8]);
});

test.each([
  ["null", null],
  ["a list", []],
  ["no sides", {}],
  ["a side that is missing", { ...STANDARD, left: undefined }],
  ["a panel that is not known", { ...STANDARD, left: { size: 0.2, groups: [{ tabs: ["constructor"], active: "constructor", share: 1 }] } }],
  ["a panel at two places", { ...STANDARD, left: STANDARD.below }],
  ["a panel twice in tabs", { ...STANDARD, below: { size: 0.2, groups: [{ tabs: ["sums", "sums"], active: "sums", share: 1 }] } }],
  ["no tabs", { ...STANDARD, below: { size: 0.2, groups: [{ tabs: [], active: "sums", share: 1 }] } }],
  ["a tab in front that is elsewhere", { ...STANDARD, below: { size: 0.2, groups: [{ tabs: ["sums"], active: "list", share: 1 }] } }],
  ["a side that leaves no room", { ...STANDARD, below: { ...STANDARD.below, size: 0.99 } }],
  ["a size that is no number", { ...STANDARD, below: { ...STANDARD.below, size: "0.3" } }],
  ["a share of nothing", { ...STANDARD, below: { size: 0.2, groups: [{ tabs: ["sums"], active: "sums", share: 0 }] } }],
])("%s is no arrangement", (_, value) => {
  expect(checked(value)).toBeUndefined();
});

/** Numbers that are the same in every run: mulberry32. */
function numbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
const apart = (a: Box, b: Box): boolean => a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y;

test("whatever is done, each panel is at most once there, nothing overlaps, and the lanes have their part", () => {
  for (let seed = 0; seed < 25; seed++) {
    const random = numbers(seed);
    const one = <T>(of: readonly T[]): T => of[Math.floor(random() * of.length)]!;
    let all = one([STANDARD, ANALYZE, CODE, TABBED]);
    for (let step = 0; step < 40; step++) {
      const widget = one(WIDGETS);
      const shown = new Set(WIDGETS.filter(() => random() < 0.8));
      const [width, height] = [400 + Math.floor(random() * 2000), 300 + Math.floor(random() * 1000)];
      const now = plan(visible(all, shown), width, height);
      const dropped = dropAt(now, random() * width, random() * height)?.drop;
      const before = placed(all);
      const acts: (() => Arrangement)[] = [
        () => added(all, widget),
        () => (dropped ? put(all, widget, dropped) : all),
        () => moved(all, widget, one(["left", "right", "up", "down"]), shown),
        () => activated(all, widget),
        () => removed(all, widget),
        () => sized(all, one(SIDES), random() * 2 - 0.5),
        () => (now.edges.length ? edged(all, one(now.edges), random() * 140 - 20) : all),
        () => divided(all, widget, one(WIDGETS), random() * 2 - 0.5),
      ];
      const act = Math.floor(random() * acts.length);
      all = acts[act]!();
      const there = placed(all);
      expect(new Set(there).size).toBe(there.length);
      const lost = before.filter((each) => !there.includes(each));
      expect(lost).toEqual(act === 4 && before.includes(widget) ? [widget] : []);
      expect(checked(JSON.parse(JSON.stringify(all)))).toEqual(all);

      const { lanes, areas, edges } = plan(visible(all, ALL), width, height);
      expect(lanes.width).toBeGreaterThanOrEqual(Math.floor(0.35 * width));
      expect(lanes.height).toBeGreaterThanOrEqual(Math.floor(0.3 * height));
      expect(areas.flatMap(({ group }) => group.tabs).toSorted()).toEqual(there.toSorted());
      const boxes = [lanes, ...areas, ...edges];
      for (const box of boxes) {
        expect(Math.min(box.x, box.y, box.width, box.height)).toBeGreaterThanOrEqual(0);
        expect(box.x + box.width).toBeLessThanOrEqual(width);
        expect(box.y + box.height).toBeLessThanOrEqual(height);
      }
      boxes.forEach((box, at) => boxes.slice(at + 1).forEach((other) => expect(apart(box, other)).toBe(true)));
      expect(edges.every(({ side, upright, between }) => upright === (flat(side) === (between !== undefined)))).toBe(true);
    }
  }
});
