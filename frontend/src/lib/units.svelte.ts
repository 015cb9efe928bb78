// The units in which tables show times and sizes: the one that fits a column, until a reader chooses another.
import { rateScale, type Scale, scaleOf, SIZES, TIMES } from "./format";
import { keep, kept } from "./kept";

export const CHOICES = { ns: ["", ...TIMES.map(([name]) => name)], B: ["", ...SIZES.map(([name]) => name)] } as const;
type Unit = keyof typeof CHOICES;

const first = (unit: Unit): string => {
  const value = kept(`unit-${unit}`);
  return typeof value === "string" && (CHOICES[unit] as readonly string[]).includes(value) ? value : "";
};
const chosen = $state<Record<Unit, string>>({ ns: first("ns"), B: first("B") });

/** The chosen unit of times or sizes; empty: the one that fits. */
export const unitOf = (unit: Unit): string => chosen[unit];

export function choose(unit: Unit, name: string): void {
  chosen[unit] = name;
  keep(`unit-${unit}`, name || undefined);
}

/** How a column whose largest value is this is shown; undefined for units that are not scaled. `name`: the unit of the column, unless
 * the reader chose one. */
export const columnScale = (unit: string, largest: number, name = ""): Scale | undefined =>
  unit === "ns" || unit === "B" ? scaleOf(unit, largest, chosen[unit] || name) : unit === "FLOP/s" ? rateScale(largest) : undefined;
