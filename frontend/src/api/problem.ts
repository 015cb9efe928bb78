/** What went wrong, as the server says it (RFC 9457), or that there is no server. */
export class Problem extends Error {
  constructor(
    readonly type: string,
    readonly title: string,
    readonly detail: string,
    readonly status: number,
    readonly parameter: string | null = null,
    readonly progress: number | null = null,
    /** The name of the recording that cannot be opened, or not yet. */
    readonly recording: string | null = null,
  ) {
    super(detail);
  }
}

export const ABSENT = "Not in this file: open the recording with pyprof view.";

/** What a file of `pyprof page` answers to all that it does not have. */
export const absent = (): Problem => new Problem("absent", "Not in this file", ABSENT, 404);
