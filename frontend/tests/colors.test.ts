// Colors that are beside each other are told apart: with all cones, without those of green, and without those of red.
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { meaningOf } from "../src/lib/colours";
import { CAUSES, RANKS, variable } from "../src/timeline/colors";

type Three = [number, number, number];
type Matrix = [Three, Three, Three];

// Machado, Oliveira, Fernandes: A Physiologically-based Model for Simulation of Color Vision Deficiency (2009), severity 1, linear RGB.
const EYES: Record<string, Matrix> = {
  "all cones": [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  deuteranopia: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  protanopia: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
};
// Ottosson: A perceptual color space for image processing (2020): from linear sRGB to cones, and from their roots to Lab.
const CONES: Matrix = [
  [0.4122214708, 0.5363325363, 0.0514459929],
  [0.2119034982, 0.6806995451, 0.1073969566],
  [0.0883024619, 0.2817188376, 0.6299787005],
];
const LAB: Matrix = [
  [0.2104542553, 0.793617785, -0.0040720468],
  [1.9779984951, -2.428592205, 0.4505937099],
  [0.0259040371, 0.7827717662, -0.808675766],
];
const times = (matrix: Matrix, [x, y, z]: Three): Three => matrix.map(([a, b, c]) => a * x + b * y + c * z) as Three;
const linear = (part: number): number => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);

function lab(hex: string, eye: Matrix): Three {
  const rgb = [1, 3, 5].map((at) => linear(parseInt(hex.slice(at, at + 2), 16) / 255)) as Three;
  const seen = times(eye, rgb).map((part) => Math.min(1, Math.max(0, part))) as Three;
  return times(LAB, times(CONES, seen).map(Math.cbrt) as Three);
}
/** In OKLab, times 100: one that is just noticed is about 2. */
const distance = (one: string, other: string, eye: Matrix): number =>
  100 * Math.hypot(...lab(one, eye).map((part, at) => part - lab(other, eye)[at]!));

const SHEET = readFileSync(new URL("../src/style.css", import.meta.url), "utf8").split(':root[data-theme="dark"]');
const THEMES: Record<string, Record<string, string>> = Object.fromEntries(
  ["light", "dark"].map((theme, at) => [
    theme,
    Object.fromEntries([...SHEET[at]!.matchAll(/--([\w-]+): (#[0-9a-f]{6});/g)].map(([, name, hex]) => [`--${name}`, hex!])),
  ]),
);

const IDLE = ["queued", "data_loader", "synchronization", "host_copy", "launch_bound", "not_recorded"];
const PHASES = ["forward", "backward", "recompute", "optimizer", "no_phase"];
const of = (breakdown: string, parts: readonly string[]): string[] => parts.map((part) => `--c-${meaningOf(breakdown, part)}`);
const TOGETHER: Record<string, string[]> = {
  "parts of a step with a GPU": of("step_time", [...PHASES, ...IDLE, "other"]),
  "parts of a step on a CPU": of("step_time", [...PHASES, "dataloader", "other"]),
  "parts of a worker's step": of("step_time", ["kernel", "memcpy", "memset", "communication", "runtime", "dataloader", "cpu", "other"]),
  "parts of an iteration": [...of("resources", ["tc", "kernel", "memory", "dataloader", "io", "cpu", "other"]), "--c-outside"],
  "communication and computation": ["--c-compute", "--c-overlap", "--c-communication", "--c-memory", "--c-other"],
  "causes of idle time": Object.values(CAUSES),
  "groups of operators": [...Array.from({ length: RANKS }, (_, rank) => variable(rank)), variable(-1)],
};

/** What is on a device, by its kind; phases are parts of the same time, in other views. */
const KINDS = ["tc", "kernel", "compute", "memory", "memset", "communication", "overlap"];

test.each(Object.keys(THEMES))("each meaning has a color of its own, %s", (theme) => {
  const meant = Object.entries(THEMES[theme]!).filter(([name]) => name.startsWith("--c-"));
  expect(new Set(meant.map(([, ink]) => ink)).size).toBe(meant.length);
  const near = of("step_time", PHASES).flatMap((phase) =>
    KINDS.filter((kind) => distance(THEMES[theme]![phase]!, THEMES[theme]![`--c-${kind}`]!, EYES["all cones"]!) < 10),
  );
  expect(near).toEqual([]);
});

test("the distance is that of the space", () => {
  // From black to white are the 100 of its lightness; who lacks cones sees no color in greys either.
  for (const eye of Object.values(EYES)) expect(distance("#000000", "#ffffff", eye)).toBeCloseTo(100, 1);
  // Red and green of one lightness are far for most, and near for who lacks the cones of green.
  expect(distance("#d04040", "#5c8a2e", EYES["all cones"]!)).toBeGreaterThan(2.5 * distance("#d04040", "#5c8a2e", EYES.deuteranopia!));
});

test.each(Object.entries(TOGETHER).flatMap(([what, names]) => Object.keys(THEMES).map((theme) => [what, theme, names] as const)))(
  "%s, %s: no two are alike",
  (_what, theme, names) => {
    const ink = names.map((name) => THEMES[theme]![name]);
    expect(ink).not.toContain(undefined);
    const alike = names.flatMap((one, at) =>
      names.slice(0, at).flatMap((other, before) =>
        Object.entries(EYES)
          .map(([eye, matrix]) => ({ one, other, eye, distance: distance(ink[at]!, ink[before]!, matrix) }))
          .filter((pair) => pair.distance < 7),
      ),
    );
    expect(alike).toEqual([]);
  },
);
