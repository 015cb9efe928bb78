// What is drawn, and what is where. The lanes are one row of pixels each, stretched; labels and marks lie above them.
import type { Colors, Counters, CriticalPath, Flows, SearchHits, Timeline } from "../api/client";
import { axisTicks } from "./axis";
import { colorOf, css, Inks, onto, TABLE, type Coloring } from "./colors";
import { CURVE, GAP, HEIGHT, trackAt, type Busy, type Counted, type Counter, type Layout, type Placed } from "./lanes";
import { Row } from "./raster";
import { variableOf, type Note } from "./notes";
import { nearestEdge } from "./snap";
import type { Shares } from "./shares.svelte";
import { levelFor, type Store, type Track } from "./store";
import type { Texts } from "./texts.svelte";
import { before, type Tile } from "./tiles";
import type { Window } from "./view";

/** What a picture without pixels is made of; px of the page. */
export type Shape =
  | { kind: "rect"; x: number; y: number; width: number; height: number; fill: string }
  | { kind: "text"; x: number; y: number; size: number; fill: string; text: string };
/** Instead of a color: lines at 45°. */
export const HATCH = "hatch";

const LABEL = 46; // px: shorter records have no label
const LABELS = 1500;

/** A record on the screen. */
export interface Hit {
  track: Track;
  lane: number;
  start: number;
  end: number;
  busy: number;
  count: number;
  id: number;
  name: number;
  operator: number;
}

export const same = (a: Hit | undefined, b: Hit | undefined): boolean =>
  a?.track === b?.track && a?.lane === b?.lane && a?.start === b?.start && a?.id === b?.id;

export interface Picture {
  timeline: Timeline;
  layout: Layout;
  window: Window;
  scroll: number;
  colors: Colors | undefined;
  /** Instead of colors: the share of the roofline of each kernel. */
  shares: Shares | undefined;
  moving: boolean;
  area: Window | undefined;
  hovered: Hit | undefined;
  selected: Hit | undefined;
  flows: Flows["flows"];
  /** The critical path of a step. */
  path: CriticalPath | undefined;
  /** Where the hits of a search are. */
  hits: SearchHits | undefined;
  /** Values of counters, by device. */
  counters: ReadonlyMap<string, Counters> | undefined;
  /** Annotations that touch the window, in the order in which they are drawn. */
  notes: readonly Note[];
}

/** A device among all, as text. */
export const deviceKey = (one: { worker: number; device: number }): string => `${one.worker} ${one.device}`;

function valuesOf(
  picture: Picture,
  counter: Counter,
): { data: Counters; values: (number | null)[]; unknown: (number | null)[] } | undefined {
  const data = picture.counters?.get(deviceKey(counter));
  const one = data?.counters.find(({ key }) => key === counter.key);
  return data && one && { data, values: one.values, unknown: one.unknown };
}

/** What the top of a counter's curve stands for: 100 % of shares, else the largest value in the picture. */
export function largest(picture: Picture, counter: Counter): number | undefined {
  if (counter.unit === "%") return 100;
  const values = valuesOf(picture, counter)?.values.filter((value) => value !== null);
  return values?.length ? Math.max(...values) : undefined;
}

const inHits = ({ layout: { hits }, scroll }: Picture, y: number): boolean =>
  hits !== undefined && y + scroll >= hits && y + scroll < hits + HEIGHT;

/** The hits of a search in the view, where they are few. */
function hitEvents(picture: Picture): Hit[] | undefined {
  const tracks = new Map(picture.timeline.tracks.map((track) => [track.id, track]));
  return picture.hits?.events?.flatMap((one) => {
    const track = tracks.get(one.track);
    return track ? [{ ...one, track, busy: one.end - one.start, count: 1 }] : [];
  });
}

/** The track of the gaps of a track's device. */
const idleOf = (timeline: Timeline, track: Track): Track | undefined =>
  timeline.tracks.find((one) => one.kind === "idle" && one.worker === track.worker && one.device === track.device);

/** Whether a stretch of the critical path is on a track: of the host, on the uppermost of its thread. */
const onPath = (track: Track, one: CriticalPath["stretches"][number]): boolean =>
  track.worker === one.worker &&
  (one.thread === null
    ? track.kind === "stream" && track.device === one.device && track.stream === one.stream
    : track.device === null && track.thread === one.thread);

function hit(tile: Tile, track: Track, lane: number, at: number): Hit {
  const [start, end] = [tile.start[at]!, tile.end[at]!];
  return {
    track,
    lane,
    start,
    end,
    busy: tile.busy ? tile.busy[at]! : end - start,
    count: tile.count ? tile.count[at]! : 1,
    id: tile.id[at]!,
    name: tile.name[at]!,
    operator: tile.operator[at]!,
  };
}

