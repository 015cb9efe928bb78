import { expect, test } from "vitest";
import { described } from "../src/lib/options";

test("a description names the page's boxes, not the options of a command", () => {
  expect(described("a row each; with --by=stream or --by=step, one per step.")).toBe(
    "a row each; with “Group by: stream” or “Group by: step”, one per step.",
  );
  expect(described("With --categories=7, all: --per=run.")).toBe("With “Categories: 7”, all: “per: run”.");
  expect(described("name its key (--key_op), torchrun --nproc-per-node")).toBe("name its key (--key_op), torchrun --nproc-per-node");
});
