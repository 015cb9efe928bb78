// Where the panels of the timeline are: groups of tabs to the left and right of the lanes, above and below them. Pure
// functions; the lanes are no panel, so that no arrangement can be without them.

export const TITLES = {
  sums: "Sums",
  operators: "Operators",
  durations: "Durations",
  hits: "Found events",
  list: "Events of a lane",
  annotations: "Annotations",
  source: "Source",
} as const;
export type Widget = keyof typeof TITLES;
export const WIDGETS = Object.keys(TITLES) as Widget[];
export const SIDES = ["left", "above", "right", "below"] as const;
export type Side = (typeof SIDES)[number];
export type Direction = "left" | "right" | "up" | "down";

/** Tabs of which one is shown; `share`: its part of the length of the side, in proportion to those of the others. */
export interface Group {
  tabs: readonly Widget[];
  active: Widget;
  share: number;
}
/** `size`: the part of the width (left, right) or height (above, below). Groups are side by side above and below the
 * lanes, and on top of each other to the left and right. */
export interface Part {
  size: number;
  groups: readonly Group[];
}
export type Arrangement = Readonly<Record<Side, Part>>;
/** Where a panel is put: into the tabs of another, beside its group, or as a new group of a side. */
export type Drop = { kind: "tab"; of: Widget } | { kind: "beside"; of: Widget; after: boolean } | { kind: "side"; side: Side };

const [LEAST, MOST] = [0.1, 0.6]; // of a side
const SIZE: Record<Side, number> = { left: 0.25, right: 0.3, above: 0.25, below: 0.28 };
const NOTHING: Arrangement = {
  left: { size: SIZE.left, groups: [] },
  above: { size: SIZE.above, groups: [] },
  right: { size: SIZE.right, groups: [] },
  below: { size: SIZE.below, groups: [] },
};
const DIRECTION: Record<Direction, Side> = { left: "left", right: "right", up: "above", down: "below" };
const limited = (value: number, least: number, most: number): number => Math.min(Math.max(value, least), most);
/** In thousandths, of which no share has less than one. */
const rounded = (value: number): number => Math.max(Math.round(value * 1000), 1) / 1000;

/** Is it as wide as the lanes, with its groups side by side? */
export const flat = (side: Side): boolean => side === "above" || side === "below";

function withPart(all: Arrangement, side: Side, part: Partial<Part>): Arrangement {
  return { ...all, [side]: { ...all[side], ...part } };
}

/** The side and the number of the group that has a panel. */
export function find(all: Arrangement, widget: Widget): { side: Side; at: number; group: Group } | undefined {
  for (const side of SIDES) {
    const at = all[side].groups.findIndex(({ tabs }) => tabs.includes(widget));
    if (at >= 0) return { side, at, group: all[side].groups[at]! };
  }
  return undefined;
}

/** Without a panel, wherever it is. */
export function removed(all: Arrangement, widget: Widget): Arrangement {
  const found = find(all, widget);
  if (!found) return all;
  const { side, at, group } = found;
  const tabs = group.tabs.filter((one) => one !== widget);
  const place = group.tabs.indexOf(widget);
  const active = group.active === widget ? tabs[Math.min(place, tabs.length - 1)] : group.active;
  const { groups } = all[side];
  return withPart(all, side, { groups: active ? groups.with(at, { ...group, tabs, active }) : groups.toSpliced(at, 1) });
}

/** With a panel in another place, or for the first time in one, where it is the tab that is shown. */
export function put(all: Arrangement, widget: Widget, drop: Drop): Arrangement {
  if (drop.kind !== "side" && drop.of === widget) {
    const found = find(all, widget);
    if (!found || drop.kind === "tab" || found.group.tabs.length === 1) return all;
    const rest = found.group.tabs.find((one) => one !== widget)!;
    return put(all, widget, { ...drop, of: rest }); // out of its own tabs
  }
  const without = removed(all, widget);
  const alone: Group = { tabs: [widget], active: widget, share: 1 };
  if (drop.kind === "side") return withPart(without, drop.side, { groups: [...without[drop.side].groups, alone] });
  const found = find(without, drop.of);
  if (!found) return all;
  const { side, at, group } = found;
  const { groups } = without[side];
  if (drop.kind === "tab") {
    const tabs = group.tabs.toSpliced(group.tabs.indexOf(drop.of) + 1, 0, widget);
    return withPart(without, side, { groups: groups.with(at, { ...group, tabs, active: widget }) });
  }
  const half = rounded(group.share / 2);
  const pair = [
    { ...group, share: half },
    { ...alone, share: half },
  ];
  return withPart(without, side, { groups: groups.toSpliced(at, 1, ...(drop.after ? pair : pair.toReversed())) });
}

