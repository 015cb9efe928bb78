// The server's breakdowns as charts: which colour a part has.
import type { Breakdown } from "../api/client";
import type { Slice } from "../charts/Donut.svelte";
import { colour, meaningOf } from "./colours";
import { titled } from "./profile.svelte";

export function slices(breakdown: Breakdown): Slice[] {
  return breakdown.parts.map((part) => ({
    key: part.key,
    label: titled(part.heading),
    value: part.unit === "%" ? part.share : part.value,
    share: part.share,
    colour: colour(meaningOf(breakdown.key, part.key)),
    text: part.text,
  }));
}
