import { place } from "../lib/router.svelte";

export const shown = (): boolean => place.get("counters") === "on";

/** Show the counters of devices, or hide them. */
export const toggle = (): void => place.set({ counters: shown() ? undefined : "on" }, true);
