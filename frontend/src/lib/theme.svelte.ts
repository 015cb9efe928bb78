// Light or dark: the system's, until the switch says otherwise. A preference, so kept by the browser, not the address.
import { keep, kept } from "./kept";

type Theme = "light" | "dark";

const system = matchMedia("(prefers-color-scheme: dark)");
const before = kept("theme");

let chosen = $state<Theme | null>(before === "light" || before === "dark" ? before : null);
let dark = $state(system.matches);
system.addEventListener("change", () => (dark = system.matches));

export const theme = {
  get now(): Theme {
    return chosen ?? (dark ? "dark" : "light");
  },
  toggle(): void {
    chosen = theme.now === "dark" ? "light" : "dark";
    keep("theme", chosen);
  },
};