export class Scene {
  private row = new Row(1);
  private image: ImageData | undefined;
  private readonly off = document.createElement("canvas");
  private inks: Inks;
  /** Level of each track in the last frame, for tests. */
  readonly levels = new Map<number, number>();
  /** Ends of the arrows in the last frame, in pixels of the canvas, for tests. */
  ends: [number, number, number, number][] = [];
  /** Lines of the critical path in the last frame, for tests: track, and pixels of the canvas from the left. */
  lines: [number, number, number][] = [];
  /** Ticks of hits in the last frame, for tests: track, and pixels of the canvas from the left. */
  ticks: [number, number][] = [];
  /** What is drawn in the lanes, as far as it is recorded. */
  private shapes: Shape[] | undefined;
  private hatched: { ratio: number; pattern: CanvasPattern } | undefined;

  constructor(
    private readonly lanes: HTMLCanvasElement,
    private readonly marks: HTMLCanvasElement,
    readonly store: Store,
    private readonly texts: Texts,
  ) {
    this.inks = new Inks(getComputedStyle(document.documentElement));
  }

  /** Read colors again: the theme has changed. */
  restyle(): void {
    this.hatched = undefined;
    this.inks = new Inks(getComputedStyle(document.documentElement));
  }

  private visible(picture: Picture): Placed[] {
    const bottom = picture.scroll + this.lanes.clientHeight;
    return picture.layout.tracks.filter((one) => one.top + one.lanes * HEIGHT > picture.scroll && one.top < bottom);
  }

  private wanted(track: Track, picture: Picture, width: number): number {
    const pixel = (picture.window.to - picture.window.from) / width;
    return levelFor(track, picture.moving ? pixel : pixel / 2);
  }

  draw(picture: Picture): void {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const [wide, high] = [this.lanes.clientWidth, this.lanes.clientHeight];
    const width = Math.max(1, Math.round(wide * ratio));
    const height = Math.max(1, Math.round(high * ratio));
    for (const canvas of [this.lanes, this.marks]) {
      if (canvas.width !== width) canvas.width = width;
      if (canvas.height !== height) canvas.height = height;
    }
    const shown = this.visible(picture);
    const curves = picture.layout.busy.filter((one) => one.top + CURVE > picture.scroll && one.top < picture.scroll + high);
    const seen = new Set([...shown.map(({ track }) => track), ...curves.map(({ idle }) => idle)]);
    for (const track of [...seen]) {
      const idle = idleOf(picture.timeline, track); // a click beside an event says why nothing ran
      if (idle) seen.add(idle);
    }
    this.store.need(
      [...seen].map((track) => [track, this.wanted(track, picture, width)] as const),
      picture.window,
    );
    const rows = shown.reduce((sum, one) => sum + one.lanes, 0);
    if (this.row.width !== width) this.row = new Row(width);
    if (!this.image || this.image.width !== width || this.image.height < rows) this.image = new ImageData(width, Math.max(rows, 16));
    this.off.width = width;
    this.off.height = this.image.height;
    const pixels = new Uint32Array(this.image.data.buffer);
    const background = this.inks.of("--panel");
    const target = this.lanes.getContext("2d", { alpha: false })!;
    target.fillStyle = css(this.inks.of("--bg"));
    target.fillRect(0, 0, width, height);
    let line = 0;
    const labels: [number, Hit, number, number][] = [];
    for (const one of shown) {
      const tiles = this.tiles(one.track, picture, width);
      const color = colorOf(one.track, picture, this.inks, (number) => this.texts.get("label", number));
      for (let lane = one.first; lane < one.first + one.lanes; lane++, line++) {
        this.row.clear();
        tiles.forEach((tile, place) => {
          const [first, last] = this.range(tile, lane, place > 0, one.track, picture.window);
          this.row.add(tile, first, last, picture.window, color);
          if (labels.length < LABELS) this.labelled(labels, tile, one, lane, first, last, picture, width, color);
        });
        this.row.write(pixels, line * width, background);
        if (this.shapes)
          this.recordRow(pixels.subarray(line * width, (line + 1) * width), one.top + (lane - one.first) * HEIGHT, picture, ratio);
      }
    }
    this.off.getContext("2d")!.putImageData(this.image, 0, 0, 0, 0, width, Math.max(rows, 1));
    target.imageSmoothingEnabled = false;
    line = 0;
    for (const one of shown) {
      const top = Math.round((one.top - picture.scroll) * ratio);
      const size = Math.round(one.lanes * HEIGHT * ratio);
      target.drawImage(this.off, 0, line, width, one.lanes, 0, top, width, size);
      line += one.lanes;
    }
    this.hits(target, picture, ratio, width, labels);
    for (const one of curves) this.curve(target, one, picture, ratio, width);
    for (const one of picture.layout.counters)
      if (one.top + CURVE > picture.scroll && one.top < picture.scroll + high) this.counter(target, one, picture, ratio, width);
    this.pauses(target, picture, ratio, width, shown);
    this.label(target, labels, picture, ratio);
    this.mark(picture, ratio, width, height, shown);
    void this.texts.fetch();
    void picture.shares?.fetch();
  }

