// Light or dark: the system's, until the switch says otherwise. A preference, so kept by the browser, not the address.
type Theme = "light" | "dark";

const KEY = "pyprof-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

function kept(): Theme | null {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : null;
  } catch {
    return null; // storage is switched off
  }
}

let chosen = $state<Theme | null>(kept());
let dark = $state(system.matches);
system.addEventListener("change", () => (dark = system.matches));

export const theme = {
  get now(): Theme {
    return chosen ?? (dark ? "dark" : "light");
  },
  toggle(): void {
    chosen = theme.now === "dark" ? "light" : "dark";
    try {
      localStorage.setItem(KEY, chosen);
    } catch {
      // not kept, but shown
    }
  },
};