/** One place on in a direction: past the next group of its side that is shown, out of its tabs, else to that side. */
export function moved(all: Arrangement, widget: Widget, direction: Direction, shown: ReadonlySet<Widget>): Arrangement {
  const found = find(all, widget);
  const to = DIRECTION[direction];
  if (found && flat(found.side) !== flat(to)) {
    const { side, at, group } = found;
    const step = direction === "right" || direction === "down" ? 1 : -1;
    const seen = (one: Group): boolean => one.tabs.some((tab) => shown.has(tab));
    if (group.tabs.some((tab) => tab !== widget && shown.has(tab)))
      return put(all, widget, { kind: "beside", of: widget, after: step > 0 });
    const { groups } = all[side];
    const next =
      step > 0
        ? groups.findIndex((one, number) => number > at && seen(one))
        : groups.findLastIndex((one, number) => number < at && seen(one));
    if (next >= 0) return withPart(all, side, { groups: groups.with(at, groups[next]!).with(next, group) });
  }
  return found?.side === to ? all : put(all, widget, { kind: "side", side: to });
}

/** Show a tab. */
export function activated(all: Arrangement, widget: Widget): Arrangement {
  const found = find(all, widget);
  if (!found || found.group.active === widget) return all;
  return withPart(all, found.side, { groups: all[found.side].groups.with(found.at, { ...found.group, active: widget }) });
}

/** With a panel; one that has no place yet comes to those that it has something to do with. */
export function added(all: Arrangement, widget: Widget): Arrangement {
  if (find(all, widget)) return activated(all, widget);
  if (widget === "source") return put(all, widget, { kind: "side", side: "right" });
  const beside = widget === "durations" || widget === "operators";
  const of = WIDGETS.find((one) => find(all, one)?.side === "below");
  if (!of) return put(all, widget, { kind: "side", side: "below" });
  return put(all, widget, beside ? { kind: "beside", of, after: true } : { kind: "tab", of });
}

/** Another width or height of a side. */
export function sized(all: Arrangement, side: Side, size: number): Arrangement {
  return withPart(all, side, { size: rounded(limited(size, LEAST, MOST)) });
}

/** Two groups of a side, each by a panel of it, of which the first gets a part of what both have. */
export function divided(all: Arrangement, first: Widget, second: Widget, part: number): Arrangement {
  const [one, two] = [find(all, first), find(all, second)];
  if (!one || !two || one.side !== two.side || one.at === two.at) return all;
  const both = one.group.share + two.group.share;
  const share = rounded(both * limited(part, LEAST, 1 - LEAST));
  const { groups } = all[one.side];
  return withPart(all, one.side, {
    groups: groups.with(one.at, { ...one.group, share }).with(two.at, { ...two.group, share: rounded(both - share) }),
  });
}

/** What is seen of an arrangement: the panels that are shown. */
export function visible(all: Arrangement, shown: ReadonlySet<Widget>): Arrangement {
  const groups = (of: readonly Group[]): Group[] =>
    of.flatMap((group) => {
      const tabs = group.tabs.filter((one) => shown.has(one));
      return tabs.length ? [{ ...group, tabs, active: tabs.includes(group.active) ? group.active : tabs[0]! }] : [];
    });
  const part = (side: Side): Part => ({ ...all[side], groups: groups(all[side].groups) });
  return { left: part("left"), above: part("above"), right: part("right"), below: part("below") };
}

export const placed = (all: Arrangement): Widget[] => SIDES.flatMap((side) => all[side].groups.flatMap(({ tabs }) => tabs));

