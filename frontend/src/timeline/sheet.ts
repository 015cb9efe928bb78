// The picture as a file: lanes with a title, the axis, the names of the tracks and the legend, as PNG or as SVG.
import { title, type Layout } from "./lanes";
import { HATCH, type Shape } from "./scene";

export interface Sheet {
  title: string;
  /** Ticks of the axis, px from the left of the lanes. */
  ticks: readonly { x: number; label: string }[];
  /** Names of annotations, px from the left of the lanes. */
  flags: readonly { x: number; label: string; color: string }[];
  /** Names of what is at a height of the lanes. */
  names: readonly { y: number; text: string }[];
  legend: readonly { color: string; label: string }[];
  /** Of the lanes, in px of the page. */
  width: number;
  height: number;
  ink: { text: string; soft: string; background: string; hatch: string };
  font: string;
}

/** Names of what is in the lanes, px from their top. `hits`: what was searched. */
export function namesOf(layout: Layout, hits: string): { y: number; text: string }[] {
  return [
    ...(layout.hits === undefined ? [] : [{ y: layout.hits, text: `${hits} · hits` }]),
    ...layout.tracks.map((one) => ({ y: one.top, text: title(one.track) })),
    ...layout.busy.map((one) => ({ y: one.top, text: `${one.idle.name} · busy` })),
    ...layout.counters.map(({ counter, top }) => ({ y: top, text: `GPU ${counter.device} · ${counter.title}` })),
    ...layout.headings.map((one) => ({ y: one.top, text: one.name })),
  ];
}

/** Colors of the page by their variables, and the font of an element. */
export function styleOf(element: Element): Pick<Sheet, "ink" | "font"> & { color: (variable: string) => string } {
  const style = getComputedStyle(document.documentElement);
  const color = (variable: string): string => style.getPropertyValue(variable).trim();
  const ink = { text: color("--text"), soft: color("--soft"), background: color("--bg"), hatch: color("--c-outside") };
  return { ink, font: getComputedStyle(element).fontFamily, color };
}

const SIDE = 224; // px: names
const AXIS = 52; // title, axis
const FLAGS = 16; // names of annotations
const LEGEND = 18; // a line of it
const ENTRY = 190; // an entry of it
const MOST = 20_000; // rectangles; more are pixels

/** Everything but the lanes, the size of the whole, and where the lanes begin. */
export function frame(sheet: Sheet): { shapes: Shape[]; width: number; height: number; top: number } {
  const width = SIDE + sheet.width;
  const columns = Math.max(Math.floor(width / ENTRY), 1);
  const top = AXIS + (sheet.flags.length ? FLAGS : 0);
  const height = top + sheet.height + 10 + Math.ceil(sheet.legend.length / columns) * LEGEND;
  const { text, soft, background } = sheet.ink;
  const shapes: Shape[] = [
    { kind: "rect", x: 0, y: 0, width, height, fill: background },
    { kind: "text", x: 8, y: 16, size: 14, fill: text, text: sheet.title },
  ];
  for (const { x, label } of sheet.ticks) {
    shapes.push({ kind: "rect", x: SIDE + x, y: 30, width: 1, height: AXIS - 30, fill: soft });
    shapes.push({ kind: "text", x: SIDE + x + 4, y: 40, size: 11, fill: soft, text: label });
  }
  for (const { x, label, color } of sheet.flags) {
    shapes.push({ kind: "rect", x: SIDE + x - 1, y: AXIS, width: 2, height: FLAGS, fill: color });
    shapes.push({ kind: "text", x: SIDE + x + 4, y: AXIS + FLAGS / 2, size: 11, fill: text, text: short(label) });
  }
  for (const { y, text: name } of sheet.names)
    if (y >= 0 && y < sheet.height - 8) shapes.push({ kind: "text", x: 8, y: top + y + 8, size: 11, fill: text, text: short(name) });
  sheet.legend.forEach(({ color, label }, at) => {
    const [x, y] = [8 + (at % columns) * ENTRY, top + sheet.height + 8 + Math.floor(at / columns) * LEGEND];
    shapes.push({ kind: "rect", x, y, width: 12, height: 12, fill: color });
    shapes.push({ kind: "text", x: x + 18, y: y + 6, size: 11, fill: text, text: short(label) });
  });
  return { shapes, width, height, top };
}

