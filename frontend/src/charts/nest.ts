// Modules as a tree, out of the rows of their report.
import type { Cell } from "../api/client";

export interface Node {
  path: string;
  name: string;
  row: Record<string, Cell>;
  children: Node[];
}

/** Rows as the report has them: a module comes before those inside it, which are one deeper. */
export function nest(rows: readonly Record<string, Cell>[]): Node[] {
  const roots: Node[] = [];
  const open: Node[] = [];
  for (const row of rows) {
    const path = String(row.module ?? "");
    const depth = Number(row.depth ?? 0);
    const around = path ? open[depth - 1] : undefined;
    const name = around && path.startsWith(around.path) ? path.slice(around.path.length).replace(/^[./]/, "") : path;
    const node: Node = { path: path || "(outside)", name: name || "Outside modules", row, children: [] };
    (around?.children ?? roots).push(node);
    if (path) {
      open[depth] = node;
      open.length = depth + 1;
    }
  }
  return roots;
}
