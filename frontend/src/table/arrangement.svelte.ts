// How a reader arranged a table: the width and order of its columns, and which are shown. The browser keeps it.
import { keep, kept } from "../lib/kept";

/** Tables below this width, in px, are a phone's: the columns of most of them have to be scrolled to. */
export const SLIM = 520;
const TELLING = ["ns", "B", "%"];
const INSTANT = /^(launch|timestamp|start|from)/; // when, not how long

/** The columns with the one that the rows are sorted by first, if it is an amount, else the first time, size or share. */
export function tellingFirst<T extends { key: string; unit: string; kind: string }>(columns: readonly T[], sorted: string): T[] {
  const by = sorted.replace(/^-/, "");
  const amounts = columns.filter((column) => column.kind !== "str" && !INSTANT.test(column.key));
  const first = amounts.find((column) => column.key === by) ?? amounts.find((column) => TELLING.includes(column.unit));
  return first ? [first, ...columns.filter((column) => column !== first)] : [...columns];
}

interface Arranged {
  order?: string[];
  widths?: Record<string, number>;
  toggled?: string[];
}

const LEAST = 40; // px

export class Arrangement {
  #name: string;
  #now = $state.raw<Arranged>({});

  constructor(name: string) {
    this.#name = `table-${name}`;
    const before = kept(this.#name);
    if (before && typeof before === "object") this.#now = before as Arranged;
  }

  #change(changes: Arranged): void {
    this.#now = { ...this.#now, ...changes };
    keep(this.#name, Object.values(this.#now).some((value) => value !== undefined) ? this.#now : undefined);
  }

  /** Columns that are not as by default, unless the address says. */
  get toggled(): readonly string[] {
    return this.#now.toggled ?? [];
  }
  toggle(keys: readonly string[]): void {
    this.#change({ toggled: keys.length ? [...keys] : undefined });
  }

  /** The columns in the reader's order; those that came later stay where they are by default. */
  ordered<T extends { key: string }>(columns: readonly T[]): T[] {
    const order = this.#now.order;
    if (!order) return [...columns];
    const known = columns.filter((column) => order.includes(column.key)).sort((a, b) => order.indexOf(a.key) - order.indexOf(b.key));
    return columns.map((column) => (order.includes(column.key) ? known.shift()! : column));
  }
  /** Put a column where another is. `keys`: the order now. */
  move(keys: readonly string[], key: string, to: string): void {
    const rest = keys.filter((one) => one !== key);
    const place = keys.indexOf(to);
    if (key === to || place < 0) return;
    rest.splice(place, 0, key);
    this.#change({ order: rest });
  }

  width(key: string): number | undefined {
    return this.#now.widths?.[key];
  }
  resize(key: string, width: number): void {
    this.#change({ widths: { ...this.#now.widths, [key]: Math.max(LEAST, Math.round(width)) } });
  }

  get moved(): boolean {
    return !!this.#now.order;
  }
  get changed(): boolean {
    return !!(this.#now.order ?? this.#now.widths ?? this.#now.toggled);
  }
  reset(): void {
    this.#change({ order: undefined, widths: undefined, toggled: undefined });
  }
}
