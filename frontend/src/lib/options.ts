// Options of reports, as the page names them.

const NAMES: Record<string, string> = { by: "Group by", categories: "Categories", rows: "Rows" };

export const optionName = (name: string): string => NAMES[name] ?? name;

/** A description of a report's, which names options as the command line has them, in the words of the page's boxes. */
export const described = (text: string): string =>
  text.replace(/--([a-z][a-z-]*)=(\w+)/g, (_flag, name: string, value: string) => `“${optionName(name.replaceAll("-", "_"))}: ${value}”`);
