// Ranges of the share of the roofline, with their colors: what is slow for what it is, not what is long.

/** Whole percent from which a range begins, with its color and how the legend calls it. The farther from the roofline, the
 * stronger the color stands out. */
export const RANGES = [
  { from: 0, ink: "--e-0", label: "below 10 % of the roofline" },
  { from: 10, ink: "--e-1", label: "10 to 25 %" },
  { from: 25, ink: "--e-2", label: "25 to 50 %" },
  { from: 50, ink: "--e-3", label: "50 to 75 %" },
  { from: 75, ink: "--e-4", label: "75 % and more" },
] as const;
export const UNKNOWN = 255;
export const UNKNOWN_SHARE = { ink: "--c-outside", label: "unknown" } as const;
export const LEGEND = [...RANGES, UNKNOWN_SHARE];

export const rangeOf = (percent: number): (typeof RANGES)[number] | undefined =>
  percent === UNKNOWN ? undefined : RANGES.findLast(({ from }) => percent >= from);