  /** What the lanes show, without pixels: equal neighbors are one rectangle. */
  record(picture: Picture): Shape[] {
    const shapes: Shape[] = (this.shapes = []);
    try {
      this.draw(picture);
    } finally {
      this.shapes = undefined;
    }
    return shapes;
  }

  private recordRow(row: Uint32Array, top: number, picture: Picture, ratio: number): void {
    for (let first = 0, x = 1; x <= row.length; x++) {
      if (x < row.length && row[x] === row[first]) continue;
      this.shapes!.push({
        kind: "rect",
        x: first / ratio,
        y: top - picture.scroll,
        width: (x - first) / ratio,
        height: HEIGHT,
        fill: css(row[first]! & 0xffffff),
      });
      first = x;
    }
  }

  /** Fill a rectangle of the canvas. */
  private fill(
    target: CanvasRenderingContext2D,
    [x, y, width, height]: [number, number, number, number],
    fill: string,
    ratio: number,
  ): void {
    if (height <= 0) return;
    target.fillStyle = fill === HATCH ? this.hatch(target, ratio) : fill;
    target.fillRect(x, y, width, height);
    this.shapes?.push({ kind: "rect", x: x / ratio, y: y / ratio, width: width / ratio, height: height / ratio, fill });
  }

  /** The track of hits: each event in the color of its own track where they are few, else where there are any. What begins
   * later lies above what it is in. */
  private hits(
    target: CanvasRenderingContext2D,
    picture: Picture,
    ratio: number,
    width: number,
    labels: [number, Hit, number, number][],
  ): void {
    const row = picture.layout.hits;
    if (row === undefined || row + HEIGHT <= picture.scroll) return;
    const [top, height] = [(row - picture.scroll) * ratio, HEIGHT * ratio];
    this.fill(target, [0, top, width, height], css(this.inks.of("--panel")), ratio);
    const scale = width / (picture.window.to - picture.window.from);
    const draw = (from: number, to: number, fill: string): void => {
      const left = Math.floor(Math.max((from - picture.window.from) * scale, -1));
      const right = Math.ceil(Math.min((to - picture.window.from) * scale, width + 1));
      this.fill(target, [left, top, Math.max(right - left, ratio), height], fill, ratio);
    };
    const events = hitEvents(picture);
    const { hits } = picture;
    if (!events) {
      for (const [, bucket] of hits?.ticks ?? []) {
        const from = hits!.start + bucket * hits!.width;
        draw(from, from + hits!.width, css(this.inks.of("--bad")));
      }
    }
    events?.forEach((one, at) => {
      const ink = this.ink(one, picture);
      draw(one.start, one.end, css(ink));
      const next = events[at + 1];
      if (!next || next.start >= one.end) labels.push([ink, one, row, scale]);
    });
  }

  /** The share of each pixel's time in which a device was busy, exact at every zoom: sums of gaps are. */
  private curve(target: CanvasRenderingContext2D, busy: Busy, picture: Picture, ratio: number, width: number): void {
    const top = (busy.top - picture.scroll) * ratio;
    const height = CURVE * ratio;
    this.fill(target, [0, top, width, height], css(this.inks.of("--panel")), ratio);
    const ink = css(this.inks.of("--c-compute"));
    const idle = this.idle(busy, picture, width);
    if (!idle) return;
    const { from, to } = picture.window;
    const [first, last] = [busy.idle.start, busy.idle.end].map((time) => ((time - from) * width) / (to - from));
    for (let x = Math.max(0, Math.floor(first!)); x < Math.min(width, last!); x++) {
      const inside = Math.min(x + 1, last!) - Math.max(x, first!);
      const high = height * Math.min(Math.max(inside - idle[x]!, 0), 1);
      this.fill(target, [x, top + height - high, 1, high], ink, ratio);
    }
  }

