// Iterations of all workers as bars: the mean of the workers that have one of that number.
import type { Bars } from "../api/client";
import type { Bar, Series } from "../charts/Stacks.svelte";
import { colour, type Meaning } from "./colours";
import { titled } from "./profile.svelte";

/** From the bottom of a bar to its top. */
const PARTS: readonly Meaning[] = ["tc", "kernel", "memory", "cpu", "io", "dataloader", "other"];

/** Without a GPU its parts are unknown, and not shown. */
const shown = (answer: Bars): Meaning[] => PARTS.filter((part) => answer.parts[part]?.some((value) => value !== null));

export function series(answer: Bars): Series[] {
  return shown(answer).map((part) => ({ key: part, label: titled(answer.headings[part] ?? part), colour: colour(part) }));
}

export interface Iteration extends Bar {
  number: number;
}

export function bars(answer: Bars): Iteration[] {
  const parts = shown(answer);
  return answer.number.map((number, at) => ({
    number,
    label: String(number),
    values: parts.map((part) => answer.parts[part]?.[at] ?? null),
    total: answer.duration[at]!,
    outside: answer.outside[at]!,
    ...(answer.until[at] === number ? {} : { until: String(answer.until[at]), count: answer.count[at]! }),
  }));
}
