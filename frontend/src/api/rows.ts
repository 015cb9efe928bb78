// Rows of a table in the page itself: filtered, searched and sorted as the server does it (column_table.py, filters.py).
// A test asks both the same questions.
import type { Cell, Column, Total } from "./client";
import { Problem } from "./problem";

const UNITS: Record<string, Record<string, number>> = {
  ns: { ns: 1, us: 1e3, µs: 1e3, ms: 1e6, s: 1e9 },
  B: { b: 1, kb: 1e3, mb: 1e6, gb: 1e9, kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30 },
  "%": { "%": 1 },
};
const NUMBER = "[+-]?(?:[0-9][0-9,_]*(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?";
const AMOUNT = new RegExp(`^\\s*(${NUMBER})\\s*([a-zA-Zµ%]*)\\s*$`);
const COMPARISON = /^\s*(<=|>=|=|<|>)(.*)$/s;
const DIGITS = /^[0-9,.\-+eE]+$/;
const EXPONENT = 1e10; // numbers with a fraction are written with an exponent from here on
const YES = ["1", "y", "ye", "yes"];
const NO = ["0", "n", "no"];

type Test = (value: Cell) => boolean;

function wrong(detail: string, parameter: string): Problem {
  return new Problem("parameter", "Invalid parameter", detail, 422, parameter);
}

/** A text without the difference of upper and lower case, as Python's casefold. */
export function folded(text: string): string {
  if (/^[\0-\x7f]*$/.test(text)) return text.toLowerCase();
  return [...text].map((one) => (one === "ı" ? one : one === "ẞ" ? "ss" : one.toUpperCase().toLowerCase())).join("");
}

/** The order of texts by code points; of UTF-16 it is another one. */
export function compare(a: string, b: string): number {
  const length = Math.min(a.length, b.length);
  for (let at = 0; at < length; at++) {
    const [x, y] = [a.charCodeAt(at), b.charCodeAt(at)];
    if (x === y) continue;
    const [high, low] = [x >= 0xd800 && x < 0xe000, y >= 0xd800 && y < 0xe000];
    return high === low ? x - y : high ? 1 : -1;
  }
  return a.length - b.length;
}

const plain = (text: string): string => text.trim().replace(/[,_]/g, "");

/** A number as the server writes it. */
function written(value: number, kind: Column["kind"]): string {
  return kind === "float" && Math.abs(value) >= EXPONENT ? value.toExponential() : String(value);
}

/** A number in the unit of a column, and the unit that was written; `suffix`: the unit if none is. */
function amount(text: string, unit: string, suffix = ""): [number, string] {
  const match = AMOUNT.exec(text);
  if (!match) throw wrong(`filter '${text}': expected a number, as in >5 or 10..20.`, "filter");
  const given = match[2] || suffix;
  const factors = UNITS[unit] ?? {};
  const factor = given ? factors[given.toLowerCase()] : 1;
  if (factor === undefined) {
    const known = Object.keys(factors);
    const units = known.length ? `its units are ${known.join(" ")}` : "it has none";
    throw wrong(`filter '${text}': ${given} is not a unit of this column; ${units}.`, "filter");
  }
  return [Number(plain(match[1]!)) * factor, given];
}

function textTest(text: string): Test {
  if (text.startsWith("=")) {
    const whole = text.slice(1);
    return (cell) => cell === whole || String(cell).split("\n").includes(whole);
  }
  const needle = folded(text.trim());
  return (cell) => folded(String(cell)).includes(needle);
}

function digitsTest(text: string, kind: Column["kind"]): Test {
  const digits = plain(text);
  return (cell) => written(cell as number, kind).includes(digits);
}

function numberTest(text: string, { unit, kind }: Column): Test {
  const parts = text.split("..");
  if (parts.length === 2) {
    const [high, suffix] = amount(parts[1]!, unit);
    const [low] = amount(parts[0]!, unit, suffix);
    return (cell) => (cell as number) >= low && (cell as number) <= high;
  }
  const comparison = COMPARISON.exec(text);
  if (!comparison) {
    if (DIGITS.test(text.trim())) return digitsTest(text, kind);
    const [value] = amount(text, unit);
    return (cell) => cell === value;
  }
  const [value] = amount(comparison[2]!, unit);
  const tests: Record<string, Test> = {
    "<": (cell) => (cell as number) < value,
    "<=": (cell) => (cell as number) <= value,
    "=": (cell) => cell === value,
    ">": (cell) => (cell as number) > value,
    ">=": (cell) => (cell as number) >= value,
  };
  return tests[comparison[1]!]!;
}

