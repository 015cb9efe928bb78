/** What went wrong, as the server says it (RFC 9457), or that there is no server. */
export class Problem extends Error {
  constructor(
    readonly type: string,
    readonly title: string,
    readonly detail: string,
    readonly status: number,
    readonly parameter: string | null = null,
    readonly progress: number | null = null,
  ) {
    super(detail);
  }
}
