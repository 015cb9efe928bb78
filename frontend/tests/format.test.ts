import { describe, expect, test } from "vitest";
import * as format from "../src/lib/format";

describe("numbers", () => {
  test("come with what is counted", () => {
    expect([0, 1, 2, 1234].map((number) => format.several(number, "rule"))).toEqual(["0 rules", "1 rule", "2 rules", "1,234 rules"]);
  });
  test.each([
    [null, "na"],
    [0, "0"],
    [1234567, "1,234,567"],
    [0.5, "0.5"],
    [12.34567, "12.3457"],
    [1234.56, "1,234.6"],
  ])("number(%s) is %s", (value, text) => expect(format.number(value)).toBe(text));

  test.each([
    [null, "na"],
    [0, "0 ns"],
    [999, "999 ns"],
    [1000, "1.00 µs"],
    [12_345, "12.3 µs"],
    [999_600, "1.00 ms"], // rounds up into the next unit
    [1_234_567_890, "1.23 s"],
    [60_000_000_000, "60.0 s"],
  ])("time(%s) is %s", (value, text) => expect(format.time(value)).toBe(text));

  test.each([
    [1023, "1,023 B"],
    [1024, "1.00 KiB"],
    [1_048_576, "1.00 MiB"],
    [80 * 2 ** 30, "80.0 GiB"],
  ])("bytes(%s) is %s", (value, text) => expect(format.bytes(value)).toBe(text));

  test.each([
    [1.5e12, "FLOP/s", "1.50 TFLOP/s"],
    [2e9, "B/s", "2.00 GB/s"],
    [null, "B/s", "na"],
  ])("rate(%s, %s) is %s", (value, unit, text) => expect(format.rate(value, unit)).toBe(text));

  test.each([
    [null, "na"],
    [0, "0.0 %"],
    [0.04, "0.04 %"],
    [0.000004, "< 0.001 %"],
    [99.97, "99.97 %"], // nearly all is not all
    [99.99999, "> 99.999 %"],
    [99.999_999_999_999, "100.0 %"], // a sum of shares
    [100, "100.0 %"],
  ])("percent(%s) is %s", (value, text) => expect(format.percent(value)).toBe(text));
});

test.each([
  ["one every 67.9 us; status of 3 users", "one every 67.9\u00a0µs; status of 3 users"],
  ["by 12 us, 3.5 ms or 2 s", "by 12\u00a0µs, 3.5\u00a0ms or 2\u00a0s"],
  ["0.85 %, (87.7 %)", "0.85\u00a0%, (87.7\u00a0%)"],
  ["689 MiB of 79.2 GiB at 1.5 TB/s, 12 GFLOP/s, 3 B", "689\u00a0MiB of 79.2\u00a0GiB at 1.5\u00a0TB/s, 12\u00a0GFLOP/s, 3\u00a0B"],
  ["2 steps, 3 Blocks, 4 msgs", "2 steps, 3 Blocks, 4 msgs"],
  ["torch --bins 4 sparse", "torch --bins 4 sparse"],
])("a sentence keeps numbers and units in one line: %s", (text, drawn) => expect(format.prose(text)).toBe(drawn));

test("decimals line up: what a text has fewer of is filled with blanks as wide", () => {
  expect(format.padding("1.25", 2)).toBe(null);
  expect(format.padding("1.2", 2)).toBe("\u2007");
  expect(format.padding("1", 2)).toBe("\u2008\u2007\u2007");
});

test("a tick has no zeros that say nothing", () => {
  expect(format.tick("50.0 ms")).toBe("50 ms");
  expect(format.tick("2.50 ms")).toBe("2.5 ms");
});

test("a long name keeps its beginning and its end", () => {
  expect(format.middle("abcdefghij", 10)).toBe("abcdefghij");
  expect(format.middle("abcdefghijk", 6)).toBe("abcd…k");
  expect(format.middle("abcdefghijk", 6)).toHaveLength(6);
});

test("kernels of one template are told apart by its arguments", () => {
  const { head, pieces } = format.template("void at::native::vectorized<4, at::native::AddFunctor<float>, Array<3> >(int)")!;
  expect(head).toBe("vectorized");
  expect(pieces.map((one) => one.text).join("")).toBe("<4, at::native::AddFunctor<float>, Array<3> >(int)"); // all of it, to copy
  expect(pieces.filter((one) => !one.hidden).map((one) => one.text)).toEqual(["<4, ", "AddFunctor<float>, Array<3> >(int)"]);
  expect(format.brief("void at::native::vectorized<4, at::native::AddFunctor<float> >(int)")).toBe(
    "vectorized<4, AddFunctor<float> >(int)",
  );
  expect(format.brief("volta_sgemm_128x64_nn")).toBe("volta_sgemm_128x64_nn");
  expect(format.template("volta_sgemm_128x64_nn")).toBeUndefined();
  expect(format.template("<lambda>")).toBeUndefined();
});

test("a kernel is told by what comes after the namespaces of torch", () => {
  expect(format.kernel("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<A<4>>(A<4>)")).toBe(
    "multi_tensor_apply_kernel<A<4>>(A<4>)",
  );
  expect(format.kernel("void cutlass::Kernel2<x>(x)")).toBe("cutlass::Kernel2<x>(x)");
  expect(format.kernel("volta_sgemm_128x64_nn")).toBe("volta_sgemm_128x64_nn");
  expect(format.kernel("aten::mm")).toBe("aten::mm");
});

test("microseconds of a sentence have the sign of those in tables", () => {
  expect(format.prose("one every 67.9 us; status of 3 users")).toBe("one every 67.9\u00a0µs; status of 3 users");
});
