import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { type Data, Inline, keyOf } from "../src/api/inline";
import { ABSENT } from "../src/api/problem";
import { compare, folded } from "../src/api/rows";

// The server's answers, which tests/server/test_one_file_tables.py writes.
const golden = JSON.parse(readFileSync(new URL("../../tests/golden/page/tables.json", import.meta.url), "utf8"));
const option = { name: "by", default: "name" };
const data = {
  left_out: [],
  answers: { reports: [{ name: "operator", options: [option] }], "timeline/colors\nby=type": { groups: [] } },
  tables: { "reports/operator": golden.table, "reports/operator\nby=shapes": { ...golden.table, ids: [] } },
  trees: { "trees/modules": golden.tree },
  texts: { label: { 3: "net" } },
  tiles: { "4 10": [-1, 5] },
} as unknown as Data;
const inline = new Inline(data, new Uint8Array());

test("a file answers about a table what the server does", async () => {
  for (const [query, reply] of golden.questions) {
    if (reply.problem) {
      await expect(inline.get("reports/operator", query), JSON.stringify(query)).rejects.toMatchObject({ detail: reply.problem });
      continue;
    }
    expect(await inline.get("reports/operator", query), JSON.stringify(query)).toMatchObject(reply);
  }
});

test("a file unfolds a tree as the server does", async () => {
  for (const [query, reply] of golden.unfolded) {
    const asked = { ...query, sort: query.sort ?? undefined, open: query.open ?? undefined };
    expect(await inline.get("trees/modules", asked), JSON.stringify(query)).toMatchObject(reply);
  }
});

test("an option that is as by default is no other question", async () => {
  expect(await inline.get("reports/operator", { by: "name" })).toMatchObject({ total: 60 });
  expect(await inline.get("reports/operator", { by: "shapes", run: "a", aggregation: 1 })).toMatchObject({ total: 60 });
  expect(keyOf("timeline/colors", { by: "type", run: "x", v: "3", worker: undefined })).toBe("timeline/colors\nby=type");
});

test("what is not in the file is told in a sentence", async () => {
  await expect(inline.get("reports/operator", { by: "stack" })).rejects.toMatchObject({ type: "absent", detail: ABSENT });
  await expect(inline.get("timeline/flows", { of: "launch:3" })).rejects.toMatchObject({ detail: ABSENT });
  await expect(inline.bytes("timeline/roofline", { worker: 0 })).rejects.toMatchObject({ detail: ABSENT });
  expect(await inline.get("timeline/texts", { of: ["label,3,4"] })).toEqual({ label: { 3: "net", 4: "(name not in this file)" } });
});

test("tiles that the file does not have are not taken for empty ones", () => {
  expect(inline.covers(4, 10, -1)).toBe(true);
  expect(inline.covers(4, 10, 6)).toBe(false);
  expect(inline.covers(4, 0, 1)).toBe(false);
});

test("texts are compared as Python compares them", () => {
  expect(folded("STRAẞE İıΣ")).toBe("strasse i̇ıσ");
  expect(compare("\uffee", "𝔘")).toBeLessThan(0);
  expect(["b", "a", "ab"].sort(compare)).toEqual(["a", "ab", "b"]);
});
