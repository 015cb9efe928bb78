// Colors of records: of the operator by default, so that what belongs together has one color on the host and the device.
import type { Colors } from "../api/client";
import { rangeOf } from "./roofline";
import type { Shares } from "./shares.svelte";
import type { Track } from "./store";
import type { Tile } from "./tiles";

/** Text of the table that has the names of a track's records. */
export const TABLE: Record<Track["kind"], "string" | "kernel_name" | "label"> = {
  range: "string",
  function: "string",
  overlap: "string",
  api: "string",
  file: "string",
  stream: "kernel_name",
  module: "label",
  loader: "label",
  idle: "label",
};

/** What colors can stand for, in words. */
export const BY: Record<string, string> = {
  type: "operator type",
  operator: "operator",
  module: "module",
  direction: "direction",
  kind: "kind of kernel",
  kernel: "kernel",
  tc: "tensor cores",
  roofline: "roofline",
};

export const RANKS = 10;
/** Of records that have no group. */
const OF_KIND: Record<Track["kind"], string> = {
  range: "--c-outside",
  function: "--c-outside",
  overlap: "--c-outside",
  module: "--c-outside",
  api: "--c-runtime",
  file: "--c-io",
  loader: "--c-dataloader",
  stream: "--c-kernel",
  idle: "--c-idle",
};
/** Causes of idle time, as the report has them. */
export const CAUSES: Record<string, string> = {
  queued: "--c-idle",
  "data loader": "--c-dataloader",
  synchronization: "--c-runtime",
  "host copy": "--c-memory",
  "launch-bound": "--c-cpu",
  "not recorded": "--c-outside",
};

export class Inks {
  private readonly cache = new Map<string, number>();

  constructor(private readonly style: CSSStyleDeclaration) {}

  /** A color of the page's style, as 0xBBGGRR. */
  of(variable: string): number {
    let ink = this.cache.get(variable);
    if (ink === undefined) {
      const hex = this.style.getPropertyValue(variable).trim();
      const digits = hex.slice(1);
      const value = parseInt(digits.length === 3 ? digits.replace(/./g, "$&$&") : digits, 16) || 0;
      ink = ((value & 255) << 16) | (value & 0xff00) | (value >> 16);
      this.cache.set(variable, ink);
    }
    return ink;
  }
}

/** Added to a color: lines of it, for what is unknown. */
export const HATCHED = 1 << 24;

export const css = (ink: number): string => `rgb(${ink & 255} ${(ink >> 8) & 255} ${(ink >> 16) & 255})`;

/** The color between two. */
const mixed = (one: number, other: number): number =>
  [0, 8, 16].reduce((ink, bits) => ink | (((((one >> bits) & 255) + ((other >> bits) & 255)) >> 1) << bits), 0);

/** Black or white, whichever is easier to read on a color (WCAG's relative luminance). */
export function onto(ink: number): string {
  const linear = (value: number): number => (value <= 10 ? value / 3294 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = 0.2126 * linear(ink & 255) + 0.7152 * linear((ink >> 8) & 255) + 0.0722 * linear((ink >> 16) & 255);
  return luminance > 0.179 ? "#000" : "#fff";
}

export const variable = (group: number): string => (group >= 0 && group < RANKS ? `--r-${group}` : "--c-outside");

/** What colors stand for: groups of operators or kernels, or the roofline. */
export interface Coloring {
  colors: Colors | undefined;
  shares: Shares | undefined;
}

/** The color of each record of a track. `label`: texts of labels, as far as they are known. */
export function colorOf(
  track: Track,
  { colors, shares }: Coloring,
  inks: Inks,
  label: (number: number) => string | undefined,
): (tile: Tile, at: number) => number {
  const plain = inks.of(OF_KIND[track.kind]);
  if (track.kind === "idle") return (tile, at) => inks.of(CAUSES[label(tile.name[at]!) ?? ""] ?? OF_KIND.idle);
  if (shares) {
    if (track.kind !== "stream") return () => inks.of("--c-outside");
    const unknown = inks.of("--c-outside") | HATCHED;
    return (tile, at) => {
      const percent = shares.of(track.worker, tile.id[at]!);
      const range = percent === undefined ? undefined : rangeOf(percent);
      return range ? inks.of(range.ink) : unknown;
    };
  }
  // Modules are told apart by tints: full colors stand for what the legend says.
  if (track.kind === "module") {
    const paper = inks.of("--panel");
    const tints = Array.from({ length: RANKS }, (_, rank) => mixed(inks.of(variable(rank)), paper));
    return (tile, at) => tints[tile.name[at]! % RANKS]!;
  }
  if (!colors || track.kind === "loader" || track.kind === "file") return () => plain;
  const ranked = Array.from({ length: RANKS + 1 }, (_, group) => inks.of(variable(group)));
  const other = ranked[RANKS]!;
  const { group } = colors;
  if (colors.of === "name") {
    if (track.kind !== "stream") return () => plain;
    return (tile, at) => ranked[group[tile.name[at]!] ?? RANKS] ?? other;
  }
  return (tile, at) => {
    const operator = tile.operator[at]!;
    return operator ? (ranked[group[operator - 1] ?? RANKS] ?? other) : plain;
  };
}
