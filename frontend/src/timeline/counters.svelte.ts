// Counters of the devices that are in sight, asked for when the window rests.
import { get, type Counters } from "../api/client";
import * as format from "../lib/format";
import { served } from "../lib/profile.svelte";
import { resource, type Resource } from "../lib/resource.svelte";
import { place } from "../lib/router.svelte";
import { CURVE, type Counter, type Layout } from "./lanes";
import { deviceKey } from "./scene";
import type { Window } from "./view";

const MARGIN = 200; // px above and below what is in sight
const POINTS = 2000; // of a curve, at most

export const shown = (): boolean => place.get("counters") === "on";

/** Show the counters of devices, or hide them. */
export const toggle = (): void => place.set({ counters: shown() ? undefined : "on" }, true);

export function valueText(counter: Counter, value: number | null | undefined): string {
  if (value == null) return format.UNKNOWN;
  if (counter.unit === "%") return format.percent(value);
  return counter.unit === "B" ? format.bytes(value) : format.rate(value, counter.unit);
}

export interface Sight {
  /** The window, once it rests. */
  readonly rested: Window | undefined;
  readonly layout: Layout | undefined;
  /** px from the top of the layout. */
  readonly scroll: number;
  readonly width: number;
  readonly height: number;
}

export class DeviceCounters {
  /** By device, as `deviceKey` names it. */
  readonly answer: Resource<ReadonlyMap<string, Counters>>;

  /** `sight`: getters. */
  constructor(private readonly sight: Sight) {
    this.answer = resource<ReadonlyMap<string, Counters>>(() => {
      served.version;
      const { rested, width } = this.sight;
      if (!this.devices || !rested || !width) return undefined;
      const devices = this.devices.split(",");
      const one = async (key: string, signal: AbortSignal): Promise<[string, Counters]> => {
        const [worker, device] = key.split(" ");
        const of = { run: place.get("run"), worker, device, points: Math.min(width, POINTS), start: rested.from, end: rested.to };
        return [key, await get<Counters>("timeline/counters", of, signal)];
      };
      return async (signal) => new Map(await Promise.all(devices.map((key) => one(key, signal))));
    });
  }

  /** The devices in sight, as text: a scroll by a few pixels asks for nothing. */
  private readonly devices = $derived.by((): string => {
    const { layout, scroll, height } = this.sight;
    const near = (layout?.counters ?? []).filter(({ top }) => top + CURVE > scroll - MARGIN && top < scroll + height + MARGIN);
    return [...new Set(near.map(({ counter }) => deviceKey(counter)))].join();
  });
}
