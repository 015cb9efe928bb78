// The whole state of the page is in the address: #/view?name=value. Back, reload and a copied link keep it.

export type Params = Record<string, string>;

export interface Place {
  view: string;
  params: Params;
}

function parse(hash: string): Place {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { view: decodeURIComponent(path) || "overview", params: Object.fromEntries(new URLSearchParams(query)) };
}

export function href(view: string, params: Params): string {
  const query = new URLSearchParams(params).toString();
  return `#/${view}${query ? `?${query}` : ""}`;
}

const current = $state<Place>(parse(location.hash));

/** What stays as it is must not be set: whatever was asked for with it would be asked for again. */
function arrive({ view, params }: Place): void {
  current.view = view;
  for (const key of Object.keys(current.params)) if (!(key in params)) delete current.params[key];
  for (const [key, value] of Object.entries(params)) if (current.params[key] !== value) current.params[key] = value;
}

window.addEventListener("hashchange", () => arrive(parse(location.hash)));

/** What every view shares, and so survives going to another one. */
const SHARED = ["run", "agg", "worker"];

export const place = {
  get view(): string {
    return current.view;
  },
  get params(): Params {
    return current.params;
  },
  get(name: string): string | undefined {
    return current.params[name];
  },
  /** The address of another view with the shared state, and `params`. */
  to(view: string, params: Params = {}): string {
    const kept = Object.fromEntries(SHARED.flatMap((key) => (key in current.params ? [[key, current.params[key]!]] : [])));
    return href(view, { ...kept, ...params });
  },
  go(view: string, params: Params = {}): void {
    location.hash = place.to(view, params);
  },
  /** Be elsewhere, with exactly these parameters, as if the address had said so: Back does not come here again. */
  replace(view: string, params: Params): void {
    const next = href(view, params);
    history.replaceState(null, "", next);
    arrive(parse(next));
  },
  /** Change parameters of this view; undefined or "" removes one. `replace`: no new entry of the history. */
  set(changes: Record<string, string | undefined>, replace = false): void {
    const params = { ...current.params };
    for (const [key, value] of Object.entries(changes)) {
      if (value) params[key] = value;
      else delete params[key];
    }
    const next = href(current.view, params);
    if (next === href(current.view, current.params)) return;
    if (replace) {
      history.replaceState(null, "", next);
      arrive(parse(next));
    } else {
      location.hash = next;
      arrive(parse(next)); // the browser says so later, and what is done until then has to know
    }
  },
};
