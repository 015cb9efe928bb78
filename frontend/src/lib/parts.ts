// The server's breakdowns as charts: which colour a part has.
import type { Breakdown } from "../api/client";
import type { Slice } from "../charts/Donut.svelte";
import { colour, meaningOf, type Meaning } from "./colours";
import { served, titled } from "./profile.svelte";

export const meaning = (breakdown: string, part: string): Meaning => meaningOf(breakdown, part, served.gpu);

export function slices(breakdown: Breakdown): Slice[] {
  return breakdown.parts.map((part) => ({
    key: part.key,
    label: titled(part.heading),
    value: part.unit === "%" ? part.share : part.value,
    share: part.share,
    colour: colour(meaning(breakdown.key, part.key)),
    text: part.text,
  }));
}
