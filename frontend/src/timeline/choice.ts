// Lists of tracks and workers in the address: pinned, hidden, unfolded, closed.
import { place } from "../lib/router.svelte";

export type List = "pin" | "hide" | "open" | "closed";

export const numbersOf = (list: List): number[] => (place.get(list) ?? "").split(",").filter(Boolean).map(Number).filter(Number.isInteger);

/** Put a number into a list, or take it out. */
export function toggle(list: List, one: number): void {
  const all = numbersOf(list);
  place.set({ [list]: (all.includes(one) ? all.filter((each) => each !== one) : [...all, one]).join(",") }, true);
}

/** The list without a number, as the address says it. */
export const without = (list: List, one: number): string =>
  numbersOf(list)
    .filter((each) => each !== one)
    .join(",");
