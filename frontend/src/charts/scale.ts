// Ticks at round numbers, and how large a chart is: in pixels of a page whose text has 13 of them.

/** `_width` of the window: the size of text changes with it. */
export const unit = (_width: number): number => parseFloat(getComputedStyle(document.documentElement).fontSize) / 13;

export function ticks(from: number, to: number, most: number): number[] {
  const span = to - from;
  if (!(span > 0)) return [from];
  const raw = span / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = ([1, 2, 5, 10].find((factor) => factor * power >= raw) ?? 10) * power;
  const out: number[] = [];
  for (let at = Math.ceil(from / step - 1e-9) * step; at <= to + step * 1e-6; at += step) out.push(Number(at.toPrecision(12)));
  return out;
}

/** The same for bytes: powers of two and their halves. */
export function byteTicks(from: number, to: number, most: number): number[] {
  const raw = Math.max(1, (to - from) / Math.max(1, most));
  const step = 2 ** Math.ceil(Math.log2(raw));
  const out: number[] = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) out.push(at);
  return out;
}

/** Powers of ten within two logarithms. */
export function decades(from: number, to: number): number[] {
  const out: number[] = [];
  for (let power = Math.ceil(from - 1e-9) + 0; power <= to + 1e-9; power++) out.push(power);
  const every = Math.ceil(out.length / 8);
  return out.filter((_, place) => place % every === 0);
}
