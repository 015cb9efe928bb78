// Two profiles side by side as a tree to go down: modules, then what ran in them, then its shapes.
import type { Cell } from "../api/client";

export interface Group {
  label: string;
  /** What tells it apart among those beside it. */
  key: string;
  base: number;
  other: number;
  rows: number;
  /** There is something below it. */
  deeper: boolean;
}

type Row = Record<string, Cell>;
export const NOWHERE = "outside of modules, or in several";

/** The steps down to a row. Names are marked with what they are, so that a module and an operator are never one. */
function path(row: Row): string[] {
  const modules = row.module
    ? String(row.module)
        .split(".")
        .map((part) => `m:${part}`)
    : [`m:${NOWHERE}`];
  const names = [row.operator, row.name].filter((name) => name).map((name) => `o:${name}`);
  const way = row.direction ? [`d:${row.direction}`] : [];
  return [...modules, ...names, ...(row.shapes ? [`s:${row.shapes}`] : []), ...way];
}
export const label = (key: string): string => key.slice(2);

/** What is directly below a place, the largest first. `key` is a figure without its side: device_ns, host_ns, calls. */
export function below(rows: readonly Row[], at: readonly string[], key: string): Group[] {
  const found = new Map<string, Group>();
  const value = (row: Row, side: string): number => (typeof row[`${side}_${key}`] === "number" ? (row[`${side}_${key}`] as number) : 0);
  for (const row of rows) {
    const way = path(row);
    if (way.length <= at.length || at.some((one, place) => way[place] !== one)) continue;
    const name = way[at.length]!;
    const group = found.get(name) ?? { label: label(name), key: name, base: 0, other: 0, rows: 0, deeper: false };
    group.base += value(row, "base");
    group.other += value(row, "other");
    group.rows++;
    group.deeper ||= way.length > at.length + 1;
    found.set(name, group);
  }
  return [...found.values()].sort((a, b) => Math.max(b.base, b.other) - Math.max(a.base, a.other) || (a.key < b.key ? -1 : 1));
}
