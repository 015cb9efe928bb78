// Modules as a tree, out of the rows of their report.
import type { Cell } from "../api/client";

export interface Node {
  path: string;
  name: string;
  row: Record<string, Cell>;
  children: Node[];
}

/** Rows in any order; one whose module around is not among them is left out. */
export function nest(rows: readonly Record<string, Cell>[]): Node[] {
  const roots: Node[] = [];
  const found = new Map<string, Node>();
  const depth = (row: Record<string, Cell>): number => Number(row.depth ?? 0);
  for (const row of [...rows].sort((a, b) => depth(a) - depth(b))) {
    const path = String(row.module ?? "");
    let end = path.length;
    let around: Node | undefined;
    while (!around && (end = Math.max(path.lastIndexOf(".", end - 1), path.lastIndexOf("/", end - 1))) > 0) around = found.get(path.slice(0, end));
    if (depth(row) > 0 && !around) continue;
    const node: Node = { path: path || "(outside)", name: (around ? path.slice(around.path.length + 1) : path) || "Outside of modules", row, children: [] };
    (around?.children ?? roots).push(node);
    if (path) found.set(path, node);
  }
  return roots;
}
