// Which part of a view the address asks for; the first where it names none that there is.
import { place } from "./router.svelte";

export function chosenTab(ids: readonly string[], param = "tab"): string {
  const asked = place.get(param);
  return asked !== undefined && ids.includes(asked) ? asked : ids[0]!;
}
