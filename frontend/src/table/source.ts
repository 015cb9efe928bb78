// What a table shows: where its rows come from, in the one form that all have.
import type { Cell, Column, Query, Total } from "../api/client";

/** A page of rows. `next` is a cursor where pages have no numbers. */
export interface Page {
  columns: Column[];
  rows: Cell[][];
  ids: (number | string)[];
  total: number;
  filtered: number;
  next?: string | null;
  paged?: boolean;
  note?: string | null;
  /** Sums of columns whose rows add up. */
  totals?: Record<string, Total>;
  /** Columns whose shares are of another column of the row, by its key. */
  wholes?: Record<string, string>;
  /** Columns that equal another in every row, by its key. */
  same?: Record<string, string>;
  /** Columns without a value in any row. */
  empty?: string[];
}

export interface Source {
  /** Path below api/, such as reports/detail. */
  path: string;
  query?: Query;
  /** Where the page of rows is in the answer; default: the answer is it. */
  pick?: (answer: never) => Page;
  /** Path of the exports; none without. */
  exports?: string;
  /** Without filters, sort or search: too many rows, or none of it means anything. */
  plain?: boolean;
  /** A plain table that can be searched all the same. */
  searchable?: boolean;
}

export function reportSource(name: string, query: Query = {}): Source {
  return { path: `reports/${name}`, query, exports: `reports/${name}/export` };
}

/** A row as an object, by the keys of its columns. */
export function record(columns: readonly Column[], row: readonly Cell[]): Record<string, Cell> {
  return Object.fromEntries(columns.map((column, place) => [column.key, row[place] ?? null]));
}
