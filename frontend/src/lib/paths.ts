// Paths of modules and operators, as tables show them where they do not fit.

export interface Segment {
  text: string;
  /** It is cut after the others. */
  keep: boolean;
  /** The number of a line, which is never cut. */
  number?: true;
}

const MODULE = /^\w+(\.[\w[\]*]+){2,}$/;

/** Split a path so that its last part and the last part with a number stay: which layer, and what in it.
 * `model/layers/layer_11/attention/softmax` is cut at `model/layers` and at `attention`. Of a file, whose folders have versions, only the end: `numbers` is false. */
export function segments(path: string, numbers = true): Segment[] | undefined {
  // Modules of torch.profiler are joined by points.
  const between = MODULE.test(path) ? "." : "/";
  const parts = path.split(between).map((text, at) => (at ? between + text : text));
  if (parts.length < (numbers ? 3 : 2) || parts.some((part) => part.length > 60)) return undefined;
  const last = parts.length - 1;
  const numbered = !numbers ? -1 : parts.findLastIndex((part, at) => at < last && /[_.[]?\d+\]?$/.test(part) && !/_0$/.test(part));
  const out: Segment[] = [];
  parts.forEach((text, at) => {
    const keep = at === last || at === numbered;
    const before = out.at(-1);
    if (before && before.keep === keep) before.text += text;
    else out.push({ text, keep });
  });
  const line = numbers ? undefined : /:\d+$/.exec(parts[last]!)?.[0];
  if (line) {
    out[out.length - 1]!.text = parts[last]!.slice(0, -line.length);
    out.push({ text: line, keep: true, number: true });
  }
  return out;
}
