// What the browser keeps of a reader's preferences: JSON by key. Where storage is switched off nothing is kept.

export function kept(key: string): unknown {
  try {
    return JSON.parse(localStorage.getItem(`pyprof-${key}`) ?? "null");
  } catch {
    return null;
  }
}

export function keep(key: string, value: unknown): void {
  try {
    if (value === undefined || value === null) localStorage.removeItem(`pyprof-${key}`);
    else localStorage.setItem(`pyprof-${key}`, JSON.stringify(value));
  } catch {
    // shown, but not kept
  }
}
