import { describe, expect, test } from "vitest";
import { nest } from "../src/charts/nest";
import { span, together } from "../src/charts/roofline";
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

describe("a roofline", () => {
  const point = (achieved: number, time: number) => ({ intensity: 1, achieved, time });
  const busy = [point(1e12, 600), point(1e10, 399)];
  test("leaves out what is far away and takes no time to speak of", () => {
    expect(together([...busy, point(1e6, 1)])).toEqual(busy);
    expect(together([...busy, point(1e9, 1)])).toHaveLength(3); // near
    expect(together([...busy, point(1e6, 11)])).toHaveLength(3); // more than 1 % of the time
  });
  test("is zoomed to a power of ten at least, within its axis", () => {
    expect(span(3, 1, [-1, 4])).toEqual([1, 3]);
    expect(span(2, 2.2, [-1, 4])).toEqual([1.6, 2.6]);
    expect(span(3.8, 4, [-1, 4])).toEqual([3, 4]);
    expect(span(-1, -0.8, [-1, 4])).toEqual([-1, 0]);
  });
});