  /** A counter: its values from the bottom, and hatched above them the share of the time in which it is unknown. */
  private counter(target: CanvasRenderingContext2D, one: Counted, picture: Picture, ratio: number, width: number): void {
    const top = Math.round((one.top - picture.scroll) * ratio);
    const height = Math.round(CURVE * ratio);
    this.fill(target, [0, top, width, height], css(this.inks.of("--panel")), ratio);
    const found = valuesOf(picture, one.counter);
    if (!found) return;
    const { data, values, unknown } = found;
    const most = largest(picture, one.counter);
    const { timeline, window: window_ } = picture;
    const scale = width / (window_.to - window_.from);
    const ink = css(this.inks.of(one.counter.unit === "B" ? "--c-memory" : one.counter.unit === "%" ? "--c-compute" : "--c-communication"));
    values.forEach((value, i) => {
      const from = data.start + i * data.width;
      const left = Math.max(Math.round((from - window_.from) * scale), 0);
      const right = Math.min(Math.round((from + data.width - window_.from) * scale), width);
      if (right <= left) return;
      const filled = Math.round(height * Math.min((value ?? 0) / (most || 1), 1));
      this.fill(target, [left, top + height - filled, right - left, filled], ink, ratio);
      const inside = from + data.width > timeline.start && from < timeline.end;
      const share = unknown[i] ?? (one.counter.unit === "B" && value === null && inside ? 100 : 0);
      const part = Math.min(Math.round((height * share) / 100), height - filled);
      this.fill(target, [left, top + height - filled - part, right - left, part], HATCH, ratio);
    });
  }

  /** Pauses in which the recording was read, hatched in the tracks of their process. */
  private pauses(target: CanvasRenderingContext2D, picture: Picture, ratio: number, width: number, shown: Placed[]): void {
    for (const { worker, start, end } of picture.timeline.pauses)
      for (const one of shown.filter(({ track }) => track.worker === worker)) {
        const { from, to } = picture.window;
        const [left, right] = [start, end].map((time) => Math.round(Math.min(Math.max((time - from) / (to - from), 0), 1) * width));
        const top = Math.round((one.top - picture.scroll) * ratio);
        if (right! > left!) this.fill(target, [left!, top, right! - left!, Math.round(one.lanes * HEIGHT * ratio)], HATCH, ratio);
      }
  }

  private hatch(target: CanvasRenderingContext2D, ratio: number): CanvasPattern {
    if (this.hatched?.ratio === ratio) return this.hatched.pattern;
    const size = 6 * ratio;
    const tile = new OffscreenCanvas(size, size);
    const pen = tile.getContext("2d")!;
    pen.strokeStyle = css(this.inks.of("--c-outside"));
    pen.lineWidth = 1.5 * ratio;
    for (const by of [-size, 0, size]) {
      pen.moveTo(by, size);
      pen.lineTo(by + size, 0);
    }
    pen.stroke();
    const pattern = target.createPattern(tile, "repeat")!;
    this.hatched = { ratio, pattern };
    return pattern;
  }

  /** What a counter says at a point, if the point is in its curve. */
  counterAt(
    picture: Picture,
    left: number,
    y: number,
  ): { counter: Counter; value: number | null; unknown: number | null; from: number; to: number } | undefined {
    const one = picture.layout.counters.find(({ top }) => y + picture.scroll >= top && y + picture.scroll < top + CURVE);
    const found = one && valuesOf(picture, one.counter);
    if (!found) return undefined;
    const { data, values, unknown } = found;
    const time = this.timeAt(picture, left);
    const at = Math.floor((time - data.start) / data.width);
    if (at < 0 || at >= values.length) return undefined;
    const from = data.start + at * data.width;
    return { counter: one.counter, value: values[at]!, unknown: unknown[at]!, from, to: from + data.width };
  }

  private idle(busy: Busy, picture: Picture, width: number): Float32Array | undefined {
    const tiles = this.tiles(busy.idle, picture, width);
    if (!tiles.length) return undefined;
    this.row.clear();
    tiles.forEach((tile, place) => {
      const [first, last] = this.range(tile, 0, place > 0, busy.idle, picture.window);
      this.row.add(tile, first, last, picture.window, () => 0);
    });
    return this.row.covered;
  }

  /** The share of the time around a point in which a device was busy, if the point is in its curve. */
  busyAt(picture: Picture, left: number, y: number): { idle: Track; share: number; from: number; to: number } | undefined {
    const one = picture.layout.busy.find(({ top }) => y + picture.scroll >= top && y + picture.scroll < top + CURVE);
    if (!one) return undefined;
    const perPixel = (picture.window.to - picture.window.from) / this.lanes.clientWidth;
    const time = this.timeAt(picture, left);
    if (time < one.idle.start || time > one.idle.end) return undefined;
    const [from, to] = [Math.max(time - 2 * perPixel, one.idle.start), Math.min(time + 2 * perPixel, one.idle.end)];
    let idle = 0;
    for (const tile of this.tiles(one.idle, picture, this.lanes.width)) {
      for (let i = Math.max(before(tile, 0, from), 0); i < tile.start.length && tile.start[i]! < to; i++) {
        const length = tile.end[i]! - tile.start[i]!;
        const inside = Math.min(tile.end[i]!, to) - Math.max(tile.start[i]!, from);
        if (inside > 0) idle += inside * (tile.busy && length ? tile.busy[i]! / length : 1);
      }
    }
    return { idle: one.idle, share: Math.min(Math.max(1 - idle / (to - from), 0), 1), from, to };
  }

