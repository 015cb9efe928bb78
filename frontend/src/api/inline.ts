// What a file has in place of a server (`pyprof page`): answers by what is asked for, tables and trees with all their
// rows, and tiles of the timeline. Whatever else is asked for is not in the file, and it says so.
import type { Backend, Cell, Column, Node, Query, Report, Table, Total, Tree } from "./client";
import { absent, type Problem } from "./problem";
import { folded, Rows } from "./rows";

interface Rest {
  /** The server's answer, without its rows. */
  answer: Omit<Table, "rows"> & { rows?: undefined };
  rows: Cell[][];
  ids: number[];
  /** Cells of any type as JSON, by the number of their column. */
  texts: Record<string, (string | null)[]>;
}

interface Branches {
  answer: Omit<Tree, "rows" | "nodes">;
  nodes: Node[];
  rows: Cell[][];
}

/** The data of a file, as pyprof/server/one_file.py writes it. */
export interface Data {
  program: string;
  /** What the file leaves out, in sentences. */
  left_out: string[];
  answers: Record<string, unknown>;
  tables: Record<string, Rest>;
  trees: Record<string, Branches>;
  texts: Record<string, Record<string, string>>;
  /** Numbers of the tiles that there are: TRACK LEVEL -> first and last. */
  tiles: Record<string, [number, number]>;
}

const HEAD = 24; // bytes
const NARROWING = ["sort", "search", "filter", "offset", "limit"];
/** Of counters: the file has those of the whole recording. */
const WINDOW = ["start", "end", "points"];
/** The one run, and the aggregation and version that the file has: no part of what is asked for. */
const OURS = ["run", "aggregation", "v"];

const pairsOf = (query: Query): [string, string][] =>
  Object.entries(query).flatMap(([key, value]) =>
    value === undefined || value === "" || OURS.includes(key)
      ? []
      : (Array.isArray(value) ? value : [value]).map((one): [string, string] => [key, String(one)]),
  );

/** How an answer is named: a path and what is asked, in order. */
export function keyOf(path: string, query: Query, without: readonly string[] = []): string {
  const pairs = pairsOf(query).filter(([key]) => !without.includes(key));
  return [path, ...pairs.map(([key, value]) => `${key}=${value}`).sort()].join("\n");
}

const listOf = (value: Query[string]): string[] => (value === undefined ? [] : ([] as unknown[]).concat(value).map(String));

/** The bytes of a tile, from its head. */
function sizeOf(rows: number, lanes: number, level: number): number {
  const narrow = level ? [lanes, rows, 2 * rows] : [lanes, 2 * rows];
  return HEAD + 8 * rows * (level ? 4 : 3) + narrow.reduce((sum, count) => sum + 8 * Math.ceil(count / 2), 0);
}

export class Inline implements Backend {
  readonly live = false;
  /** What was asked for and is not there, for who looks. */
  readonly absent: string[] = [];
  private readonly pieces = new Map<string, Uint8Array>();
  private readonly tables = new Map<string, Rows>();

  constructor(
    readonly data: Data,
    tiles: Uint8Array,
  ) {
    const view = new DataView(tiles.buffer, tiles.byteOffset, tiles.byteLength);
    for (let at = 0; at < tiles.byteLength;) {
      const [rows, lanes, level, track] = [0, 4, 8, 12].map((place) => view.getUint32(at + place, true)) as [
        number,
        number,
        number,
        number,
      ];
      const size = sizeOf(rows, lanes, level);
      this.pieces.set(`${track} ${level} ${view.getBigInt64(at + 16, true)}`, tiles.subarray(at, at + size));
      at += size;
    }
  }

  get notes(): readonly string[] {
    return this.data.left_out;
  }

  async get(path: string, asked: Query): Promise<unknown> {
    const query = this.told(path, asked);
    const key = keyOf(path, query);
    if (key in this.data.answers) return structuredClone(this.data.answers[key]);
    const whole = keyOf(path, query, WINDOW);
    if (path === "timeline/counters" && whole in this.data.answers) return this.data.answers[whole];
    if (path === "timeline/texts") return this.texts(listOf(query.of));
    const table = keyOf(path, query, NARROWING);
    if (table in this.data.tables) return this.page(table, query);
    const tree = keyOf(path, query, [...NARROWING, "open"]);
    if (tree in this.data.trees) return this.branches(this.data.trees[tree]!, query);
    throw this.missing(key);
  }

  async bytes(path: string, query: Query): Promise<ArrayBuffer> {
    if (path === "timeline/tiles") return this.tiles(String(query.q));
    const found = this.data.answers[keyOf(path, query)];
    if (typeof found !== "string") throw this.missing(keyOf(path, query));
    return Uint8Array.from(atob(found), (one) => one.charCodeAt(0)).buffer;
  }

  /** Whether the file has a tile of a track, or knows that there is none. */
  covers(track: number, level: number, number: number): boolean {
    const range = this.data.tiles[`${track} ${level}`];
    return range !== undefined && number >= range[0] && number <= range[1];
  }

