// The scale of a heat map, and which cell is where.

export type Cells = readonly (readonly (number | null)[])[];

/** What the lightest and the darkest color stand for. Columns `outside` are not asked, unless there is no other: a first
 * step that compiles would take the scale from the others. Their cells may be beyond the ends. */
export function domain(cells: Cells, outside: readonly boolean[] = []): [low: number, high: number] {
  const every = outside.length > 0 && outside.every(Boolean);
  let [low, high] = [Infinity, -Infinity];
  for (const row of cells)
    row.forEach((one, column) => {
      if (one === null || (outside[column] && !every)) return;
      if (one < low) low = one;
      if (one > high) high = one;
    });
  return low <= high ? [low, high] : [0, 0];
}

/** Which columns of `wide` lengths have one that is more than twice as long as usual. */
export function long(lengths: readonly number[], wide: number): boolean[] {
  const usual = lengths.toSorted((a, b) => a - b)[(lengths.length - 1) >> 1] ?? 0;
  return Array.from({ length: Math.ceil(lengths.length / wide) }, (_, at) =>
    lengths.slice(at * wide, (at + 1) * wide).some((one) => one > 2 * usual),
  );
}

/** From 0 at the low end of the scale to 1 at the high one. */
export const share = (value: number, [low, high]: readonly [number, number]): number =>
  high > low ? Math.min(1, Math.max(0, (value - low) / (high - low))) : 0;

/** Colors between stops `#rrggbb`, as `count` texts. */
export function ramp(stops: readonly string[], count: number): string[] {
  const parts = stops.map((stop) => [1, 3, 5].map((at) => parseInt(stop.slice(at, at + 2), 16)));
  return Array.from({ length: count }, (_, at) => {
    const place = (at / Math.max(1, count - 1)) * (parts.length - 1);
    const from = Math.min(Math.floor(place), parts.length - 2);
    const mixed = parts[from]!.map((one, channel) => Math.round(one + (parts[from + 1]![channel]! - one) * (place - from)));
    return `rgb(${mixed.join(" ")})`;
  });
}

/** The worker and step of a cell, by their places: of several in one the one that is shown. */
export function shown(
  row: number,
  column: number,
  tall: number,
  wide: number,
  which: readonly (readonly number[])[] | null,
): [worker: number, step: number] {
  const place = which?.[row]?.[column] ?? 0;
  return [row * tall + Math.floor(place / wide), column * wide + (place % wide)];
}
