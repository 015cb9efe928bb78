// Re-aggregations. The server keeps them, so the banner is there again after a reload.
import { get, type Job, send } from "../api/client";
import { refresh } from "./profile.svelte";

let job = $state.raw<Job>();
let hidden = $state("");
let events: EventSource | undefined;

const over = (one: Job): boolean => one.state === "done" || one.state === "failed" || one.state === "cancelled";

function follow(one: Job): void {
  job = one;
  events?.close();
  if (over(one)) return;
  events = new EventSource(`api/jobs/${one.id}/events`);
  events.onmessage = (event) => {
    job = JSON.parse(event.data) as Job;
    if (!over(job)) return;
    events?.close();
    if (job.state === "done") void refresh();
  };
  events.onerror = () => {
    events?.close();
    setTimeout(() => void poll(one.id), 1000);
  };
}

async function poll(id: string): Promise<void> {
  try {
    follow(await get<Job>(`jobs/${id}`));
    if (job?.state === "done") void refresh();
  } catch {
    if (job?.id === id) job = { ...job, state: "failed", error: "The server that did it is gone. What was there before is unchanged." };
  }
}

export const jobs = {
  get shown(): Job | undefined {
    return job && job.id !== hidden ? job : undefined;
  },
  get running(): boolean {
    return job !== undefined && !over(job);
  },
  hide(): void {
    hidden = job?.id ?? "";
  },
  async restore(): Promise<void> {
    const all = await get<Job[]>("jobs").catch(() => []);
    const open = all.find((one) => !over(one));
    if (open) follow(open);
  },
  async start(run: string | undefined, body: { start: number | null; stop: number | null; key: string | null }): Promise<void> {
    follow(await send<Job>("POST", `aggregations${run ? `?run=${encodeURIComponent(run)}` : ""}`, body));
  },
  async cancel(): Promise<void> {
    if (job) job = await send<Job>("DELETE", `jobs/${job.id}`);
  },
};
