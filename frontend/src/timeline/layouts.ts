// Layouts of the timeline: colors, arrows, counters, sums, which kinds of tracks are hidden or pinned, and where the panels
// are, under a name. They name kinds and not tracks, so that they fit any profile.
import { ANALYZE, checked as arrangement, CODE, STANDARD, type Arrangement } from "./dock";
import { KINDS } from "./lanes";
import type { Track } from "./store";

export interface Layout {
  name: string;
  by: string;
  arrows: boolean;
  counters: boolean;
  sum: string;
  work: boolean;
  hidden: readonly Track["kind"][];
  pinned: readonly Track["kind"][];
  panels: Arrangement;
}
type Address = Record<string, string | undefined>;

export const MOST = 50; // layouts that a browser keeps
export const LONGEST = 60; // characters of a name
export const LARGEST = 200_000; // characters of a file
const SUMS = ["type", "operator", "module", "kernel", "kind", "flame", "tree"];

const PLAIN = { by: "type", arrows: true, counters: false, sum: "type", work: false, hidden: [], pinned: [], panels: STANDARD } as const;
export const PRESETS: readonly Layout[] = [
  { ...PLAIN, name: "Simple", hidden: ["range", "function", "overlap", "api", "file", "loader"] },
  { ...PLAIN, name: "Analyze", counters: true, sum: "operator", work: true, panels: ANALYZE },
  { ...PLAIN, name: "Code", by: "module", sum: "module", hidden: ["module", "overlap", "api", "file", "loader", "idle"], panels: CODE },
];

/** What the address has to say for a layout. */
export function addressOf(layout: Layout, tracks: readonly Track[]): Address {
  const numbers = (kinds: Layout["hidden"]): string =>
    tracks
      .filter(({ kind }) => kinds.includes(kind))
      .map(({ id }) => id)
      .join(",");
  return {
    by: layout.by === PLAIN.by ? undefined : layout.by,
    arrows: layout.arrows ? undefined : "off",
    counters: layout.counters ? "on" : undefined,
    sum: layout.sum === PLAIN.sum ? undefined : layout.sum,
    work: layout.work ? "on" : undefined,
    hide: numbers(layout.hidden) || undefined,
    pin: numbers(layout.pinned) || undefined,
  };
}

/** The layout that an address has: a kind is hidden or pinned if all tracks of it are. */
export function layoutOf(
  name: string,
  get: (key: string) => string | undefined,
  tracks: readonly Track[],
  colors: readonly string[],
  panels: Arrangement,
): Layout {
  const kinds = (key: string): Track["kind"][] => {
    const ids = new Set((get(key) ?? "").split(","));
    const present = [...new Set(tracks.map(({ kind }) => kind))];
    return present.filter((kind) => tracks.every((track) => track.kind !== kind || ids.has(String(track.id))));
  };
  const known = (value: string | undefined, all: readonly string[], otherwise: string): string =>
    value !== undefined && all.includes(value) ? value : otherwise;
  return {
    name,
    by: known(get("by"), colors, PLAIN.by),
    arrows: get("arrows") !== "off",
    counters: get("counters") === "on",
    sum: known(get("sum"), SUMS, PLAIN.sum),
    work: get("work") === "on",
    hidden: kinds("hide"),
    pinned: kinds("pin"),
    panels,
  };
}

/** A name as it is kept. Throws a sentence. */
export function named(name: string): string {
  const short = name.trim();
  if (!short) throw new Error("A layout needs a name.");
  if (short.length > LONGEST) throw new Error(`The name of a layout has at most ${LONGEST} characters.`);
  if (PRESETS.some((preset) => preset.name === short)) throw new Error(`${short} is always there; choose another name.`);
  return short;
}

/** A layout out of JSON; `colors`: what colors can stand for. Throws a sentence. */
export function checked(value: unknown, colors: readonly string[]): Layout {
  if (typeof value !== "object" || value === null) throw new Error("A layout has to be an object.");
  const one: Record<string, unknown> = { ...PLAIN, ...value };
  if (typeof one.name !== "string") throw new Error("A layout needs a name.");
  const name = named(one.name);
  const wrong = (key: string): Error => new Error(`The layout ${name} has an unknown value of ${key}.`);
  const text = (key: "by" | "sum", all: readonly string[]): string => {
    const word = one[key];
    if (typeof word !== "string" || !all.includes(word)) throw wrong(key);
    return word;
  };
  const flag = (key: "arrows" | "counters" | "work"): boolean => {
    const word = one[key];
    if (typeof word !== "boolean") throw wrong(key);
    return word;
  };
  const kinds = (key: "hidden" | "pinned"): Track["kind"][] => {
    const list = one[key];
    if (!Array.isArray(list) || !list.every((kind) => typeof kind === "string" && Object.hasOwn(KINDS, kind))) throw wrong(key);
    return [...new Set(list as Track["kind"][])];
  };
  const panels = arrangement(one.panels);
  if (!panels) throw wrong("panels");
  return {
    name,
    by: text("by", colors),
    arrows: flag("arrows"),
    counters: flag("counters"),
    sum: text("sum", SUMS),
    work: flag("work"),
    hidden: kinds("hidden"),
    pinned: kinds("pinned"),
    panels,
  };
}

/** The layouts of a file. Throws a sentence. */
export function read(text: string, colors: readonly string[]): Layout[] {
  if (text.length > LARGEST) throw new Error("The file is too large for layouts.");
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch {
    throw new Error("The file is not JSON.");
  }
  const of = content as { pyprof_layouts?: unknown; layouts?: unknown } | null;
  if (typeof of !== "object" || of === null || !("pyprof_layouts" in of) || !Array.isArray(of.layouts))
    throw new Error("The file has no layouts of PyProf's timeline.");
  if (of.pyprof_layouts !== 1) throw new Error("The file is of another version of PyProf.");
  return of.layouts.map((one) => checked(one, colors));
}

export const fileOf = (layouts: readonly Layout[]): string => `${JSON.stringify({ pyprof_layouts: 1, layouts }, null, 1)}\n`;

/** Layouts with those of a file: what differs from one of its name is beside it, under another. Throws a sentence. */
export function joined(own: readonly Layout[], added: readonly Layout[]): Layout[] {
  const out = [...own];
  for (const layout of added) {
    const contents = JSON.stringify({ ...layout, name: "" });
    const alike = out.filter((one) => JSON.stringify({ ...one, name: "" }) === contents);
    if (alike.some((one) => one.name === layout.name || one.name.replace(/ \(\d+\)$/, "") === layout.name)) continue;
    let name = layout.name;
    for (let number = 2; out.some((one) => one.name === name); number++) name = `${layout.name.slice(0, LONGEST - 6)} (${number})`;
    out.push({ ...layout, name });
  }
  return out;
}