  private timeAt({ window: { from, to } }: Picture, left: number): number {
    return from + (left * (to - from)) / this.lanes.clientWidth;
  }

  private tiles(track: Track, picture: Picture, width: number): Tile[] {
    const tiles = this.store.best(track, this.wanted(track, picture, width), picture.window);
    if (tiles[0]) this.levels.set(track.id, tiles[0].level);
    return tiles;
  }

  /** Places of the records of a lane that may be in the window. `later`: not the first tile, whose crossing records the
   * tile before has drawn. */
  private range(tile: Tile, lane: number, later: boolean, track: Track, window_: Window): [number, number] {
    let first = tile.lanes[lane] ?? tile.start.length;
    const last = tile.lanes[lane + 1] ?? first;
    if (later) {
      const shift = track.levels.find(([level]) => level === tile.level)![1];
      if (first < last && tile.start[first]! < tile.number * 2 ** shift) first++;
    } else first = Math.max(first, before(tile, lane, window_.from));
    return [Math.min(first, last), last];
  }

  private labelled(
    out: [number, Hit, number, number][],
    tile: Tile,
    placed: Placed,
    lane: number,
    first: number,
    last: number,
    picture: Picture,
    width: number,
    color: (tile: Tile, at: number) => number,
  ): void {
    const scale = width / (picture.window.to - picture.window.from);
    const least = (LABEL * (width / this.lanes.clientWidth)) / scale;
    const { to } = picture.window;
    for (let i = first; i < last && tile.start[i]! < to; i++) {
      if (tile.end[i]! - tile.start[i]! < least || (tile.count?.[i] ?? 1) > 1) continue;
      out.push([color(tile, i), hit(tile, placed.track, lane, i), placed.top + (lane - placed.first) * HEIGHT, scale]);
    }
  }

  private label(target: CanvasRenderingContext2D, labels: [number, Hit, number, number][], picture: Picture, ratio: number): void {
    const { font, family } = { font: 11 * ratio, family: getComputedStyle(this.lanes).fontFamily };
    target.font = `${font}px ${family}`;
    target.textBaseline = "middle";
    for (const [ink, one, top, scale] of labels) {
      const whole = this.texts.get(TABLE[one.track.kind], one.name);
      if (!whole) continue;
      const text = one.track.kind === "module" ? whole.slice(whole.lastIndexOf(".") + 1) : whole;
      const { from } = picture.window;
      const left = Math.max((one.start - from) * scale, 0);
      const right = Math.min((one.end - from) * scale, target.canvas.width);
      const room = right - left - 6 * ratio;
      if (room < (LABEL - 10) * ratio) continue;
      target.fillStyle = onto(ink);
      const fitted = fit(target, text, room);
      if (!fitted) continue;
      const [x, y] = [left + 3 * ratio, (top - picture.scroll + HEIGHT / 2 + 0.5) * ratio];
      target.fillText(fitted, x, y);
      this.shapes?.push({ kind: "text", x: x / ratio, y: y / ratio, size: 11, fill: onto(ink), text: fitted });
    }
  }

  private mark(picture: Picture, ratio: number, width: number, height: number, shown: Placed[]): void {
    const target = this.marks.getContext("2d")!;
    target.clearRect(0, 0, width, height);
    const scale = width / (picture.window.to - picture.window.from);
    const x = (time: number): number => (time - picture.window.from) * scale;
    target.strokeStyle = css(this.inks.of("--strong"));
    target.globalAlpha = 0.25;
    target.lineWidth = 1;
    for (const { at } of axisTicks(picture.window, this.lanes.clientWidth / 110)) {
      target.beginPath();
      target.moveTo(Math.round(x(at)) + 0.5, 0);
      target.lineTo(Math.round(x(at)) + 0.5, height);
      target.stroke();
    }
    target.globalAlpha = 1;
    if (picture.area) {
      const [left, right] = [x(picture.area.from), x(picture.area.to)];
      target.fillStyle = css(this.inks.of("--accent"));
      target.globalAlpha = 0.14;
      target.fillRect(left, 0, right - left, height);
      target.globalAlpha = 1;
      target.fillRect(left - ratio / 2, 0, ratio, height);
      target.fillRect(right - ratio / 2, 0, ratio, height);
    }
    for (const note of picture.notes) this.note(target, note, ratio, x);
    this.arrows(target, picture, ratio, shown, x);
    this.path(target, picture, ratio, shown, x);
    this.tick(target, picture, ratio, shown, x);
    for (const [one, strong] of [
      [picture.hovered, false],
      [picture.selected, true],
    ] as const) {
      if (!one) continue;
      const [left, right] = [Math.max(x(one.start), -4), Math.min(x(one.end), width + 4)];
      const [w, h] = [Math.max(right - left, 2 * ratio), HEIGHT * ratio];
      const frame = (at: number): void => {
        const top = (at - picture.scroll) * ratio;
        target.lineWidth = (strong ? 2 : 1) * ratio;
        target.strokeStyle = css(this.inks.of("--panel"));
        if (strong) target.strokeRect(left - 2 * ratio, top - ratio, w + 4 * ratio, h + 2 * ratio);
        target.strokeStyle = css(this.inks.of("--text"));
        target.strokeRect(left, top + ratio / 2, w, h - ratio);
      };
      const placed = shown.find(({ track }) => track === one.track);
      if (placed && one.lane >= placed.first && one.lane < placed.first + placed.lanes)
        frame(placed.top + (one.lane - placed.first) * HEIGHT);
      if (picture.layout.hits !== undefined && hitEvents(picture)?.some((each) => same(each, one))) frame(picture.layout.hits);
    }
  }

