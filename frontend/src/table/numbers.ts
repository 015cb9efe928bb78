// How the numbers of a table are written: in one unit a column, with the share that each has of the column's total.
import type { Cell, Column, Total } from "../api/client";
import * as format from "../lib/format";
import { columnScale } from "../lib/units.svelte";

export interface Numbers {
  column: Column;
  /** Where the column's values are in a row. */
  at: number;
  scale: format.Scale | undefined;
  /** Decimals of the longest number without a scale, so that points stand under each other. */
  places: number;
  /** Sum over all rows, of which shares are; null where rows do not add up. */
  whole: number | null;
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

export function numbersOf(columns: readonly Column[], rows: readonly (readonly Cell[])[], totals: Record<string, Total> = {}): Numbers[] {
  return columns.map((column, at) => {
    const values = numeric(column) ? rows.map((row) => row[at]).filter((value) => typeof value === "number") : [];
    const scale = columnScale(column.unit, Math.max(0, ...values.map(Math.abs)));
    const places = scale || column.kind !== "float" ? 0 : Math.max(0, ...values.map((v) => format.decimals(format.figure(v, column.unit))));
    return { column, at, scale, places, whole: column.unit === "ns" || column.unit === "B" ? (totals[column.key]?.all ?? null) : null };
  });
}

export function written(value: number, { column, scale, places, whole }: Numbers): Written {
  const text = scale ? format.scaled(value, scale) : format.figure(value, column.unit);
  const share = whole !== null && whole > 0 && value > 0 ? (100 * value) / whole : null;
  const exact = format.exact(value, column.unit);
  const said = share === null ? exact : `${exact}\n${format.percent(share)} of ${format.exact(whole!, column.unit)} in all rows`;
  return {
    text,
    tip: scale?.places || share !== null ? said : null,
    pad: places ? format.padding(text, places) : null,
    unit: scale?.name ?? "",
    share,
  };
}

/** The heading of a column with the unit that is shown. */
export function headed(heading: string, scale: format.Scale | undefined): string {
  return scale ? `${format.unitless(heading)} (${scale.name})` : heading;
}
