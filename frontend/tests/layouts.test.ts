import { expect, test } from "vitest";
import { addressOf, checked, fileOf, joined, layoutOf, LONGEST, PRESETS, read, type Layout } from "../src/timeline/layouts";
import { CODE, STANDARD } from "../src/timeline/dock";
import type { Track } from "../src/timeline/store";

const COLORS = ["type", "module"];
const track = (id: number, kind: Track["kind"]): Track => ({ id, kind }) as Track;
const TRACKS = [track(0, "range"), track(1, "range"), track(2, "stream"), track(3, "idle")];
const layout: Layout = {
  ...{ name: "own", by: "module", arrows: false, counters: true, sum: "tree", work: true },
  ...{ hidden: ["range"], pinned: ["idle"], panels: CODE },
};

test("a layout is what its address says, in any profile", () => {
  const address = addressOf(layout, TRACKS);
  expect(address).toEqual({ by: "module", arrows: "off", counters: "on", sum: "tree", work: "on", hide: "0,1", pin: "3" });
  expect(layoutOf("own", (key) => address[key], TRACKS, COLORS, CODE)).toEqual(layout);
  expect(addressOf(layout, [track(7, "idle"), track(9, "range")])).toMatchObject({ hide: "9", pin: "7" });
  const plain = layoutOf("plain", () => undefined, TRACKS, COLORS, STANDARD);
  expect(Object.values(addressOf(plain, TRACKS)).filter(Boolean)).toEqual([]);
});

test("a kind is hidden if all of its tracks are", () => {
  const hidden = (hide: string): readonly string[] =>
    layoutOf("x", (key) => (key === "hide" ? hide : undefined), TRACKS, COLORS, STANDARD).hidden;
  expect(hidden("0")).toEqual([]);
  expect(hidden("0,1,2")).toEqual(["range", "stream"]);
});

test("what another program wrote into the address is not kept", () => {
  const one = layoutOf("x", () => "<b>", TRACKS, COLORS, STANDARD);
  expect(checked(one, COLORS)).toEqual(one);
});

test("a file has the layouts that were written", () => {
  expect(read(fileOf([layout]), COLORS)).toEqual([layout]);
  expect(read(fileOf([{ ...layout, name: "<img src=x>" }]), COLORS)[0]!.name).toBe("<img src=x>");
});

const wrong = (changes: object): string => JSON.stringify({ pyprof_layouts: 1, layouts: [{ ...layout, ...changes }] });
test.each([
  ["", "not JSON"],
  ["[]", "no layouts"],
  ["null", "no layouts"],
  ['{"pyprof_notes": 1, "layouts": []}', "no layouts"],
  ['{"pyprof_layouts": 1, "layouts": {}}', "no layouts"],
  ['{"pyprof_layouts": 2, "layouts": []}', "another version"],
  ['{"pyprof_layouts": 1, "layouts": [null]}', "has to be an object"],
  [" ".repeat(200_001), "too large"],
  [wrong({ name: undefined }), "needs a name"],
  [wrong({ name: " " }), "needs a name"],
  [wrong({ name: "x".repeat(LONGEST + 1) }), "at most"],
  [wrong({ name: PRESETS[0]!.name }), "always there"],
  [wrong({ by: "taste" }), "unknown value of by"],
  [wrong({ arrows: "no" }), "unknown value of arrows"],
  [wrong({ sum: 1 }), "unknown value of sum"],
  [wrong({ panels: { below: [] } }), "unknown value of panels"],
  [wrong({ hidden: "range" }), "unknown value of hidden"],
  [wrong({ pinned: ["toString"] }), "unknown value of pinned"],
])("a file that has none is a sentence, %#", (text, sentence) => {
  expect(() => read(text, COLORS)).toThrow(sentence);
});

test("layouts of a file are beside those of the same name, unless they are the same", () => {
  const other = { ...layout, counters: false };
  const both = joined([layout], [other, layout]);
  expect(both).toEqual([layout, { ...other, name: "own (2)" }]);
  expect(joined(both, [other, layout])).toEqual(both);
  expect(joined(both, both)).toEqual(both);
});

test("a layout that knows nothing of panels has them where they are at first", () => {
  const old = Object.fromEntries(Object.entries(layout).filter(([key]) => key !== "panels"));
  expect(checked(old, COLORS)).toEqual({ ...layout, panels: STANDARD });
});