/** An arrangement by the tabs of the groups of its sides. */
function arranged(sides: Partial<Record<Side, readonly (readonly Widget[])[]>>, sizes: Partial<Record<Side, number>> = {}): Arrangement {
  const part = (side: Side): Part => ({
    size: sizes[side] ?? SIZE[side],
    groups: (sides[side] ?? []).map((tabs) => ({ tabs, active: tabs[0]!, share: 1 })),
  });
  return { left: part("left"), above: part("above"), right: part("right"), below: part("below") };
}
export const STANDARD = arranged({ below: [["sums"]] });
export const ANALYZE = arranged({ below: [["sums"], ["operators"]] }, { below: 0.36 });
export const CODE = arranged({ right: [["source"]], below: [["sums"]] });

/** An arrangement out of JSON; undefined if it is none. */
export function checked(value: unknown): Arrangement | undefined {
  const object = (one: unknown): one is Record<string, unknown> => typeof one === "object" && one !== null && !Array.isArray(one);
  const number = (one: unknown, least: number, most: number): one is number => typeof one === "number" && one >= least && one <= most;
  if (!object(value)) return undefined;
  const seen = new Set<Widget>();
  let out = NOTHING;
  for (const side of SIDES) {
    const part = value[side];
    if (!object(part) || !number(part.size, LEAST, MOST) || !Array.isArray(part.groups)) return undefined;
    const groups: Group[] = [];
    for (const group of part.groups as unknown[]) {
      if (!object(group) || !Array.isArray(group.tabs) || !group.tabs.length || !number(group.share, 0.001, 1000)) return undefined;
      for (const tab of group.tabs as unknown[]) {
        if (typeof tab !== "string" || !Object.hasOwn(TITLES, tab) || seen.has(tab as Widget)) return undefined;
        seen.add(tab as Widget);
      }
      const tabs = group.tabs as Widget[];
      if (!tabs.includes(group.active as Widget)) return undefined;
      groups.push({ tabs, active: group.active as Widget, share: group.share });
    }
    out = withPart(out, side, { size: part.size, groups });
  }
  return out;
}

/** Have two the same panels at the same places? Which tab is in front is not asked, nor are panels that come and go. */
export function alike(one: Arrangement, other: Arrangement, shown: ReadonlySet<Widget>): boolean {
  const text = (all: Arrangement): string =>
    JSON.stringify(
      SIDES.map((side) => [side, visible(all, shown)[side].groups.map(({ tabs }) => tabs), all[side].groups.length && all[side].size]),
    );
  return text(one) === text(other);
}

// --- where that is on the screen, in px of the workspace

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}
export interface Area extends Box {
  side: Side;
  group: Group;
}
/** The edge between a side and the lanes, or between two groups. `upright`: it is moved to the left and right. */
export interface Edge extends Box {
  key: string;
  upright: boolean;
  label: string;
  /** What it divides, in %: of the size of a side, or of the first of two groups. */
  now: number;
  least: number;
  most: number;
  /** Px of 100 %; negative where the side grows to the left or up. */
  length: number;
  side: Side;
  /** A panel of each group. */
  between?: readonly [Widget, Widget];
}
export interface Plan {
  lanes: Box;
  areas: Area[];
  edges: Edge[];
}
export const GAP = 7; // px between parts, which is the edge
const [NARROW, LOW] = [0.35, 0.3]; // what the lanes have at least, of the width and height

