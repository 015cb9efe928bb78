// The only way to what is shown: a server, or what the file has. Types are generated from its OpenAPI (npm run types).
import { place } from "../lib/router.svelte";
import { connection } from "../lib/connection.svelte";
import { waiting } from "../lib/waiting.svelte";
import { absent, Problem } from "./problem";
import type { components } from "./schema";

export { Problem };

type Schemas = components["schemas"];
export type Profile = Schemas["Profile"];
export type Worker = Schemas["Worker"];
export type Run = Schemas["Run"];
export type Aggregation = Schemas["Aggregation"];
export type Report = Schemas["Report"];
export type Column = Schemas["Column"];
export type Table = Schemas["Table"];
export type Total = Schemas["Total"];
export type Node = Schemas["Node"];
export type Tree = Schemas["Tree"];
export type Launches = Schemas["Launches"];
export type Cell = boolean | number | string | null;
export type Overview = Schemas["Overview"];
export type Breakdown = Schemas["Breakdown"];
export type Share = Schemas["Share"];
export type Part = Schemas["Part"];
export type Figure = Schemas["Figure"];
export type Hit = Schemas["Hit"];
export type Fleet = Schemas["Fleet"];
export type Finding = Schemas["Finding"];
export type Insights = Schemas["Insights"];
export type Ledger = Schemas["Ledger"];
export type LedgerLine = Schemas["LedgerLine"];
export type Link = Schemas["Link"];
export type Iterations = Schemas["Iterations"];
export type Bars = Schemas["Bars"];
export type Heat = Schemas["Heat"];
export type KeyOperators = Schemas["KeyOperators"];
export type Job = Schemas["Job"];
export type Details = Schemas["Details"];
export type NamedTable = Schemas["NamedTable"];
export type Point = Schemas["Point"];
export type Ceiling = Schemas["Ceiling"];
export type Roofline = Schemas["Roofline"];
export type Memory = Schemas["Memory"];
export type Curve = Schemas["Curve"];
export type Compare = Schemas["Compare"];
export type Change = Schemas["Change"];
export type Group = Schemas["Group"];
export type Groups = Schemas["Groups"];
export type SourceText = Schemas["SourceText"];
export type Timeline = Schemas["Timeline"];
export type Colors = Schemas["Colors"];
export type CriticalPath = Schemas["CriticalPath"];
export type Flame = Schemas["Flame"];
export type Flows = Schemas["Flows"];
export type SelectedWork = Schemas["SelectedWork"];
export type Selection = Schemas["Selection"];
export type Counters = Schemas["Counters"];
export type Durations = Schemas["Durations"];
export type SearchHits = Schemas["SearchHits"];
export type EventHits = Schemas["EventHits"];
export type Annotation = Schemas["Annotation"];
export type Annotations = Schemas["Annotations"];

export type Query = Record<string, string | number | readonly string[] | undefined>;

export function address(path: string, query: Query = {}): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value === undefined) continue;
    for (const one of Array.isArray(value) ? value : [value]) search.append(key, String(one));
  }
  const text = search.toString();
  return `api/${path}${text ? `?${text}` : ""}`;
}

/** Paths that are not of one run, aggregation and worker, with what they do take: others are an error there. */
const FEWER: Record<string, readonly string[]> = {
  ledger: ["run"],
  source: ["run"],
  key_operators: ["run", "aggregation"],
  compare: [],
  "compare/export": [],
  "compare/groups": [],
  annotations: ["run"],
  timeline: ["run"],
  "timeline/colors": ["run"],
  "timeline/flows": ["run"],
  "timeline/critical_path": ["run"],
  "timeline/selection": ["run", "worker"],
  "timeline/flame": ["run", "worker"],
  "timeline/durations": ["run", "worker"],
  "timeline/search": ["run", "worker"],
  "timeline/hits": ["run", "worker"],
};
const MOST = ["run", "aggregation", "worker"];

