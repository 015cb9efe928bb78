// How many questions the server has not answered yet; the shell says so in an attribute, for who waits for the page.
let count = 0; // beside the state: whoever asks does so in an effect, which must not depend on it
let open = $state(0);

export const waiting = {
  get open(): number {
    return open;
  },
  more: (): void => void (open = ++count),
  // A little later: an answer may lead to the next question.
  less: (): void => void setTimeout(() => (open = --count), 30),
};