  /** A line of an annotation, or its stretch between two; the background's color beside it tells it from the lanes. */
  private note(target: CanvasRenderingContext2D, note: Note, ratio: number, x: (time: number) => number): void {
    const height = target.canvas.height;
    const ink = css(this.inks.of(variableOf(note)));
    const width = 2 * ratio;
    if (note.end !== null) {
      target.fillStyle = ink;
      target.globalAlpha = 0.12;
      target.fillRect(x(note.start), 0, x(note.end) - x(note.start), height);
      target.globalAlpha = 1;
    }
    for (const time of note.end === null ? [note.start] : [note.start, note.end]) {
      const left = Math.round(x(time)) - width / 2;
      target.fillStyle = css(this.inks.of("--panel"));
      target.fillRect(left - ratio, 0, width + 2 * ratio, height);
      target.fillStyle = ink;
      target.fillRect(left, 0, width, height);
    }
  }

  /** Hits of a search, above the lanes of their tracks. */
  private tick(target: CanvasRenderingContext2D, picture: Picture, ratio: number, shown: Placed[], x: (time: number) => number): void {
    this.ticks = [];
    const hits = picture.hits;
    if (!hits) return;
    const tops = new Map(shown.map(({ track, top }) => [track.id, (top - picture.scroll - GAP + 1) * ratio]));
    target.fillStyle = css(this.inks.of("--bad"));
    for (const [track, bucket] of hits.ticks) {
      const top = tops.get(track);
      const left = x(hits.start + (bucket + 0.5) * hits.width);
      if (top === undefined || left < 0 || left > target.canvas.width) continue;
      target.fillRect(Math.round(left) - ratio, top, 2 * ratio, (GAP - 1) * ratio);
      this.ticks.push([track, left]);
    }
  }

  /** The critical path: a line above the track of each stretch, and where it goes on to another. */
  private path(target: CanvasRenderingContext2D, picture: Picture, ratio: number, shown: Placed[], x: (time: number) => number): void {
    this.lines = [];
    target.fillStyle = css(this.inks.of("--bad"));
    let last: { x: number; y: number } | undefined;
    const [thick, width] = [3 * ratio, target.canvas.width];
    for (const one of picture.path?.stretches ?? []) {
      const [left, right] = [x(one.start), x(one.end)];
      const placed = shown.find(({ track }) => onPath(track, one));
      const y = placed && (placed.top - picture.scroll) * ratio - thick;
      if (y !== undefined && right > 0 && left < width) {
        target.fillRect(left, y, Math.max(right - left, ratio), thick);
        this.lines.push([placed!.track.id, left, right]);
      }
      if (y !== undefined && last && left > -1 && left < width + 1)
        target.fillRect(left - ratio / 2, Math.min(y, last.y), ratio, Math.abs(y - last.y) + thick);
      last = y === undefined ? undefined : { x: right, y };
    }
  }

  /** Arrows of the selected event, where both ends are in tracks that are shown. */
  private arrows(target: CanvasRenderingContext2D, picture: Picture, ratio: number, shown: Placed[], x: (time: number) => number): void {
    this.ends = [];
    for (const flow of picture.flows) {
      const ends = [flow.source, flow.target].map((end) => {
        const placed = shown.find(({ track }) => track.id === end.track);
        if (!placed) return undefined;
        // A call may have launched 2,000 events: looking for each among all of its track would take the time of a frame.
        const lane = placed.track.lanes === 1 ? 0 : (this.withId(picture, placed.track, end.id)?.lane ?? placed.first);
        if (lane < placed.first || lane >= placed.first + placed.lanes) return undefined;
        return (placed.top + (lane - placed.first + 0.5) * HEIGHT - picture.scroll) * ratio;
      });
      const [y0, y1] = ends;
      if (y0 === undefined || y1 === undefined) continue;
      const begin = flow.kind === "launch" ? flow.source.start : flow.source.end;
      const [x0, x1] = [x(begin), x(flow.target.start)];
      if (Math.max(x0, x1) < -2000 || Math.min(x0, x1) > target.canvas.width + 2000) continue;
      const bend = Math.max(Math.abs(x1 - x0) / 2, 20 * ratio);
      target.strokeStyle = css(this.inks.of(flow.kind === "backward" ? "--c-communication" : "--accent"));
      target.fillStyle = target.strokeStyle;
      target.lineWidth = 1.5 * ratio;
      target.setLineDash(flow.kind === "backward" ? [6 * ratio, 3 * ratio] : []);
      target.beginPath();
      target.moveTo(x0, y0);
      target.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
      target.stroke();
      target.setLineDash([]);
      target.beginPath();
      target.moveTo(x1, y1);
      target.lineTo(x1 - 7 * ratio, y1 - 4 * ratio);
      target.lineTo(x1 - 7 * ratio, y1 + 4 * ratio);
      target.fill();
      this.ends.push([x0, y0, x1, y1]);
    }
  }