/** The run, aggregation and worker that the header chose, as far as a path takes them. */
export function shared(path: string): Query {
  const all = { run: place.get("run"), aggregation: place.get("agg"), worker: place.get("worker") };
  return Object.fromEntries(Object.entries(all).filter(([key]) => (FEWER[path] ?? MOST).includes(key)));
}

const json = <T>(response: Response): Promise<T> => response.json() as Promise<T>;

/** The answer to a question, `how`: its options. */
function answer<T>(where: string, how: RequestInit, body: (response: Response) => Promise<T> = json): Promise<T> {
  if (inline) return Promise.reject(absent()); // a change, which nobody would keep
  return waiting.during(where, read<T>(fetch(where, { ...how, credentials: "same-origin" }), body));
}

const CHANGED = 412; // not replaced: the answer is what somebody else has written since

async function read<T>(request: Promise<Response>, content: (response: Response) => Promise<T>): Promise<T> {
  let response: Response;
  try {
    response = await request;
    if (response.ok || response.status === CHANGED) return await content(response);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // cancelled, or no JSON
    connection.lost(); // before the answer or in the middle of it
    throw new Problem(
      "offline",
      "The server is not responding",
      "The server is not responding. The page reconnects by itself once it runs again.",
      0,
    );
  }
  const body = await response.json().catch(() => ({}));
  throw new Problem(
    body.type ?? "internal",
    body.title ?? "Error",
    body.detail ?? `The server answered ${response.status}.`,
    response.status,
    body.parameter ?? null,
    body.progress ?? null,
    body.recording ?? null,
  );
}

/** What answers in place of a server. */
export interface Backend {
  readonly live: boolean;
  /** What it leaves out, in sentences. */
  readonly notes: readonly string[];
  /** What was asked for and is not there. */
  readonly absent: readonly string[];
  get(path: string, query: Query): Promise<unknown>;
  bytes(path: string, query: Query): Promise<ArrayBuffer>;
  /** Whether it can tell what a tile of the timeline has. */
  covers(track: number, level: number, number: number): boolean;
}

const SERVER = { live: true, notes: [], absent: [], covers: () => true } as const;
let inline: Backend | undefined;

/** Ask this instead of a server, from the start. */
export function use(backend: Backend): void {
  inline = backend;
}

/** Who answers. `live`: a server, which can compute, find and keep something. */
export const backend = (): Pick<Backend, "live" | "notes" | "absent" | "covers"> => inline ?? SERVER;

export function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  if (inline) return waiting.during(address(path, query), inline.get(path, query) as Promise<T>);
  return answer<T>(address(path, query), { signal: signal ?? null });
}

/** An answer that is no JSON. */
export function bytes(path: string, query: Query = {}, signal?: AbortSignal): Promise<ArrayBuffer> {
  if (inline) return waiting.during(address(path, query), inline.bytes(path, query));
  return answer(address(path, query), { signal: signal ?? null }, (response) => response.arrayBuffer());
}

/** A question of the chosen run, aggregation and worker, for `resource`. */
export function ask<T>(path: string, query: Query = {}): (signal: AbortSignal) => Promise<T> {
  const all = { ...shared(path), ...query };
  return (signal) => get<T>(path, all, signal);
}

const CHANGES = { "X-PyProf": "1", "Content-Type": "application/json" };

export function send<T>(method: "POST" | "DELETE", path: string, body?: unknown): Promise<T> {
  return answer<T>(address(path), { method, headers: CHANGES, body: body === undefined ? null : JSON.stringify(body) });
}

/** Replace what was answered with a version. `changed`: it was not replaced, since it has another version now: the answer. */
export function put<T>(path: string, query: Query, body: unknown, version: string): Promise<{ changed: boolean; answer: T }> {
  const headers = { ...CHANGES, "If-Match": `"${version}"` };
  return answer(address(path, query), { method: "PUT", headers, body: JSON.stringify(body) }, async (response) => ({
    changed: response.status === CHANGED,
    answer: await json<T>(response),
  }));
}
