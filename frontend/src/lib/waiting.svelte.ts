// Which questions the server has not answered yet; the shell says so in attributes, for who waits for the page.
interface Question {
  what: string;
  since: number;
}

const open = new Set<Question>();
let count = $state(0);
let questions = $state("");

/** Later: a question may come from where no state may be set, and must be counted all the same. */
function say(): void {
  queueMicrotask(() => {
    count = open.size;
    questions = [...open].map((one) => `${Math.round(one.since)} ${one.what}`).join("\n");
  });
}

export const waiting = {
  get open(): number {
    return count;
  },
  /** A line for each: when it was asked, in ms of the page's clock, and what. */
  get questions(): string {
    return questions;
  },
  /** Something is asked; what is returned says that it has ended. */
  begin(what: string): () => void {
    const one = { what: what.slice(0, 200), since: performance.now() };
    open.add(one);
    say();
    // A little later: an answer may lead to the next question.
    return () => void setTimeout(() => (open.delete(one), say()), 30);
  },
  async during<T>(what: string, answer: Promise<T>): Promise<T> {
    const end = this.begin(what);
    try {
      return await answer;
    } finally {
      end();
    }
  },
};
