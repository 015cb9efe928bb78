// A whole table, in pages: for trees, which are sorted and filtered with their ancestors.
import { ask, type Query, type Table } from "../api/client";

const PAGE = 1000;

export function all(path: string, query: Query = {}): (signal: AbortSignal) => Promise<Table> {
  const page = (offset: number) => ask<Table>(path, { ...query, limit: PAGE, offset });
  const first = page(0); // asked for at once, so that what is chosen is read here
  const later = (total: number) => Array.from({ length: Math.max(0, Math.ceil(total / PAGE) - 1) }, (_, place) => page((place + 1) * PAGE));
  return async (signal) => {
    const head = await first(signal);
    const rest = await Promise.all(later(head.filtered).map((one) => one(signal)));
    return { ...head, rows: head.rows.concat(...rest.map((table) => table.rows)) };
  };
}
