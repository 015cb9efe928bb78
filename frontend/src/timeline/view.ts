// The window that is shown, in ns, and how gestures change it. The point under the pointer stays where it is.

export interface Window {
  from: number;
  to: number;
}

export const SHORTEST = 20; // ns

/** A window of at least SHORTEST within the run and half a window on each side of it. */
export function clamped(window: Window, run: Window): Window {
  const whole = Math.max(run.to - run.from, SHORTEST);
  const span = Math.min(Math.max(window.to - window.from, SHORTEST), whole * 1.1);
  const middle = (window.from + window.to) / 2;
  const from = Math.min(Math.max(middle - span / 2, run.from - span / 2), run.to - span / 2);
  return { from: Math.round(from), to: Math.round(from + span) };
}

export function everything(run: Window): Window {
  const margin = Math.max(run.to - run.from, SHORTEST) * 0.01;
  return { from: Math.round(run.from - margin), to: Math.round(run.to + margin) };
}

/** `factor` below 1 zooms in; `at`: the time that stays, from 0 at the left edge to 1 at the right. */
export function zoomed(window: Window, factor: number, at: number, run: Window): Window {
  const time = window.from + at * (window.to - window.from);
  const span = Math.max((window.to - window.from) * factor, SHORTEST);
  return clamped({ from: time - at * span, to: time + (1 - at) * span }, run);
}

/** `share` of the window to the right. */
export function panned(window: Window, share: number, run: Window): Window {
  const by = share * (window.to - window.from);
  return clamped({ from: window.from + by, to: window.to + by }, run);
}

/** A window around a stretch, with some of what is around it. */
export function around(from: number, to: number, run: Window): Window {
  const margin = Math.max((to - from) * 0.25, SHORTEST);
  return clamped({ from: from - margin, to: to + margin }, run);
}

/** A stretch as the address has it, FROM_TO; undefined for anything else. */
export function stretchOf(text: string | undefined): Window | undefined {
  const [from = NaN, to = NaN] = (/^(-?\d+)_(-?\d+)$/.exec(text ?? "") ?? []).slice(1).map(Number);
  return Number.isSafeInteger(from) && Number.isSafeInteger(to) && to > from ? { from, to } : undefined;
}

export const textOf = ({ from, to }: Window): string => `${from}_${to}`;
