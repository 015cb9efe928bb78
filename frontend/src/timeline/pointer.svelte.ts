// The pointer over the lanes and the axis: what is under it, and drags that select time, move or zoom.
import { place } from "../lib/router.svelte";
import type { Lanes } from "./cursor.svelte";
import { same, type Hit, type Picture, type Scene } from "./scene";
import { panned, textOf, zoomed, type Window } from "./view";

const REST = 80; // ms until a tip is shown
const NEAR = 4; // px: a shorter drag is a click

/** `area` selects time, `axis` moves or zooms, `pan` moves. */
type Kind = "area" | "axis" | "pan";

export interface Surface extends Lanes {
  readonly canvas: HTMLCanvasElement | undefined;
  /** px */
  readonly width: number;
  readonly view: Window | undefined;
}

export class Pointer {
  /** Where it is on the page, px. */
  at = $state.raw<{ x: number; y: number }>();
  hovered = $state.raw<Hit>();
  /** Whether it has been at the event for long enough for a tip. */
  resting = $state(false);
  curve = $state.raw<ReturnType<Scene["busyAt"]>>();
  counter = $state.raw<ReturnType<Scene["counterAt"]>>();
  /** The time that is being selected. */
  area = $state.raw<Window>();
  private drag: { kind: Kind; x: number; y: number; from: Window; moved: boolean } | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** `named`: asks for the name of an event; `pick`: selects what is at a point of the lanes. */
  constructor(
    private readonly surface: Surface,
    private readonly named: (one: Hit) => void,
    private readonly pick: (event: MouseEvent, scene: Scene, picture: Picture) => void,
  ) {}

  /** Where an event of the mouse is in the lanes, px. */
  x = (event: MouseEvent): number => event.clientX - this.surface.canvas!.getBoundingClientRect().left;
  y = (event: MouseEvent): number => event.clientY - this.surface.canvas!.getBoundingClientRect().top;

  timeAt(x: number): number {
    const { from, to } = this.surface.view!;
    return from + (x / this.surface.width) * (to - from);
  }

  /** Its share of the width of the lanes, if it is over them. */
  get share(): number | undefined {
    const { canvas, width } = this.surface;
    return this.at && canvas && (this.at.x - canvas.getBoundingClientRect().left) / width;
  }

  wheel = (event: WheelEvent): void => {
    const { view, width, run } = this.surface;
    if (!view || !width) return;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      const factor = Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300)));
      this.surface.show(zoomed(view, factor, this.x(event) / width, run));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.surface.show(panned(view, (event.deltaX || event.deltaY) / width, run));
    }
  };

  private hover(event: PointerEvent): void {
    const { scene, picture } = this.surface;
    if (!scene || !picture) return;
    this.at = { x: event.clientX, y: event.clientY };
    const [x, y] = [this.x(event), this.y(event)];
    const one = scene.at(picture, x, y);
    this.curve = one ? undefined : scene.busyAt(picture, x, y);
    this.counter = one ? undefined : scene.counterAt(picture, x, y);
    if (same(one, this.hovered)) return;
    this.hovered = one;
    this.rest();
    if (one) {
      this.named(one);
      this.timer = setTimeout(() => (this.resting = true), REST);
    }
  }

  private rest(): void {
    this.resting = false;
    clearTimeout(this.timer);
  }

  leave = (): void => {
    this.hovered = this.at = this.curve = this.counter = undefined;
    this.rest();
  };

  down(event: PointerEvent, kind: Kind): void {
    const { view } = this.surface;
    if (event.button > 1 || !view) return;
    (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
    this.drag = { kind: event.button === 1 ? "pan" : kind, x: event.clientX, y: event.clientY, from: view, moved: false };
    this.resting = false;
  }

  move = (event: PointerEvent): void => {
    const { drag } = this;
    if (!drag) return this.hover(event);
    const [x, y] = [event.clientX - drag.x, event.clientY - drag.y];
    if (!drag.moved && Math.hypot(x, y) < NEAR) return;
    drag.moved = true;
    const { width, run } = this.surface;
    if (drag.kind === "area") {
      const [a, b] = [this.timeAt(this.x(event) - x), this.timeAt(this.x(event))];
      this.area = { from: Math.round(Math.min(a, b)), to: Math.round(Math.max(a, b)) };
    } else if (drag.kind === "axis" && Math.abs(y) > Math.abs(x)) {
      this.surface.show(zoomed(drag.from, Math.exp(-y / 100), (this.x(event) - x) / width, run));
    } else this.surface.show(panned(drag.from, -x / width, run));
  };

  /** Returns whether it was a click. */
  up = (event: PointerEvent): boolean => {
    const { drag, area } = this;
    this.drag = this.area = undefined;
    if (area && area.to > area.from) place.set({ area: textOf(area) });
    if (!drag || drag.moved) return false;
    const { scene, picture } = this.surface;
    if (drag.kind === "area" && scene && picture) this.pick(event, scene, picture);
    return true;
  };
}
