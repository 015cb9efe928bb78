// Numbers as people read them. Exact values stay in tables and exports; charts and tiles round to three digits.

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const FRACTION = new Intl.NumberFormat("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 4 });
const LARGE = new Intl.NumberFormat("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

export const UNKNOWN = "na";

export function count(value: number | null | undefined): string {
  return value == null ? UNKNOWN : WHOLE.format(value);
}

/** A count with what is counted: 1 rule, 2 rules. */
export const several = (value: number, one: string): string => `${count(value)} ${one}${value === 1 ? "" : "s"}`;

/** A number of a table: whole numbers grouped, fractions with one digit, small ones with up to four. */
export function number(value: number | null | undefined): string {
  if (value == null) return UNKNOWN;
  return Number.isInteger(value) ? WHOLE.format(value) : (Math.abs(value) < 100 ? FRACTION : LARGE).format(value);
}

/** How many decimals the numbers of a column without a unit of size have: enough for four digits of the largest, and no more than one
 * of them needs. */
export function placesOf(values: readonly number[]): number {
  const largest = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const enough = largest >= 1000 ? 1 : largest >= 10 ? 2 : largest >= 1 ? 3 : 4;
  let needed = 0;
  for (const value of values)
    if (needed < enough && !Number.isInteger(value)) needed = Math.max(needed, decimals(number(Number(value.toFixed(enough)))));
  return needed;
}
/** A figure with its unit, of any kind. */
export function said(one: { value: unknown; unit: string }): string {
  if (typeof one.value !== "number") return one.value === null ? UNKNOWN : String(one.value);
  if (one.unit === "FLOP/s") return rate(one.value, one.unit);
  return one.unit === "ns" ? time(one.value) : one.unit === "%" ? percent(one.value) : number(one.value);
}
/** The exact value, where what is shown is rounded. */
export function exact(value: number, unit: string): string {
  return `${number(value)}${unit && unit !== "count" ? ` ${unit}` : ""}`;
}

/** Units with the size of each; every column of a table has one of them. */
export const TIMES = [
  ["ns", 1],
  ["µs", 1e3],
  ["ms", 1e6],
  ["s", 1e9],
] as const;
export const SIZES = [
  ["B", 1],
  ["KiB", 1024],
  ["MiB", 1024 ** 2],
  ["GiB", 1024 ** 3],
] as const;

const RATES = [
  ["", 1],
  ["M", 1e6],
  ["G", 1e9],
  ["T", 1e12],
] as const;

/** How the numbers of a column are shown: divided by `size`, with `places` decimals, in the unit `name`. */
export interface Scale {
  name: string;
  size: number;
  places: number;
}

/** The scale of a column of FLOP/s by its largest value. */
export function rateScale(largest: number): Scale {
  const fits = RATES.findLast(([, size]) => Math.abs(largest) >= size) ?? RATES[0];
  return { name: `${fits[0]}FLOP/s`, size: fits[1], places: fits[1] === 1 ? 0 : Math.abs(largest) / fits[1] >= 100 ? 2 : 3 };
}

/** The scale of a column of ns or B by its largest value: a unit of which it has at least one, and enough decimals for
 * four digits of it. `name`: a unit that is chosen instead. */
export function scaleOf(unit: "ns" | "B", largest: number, name = ""): Scale {
  const all: readonly (readonly [string, number])[] = unit === "ns" ? TIMES : SIZES;
  const fits = all.findLast(([one, size]) => (name ? one === name : Math.abs(largest) >= size)) ?? all[0]!;
  const most = Math.abs(largest) / fits[1];
  return { name: fits[0], size: fits[1], places: fits[1] === 1 ? 0 : most >= 1000 ? 1 : most >= 100 ? 2 : 3 };
}

const FIXED = [0, 1, 2, 3, 4].map(
  (places) => new Intl.NumberFormat("en-US", { minimumFractionDigits: places, maximumFractionDigits: places }),
);

/** A value in its column's scale. What is too small for the decimals is less than the last of them, and not zero. */
export function scaled(value: number, scale: Scale): string {
  if (value === 0) return "0";
  const least = 10 ** -scale.places;
  const own = value / scale.size;
  if (Math.abs(own) < least / 2 && scale.places) return `${value < 0 ? "> −" : "< "}${least}`;
  return (Number.isInteger(value) || scale.places ? FIXED[scale.places]! : FRACTION).format(own);
}

/** A heading without the unit in which the server's values are. */
export const unitless = (heading: string): string => heading.replace(/ \((ns|B|FLOP\/s)\)$/, "");

/** How many decimals a text has. */
export function decimals(text: string): number {
  const point = text.indexOf(".");
  return point < 0 ? 0 : text.length - point - 1;
}

/** Blanks as wide as the decimals that a text has fewer than `places`, and as a point if it has none. */
export function padding(text: string, places: number): string | null {
  const own = decimals(text);
  return own >= places ? null : (own ? "" : "\u2008") + "\u2007".repeat(places - own);
}

function digits(value: number): string {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 || value === 0 ? 0 : size >= 10 ? 1 : 2);
}

function fitted(value: number, base: number, units: readonly string[]): string {
  let place = 0;
  while (Math.abs(value) >= base * 0.9995 && place < units.length - 1) {
    value /= base;
    place++;
  }
  return `${place ? digits(value) : WHOLE.format(value)} ${units[place]}`;
}

/** A time in ns with the unit that fits. */
export function time(ns: number | null | undefined): string {
  if (ns == null) return UNKNOWN;
  if (!Number.isInteger(ns)) ns = Math.round(ns);
  return fitted(ns, 1000, ["ns", "µs", "ms", "s"]);
}

export function bytes(value: number | null | undefined): string {
  return value == null ? UNKNOWN : fitted(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
}

/** How times beside each other are said: all in the unit of the largest, with as many decimals. */
export function alike(times: readonly (number | null)[]): (ns: number | null) => string {
  const scale = scaleOf("ns", Math.max(0, ...times.map((time) => Math.abs(time ?? 0))));
  const fewer = { ...scale, places: Math.max(0, scale.places - 1) };
  return (ns) => (ns === null ? UNKNOWN : `${scaled(ns, fewer)} ${scale.name}`);
}

/** A number with the unit that fits it. */
export const amount = (value: number, unit: string): string => (unit === "ns" ? time(value) : unit === "B" ? bytes(value) : number(value));

export function rate(perSecond: number | null | undefined, unit: string): string {
  return value(
    perSecond,
    ["", "k", "M", "G", "T", "P"].map((prefix) => prefix + unit),
  );
}

function value(number: number | null | undefined, units: readonly string[]): string {
  return number == null ? UNKNOWN : fitted(number, 1000, units);
}

/** A share of 100. */
export function percent(share: number | null | undefined): string {
  if (share == null) return UNKNOWN;
  if (share > 0 && share < 0.001) return "< 0.001 %";
  if (share !== 0 && Math.abs(share) < 0.1) return `${share.toPrecision(1)} %`;
  const rest = 100 - share; // nearly all is not all, but for the rounding of a sum
  if (rest > 1e-9 && rest < 0.001) return "> 99.999 %";
  if (rest > 1e-9 && rest < 0.05) return `${share.toFixed(Math.ceil(-Math.log10(rest)))} %`;
  return `${share.toFixed(1)} %`;
}

/** A share in a column or a list of them: each with one decimal. */
export function share(of: number | null | undefined): string {
  if (of == null) return UNKNOWN;
  if (of > 0 && of < 0.1) return "< 0.1 %";
  const rest = 100 - of;
  return rest > 1e-9 && rest < 0.1 ? "> 99.9 %" : `${of.toFixed(1)} %`;
}

/** The same at an axis, where 50 ms is no more exact than 100 ms. */
export function tick(text: string): string {
  return text.replace(/(\.\d*?)0+(?=\s|$)/, "$1").replace(/\.(?=\s|$)/, "");
}

/** What tells the numbers of iterations from those of the program's steps; empty where they are the same, or there are no steps. */
export function numbering(one: { first: number; last: number; steps: readonly [number, number] | null } | undefined): string {
  if (!one?.steps || (one.steps[0] === one.first && one.steps[1] === one.last)) return "";
  const range = (what: string, from: number, to: number): string => (from === to ? `${what} ${from}` : `${what}s ${from} to ${to}`);
  const [first, last] = one.steps;
  return `Iterations are counted from 0: the program's ${range("step", first, last)} ${first === last ? "is" : "are"} ${range("iteration", one.first, one.last)}.`;
}

/** A sentence of the server's, whose microseconds are plain letters, as a terminal needs them; a number and its unit stay in one line. */
export const prose = (text: string): string =>
  text.replace(/(\d) us\b/g, "$1 µs").replace(/(\d) (?=(?:%|[nµm]?s|[KMGT]?i?B|[kMGTP]?(?:FLOPs?|B|Hz)(?:\/s)?)(?![\w]))/g, "$1\u00a0");

/** A kernel's name without what nearly all of torch's begin with, as far as it is cut at its end. */
export const kernel = (name: string): string => name.replace(/^void /, "").replace(/^(at::native::|\(anonymous namespace\)::)+(?=\w)/, "");

/** The name of a template, and its arguments in pieces, of which those that `hidden` tell nothing; undefined for other names. */
export function template(name: string): { head: string; pieces: { text: string; hidden: boolean }[] } | undefined {
  const [, head, rest] = /^([\w:~() ]+?)(<.+)$/s.exec(kernel(name)) ?? [];
  if (!head || !rest) return undefined;
  const pieces = rest.split(/((?:at::native::|\(anonymous namespace\)::)+)/).filter(Boolean);
  return { head, pieces: pieces.map((text) => ({ text, hidden: /^(at::native::|\(anonymous)/.test(text) })) };
}

/** A kernel's name without torch's namespaces, in its arguments too. */
export function brief(name: string): string {
  const { head, pieces } = template(name) ?? { head: kernel(name), pieces: [] };
  return head + pieces.map((one) => (one.hidden ? "" : one.text)).join("");
}

/** What is left of a name that is too long: its beginning and its end, which differ most. */
export function middle(text: string, most: number): string {
  if (text.length <= most) return text;
  const head = Math.ceil(most * 0.6);
  return `${text.slice(0, head)}…${text.slice(text.length - (most - head - 1))}`;
}
