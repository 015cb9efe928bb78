// The steps that the program marked: where they are on the axis, and their labels.
import type { Timeline } from "../api/client";
import * as format from "../lib/format";
import type { Window } from "./view";

type Marked = Timeline["steps"][number];

/** A step, where it is on the axis. */
export type PlacedStep = Marked & Window;

export type LabelledStep = PlacedStep & {
  name: string;
  /** Whether its label would lie on another one. */
  covered: boolean;
};

const MOST = 200; // steps with labels
const LETTER = 7; // px
const APART = 2; // px between starts that are seen to differ

export const placedSteps = (steps: readonly Marked[]): PlacedStep[] => steps.map((one) => ({ ...one, from: one.start, to: one.end }));

const nameOf = ({ number }: Marked): string => `step ${number}`;

/** The steps of a window that is `width` px wide. Where steps of one number do not begin together, labels say of which
 * worker they are. */
export function labelled(
  steps: readonly PlacedStep[],
  workers: ReadonlyMap<number, string>,
  window: Window,
  width: number,
): LabelledStep[] {
  const pixels = (time: number): number => (time / (window.to - window.from)) * width;
  const shown = steps
    .filter((one) => one.to > window.from && one.from < window.to)
    .sort((one, other) => one.from - other.from)
    .slice(0, MOST);
  const apart = new Set<string>();
  const first = new Map<string, number>();
  for (const one of shown) {
    const begun = first.get(nameOf(one));
    if (begun === undefined) first.set(nameOf(one), one.from);
    else if (pixels(one.from - begun) > APART) apart.add(nameOf(one));
  }
  let free = -Infinity; // px, where the last label ends
  return shown.map((one) => {
    const at = pixels(Math.max(one.from, window.from) - window.from);
    const name = nameOf(one) + (apart.has(nameOf(one)) ? ` ${workers.get(one.worker) ?? ""}` : "");
    const room = LETTER * name.length + 8;
    const cut = one.from < window.from && pixels(one.to - window.from) < room; // the next step begins there
    const covered = at < free || cut; // by the label of another rank's step
    if (!covered) free = at + room;
    return { ...one, name, covered };
  });
}

/** The step at a time, of a worker if one is named. */
export const stepAt = (steps: readonly PlacedStep[], time: number, worker?: number): PlacedStep | undefined =>
  steps.find((one) => (worker === undefined || one.worker === worker) && one.from <= time && time < one.to);

/** What a stretch of time is called: the step that it is, or how long it is. */
export function titleOf(steps: readonly PlacedStep[], { from, to }: Window): string {
  const step = steps.find((one) => one.from === from && one.to === to);
  return step ? `step ${step.number}` : `${format.time(to - from)} at ${format.time(from)}`;
}
