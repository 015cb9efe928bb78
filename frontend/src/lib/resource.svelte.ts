// What the server answers, kept in step with what is asked; an answer that nobody waits for any more is cancelled.
import { untrack } from "svelte";
import type { Problem } from "../api/client";
import { connection } from "./connection.svelte";

export interface Resource<T> {
  readonly data: T | undefined;
  readonly error: Problem | undefined;
  readonly loading: boolean;
  reload(): void;
}

/** Problems that end by themselves: a recording that is being read, a server with too much to do. */
const PASSING = ["opening", "busy"];
const AGAIN = 700; // ms

/** `ask` runs whenever something it reads changes; undefined means that there is nothing to ask. The last answer stays
 * until the next one is there. While the server is not ready, or does not answer, it is asked again. */
export function resource<T>(ask: () => ((signal: AbortSignal) => Promise<T>) | undefined): Resource<T> {
  let data = $state.raw<T | undefined>(undefined);
  let error = $state.raw<Problem | undefined>(undefined);
  let loading = $state(true);
  let again = $state(0);
  $effect(() => {
    again;
    connection.returns;
    const fetcher = ask();
    if (!fetcher) {
      data = undefined;
      error = undefined;
      loading = false;
      return;
    }
    const abort = new AbortController();
    loading = true;
    untrack(() => fetcher(abort.signal)).then(
      (answer) => {
        if (abort.signal.aborted) return;
        data = answer;
        error = undefined;
        loading = false;
      },
      (problem: Problem) => {
        if (abort.signal.aborted) return;
        if (problem.type === "offline" && untrack(() => data) !== undefined) {
          loading = false; // what is shown stays, and the banner says why it is not new
          return;
        }
        if (PASSING.includes(problem.type)) {
          const timer = setTimeout(() => void again++, AGAIN);
          abort.signal.addEventListener("abort", () => clearTimeout(timer));
          return;
        }
        data = undefined;
        error = problem;
        loading = false;
      },
    );
    return () => abort.abort();
  });
  return {
    get data() {
      return data;
    },
    get error() {
      return error;
    },
    get loading() {
      return loading;
    },
    reload: () => void again++,
  };
}
