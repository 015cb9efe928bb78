// Which kernels a roofline has room for.

interface Placed {
  intensity: number | null;
  achieved: number | null;
  time: number;
}

/** Of the time: kernels that take less together are left out where they lie far away from all others. */
export const LITTLE = 0.01;
const FAR = 2; // powers of ten

export function together<T extends Placed>(points: readonly T[]): T[] {
  const all = points.reduce((sum, one) => sum + one.time, 0);
  let rest = 0;
  const brief = new Set([...points].sort((a, b) => a.time - b.time).filter((one) => (rest += one.time) < LITTLE * all));
  const main = points.filter((one) => !brief.has(one));
  const near = (one: T, of: "intensity" | "achieved"): boolean => {
    const logs = main.map((other) => Math.log10(other[of]!));
    const at = Math.log10(one[of]!);
    return at > Math.min(...logs) - FAR && at < Math.max(...logs) + FAR;
  };
  return points.filter((one) => !brief.has(one) || (near(one, "intensity") && near(one, "achieved")));
}

/** The part of an axis between two places, in either order: at least a power of ten, so that it has a tick. */
export function span(one: number, other: number, [least, most]: [number, number]): [number, number] {
  const [low, high] = one < other ? [one, other] : [other, one];
  const from = Math.max(least, Math.min(low, (low + high - 1) / 2, most - 1));
  return [from, Math.min(most, Math.max(high, from + 1))];
}
