// Ticks of the time axis, and times as its labels say them.
import { ticks } from "../charts/scale";
import type { Window } from "./view";

const UNITS = [
  ["s", 1e9],
  ["ms", 1e6],
  ["µs", 1e3],
  ["ns", 1],
] as const;

/** Labels in one unit, with as many decimals as the distance of two needs. */
export function axisTicks(window: Window, most: number): { at: number; label: string }[] {
  const all = ticks(window.from, window.to, most);
  const step = all.length > 1 ? all[1]! - all[0]! : window.to - window.from;
  const largest = Math.max(Math.abs(window.from), Math.abs(window.to));
  const [unit, size] = UNITS.find(([, one]) => step >= one * 0.999 && largest >= one) ?? UNITS.at(-1)!;
  const [shown, scale] =
    largest >= 1e6 * size ? [UNITS[Math.max(0, UNITS.findIndex(([name]) => name === unit) - 1)]![0], size * 1e3] : [unit, size];
  const places = Math.max(0, Math.ceil(-Math.log10(step / scale) - 1e-9));
  return all.map((at) => ({
    at,
    label: `${(at / scale).toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places })} ${shown}`,
  }));
}
