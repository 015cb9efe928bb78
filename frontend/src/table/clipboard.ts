// Tables as the clipboard takes them. Texts of a profile are a stranger's: none is a formula, a tag or a line of its own.
import type { Cell } from "../api/client";

const text = (cell: Cell): string => (cell === null ? "" : String(cell));

export function asTsv(headings: readonly string[], rows: readonly (readonly Cell[])[]): string {
  const clean = (cell: Cell): string => {
    const line = text(cell).replace(/[\t\r\n]+/g, " ");
    return typeof cell === "string" && /^[=+\-@]/.test(line) ? `'${line}` : line;
  };
  return [headings, ...rows].map((row) => row.map(clean).join("\t")).join("\n");
}

export function asHtml(headings: readonly string[], rows: readonly (readonly Cell[])[]): string {
  const clean = (cell: Cell): string => text(cell).replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);
  const line = (row: readonly Cell[], tag: string): string => `<tr>${row.map((cell) => `<${tag}>${clean(cell)}</${tag}>`).join("")}</tr>`;
  return `<table>${line(headings, "th")}${rows.map((row) => line(row, "td")).join("")}</table>`;
}

export function asMarkdown(headings: readonly string[], rows: readonly (readonly Cell[])[]): string {
  const clean = (cell: Cell): string =>
    text(cell)
      .replace(/\s*[\r\n]+\s*/g, " ")
      .replace(/[\\|`<>*_[\]]/g, "\\$&");
  const line = (row: readonly Cell[]): string => `| ${row.map(clean).join(" | ")} |`;
  return [line(headings), `|${" --- |".repeat(headings.length)}`, ...rows.map(line)].join("\n") + "\n";
}