  /** The record under a point, within 3 px; undefined where there is none. */
  at(picture: Picture, left: number, y: number): Hit | undefined {
    if (inHits(picture, y)) return this.hitAt(picture, this.timeAt(picture, left));
    const found = trackAt(picture.layout, y + picture.scroll);
    if (!found) return undefined;
    const perPixel = (picture.window.to - picture.window.from) / this.lanes.clientWidth;
    return this.nearest(picture, found.placed.track, found.lane, this.timeAt(picture, left), 3 * perPixel);
  }

  private hitAt(picture: Picture, time: number): Hit | undefined {
    const within = (3 * (picture.window.to - picture.window.from)) / this.lanes.clientWidth;
    let best: Hit | undefined;
    let distance = within;
    for (const one of hitEvents(picture) ?? []) {
      const away = Math.max(one.start - time, time - one.end, 0);
      if (away <= distance) [best, distance] = [one, away];
    }
    return best;
  }

  /** The bucket of hits at a point of their track, where they are too many to be drawn each: its beginning. */
  bucketAt(picture: Picture, left: number, y: number): number | undefined {
    if (!inHits(picture, y) || !picture.hits || picture.hits.events) return undefined;
    const { start, width } = picture.hits;
    return start + Math.floor((this.timeAt(picture, left) - start) / width) * width;
  }

  /** The gap of the device whose stream, modules or curve are at a point, if nothing ran on it then. */
  gapAt(picture: Picture, left: number, y: number): Hit | undefined {
    const curve = picture.layout.busy.find(({ top }) => y + picture.scroll >= top && y + picture.scroll < top + CURVE);
    const of = curve?.idle ?? trackAt(picture.layout, y + picture.scroll)?.placed.track;
    const idle = of && idleOf(picture.timeline, of);
    return idle && this.nearest(picture, idle, 0, this.timeAt(picture, left), 0);
  }

  /** The record of a lane that is nearest to a time of the picture, at most `within` ns away. */
  nearest(picture: Picture, track: Track, lane: number, time: number, within: number): Hit | undefined {
    let best: Hit | undefined;
    let distance = Infinity;
    for (const tile of this.tiles(track, picture, this.lanes.width)) {
      const place = before(tile, lane, time);
      for (const at of [place, place + 1]) {
        if (at < (tile.lanes[lane] ?? 0) || at >= (tile.lanes[lane + 1] ?? 0)) continue;
        const away = Math.max(tile.start[at]! - time, time - tile.end[at]!, 0);
        if (away < distance) [best, distance] = [hit(tile, track, lane, at), away];
      }
    }
    return distance <= within ? best : undefined;
  }

  /** The edge of a record in the visible lanes that is nearest to a time of the picture, at most `within` ns away; of several the one of the
   * shortest record. */
  edge(picture: Picture, time: number, within: number): { time: number; edge: "start" | "end"; of: Hit } | undefined {
    let best: { time: number; edge: "start" | "end"; of: Hit } | undefined;
    const bottom = picture.scroll + this.lanes.clientHeight;
    for (const placed of this.visible(picture)) {
      const tiles = this.tiles(placed.track, picture, this.lanes.width);
      for (let lane = placed.first; lane < placed.first + placed.lanes; lane++) {
        const top = placed.top + (lane - placed.first) * HEIGHT;
        if (top + HEIGHT <= picture.scroll || top >= bottom) continue;
        for (const tile of tiles) {
          const one = nearestEdge(tile, lane, time, within);
          if (!one) continue;
          const of = hit(tile, placed.track, lane, one.at);
          const nearer = best ? Math.abs(best.time - time) - Math.abs(one.time - time) : 1;
          if (nearer > 0 || (nearer === 0 && of.end - of.start < best!.of.end - best!.of.start))
            best = { time: one.time, edge: one.edge, of };
        }
      }
    }
    return best;
  }