const short = (text: string): string => (text.length > 32 ? `${text.slice(0, 20)}…${text.slice(-11)}` : text);

export async function png(sheet: Sheet, layers: readonly HTMLCanvasElement[]): Promise<Blob> {
  const { shapes, width, height, top } = frame(sheet);
  const ratio = layers[0]!.width / sheet.width;
  const canvas = new OffscreenCanvas(Math.round(width * ratio), Math.round(height * ratio));
  const pen = canvas.getContext("2d")!;
  pen.scale(ratio, ratio);
  pen.textBaseline = "middle";
  for (const one of shapes) {
    pen.fillStyle = one.fill;
    if (one.kind === "rect") pen.fillRect(one.x, one.y, one.width, one.height);
    else {
      pen.font = `${one.size}px ${sheet.font}`;
      pen.fillText(one.text, one.x, one.y);
    }
  }
  for (const layer of layers) pen.drawImage(layer, SIDE, top, sheet.width, sheet.height);
  return await canvas.convertToBlob({ type: "image/png" });
}

const SVG = "http://www.w3.org/2000/svg";
/** What XML cannot have, from the name of a stranger's kernel. */
const FORBIDDEN = /[^\t\n\r\u{20}-\u{d7ff}\u{e000}-\u{fffd}\u{10000}-\u{10ffff}]/gu;

/** `lanes`: what is in the lanes; of very many shapes there are `pixels` instead, an address of data, as `marks` above them. */
export function svg(sheet: Sheet, lanes: readonly Shape[], pixels: () => string, marks: string): string {
  const { shapes, width, height, top } = frame(sheet);
  const document_ = document.implementation.createDocument(SVG, "svg");
  const add = (parent: Element, name: string, attributes: Record<string, string | number>, text?: string): Element => {
    const element = document_.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes))
      element.setAttribute(key, typeof value === "number" ? String(Math.round(value * 100) / 100) : value);
    if (text !== undefined) element.textContent = text.replace(FORBIDDEN, "\ufffd");
    parent.append(element);
    return element;
  };
  const draw = (parent: Element, one: Shape): void => {
    if (one.kind === "text") add(parent, "text", { x: one.x, y: one.y, "font-size": one.size, fill: one.fill }, one.text);
    else {
      const fill = one.fill === HATCH ? "url(#hatch)" : one.fill;
      add(parent, "rect", { x: one.x, y: one.y, width: one.width, height: one.height, fill });
    }
  };
  const root = document_.documentElement;
  for (const [key, value] of Object.entries({
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    "font-family": sheet.font,
    "dominant-baseline": "central",
    "shape-rendering": "crispEdges",
  }))
    root.setAttribute(key, String(value));
  add(root, "title", {}, sheet.title);
  const pattern = add(add(root, "defs", {}), "pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse" });
  add(pattern, "path", { d: "M-1 1L1 -1M0 6L6 0M5 7L7 5", stroke: sheet.ink.hatch, "stroke-width": 1.5 });
  for (const one of shapes) draw(root, one);
  const inside = add(root, "svg", { x: SIDE, y: top, width: sheet.width, height: sheet.height });
  add(inside, "rect", { x: 0, y: 0, width: sheet.width, height: sheet.height, fill: sheet.ink.background });
  const whole = { x: 0, y: 0, width: sheet.width, height: sheet.height };
  if (lanes.length > MOST) add(inside, "image", { ...whole, href: pixels() });
  else for (const one of lanes) draw(inside, one);
  add(inside, "image", { ...whole, href: marks });
  return new XMLSerializer().serializeToString(document_);
}

/** Let the browser keep a file. */
export function keep(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
