import { expect, test } from "vitest";
import type { Timeline } from "../src/api/client";
import { labelled, placedSteps, stepAt, titleOf } from "../src/timeline/steps";

const marked = (worker: number, number: number, start: number, end: number): Timeline["steps"][number] =>
  ({ worker, number, start, end }) as Timeline["steps"][number];
const TWO = [marked(0, 1, 0, 100), marked(0, 2, 100, 200), marked(1, 1, 30, 130), marked(1, 2, 130, 230)];
const NAMES = new Map([
  [0, "rank0"],
  [1, "rank1"],
]);

test("labels name the worker only where steps of one number do not begin together", () => {
  const names = (steps: Timeline["steps"]): string[] =>
    labelled(placedSteps(steps), NAMES, { from: 0, to: 200 }, 1000).map((one) => one.name);
  const together = [marked(0, 1, 0, 100), marked(1, 1, 0, 100)];
  expect(names(together)).toEqual(["step 1", "step 1"]);
  expect(names(TWO)).toEqual(["step 1 rank0", "step 1 rank1", "step 2 rank0", "step 2 rank1"]);
});

test("a label that would lie on another one, or that the next step cuts, is covered", () => {
  const covered = (from: number, width: number): boolean[] =>
    labelled(placedSteps(TWO.slice(0, 2)), NAMES, { from, to: from + 200 }, width).map((one) => one.covered);
  expect(covered(0, 1000)).toEqual([false, false]);
  expect(covered(0, 80)).toEqual([false, true]); // 40 px for a label of 50
  expect(covered(95, 400)).toEqual([true, false]); // 10 px are left of the first
  expect(covered(195, 400)).toEqual([true]);
});

test("a step has its start and not its end", () => {
  const steps = placedSteps(TWO);
  expect(stepAt(steps, 99)?.number).toBe(1);
  expect(stepAt(steps, 100, 0)?.number).toBe(2);
  expect(stepAt(steps, 100, 1)?.number).toBe(1);
  expect(stepAt(steps, 230)).toBeUndefined();
});

test("a stretch that is a step has its name, another one its length", () => {
  const steps = placedSteps(TWO);
  expect(titleOf(steps, { from: 30, to: 130 })).toBe("step 1");
  expect(titleOf(steps, { from: 30, to: 140 })).toBe("110 ns at 30 ns");
});
