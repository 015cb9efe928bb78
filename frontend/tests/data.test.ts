import { describe, expect, test } from "vitest";
import { nest } from "../src/charts/nest";
import { byteTicks, decades, ticks } from "../src/charts/scale";

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
