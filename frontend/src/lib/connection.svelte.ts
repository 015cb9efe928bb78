// Whether the server answers. While it does not, the page keeps what it shows and asks again until it does.
const AGAIN = 2000; // ms

let away = $state(false);
let returns = $state(0);
let timer: ReturnType<typeof setTimeout> | undefined;

/** Ask anything that is cheap: whoever answers, even with an error, is there. */
async function look(): Promise<void> {
  try {
    await fetch("icon.svg", { credentials: "same-origin", cache: "no-store" });
    away = false;
    returns++;
  } catch {
    timer = setTimeout(() => void look(), AGAIN);
  }
}

export const connection = {
  get away(): boolean {
    return away;
  },
  /** Goes up when the server is back: what was asked meanwhile is asked again. */
  get returns(): number {
    return returns;
  },
  lost(): void {
    if (away) return;
    away = true;
    clearTimeout(timer);
    timer = setTimeout(() => void look(), AGAIN);
  },
};
