// How many rows the charts of a view show: the first n, or all (0).
import type { Slice } from "../charts/Donut.svelte";
import { colour, rank } from "./colours";
import { place } from "./router.svelte";

export const DEFAULT = 10;

export function top(): number {
  const asked = place.get("top");
  if (asked === "all") return 0;
  const number = Number(asked);
  return Number.isInteger(number) && number > 0 ? number : DEFAULT;
}

const NAMED = 10; // slices of their own

/** Slices of a donut out of names and amounts, the largest first: of the first `most` (0: all), and of what is left of the
 * whole. Without one, because amounts overlap, shares are of what is shown. */
export function slices(rows: readonly [name: string, amount: number][], most: number, whole: number | null): Slice[] {
  const first = most === 0 ? rows : rows.slice(0, most);
  const sum = (some: typeof rows): number => some.reduce((all, [, amount]) => all + amount, 0);
  const out = first.slice(0, NAMED).map(([key, value], at): Slice => ({ key, label: key, value, colour: rank(at) }));
  const more = sum(first.slice(NAMED));
  if (more) out.push({ key: "\0rest", label: `${first.length - NAMED} more`, value: more, colour: rank(NAMED) });
  const others = whole === null ? 0 : whole - sum(first);
  if (others > 0) out.push({ key: "\0others", label: "all others", value: others, colour: colour("idle") });
  return out;
}
