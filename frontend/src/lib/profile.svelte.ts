// What is known before any view is drawn: the profile that is served and its reports.
import { get, Problem, type Profile, type Report } from "../api/client";
import { several } from "./format";
import { place } from "./router.svelte";

let profile = $state.raw<Profile>();
let reports = $state.raw<Map<string, Report>>(new Map());
let problem = $state.raw<Problem>();
let version = $state(0);

export const served = {
  get profile(): Profile | undefined {
    return profile;
  },
  get problem(): Problem | undefined {
    return problem;
  },
  /** Goes up whenever numbers on the page are those of another state of the database. */
  get version(): number {
    return version;
  },
  report(name: string): Report | undefined {
    return reports.get(name);
  },
  get reports(): Report[] {
    return [...reports.values()];
  },
  get gpu(): boolean {
    return profile?.gpu ?? false;
  },
};

/** Of whom times are sums: "8 workers"; "2 spans", the recordings of one worker; "" for one. */
export function whose(): string {
  const workers = place.get("worker") ? [] : served.profile!.workers;
  const processes = new Set(workers.map((one) => (one.span > 1 ? one.name.replace(/ span \d+$/, "") : one.name))).size;
  const spans = workers.length > processes && several(workers.length, "span");
  return [spans, processes > 1 && several(processes, "worker")].filter(Boolean).join(" of ");
}

/** A heading as the page says it: the DataLoader is spelled as torch does, and not as DLProf; what is a time of calls says so. Without a GPU, time is operators' own on
 * the CPU, and there are no API calls. */
export function titled(heading: string): string {
  const spelled = heading.replace("Dataloader", "DataLoader").replace(/^(FLOPs|Bytes) Unknown /, "Time of Unknown $1 ");
  return served.gpu
    ? spelled
    : spelled.replace("GPU Time", "Own Time").replace("GPU Start Time", "Start Time (ns)").replace(" incl. API", "");
}
/** Columns that a GPU fills: without one they are there for who wants them. */
export const shownWithout = (key: string): boolean => served.gpu || !DEVICE.test(key);
const DEVICE =
  /^(launch|grid|block|us(es|ing)_tc|using|(tc_)?eligible|tc_(self|total|kernels|names)|kernels|other_names|device_(self|total)_ns|(overhead|idle).*)$/;

/** Problems that may end without the user (a file may still be written), by their type: after how many ms to ask again. */
const AGAIN: Record<string, number> = { opening: 400, empty: 2000, unreadable: 5000 };
let asked = 0;

/** Do something once the page can be seen: a hub takes each request for work of its user, and keeps the server running. */
function whenSeen(work: () => void): void {
  if (document.visibilityState === "visible") work();
  else document.addEventListener("visibilitychange", () => whenSeen(work), { once: true });
}

/** Read it, again after a job or for another run. */
export async function refresh(): Promise<void> {
  const mine = ++asked;
  try {
    const run = { run: place.get("run") };
    const [next, list] = await Promise.all([
      get<Profile>("profile", run),
      reports.size ? undefined : get<Report[] | { reports: Report[] }>("reports"),
    ]);
    if (mine !== asked) return;
    if (list) reports = new Map((Array.isArray(list) ? list : list.reports).map((report) => [report.name, report]));
    profile = next;
    problem = undefined;
    version++;
  } catch (error) {
    if (mine !== asked) return;
    if (error instanceof Problem && error.type === "offline" && profile) return; // the banner says so
    problem = error instanceof Problem ? error : new Problem("internal", "Error", String(error), 0);
    const again = AGAIN[problem.type];
    if (again) setTimeout(() => whenSeen(() => mine === asked && void refresh()), again);
  }
}
