// A table's part of the address: PREFIX.q search, .s sort, .p page, .n rows of a page, .f.KEY filters, .h columns
// that are not as by default, .c cursor, .sel the selected row.
import type { Query } from "../api/client";
import { place } from "../lib/router.svelte";
import { waiting } from "../lib/waiting.svelte";

export const SIZES = [10, 25, 50, 100] as const;

export interface TableState {
  search: string;
  sort: string;
  page: number;
  size: number;
  filters: Record<string, string>;
  /** Columns that are not as by default; undefined: the address does not say. */
  toggled: string[] | undefined;
  cursor: string | undefined;
  selected: string | undefined;
}

export function read(prefix: string, sort: string, size: number): TableState {
  const of = (name: string) => place.get(`${prefix}.${name}`);
  const filters: Record<string, string> = {};
  const head = `${prefix}.f.`;
  for (const [key, value] of Object.entries(place.params)) if (key.startsWith(head)) filters[key.slice(head.length)] = value;
  const asked = Number(of("n"));
  const page = Number(of("p"));
  return {
    search: of("q") ?? "",
    sort: of("s") ?? sort,
    page: Number.isInteger(page) && page > 0 ? page : 1,
    size: (SIZES as readonly number[]).includes(asked) ? asked : size,
    filters,
    toggled: of("h")?.split(",").filter(Boolean),
    cursor: of("c"),
    selected: of("sel"),
  };
}

export function write(prefix: string, changes: Record<string, string | undefined>, replace = false): void {
  place.set(Object.fromEntries(Object.entries(changes).map(([key, value]) => [`${prefix}.${key}`, value])), replace);
}

/** What is asked of the server, without the page. */
export function narrowing(state: TableState, fixed: Query = {}): Query {
  const given = fixed.filter === undefined ? [] : ([] as string[]).concat(fixed.filter as string | string[]);
  const own = Object.entries(state.filters).map(([key, condition]) => `${key}:${condition}`);
  return { ...fixed, sort: state.sort || undefined, search: state.search || undefined, filter: [...given, ...own] };
}

/** What a chart asks for beside a table, so that it shows the rows that the table's filters leave. `options`: of the
 * report, which are chosen at the table. */
export function beside(prefix: string, options: readonly string[] = []): Query {
  const { search, filter } = narrowing(read(prefix, "", 25));
  const chosen = Object.fromEntries(options.map((name) => [name, place.get(`${prefix}.o.${name}`)]));
  return { ...chosen, search, filter };
}

/** Page numbers worth a button: the ends and what is around this one; 0 is a gap. */
export function pages(now: number, last: number): number[] {
  const near = [1, now - 1, now, now + 1, last].filter((page) => page >= 1 && page <= last);
  const out: number[] = [];
  for (const page of [...new Set(near)].sort((a, b) => a - b)) {
    const before = out.at(-1);
    if (before && page - before === 2) out.push(page - 1);
    else if (before && page - before > 2) out.push(0);
    out.push(page);
  }
  return out;
}

/** What is typed is asked for when the typing stops: soon where the answer is in memory, later where it takes looking at
 * everything, which `slow` says. */
export function pause<T>(act: (value: T) => void, slow: () => boolean = () => false): (value: T) => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let end: (() => void) | undefined;
  return (value) => {
    clearTimeout(timer);
    end ??= waiting.begin("the end of the typing");
    timer = setTimeout(
      () => {
        end?.();
        end = undefined;
        act(value);
      },
      slow() ? 250 : 25,
    );
  };
}
