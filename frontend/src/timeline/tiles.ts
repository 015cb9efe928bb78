// Tiles as the server sends them (docs/timeline.md), as columns. Times are ns from the first event of the recording.

export interface Tile {
  track: number;
  level: number;
  number: number;
  /** Place of the first record of each lane, and the number of records at the end. */
  lanes: Uint32Array;
  start: Float64Array;
  end: Float64Array;
  /** ns in which the events of a record ran; undefined where each record is one event. */
  busy: Float64Array | undefined;
  /** Events of each record; undefined where it is one. */
  count: Float64Array | undefined;
  id: Float64Array;
  name: Uint32Array;
  /** The operator's number plus 1; 0 is none. */
  operator: Uint32Array;
  bytes: number;
}

const padded = (bytes: number): number => Math.ceil(bytes / 8) * 8;

/** Read tiles that follow one another. Throws RangeError for bytes that are none. */
export function decode(buffer: ArrayBuffer): Tile[] {
  const out: Tile[] = [];
  for (let at = 0; at < buffer.byteLength;) {
    const tile = one(buffer, at);
    out.push(tile);
    at += tile.bytes;
  }
  return out;
}

function one(buffer: ArrayBuffer, begin: number): Tile {
  const [rows, lanes, level, track] = new Uint32Array(buffer, begin, 4) as unknown as [number, number, number, number];
  let at = begin + 16;
  /** 64-bit numbers, exact to 2^53: each the sum with the one before, except for the first of a lane. */
  const wide = (length: number, firsts?: Uint32Array): Float64Array => {
    const halves = new Int32Array(buffer, at, 2 * length);
    at += 8 * length;
    const values = new Float64Array(length);
    for (let i = 0; i < length; i++) values[i] = halves[2 * i + 1]! * 2 ** 32 + (halves[2 * i]! >>> 0);
    if (firsts)
      for (let lane = 0; lane + 1 < firsts.length; lane++)
        for (let i = firsts[lane]! + 1; i < firsts[lane + 1]!; i++) values[i]! += values[i - 1]!;
    return values;
  };
  const narrow = (length: number): Uint32Array => {
    const values = new Uint32Array(buffer, at, length);
    at += padded(4 * length);
    return values;
  };
  const number = wide(1)[0]!;
  const sizes = narrow(lanes);
  const firsts = new Uint32Array(lanes + 1);
  for (let lane = 0; lane < lanes; lane++) firsts[lane + 1] = firsts[lane]! + sizes[lane]!;
  if (firsts[lanes] !== rows) throw new RangeError("The lanes of a tile have other records than it has.");
  const start = wide(rows, firsts);
  const length = wide(rows);
  const id = wide(rows, firsts);
  let busy: Float64Array | undefined;
  let count: Float64Array | undefined;
  if (level) {
    busy = wide(rows);
    count = Float64Array.from(narrow(rows), (more) => more + 1);
  }
  const end = length;
  for (let i = 0; i < rows; i++) {
    if (busy) busy[i] = length[i]! - busy[i]!;
    end[i] = start[i]! + length[i]!;
  }
  const texts = narrow(2 * rows);
  return {
    track,
    level,
    number,
    lanes: firsts,
    start,
    end,
    busy,
    count,
    id,
    name: texts.subarray(0, rows),
    operator: texts.subarray(rows),
    bytes: at - begin,
  };
}

/** The place of the last record of a lane that begins at `time` or before; one before the lane's first if there is none. */
export function before(tile: Tile, lane: number, time: number): number {
  let low = tile.lanes[lane] ?? 0;
  let high = tile.lanes[lane + 1] ?? low;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (tile.start[middle]! <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