  /** The record of a lane before or after another, in what is loaded; `name`: of this name only. */
  next(picture: Picture, from: Hit, step: 1 | -1, name?: number): Hit | undefined {
    let best: Hit | undefined;
    for (const tile of this.tiles(from.track, picture, this.lanes.width)) {
      let at = before(tile, from.lane, from.start) + (step > 0 ? 1 : 0);
      const [first, last] = [tile.lanes[from.lane] ?? 0, tile.lanes[from.lane + 1] ?? 0];
      for (; at >= first && at < last; at += step) {
        if (step > 0 ? tile.start[at]! <= from.start : tile.start[at]! >= from.start) continue;
        if (name !== undefined && tile.name[at] !== name) continue;
        const one = hit(tile, from.track, from.lane, at);
        if (!best || (step > 0 ? one.start < best.start : one.start > best.start)) best = one;
        break;
      }
    }
    return best;
  }

  /** The record with an id in what is loaded of a track. */
  withId(picture: Picture, track: Track, id: number): Hit | undefined {
    for (const tile of this.tiles(track, picture, this.lanes.width)) {
      const at = tile.id.indexOf(id);
      if (at < 0) continue;
      const lane = tile.lanes.findLastIndex((first) => first <= at);
      return hit(tile, track, lane, at);
    }
    return undefined;
  }

  /** The visible records of a lane. */
  list(picture: Picture, track: Track, lane: number): Hit[] {
    const out: Hit[] = [];
    const { window } = picture;
    this.tiles(track, picture, this.lanes.width).forEach((tile, place) => {
      const [first, last] = this.range(tile, lane, place > 0, track, window);
      for (let i = first; i < last && tile.start[i]! < window.to; i++) if (tile.end[i]! >= window.from) out.push(hit(tile, track, lane, i));
    });
    return out;
  }

  private ink(one: Hit, coloring: Coloring): number {
    const tile = { id: [one.id], name: [one.name], operator: [one.operator] } as unknown as Tile;
    return colorOf(one.track, coloring, this.inks, (number) => this.texts.get("label", number))(tile, 0);
  }

  /** How busy the tracks are over the whole run, in one row: streams, or the outermost ranges where there are none. */
  minimap(canvas: HTMLCanvasElement, timeline: Timeline, run: Window, coloring: Coloring): boolean {
    const width = Math.max(1, canvas.clientWidth);
    canvas.width = width;
    canvas.height = 1;
    const streams = timeline.tracks.filter((track) => track.kind === "stream");
    const tracks = streams.length ? streams : timeline.tracks.filter((track) => track.kind === "range");
    const level = (track: Track): number => levelFor(track, (run.to - run.from) / width);
    const wanted = tracks.map((track) => [track, level(track)] as const);
    this.store.need(wanted, run);
    const row = new Row(width);
    row.clear();
    let complete = true;
    for (const [track, place] of wanted) {
      const tiles = this.store.complete(track, place, run);
      if (!tiles) complete = false;
      const color = colorOf(track, coloring, this.inks, () => undefined);
      tiles?.forEach((tile, number) => {
        const [first, last] = this.range(tile, 0, number > 0, track, run);
        row.add(tile, first, last, run, color);
      });
    }
    const image = new ImageData(width, 1);
    row.write(new Uint32Array(image.data.buffer), 0, this.inks.of("--panel"));
    canvas.getContext("2d")!.putImageData(image, 0, 0);
    void coloring.shares?.fetch();
    return complete && (coloring.shares?.complete ?? true);
  }

  /** Where the hits of a search are in the whole run. */
  minimapTicks(canvas: HTMLCanvasElement, run: Window, hits: SearchHits | undefined): void {
    canvas.width = Math.max(1, canvas.clientWidth);
    canvas.height = 3;
    const target = canvas.getContext("2d")!;
    target.fillStyle = css(this.inks.of("--bad"));
    for (const [, bucket] of hits?.ticks ?? []) {
      const time = hits!.start + (bucket + 0.5) * hits!.width;
      target.fillRect(Math.floor(((time - run.from) / (run.to - run.from)) * canvas.width), 0, 1, 1);
    }
  }
}

const WIDTHS = new Map<string, number>();

/** As much of a text as fits, by its widths measured once. */
function fit(target: CanvasRenderingContext2D, text: string, room: number): string {
  const short = text.length > 120 ? text.slice(0, 120) : text;
  const key = `${target.font} ${short}`;
  let width = WIDTHS.get(key);
  if (width === undefined) {
    if (WIDTHS.size > 20_000) WIDTHS.clear();
    WIDTHS.set(key, (width = target.measureText(short).width));
  }
  if (width <= room) return short;
  const count = Math.floor((short.length * room) / width) - 1;
  return count < 3 ? "" : `${short.slice(0, count)}…`;
}
