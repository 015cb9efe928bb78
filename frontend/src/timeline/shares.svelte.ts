// The share of the roofline that each kernel reaches.
import { bytes, Problem } from "../api/client";
import { place } from "../lib/router.svelte";
import { UNKNOWN } from "./roofline";

const MOST = 254; // stands for more, too
const FIRST_ID = 2 ** 40; // of a worker's events, times its number

/** Percent of each event by its number, asked for when it is wanted; one worker after the other. */
export class Shares {
  private readonly known = new Map<number, Uint8Array>();
  private readonly wanted = new Set<number>();
  underway = false;
  problem = $state<string>();

  constructor(private readonly arrived: () => void) {}

  /** Percent of an event, UNKNOWN of one without a roofline; undefined until it has come. */
  of(worker: number, id: number): number | undefined {
    const shares = this.known.get(worker);
    if (!shares) this.wanted.add(worker);
    return shares && (shares[id - worker * FIRST_ID] ?? UNKNOWN);
  }

  say(worker: number, id: number): string {
    const percent = this.of(worker, id);
    return percent === undefined ? "…" : percent === UNKNOWN ? "unknown" : `${percent} %${percent === MOST ? " or more" : ""}`;
  }

  /** Whether all that `of` was asked for is there. */
  get complete(): boolean {
    return this.wanted.size === 0;
  }

  /** Ask for what `of` did not have. */
  async fetch(): Promise<void> {
    if (this.underway) return;
    this.underway = true;
    try {
      for (const worker of this.wanted) {
        this.known.set(worker, new Uint8Array(await bytes("timeline/roofline", { run: place.get("run"), worker })));
        this.wanted.delete(worker);
        this.arrived();
      }
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (error.status) {
        this.problem = error.detail;
        for (const worker of this.wanted) this.known.set(worker, new Uint8Array());
        this.wanted.clear();
      } // else the server is away; the banner says so, and the next picture asks again
    } finally {
      this.underway = false;
    }
  }
}