  /** What is asked of a report, without options that are as by default. */
  private told(path: string, query: Query): Query {
    const report = (this.data.answers.reports as Report[]).find((one) => path === `reports/${one.name}`);
    const defaults = Object.fromEntries(report?.options.map((option) => [option.name, option.default]) ?? []);
    return Object.fromEntries(Object.entries(query).filter(([key, value]) => !(key in defaults) || defaults[key] !== value));
  }
  private missing(key: string): Problem {
    this.absent.push(key.replaceAll("\n", " "));
    return absent();
  }

  private page(key: string, query: Query): unknown {
    const { answer, rows, ids, texts } = this.data.tables[key]!;
    let table = this.tables.get(key);
    if (!table) this.tables.set(key, (table = new Rows(answer.columns, rows, texts)));
    const filters = listOf(query.filter);
    const found = table.select(String(query.search ?? ""), filters, String(query.sort ?? ""));
    const offset = Number(query.offset ?? 0);
    const seen = found.slice(offset, offset + Number(query.limit ?? 25));
    const totals: Record<string, Total> = {};
    for (const [name, one] of Object.entries(answer.totals ?? {}))
      totals[name] = found.length === rows.length ? one : { ...one, ...table.total(name, found) };
    return {
      ...answer,
      ...(answer.totals ? { totals } : {}),
      rows: seen.map((row) => rows[row]),
      ids: seen.map((row) => ids[row]),
      offset,
      filtered: found.length,
    };
  }

  private branches({ answer, nodes, rows }: Branches, query: Query): Tree {
    const name = { key: "name", heading: "Name", unit: "", text: "", kind: "str", extra: false } as Column;
    const table = new Rows(
      [name, ...answer.columns],
      rows.map((row, at) => [nodes[at]!.name, ...row]),
    );
    const parent: number[] = [];
    const above: number[] = []; // the last node of each level
    nodes.forEach((node, at) => {
      parent.push(node.level > 1 ? above[node.level - 2]! : -1);
      above[node.level - 1] = at;
    });
    const roots = nodes.filter((node) => node.level === 1);
    const text = query.open === undefined ? (roots.length === 1 ? roots[0]!.key : "none") : String(query.open);
    const words = new Set(text.split(","));
    const all = text.split(",")[0] === "all";
    const needle = folded(String(query.search ?? "").trim());
    let matching: boolean[] | undefined;
    if (needle) {
      matching = nodes.map((node) => folded(node.name).includes(needle) || folded(node.path).endsWith(needle));
      for (let at = nodes.length - 1; at >= 0; at--) if (matching[at] && parent[at]! >= 0) matching[parent[at]!] = true;
    }
    const open = matching ?? nodes.map((node) => words.has(node.key) !== all);
    const children = new Map<number, number[]>();
    for (const at of table.select("", [], String(query.sort ?? ""))) {
      if (matching && !matching[at]) continue;
      const list = children.get(parent[at]!);
      if (list) list.push(at);
      else children.set(parent[at]!, [at]);
    }
    const seen: number[] = [];
    const next = [...(children.get(-1) ?? [])].reverse();
    for (let at = next.pop(); at !== undefined; at = next.pop()) {
      seen.push(at);
      if (open[at]) next.push(...[...(children.get(at) ?? [])].reverse());
    }
    const offset = Number(query.offset ?? 0);
    const shown = seen.slice(offset, offset + Number(query.limit ?? 25));
    return {
      ...answer,
      open: text,
      offset,
      filtered: seen.length,
      nodes: shown.map((at) => ({ ...nodes[at]!, open: open[at]! && nodes[at]!.inside })),
      rows: shown.map((at) => rows[at]!),
    };
  }

  private texts(of: readonly string[]): Record<string, Record<string, string>> {
    return Object.fromEntries(
      of.map((one) => {
        const [table, ...numbers] = one.split(",") as [string, ...string[]];
        const known = this.data.texts[table] ?? {};
        return [table, Object.fromEntries(numbers.map((number) => [number, known[number] ?? "(name not in this file)"]))];
      }),
    );
  }

  private tiles(query: string): ArrayBuffer {
    const found = query.split(";").flatMap((part) => {
      const [level, numbers, tracks] = part.split(":") as [string, string, string];
      const [first, last] = /^(-?\d+)-(-?\d+)$/.exec(numbers)!.slice(1).map(Number) as [number, number];
      return tracks.split(",").flatMap((track) => {
        const out: Uint8Array[] = [];
        for (let number = first; number <= last; number++) {
          const piece = this.pieces.get(`${track} ${level} ${number}`);
          if (piece) out.push(piece);
        }
        return out;
      });
    });
    const out = new Uint8Array(found.reduce((sum, piece) => sum + piece.byteLength, 0));
    let at = 0;
    for (const piece of found) {
      out.set(piece, at);
      at += piece.byteLength;
    }
    return out.buffer;
  }
}

/** The bytes of a script of the page that is no code. */
async function inflated(id: string): Promise<Uint8Array> {
  const packed = Uint8Array.from(atob(document.getElementById(id)!.textContent!.trim()), (one) => one.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The data of this page. */
export async function embedded(): Promise<Inline> {
  const [data, tiles] = await Promise.all([inflated("data"), inflated("tiles")]);
  return new Inline(JSON.parse(new TextDecoder().decode(data)) as Data, tiles);
}
