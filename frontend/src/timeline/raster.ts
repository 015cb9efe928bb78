// Records of a lane as a row of pixels. Each pixel has the color of what covers most of it, mixed with the background as
// far as nothing runs in it: a lane that is 3 % busy is pale, and nothing vanishes.
import { HATCHED } from "./colors";
import type { Tile } from "./tiles";
import type { Window } from "./view";

const FAINTEST = 0.15; // strength of a pixel with anything in it
const LINE = 3; // pixels of a line and of the gap to the next

/** Room for a row, used again for each. */
export class Row {
  readonly covered: Float32Array;
  private readonly most: Float32Array;
  private readonly color: Uint32Array;

  constructor(readonly width: number) {
    this.covered = new Float32Array(width);
    this.most = new Float32Array(width);
    this.color = new Uint32Array(width);
  }

  clear(): void {
    this.covered.fill(0);
    this.most.fill(0);
  }

  /** Add records [first, last) of a tile that begin before the window's end. Colors are 0xBBGGRR. */
  add(tile: Tile, first: number, last: number, window: Window, color: (tile: Tile, at: number) => number): void {
    const scale = this.width / (window.to - window.from);
    const { covered, most, width } = this;
    const { start, end, busy } = tile;
    for (let i = first; i < last; i++) {
      const left = (start[i]! - window.from) * scale;
      if (left >= width) break;
      const right = (end[i]! - window.from) * scale;
      if (right < 0) continue;
      const length = end[i]! - start[i]!;
      const share = busy && length > 0 ? busy[i]! / length : 1;
      const ink = color(tile, i);
      const low = Math.max(Math.floor(left), 0);
      const high = Math.min(Math.max(Math.ceil(right) - 1, low), width - 1);
      for (let x = low; x <= high; x++) {
        const part = Math.max((Math.min(right, x + 1) - Math.max(left, x)) * share, 1e-6);
        covered[x]! += part;
        if (part > most[x]!) {
          most[x] = part;
          this.color[x] = ink;
        }
      }
    }
  }

  /** Write the pixels, as RGBA in the order of an ImageData. */
  write(out: Uint32Array, offset: number, background: number): void {
    const [r0, g0, b0] = [background & 255, (background >> 8) & 255, (background >> 16) & 255];
    for (let x = 0; x < this.width; x++) {
      if (this.most[x] === 0) {
        out[offset + x] = 0xff000000 | background;
        continue;
      }
      const ink = this.color[x]!;
      const gap = ink & HATCHED && Math.floor(x / LINE) % 2;
      const weight = Math.min(Math.max(this.covered[x]!, FAINTEST), 1) * (gap ? FAINTEST : 1);
      const r = r0 + ((ink & 255) - r0) * weight;
      const g = g0 + (((ink >> 8) & 255) - g0) * weight;
      const b = b0 + (((ink >> 16) & 255) - b0) * weight;
      out[offset + x] = 0xff000000 | (Math.round(b) << 16) | (Math.round(g) << 8) | Math.round(r);
    }
  }
}
