// How well a text fits a name. The server ranks names of a recording (search.py) and the page those of its own, alike.
import type { Hit } from "../api/client";

/** The best first; `mention`: in a sentence about something else. */
const ORDER = ["name", "start", "part", "path", "mention"] as const;
export type Match = Hit["match"] | "mention";

/** A text without case, punctuation and underscores. */
export const plain = (text: string): string => text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "");

/** How a text fits a name; undefined if it is not in it. */
export function matchOf(name: string, text: string): Match | undefined {
  const [whole, needle] = [plain(name), plain(text)];
  if (whole === needle) return "name";
  return whole.startsWith(needle) ? "start" : whole.includes(needle) ? "part" : undefined;
}

/** What fits best first; what fits alike stays in order. */
export function ranked<T extends { match: Match }>(entries: readonly T[]): T[] {
  return [...entries].sort((one, other) => ORDER.indexOf(one.match) - ORDER.indexOf(other.match));
}
