import { describe, expect, test } from "vitest";
import { nest } from "../src/charts/nest";
import { byteTicks, decades, ticks } from "../src/charts/scale";
import { below, NOWHERE } from "../src/lib/difference";

describe("ticks", () => {
  test("stand at 1, 2 or 5 times a power of ten, and are no more than asked for", () => {
    expect(ticks(0, 10, 5)).toEqual([0, 2, 4, 6, 8, 10]);
    expect(ticks(3, 47, 5)).toEqual([10, 20, 30, 40]);
    expect(ticks(0, 0.3, 3)).toEqual([0, 0.1, 0.2, 0.3]);
  });
  test("of nothing are its one place", () => expect(ticks(5, 5, 4)).toEqual([5]));
  test("of bytes are powers of two", () => expect(byteTicks(0, 4096, 4)).toEqual([0, 1024, 2048, 3072, 4096]));
  test("of logarithms are at most eight or so", () => {
    expect(decades(0, 3)).toEqual([0, 1, 2, 3]);
    expect(decades(0, 20).length).toBeLessThanOrEqual(8);
  });
});

describe("modules", () => {
  const row = (module: string, depth: number) => ({ module, depth });
  test("hang on the one that they are in", () => {
    const [net] = nest([row("net", 0), row("net.a", 1), row("net.a.b", 2), row("net.c", 1)]);
    expect(net!.children.map((child) => child.name)).toEqual(["a", "c"]);
    expect(net!.children[0]!.children.map((child) => child.name)).toEqual(["b"]);
  });
  test("without a name are outside", () => expect(nest([row("", 0)])[0]!.name).toBe("Outside modules"));
});

describe("two runs", () => {
  const rows = [
    { module: "net.a", operator: "aten::mm", base_device_ns: 5, other_device_ns: 9 },
    { module: "net.b", operator: "aten::mm", base_device_ns: 7, other_device_ns: 1 },
    { module: null, operator: "aten::add", base_device_ns: 2, other_device_ns: null },
  ];
  test("are summed at each step down, the largest first", () => {
    const top = below(rows, [], "device_ns");
    expect(top.map((group) => [group.label, group.base, group.other])).toEqual([
      ["net", 12, 10],
      [NOWHERE, 2, 0],
    ]);
    expect(below(rows, ["m:net"], "device_ns").map((group) => group.label)).toEqual(["a", "b"]);
    expect(below(rows, ["m:net", "m:a", "o:aten::mm"], "device_ns")).toEqual([]);
  });
  test("keep a module and an operator of one name apart", () => {
    const same = [
      { module: "x", operator: null, base_calls: 1 },
      { module: null, operator: "x", base_calls: 1 },
    ];
    expect(below(same, [], "calls").map((group) => group.key)).toEqual(["m:outside of modules, or in several", "m:x"]);
  });
});
