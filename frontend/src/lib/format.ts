// Numbers as people read them. Exact values stay in tables and exports; charts and tiles round to three digits.

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const FRACTION = new Intl.NumberFormat("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 4 });
const LARGE = new Intl.NumberFormat("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

export const UNKNOWN = "na";

export function count(value: number | null | undefined): string {
  return value == null ? UNKNOWN : WHOLE.format(value);
}

/** A number of a table: whole numbers grouped, fractions with one digit, small ones with up to four. */
export function number(value: number | null | undefined): string {
  if (value == null) return UNKNOWN;
  return Number.isInteger(value) ? WHOLE.format(value) : (Math.abs(value) < 100 ? FRACTION : LARGE).format(value);
}

/** A number of a column, and what is said of it where it is pointed at. */
export function figure(value: number, unit: string): string {
  return number(unit === "%" && Math.abs(value) >= 1 ? Number(value.toFixed(2)) : value);
}
export function tip(value: number, unit: string): string | null {
  return unit === "B" ? bytes(value) : unit === "ns" && Math.abs(value) >= 1000 ? time(value) : null;
}

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

function scaled(value: number, base: number, units: readonly string[]): string {
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
  return scaled(ns, 1000, ["ns", "µs", "ms", "s"]);
}

export function bytes(value: number | null | undefined): string {
  return value == null ? UNKNOWN : scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
}

export function rate(perSecond: number | null | undefined, unit: string): string {
  return value(
    perSecond,
    ["", "k", "M", "G", "T", "P"].map((prefix) => prefix + unit),
  );
}

function value(number: number | null | undefined, units: readonly string[]): string {
  return number == null ? UNKNOWN : scaled(number, 1000, units);
}

/** A share of 100. */
export function percent(share: number | null | undefined): string {
  if (share == null) return UNKNOWN;
  if (share !== 0 && Math.abs(share) < 0.1) return `${share.toPrecision(1)} %`;
  const rest = 100 - share; // nearly all is not all
  if (rest > 0 && rest < 0.05) return `${share.toFixed(Math.min(6, Math.ceil(-Math.log10(rest))))} %`;
  return `${share.toFixed(1)} %`;
}

/** The same at an axis, where 50 ms is no more exact than 100 ms. */
export function tick(text: string): string {
  return text.replace(/(\.\d*?)0+(?=\s|$)/, "$1").replace(/\.(?=\s|$)/, "");
}

/** What is left of a name that is too long: its beginning and its end, which differ most. */
export function middle(text: string, most: number): string {
  if (text.length <= most) return text;
  const head = Math.ceil(most * 0.6);
  return `${text.slice(0, head)}…${text.slice(text.length - (most - head - 1))}`;
}
