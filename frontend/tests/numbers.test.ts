import { expect, test } from "vitest";
import type { Column } from "../src/api/client";
import { alike, numbering, placesOf, share } from "../src/lib/format";
import { sides } from "../src/lib/cut";
import { headed, linesOf, numbersOf, written } from "../src/table/numbers";

const column = (key: string, unit: string, kind: "int" | "float" = "int"): Column => ({
  key,
  unit,
  kind,
  heading: key,
  text: "",
  extra: false,
});
const shown = (columns: Column[], rows: number[][], totals = {}) =>
  numbersOf(columns, rows, totals).map((one) => [headed(one.column.key, one.scale), ...rows.map((row) => written(row[one.at]!, one).text)]);

test("columns of one call have one unit and as many decimals", () => {
  const times = ["total_ns", "mean_ns", "max_ns", "min_ns"].map((key) => column(key, "ns"));
  expect(shown(times, [[80_756_000, 498_494, 1_017_000, 323_000]])).toEqual([
    ["total_ns (ms)", "80.756"],
    ["mean_ns (µs)", "498.5"],
    ["max_ns (µs)", "1,017.0"],
    ["min_ns (µs)", "323.0"],
  ]);
  // A unit that fits the smallest is not taken where the largest would have seven digits in it.
  expect(shown(times.slice(2), [[20_000_000_000, 1_500]])).toEqual([
    ["max_ns (s)", "20.000"],
    ["min_ns (µs)", "1.500"],
  ]);
});

test("columns have the unit of the largest, as long as it shows three digits of theirs", () => {
  const columns = ["with_ns", "without_ns", "memset_ns"].map((key) => column(key, "ns"));
  expect(shown(columns, [[996_750, 3_161_000, 38_115]])).toEqual([
    ["with_ns (ms)", "0.997"],
    ["without_ns (ms)", "3.161"],
    ["memset_ns (µs)", "38.115"],
  ]);
});

test("what is 0 in all rows has the unit of the others", () => {
  expect(shown([column("kernel_ns", "ns"), column("communication_ns", "ns"), column("bytes", "B")], [[2_175_000, 0, 0]])).toEqual([
    ["kernel_ns (ms)", "2.175"],
    ["communication_ns (ms)", "0"],
    ["bytes (B)", "0"],
  ]);
});

test("numbers of a column have as many decimals", () => {
  const [one] = numbersOf([column("occupancy", "%", "float")], [[100], [43.5], [0.012], [0], [12.34567]]);
  expect([100, 43.5, 12.34567, 0.012, 0.001, 0].map((value) => written(value, one!).text)).toEqual([
    "100.00", "43.50", "12.35", "0.01", "< 0.01", "0",
  ]); // prettier-ignore
  expect(written(12.34567, one!).tip).toBe("12.3457 %"); // what is rounded is exact in the tip
  expect(written(43.5, one!).tip).toBe("43.5 %");
  expect(placesOf([1, 2, 3])).toBe(0);
  expect(placesOf([1.5, 2])).toBe(1);
  expect(placesOf([0.12345])).toBe(4);
  expect(placesOf([2_000.25])).toBe(1);
});

test("a share of nothing is 0 percent, and none is as long as its neighbors", () => {
  const [one] = numbersOf([column("memset_ns", "ns")], [[10_000], [0]], { memset_ns: { filtered: 10_000, all: 10_000, unknown: 0 } });
  expect([10_000, 0].map((value) => written(value, one!).share)).toEqual([100, 0]);
  expect([null, 0, 0.05, 0.1, 12.34, 99.95, 100, 99.999_999_999_9].map(share)).toEqual([
    "na", "0.0 %", "< 0.1 %", "0.1 %", "12.3 %", "> 99.9 %", "100.0 %", "100.0 %",
  ]); // prettier-ignore
});

test("a share in the row of a step is of that step", () => {
  const columns = [column("kernel_ns", "ns"), column("total_ns", "ns"), column("start", "ns")];
  const rows = [
    [30, 100, 0],
    [30, 60, 100],
  ];
  const totals = { kernel_ns: { filtered: 60, all: 60, unknown: 0 }, total_ns: { filtered: 160, all: 160, unknown: 0 } };
  const [kernel, total, start] = numbersOf(columns, rows, totals, { kernel_ns: "total_ns" });
  expect(rows.map((row) => written(row[0]!, kernel!, row).share)).toEqual([30, 50]);
  expect(written(30, kernel!, rows[1]!).tip).toBe("30 ns\n50.0 % of 60 ns: total_ns");
  expect(written(60, kernel!, [60, 160]).share).toBe(37.5); // of the sums
  expect(rows.map((row) => written(row[1]!, total!, row).share)).toEqual([null, null]); // the whole has none
  expect(written(100, start!, rows[1]!).share).toBe(null);
  // Without the column of the whole shares are of the total.
  expect(written(30, numbersOf(columns.slice(0, 1), rows, totals, { kernel_ns: "total_ns" })[0]!, [30]).share).toBe(50);
});

test("times beside each other have the unit of the largest", () => {
  const say = alike([717_000, 15_900_000, null, 18_700]);
  expect([717_000, 15_900_000, 18_700, 900, 0, null].map(say)).toEqual(["0.72 ms", "15.90 ms", "0.02 ms", "< 0.01 ms", "0 ms", "na"]);
});

test("two numberings are told apart, one is not mentioned", () => {
  expect(numbering({ first: 0, last: 5, steps: [5, 10] })).toBe(
    "Iterations are counted from 0: the program's steps 5 to 10 are iterations 0 to 5.",
  );
  expect(numbering({ first: 0, last: 0, steps: [10, 10] })).toBe("Iterations are counted from 0: the program's step 10 is iteration 0.");
  expect(numbering({ first: 2, last: 5, steps: [2, 5] })).toBe("");
  expect(numbering({ first: 0, last: 5, steps: null })).toBe("");
  expect(numbering(undefined)).toBe("");
});

test("edges behind which there is more", () => {
  const box = { scrollLeft: 0, scrollTop: 0, clientWidth: 100, clientHeight: 50, scrollWidth: 100, scrollHeight: 50 };
  expect(sides(box)).toBe("");
  expect(sides({ ...box, scrollWidth: 130 })).toBe("right");
  expect(sides({ ...box, scrollWidth: 130, scrollLeft: 29.6 })).toBe(""); // browsers round the others
  expect(sides({ ...box, scrollWidth: 130, scrollHeight: 80 })).toBe("right bottom");
  expect(sides({ ...box, scrollHeight: 80, scrollTop: 30 })).toBe("");
});

test.each([
  ["Calls", 5],
  ["Device Self (ms)", 9],
  ["Kernel Time using Tensor Cores (%)", 17],
  ["Time of Unknown FLOPs (ms)", 15],
])("two lines of %s need %i letters", (heading, letters) => expect(linesOf(heading)).toBe(letters));