/** Where everything is; `all`: what is visible of an arrangement. */
export function plan(all: Arrangement, width: number, height: number): Plan {
  const used = (side: Side, whole: number): number => (all[side].groups.length ? Math.round(all[side].size * whole) : 0);
  /** Both of two opposite sides, which leave the lanes their part. */
  const pair = (one: Side, other: Side, whole: number, rest: number): [number, number] => {
    const [a, b] = [used(one, whole), used(other, whole)];
    const gaps = (a ? GAP : 0) + (b ? GAP : 0);
    const most = Math.max(whole * (1 - rest) - gaps, 0);
    return a + b > most ? [Math.floor((a * most) / (a + b)), Math.floor((b * most) / (a + b))] : [a, b];
  };
  const [left, right] = pair("left", "right", width, NARROW);
  const [above, below] = pair("above", "below", height, LOW);
  const [top, bottom] = [above ? above + GAP : 0, below ? below + GAP : 0];
  const middle = Math.max(height - top - bottom, 0);
  const boxes: Record<Side, Box> = {
    above: { x: 0, y: 0, width, height: above },
    below: { x: 0, y: height - below, width, height: below },
    left: { x: 0, y: top, width: left, height: middle },
    right: { x: width - right, y: top, width: right, height: middle },
  };
  const from = left ? left + GAP : 0;
  const lanes: Box = { x: from, y: top, width: Math.max(width - from - (right ? right + GAP : 0), 0), height: middle };
  const edges: Edge[] = [];
  const areas: Area[] = [];
  for (const side of SIDES) {
    const { groups, size } = all[side];
    const box = boxes[side];
    if (!groups.length) continue;
    const upright = !flat(side);
    const words = upright ? `Width of the panels to the ${side}` : `Height of the panels ${side}`;
    const common = { side, least: 100 * LEAST };
    const far = side === "right" || side === "below";
    edges.push({
      ...common,
      key: side,
      upright,
      label: words,
      now: Math.round(100 * size),
      most: 100 * MOST,
      length: (upright ? width : height) * (far ? -1 : 1),
      x: upright ? (far ? box.x - GAP : box.x + box.width) : box.x,
      y: upright ? box.y : far ? box.y - GAP : box.y + box.height,
      width: upright ? GAP : box.width,
      height: upright ? box.height : GAP,
    });
    const shares = groups.reduce((sum, { share }) => sum + share, 0);
    const room = Math.max((upright ? box.height : box.width) - GAP * (groups.length - 1), 0);
    let at = 0;
    groups.forEach((group, number) => {
      const length = number === groups.length - 1 ? room - at : Math.floor((room * group.share) / shares);
      const start = at + number * GAP;
      areas.push({
        side,
        group,
        ...(upright
          ? { x: box.x, y: box.y + start, width: box.width, height: length }
          : { x: box.x + start, y: box.y, width: length, height: box.height }),
      });
      at += length;
      const next = groups[number + 1];
      if (!next) return;
      const both = group.share + next.share;
      edges.push({
        ...common,
        key: `${group.active} ${next.active}`,
        upright: !upright,
        label: `${TITLES[group.active]} and ${TITLES[next.active]}`,
        now: Math.round((100 * group.share) / both),
        most: 100 * (1 - LEAST),
        length: (room * both) / shares,
        between: [group.active, next.active],
        ...(upright
          ? { x: box.x, y: box.y + start + length, width: box.width, height: GAP }
          : { x: box.x + start + length, y: box.y, width: GAP, height: box.height }),
      });
    });
  }
  return { lanes, areas, edges };
}

/** An arrangement after an edge is at so many %. */
export function edged(all: Arrangement, edge: Edge, percent: number): Arrangement {
  return edge.between ? divided(all, ...edge.between, percent / 100) : sized(all, edge.side, percent / 100);
}

/** What a panel that is let go at a point does, and the box that it would be in. The middle of a group are its tabs, its
 * ends are beside it; over the lanes it is the side that is nearest. */
export function dropAt({ lanes, areas }: Plan, x: number, y: number): { drop: Drop; box: Box } | undefined {
  const inside = (box: Box): boolean => x >= box.x && x <= box.x + box.width && y >= box.y && y <= box.y + box.height;
  const area = areas.find(inside);
  if (area) {
    const part = flat(area.side) ? (x - area.x) / area.width : (y - area.y) / area.height;
    const of = area.group.active;
    if (part >= 0.25 && part <= 0.75) return { drop: { kind: "tab", of }, box: area };
    const after = part > 0.5;
    const box = flat(area.side)
      ? { ...area, width: area.width / 2, x: area.x + (after ? area.width / 2 : 0) }
      : { ...area, height: area.height / 2, y: area.y + (after ? area.height / 2 : 0) };
    return { drop: { kind: "beside", of, after }, box };
  }
  if (!inside(lanes)) return undefined;
  const [across, down] = [(x - lanes.x) / lanes.width, (y - lanes.y) / lanes.height];
  const distances: Record<Side, number> = { left: across, right: 1 - across, above: down, below: 1 - down };
  const side = SIDES.reduce((best, one) => (distances[one] < distances[best] ? one : best));
  const [wide, high] = [lanes.width / 3, lanes.height / 3];
  const box: Box = flat(side)
    ? { ...lanes, height: high, y: side === "below" ? lanes.y + lanes.height - high : lanes.y }
    : { ...lanes, width: wide, x: side === "right" ? lanes.x + lanes.width - wide : lanes.x };
  return { drop: { kind: "side", side }, box };
}
