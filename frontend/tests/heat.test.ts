import { expect, test } from "vitest";
import { domain, long, ramp, share, shown } from "../src/charts/heat";

test("the scale goes from the least to the most that is known", () => {
  expect(
    domain([
      [5, null],
      [9, 7],
    ]),
  ).toEqual([5, 9]);
  expect(domain([[null]])).toEqual([0, 0]);
  expect(domain([])).toEqual([0, 0]);
});

test("a step that is long on all ranks does not take the scale from the others", () => {
  const outside = long([900, 100, 110, 90], 1);
  expect(outside).toEqual([true, false, false, false]);
  expect(domain([[900, 100, 110, 90]], outside)).toEqual([90, 110]);
  expect(share(900, [90, 110])).toBe(1);
  expect(long([100, 110, 90, 900], 2)).toEqual([false, true]);
  expect(domain([[900, 800]], [true, true])).toEqual([800, 900]); // there is no other
});

test("a place on the scale is between its ends", () => {
  expect([5, 6, 9, 99].map((one) => share(one, [5, 9]))).toEqual([0, 0.25, 1, 1]);
  expect(share(5, [5, 5])).toBe(0);
});

test("colors go from stop to stop", () => {
  expect(ramp(["#000000", "#0a141e", "#ffffff"], 5)).toEqual([
    "rgb(0 0 0)",
    "rgb(5 10 15)",
    "rgb(10 20 30)",
    "rgb(133 138 143)",
    "rgb(255 255 255)",
  ]);
});

test("a cell of several workers and steps is that of the one that is shown", () => {
  expect(shown(3, 4, 1, 1, null)).toEqual([3, 4]);
  // Two workers and three steps each: place 4 is the second worker and the second step.
  expect(shown(1, 2, 2, 3, [[0], [0, 0, 4]])).toEqual([3, 7]);
});
