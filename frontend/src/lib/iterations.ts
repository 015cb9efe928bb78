// Iterations of all workers as bars: the mean of the workers that have one of that number.
import type { Cell, Iterations } from "../api/client";
import type { Bar, Series } from "../charts/Stacks.svelte";
import { record } from "../table/source";
import { colour, LABELS, type Meaning } from "./colours";

export const PARTS: readonly Meaning[] = ["tc", "kernel", "memory", "cpu", "io", "dataloader", "other"];
export const SERIES: readonly Series[] = PARTS.map((part) => ({ key: part, label: LABELS[part], colour: colour(part) }));

export interface Iteration extends Bar {
  number: number;
}

const number = (value: Cell | undefined): number | null => (typeof value === "number" ? value : null);

export function bars(answer: Iterations): Iteration[] {
  const found = new Map<number, { rows: Record<string, Cell>[] }>();
  for (const row of answer.rows) {
    const one = record(answer.columns, row);
    const at = number(one.iteration) ?? 0;
    if (!found.has(at)) found.set(at, { rows: [] });
    found.get(at)!.rows.push(one);
  }
  return [...found.entries()].sort(([a], [b]) => a - b).map(([at, { rows }]) => {
    const mean = (key: string): number | null => {
      const values = rows.flatMap((row) => number(row[key]) ?? []);
      return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
    };
    return { number: at, label: String(at), values: PARTS.map(mean), total: mean("duration") ?? 0, outside: at < answer.first || at > answer.last };
  });
}
