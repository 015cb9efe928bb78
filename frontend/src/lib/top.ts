// How many rows the charts of a view show: the first n, or all (0).
import { place } from "./router.svelte";

export const DEFAULT = 10;

export function top(): number {
  const asked = place.get("top");
  if (asked === "all") return 0;
  const number = Number(asked);
  return Number.isInteger(number) && number > 0 ? number : DEFAULT;
}
