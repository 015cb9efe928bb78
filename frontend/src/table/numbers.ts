// How the numbers of a table are written: in one unit a column, with the share that each has of the column's total.
import type { Cell, Column, Total } from "../api/client";
import * as format from "../lib/format";
import { columnScale } from "../lib/units.svelte";

export interface Numbers {
  column: Column;
  /** Where the column's values are in a row. */
  at: number;
  scale: format.Scale | undefined;
  /** Decimals of the numbers without a scale: as many in each, so that points stand under each other. */
  places: number;
  /** What shares are of: the sum over all rows, or another value of the row, by its place; null where rows do not add up. */
  whole: number | { at: number; heading: string } | null;
}

export interface Written {
  text: string;
  /** The exact value, and the share. */
  tip: string | null;
  pad: string | null;
  /** The unit of the text; empty where it needs none. */
  unit: string;
  /** Percent of the total. */
  share: number | null;
}

export const numeric = (column: Column): boolean => column.kind === "int" || column.kind === "float";

/** Columns of one call, of which a reader compares one with another: they have one scale. */
const OF_A_CALL = /^(mean|avg|median|max|min|p\d+|std)(_|$)|_(mean|avg|median|max|min)$/;
const LEAST = 0.1; // of the largest column's unit, down to which a smaller column has it, too
const MOST = 1e5; // what a unit that is common to several columns is not used for

export function numbersOf(
  columns: readonly Column[],
  rows: readonly (readonly Cell[])[],
  totals: Record<string, Total> = {},
  wholes: Record<string, string> = {},
): Numbers[] {
  const values = columns.map((column, at) =>
    numeric(column) ? rows.map((row) => row[at]).filter((value) => typeof value === "number") : [],
  );
  const largest = values.map((some) => some.reduce((all, value) => Math.max(all, Math.abs(value)), 0));
  const most = (some: readonly number[]): number => some.reduce((all, one) => Math.max(all, one), 0);
  const scaleOf = (column: Column, at: number): format.Scale | undefined => {
    if (column.unit !== "ns" && column.unit !== "B") return columnScale(column.unit, largest[at]!);
    const same = columns.flatMap((one, place) => (one.unit === column.unit && largest[place]! > 0 ? [place] : []));
    const whole = columnScale(column.unit, most(same.map((place) => largest[place]!)))!; // of the largest column
    if (!largest[at]) return { ...whole, places: 0 };
    const group = same.filter((place) => OF_A_CALL.test(columns[place]!.key)).map((place) => largest[place]!);
    if (!OF_A_CALL.test(column.key)) return columnScale(column.unit, largest[at]!, largest[at]! >= LEAST * whole.size ? whole.name : "");
    const common = columnScale(column.unit, Math.min(...group))!;
    const all = most(group);
    return all / common.size < MOST ? columnScale(column.unit, all, common.name) : columnScale(column.unit, largest[at]!);
  };
  const of = new Set(Object.values(wholes));
  const wholeOf = (key: string): Numbers["whole"] => {
    if (of.has(key)) return null; // it is the whole
    const at = columns.findIndex((column) => column.key === wholes[key]);
    return at < 0 ? (totals[key]?.all ?? null) : { at, heading: format.unitless(columns[at]!.heading) };
  };
  return columns.map((column, at) => {
    const scale = scaleOf(column, at);
    const places = scale || column.kind !== "float" ? 0 : format.placesOf(values[at]!);
    return { column, at, scale, places, whole: column.unit === "ns" || column.unit === "B" ? wholeOf(column.key) : null };
  });
}

/** `row`: the cells of its row, or the totals in their place. */
export function written(value: number, { column, scale, places, whole }: Numbers, row: readonly (Cell | undefined)[] = []): Written {
  const text = scale ? format.scaled(value, scale) : format.scaled(value, { name: "", size: 1, places });
  const amount = whole !== null && typeof whole === "object" ? row[whole.at] : whole;
  const share = typeof amount === "number" && amount > 0 && value >= 0 ? (100 * value) / amount : null;
  const exact = format.exact(value, column.unit);
  const of = whole !== null && typeof whole === "object" ? `: ${whole.heading}` : " in all rows";
  const said = share === null ? exact : `${exact}\n${format.percent(share)} of ${format.exact(Number(amount), column.unit)}${of}`;
  return {
    text,
    tip: scale?.places || share !== null || (places && text !== format.number(value)) ? said : null,
    pad: format.padding(text, scale?.places ?? places),
    unit: scale?.name ?? "",
    share,
  };
}

/** How many letters the longer of two lines has into which a heading is broken best. */
export function linesOf(heading: string): number {
  const words = heading.split(" ");
  const long = (some: readonly string[]): number => some.join(" ").length;
  return Math.min(...words.map((_word, at) => Math.max(long(words.slice(0, at)), long(words.slice(at)))));
}

/** The heading of a column with the unit that is shown. */
export function headed(heading: string, scale: format.Scale | undefined): string {
  return scale ? `${format.unitless(heading)} (${scale.name})` : heading;
}
