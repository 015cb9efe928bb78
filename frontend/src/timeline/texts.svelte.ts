// Names of records: only those that are shown are asked for, because texts can be long and many.
import { get, Problem } from "../api/client";
import { place } from "../lib/router.svelte";

export type TableName = "string" | "kernel_name" | "label";
const AT_ONCE = 1500;

export class Texts {
  private readonly known: Record<TableName, Map<number, string>> = { string: new Map(), kernel_name: new Map(), label: new Map() };
  private readonly wanted: Record<TableName, Set<number>> = { string: new Set(), kernel_name: new Set(), label: new Set() };
  private asking = false;

  constructor(private readonly arrived: () => void) {}

  /** The text of a record, or undefined until it has come. */
  get(table: TableName, number: number): string | undefined {
    const text = this.known[table].get(number);
    if (text === undefined) this.wanted[table].add(number);
    return text;
  }

  /** Ask for what `get` did not have. */
  async fetch(): Promise<void> {
    if (this.asking) return;
    const of: string[] = [];
    const asked: [TableName, number[]][] = [];
    let room = AT_ONCE;
    for (const table of ["label", "kernel_name", "string"] as const) {
      const some = [...this.wanted[table]].slice(0, room);
      if (!some.length) continue;
      room -= some.length;
      of.push(`${table},${some.join(",")}`);
      asked.push([table, some]);
    }
    if (!of.length) return;
    this.asking = true;
    try {
      const answer = await get<Record<string, Record<string, string>>>("timeline/texts", { run: place.get("run"), of });
      for (const [table, some] of asked)
        for (const number of some) {
          this.known[table].set(number, answer[table]?.[number] ?? "");
          this.wanted[table].delete(number);
        }
      this.arrived();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      // Names stay away while the server does; the banner says so.
    } finally {
      this.asking = false;
    }
  }
}
