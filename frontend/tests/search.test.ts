import { expect, test } from "vitest";
import { matchOf, plain, ranked } from "../src/lib/search";

test("case, punctuation and underscores do not matter", () => {
  expect(["aten::add_", "Layer Norm", "ÄRGER_1", "%_"].map(plain)).toEqual(["atenadd", "layernorm", "ärger1", ""]);
});

test.each([
  ["Kernels", "kernels", "name"],
  ["Kernel Summary", "kernel", "start"],
  ["Most kernels", "kernel", "part"],
  ["Source lines", "kernel", undefined],
])("%s by %s: %s", (name, text, match) => expect(matchOf(name, text)).toBe(match));

test("what has the name is before what begins with it, contains it, is below it and mentions it", () => {
  const matches = ["mention", "path", "part", "start", "name", "part"] as const;
  const entries = matches.map((match, at) => ({ match, at }));
  expect(ranked(entries).map(({ at }) => at)).toEqual([4, 3, 2, 5, 1, 0]);
});