/** A table with all rows that the page has. Cells of any type come as texts of JSON, by the number of their column. */
export class Rows {
  constructor(
    readonly columns: readonly Column[],
    readonly rows: readonly (readonly Cell[])[],
    private readonly texts: Readonly<Record<string, readonly (string | null)[]>> = {},
  ) {}

  /** What is compared and searched: the cell, null if it is unknown. */
  private value(column: number, row: number): Cell {
    return this.texts[column] ? (this.texts[column][row] ?? null) : (this.rows[row]![column] ?? null);
  }
  private place(key: string, parameter: string): number {
    const at = this.columns.findIndex((column) => column.key === key);
    const known = this.columns.map((column) => column.key).join(", ");
    if (at < 0) throw wrong(`${parameter}: unknown column '${key}'; choose from ${known}.`, parameter);
    return at;
  }

  /** The places of the rows that pass, in order. Throws Problem for an unknown column or condition. */
  select(search = "", filters: readonly string[] = [], sort = ""): number[] {
    const tests = filters.map((filter) => this.filter(filter));
    const text = search.trim();
    if (text) tests.push(this.search(text));
    const found = this.rows.map((_, row) => row).filter((row) => tests.every((test) => test(row)));
    return sort ? this.sorted(found, sort) : found;
  }

  private filter(text: string): (row: number) => boolean {
    const colon = text.indexOf(":");
    if (colon < 0) throw wrong(`filter '${text}': expected KEY:CONDITION, as in gpu:>5ms.`, "filter");
    const at = this.place(text.slice(0, colon), "filter");
    const column = this.columns[at]!;
    const condition = text.slice(colon + 1);
    const word = condition.trim();
    if (word === "?") return (row) => this.value(at, row) === null;
    if (word === "!?") return (row) => this.value(at, row) !== null;
    let test: Test;
    if (column.kind === "str" || column.kind === "object") test = textTest(condition);
    else if (column.kind === "bool") {
      const said = folded(word);
      const yes = YES.includes(said);
      if (!yes && !NO.includes(said)) throw wrong(`filter '${condition}': for a boolean column, use yes or no.`, "filter");
      test = (cell) => cell === yes;
    } else test = numberTest(condition, column);
    return (row) => {
      const cell = this.value(at, row);
      return cell !== null && test(cell);
    };
  }

  private search(text: string): (row: number) => boolean {
    const needle = folded(text);
    const tests = this.columns.map(({ kind }): Test | undefined => {
      if (kind === "str" || kind === "object") return (cell) => folded(String(cell)).includes(needle);
      return kind !== "bool" && DIGITS.test(text) ? digitsTest(text, kind) : undefined;
    });
    return (row) =>
      tests.some((test, at) => {
        const cell = test && this.value(at, row);
        return cell !== undefined && cell !== null && test!(cell);
      });
  }

  /** Unknown values come last in both directions; what is equal stays in order. */
  private sorted(rows: number[], sort: string): number[] {
    const keys = sort.split(",").map((name): [unknown[], number] => {
      const at = this.place(name.replace(/^-/, ""), "sort");
      const { kind } = this.columns[at]!;
      const text = kind === "str" || kind === "object";
      const values = rows.map((row): unknown => {
        const cell = this.value(at, row);
        return cell === null ? null : text ? [folded(String(cell)), String(cell)] : Number(cell);
      });
      return [values, name.startsWith("-") ? -1 : 1];
    });
    const order = rows.map((_, place) => place);
    order.sort((a, b) => {
      for (const [values, sign] of keys) {
        const [x, y] = [values[a], values[b]];
        if (x === null || y === null) {
          if (x !== y) return x === null ? 1 : -1;
          continue;
        }
        const difference = Array.isArray(x)
          ? compare(x[0], (y as string[])[0]!) || compare(x[1], (y as string[])[1]!)
          : Number(x) - Number(y);
        if (difference) return sign * difference;
      }
      return a - b;
    });
    return order.map((place) => rows[place]!);
  }

  /** The sum of a column in some rows; null if none is known, and how many are unknown. */
  total(key: string, rows: readonly number[]): Pick<Total, "filtered" | "unknown"> {
    const at = this.place(key, "totals");
    const known = rows.map((row) => this.value(at, row)).filter((cell) => cell !== null) as number[];
    const whole = known.every(Number.isSafeInteger);
    const sum = whole ? Number(known.reduce((all, one) => all + BigInt(one), 0n)) : Math.trunc(known.reduce((all, one) => all + one, 0));
    return { filtered: known.length ? sum : null, unknown: rows.length - known.length };
  }
}
