import { expect, test } from "vitest";
import { exact, scaled, scaleOf } from "../src/lib/format";
import { segments } from "../src/lib/paths";
import { asHtml, asMarkdown, asTsv } from "../src/table/clipboard";

test("a column has the unit of its largest value, and four digits of it", () => {
  expect(scaleOf("ns", 999)).toEqual({ name: "ns", size: 1, places: 0 });
  expect(scaleOf("ns", 273_428_000)).toEqual({ name: "ms", size: 1e6, places: 2 });
  expect(scaleOf("ns", 34_500)).toEqual({ name: "µs", size: 1e3, places: 3 });
  expect(scaleOf("ns", 5e13)).toEqual({ name: "s", size: 1e9, places: 1 });
  expect(scaleOf("B", 34_084_028_416)).toEqual({ name: "GiB", size: 2 ** 30, places: 3 });
  expect(scaleOf("B", 1023).name).toBe("B");
  expect(scaleOf("ns", 5, "ms").name).toBe("ms");
  expect(scaleOf("ns", 0).name).toBe("ns");
});

test("what is too small for its column is not zero", () => {
  const ms = scaleOf("ns", 273_428_000);
  expect(scaled(273_428_000, ms)).toBe("273.43");
  expect(scaled(10_000, ms)).toBe("0.01");
  expect(scaled(4_000, ms)).toBe("< 0.01");
  expect(scaled(0, ms)).toBe("0");
  expect(scaled(10_575.5, scaleOf("ns", 100))).toBe("10,575.5");
  expect(exact(273_428_000, "ns")).toBe("273,428,000 ns");
  expect(exact(3, "count")).toBe("3");
});

test("of a path the end and the numbered part stay", () => {
  const texts = (path: string) => segments(path)?.map(({ text, keep }) => (keep ? `[${text}]` : text));
  expect(texts("model/layers/layer_11/attention/softmax")).toEqual(["model/layers", "[/layer_11]", "/attention", "[/softmax]"]);
  expect(texts("Net_0/Encoder_0/Layer_7/softmax")).toEqual(["Net_0/Encoder_0", "[/Layer_7/softmax]"]);
  expect(texts("a/b/c")).toEqual(["a/b", "[/c]"]);
  expect(segments("a/b")).toBeUndefined();
  expect(segments("package/module.py:95", false)).toEqual([
    { text: "package", keep: false },
    { text: "/module.py", keep: true },
    { text: ":95", keep: true, number: true },
  ]);
  expect(texts("Net_0.Encoder_0.Layer_*.Linear_3")).toEqual(["Net_0.Encoder_0.Layer_*", "[.Linear_3]"]);
  expect(texts("Net_0.Encoder_0.Layer_17.Linear_3")).toEqual(["Net_0.Encoder_0", "[.Layer_17.Linear_3]"]);
  expect(segments("void f<1.0, 2.0>(a.b.c)")).toBeUndefined();
});

test("what is copied has no formula, no tag and no line of its own", () => {
  const rows = [
    ["=1+1\tx\ny", 3, null, true],
    ["<img src=x>", -1, "a|b", false],
  ];
  expect(asTsv(["a", "b", "c", "d"], rows)).toBe("a\tb\tc\td\n'=1+1 x y\t3\t\ttrue\n<img src=x>\t-1\ta|b\tfalse");
  expect(asHtml(["a"], [["<img src=x>&"]])).toBe("<table><tr><th>a</th></tr><tr><td>&#60;img src=x&#62;&#38;</td></tr></table>");
  expect(asMarkdown(["a", "b"], [["x|y\nz", 1]])).toBe("| a | b |\n| --- | --- |\n| x\\|y z | 1 |\n");
});
