// Trees out of the paths of a report's rows.
import type { Cell } from "../api/client";

export interface Node {
  path: string;
  name: string;
  /** Level one is the root. */
  level: number;
  group: boolean;
  row: Record<string, Cell>;
  children: Node[];
}

/** Groups end with a slash, as in DLProf; "/" is everything. Operators hang on the longest group that they begin with. */
export function groups(rows: readonly Record<string, Cell>[], ops: readonly Record<string, Cell>[]): Node[] {
  const found = new Map<string, Node>();
  const roots: Node[] = [];
  for (const row of rows) {
    const path = String(row.name);
    const node: Node = { path, name: path === "/" ? "/" : `${path.replace(/\/$/, "").split("/").at(-1)}/`, level: 1, group: true, row, children: [] };
    found.set(path, node);
    const parent = path === "/" ? undefined : above(path, found);
    if (parent) {
      node.level = parent.level + 1;
      parent.children.push(node);
    } else roots.push(node);
  }
  for (const row of ops) {
    const path = String(row.name);
    const parent = (path.startsWith("unassociated") && found.get("unassociated/")) || above(path, found);
    const node: Node = { path: `${path} ${row.op_id}`, name: path.split("/").at(-1) || path, level: (parent?.level ?? 0) + 1, group: false, row, children: [] };
    (parent?.children ?? roots).push(node);
  }
  return roots;
}

function above(path: string, found: ReadonlyMap<string, Node>): Node | undefined {
  let end = path.replace(/\/$/, "").lastIndexOf("/");
  while (end >= 0) {
    const node = found.get(path.slice(0, end + 1));
    if (node) return node;
    end = end > 0 ? path.lastIndexOf("/", end - 1) : -1;
  }
  return found.get("/") ?? undefined;
}

/** Modules by their depth: those around come before those inside. */
export function modules(rows: readonly Record<string, Cell>[]): Node[] {
  const roots: Node[] = [];
  const open: Node[] = [];
  for (const row of rows) {
    const path = String(row.module ?? "");
    const depth = Number(row.depth ?? 0);
    const parent = path ? open[depth - 1] : undefined;
    const shown = parent && path.startsWith(parent.path) ? path.slice(parent.path.length).replace(/^[./]/, "") : path;
    const node: Node = { path: path || "(outside)", name: shown || "Outside of modules", level: (parent?.level ?? 0) + 1, group: true, row, children: [] };
    (parent?.children ?? roots).push(node);
    if (path) {
      open[depth] = node;
      open.length = depth + 1;
    }
  }
  return roots;
}
