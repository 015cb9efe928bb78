# SPDX-License-Identifier: Apache-2.0
"""docs/reports.md, made of the reports: `python -m pyprof.reports.page > docs/reports.md`."""

from __future__ import annotations

from pyprof.reports import Option, Report, diff, every

_HEAD = """# Reports

Tables of an aggregation, as `prof.report("op_type")`, on a terminal, or as files. This page is generated:
`python -m pyprof.reports.page > docs/reports.md`. Figures are those of docs/metrics.md: the same number everywhere.

Files are named `NAME_SUFFIX.EXTENSION`. A file is written whole or not at all.

| Format | What it is |
|---|---|
| csv | One line of headings, which pandas reads. Numbers are not rounded; `True` and `False`; empty where unknown. |
| csv, style dlprof | DLProf's layout: the title on a line of its own, every text quoted, `yes` and `no`, \
averages and shares with one decimal, only DLProf's columns; the summary as sections with blank lines between them. |
| json | `{title: [{heading: value, ...}, ...]}` with numbers, `true`, `false` and `null`. |
| table | For a terminal, as wide as its texts; numbers are grouped, fractions have four digits. |
| md | A Markdown table, as above. |
| parquet | Typed columns named by heading, with unit and definition as metadata. |

Names of kernels, layers and arguments come from the recorded program and may be hostile. In CSV a text that begins with
`=`, `+`, `-` or `@` and is no number gets a `'` before it, so that a spreadsheet does not run it. Control characters
become blanks in CSV, tables and Markdown, where no character has a meaning; JSON escapes them.

An execution of an operator belongs to the iteration in which it starts, a kernel, copy or set to that in which it was
launched. Rows of several workers are added up: smallest of the smallest, largest of the largest; `worker=` chooses one.
In a recording without a GPU, GPU time is the operators' own time, and what needs a GPU is empty.
"""


def markdown() -> str:
    """The whole page."""
    parts = [_HEAD]
    for one in every():
        parts += _section(one, f"Files: `NAME_{one.suffix}.csv`.")
    parts += _section(
        diff.REPORT, f"`pyprof diff BASE OTHER [--by={'|'.join(diff.BY)}]`, `prof.diff(other)`."
    )
    return "\n".join(parts)


def _section(one: Report, where: str) -> list[str]:
    """A report's text and columns."""
    parts = [f"## {one.name}\n\n{one.text}\n\nTitle: {one.title}. {where}\n"]
    rows = ["| Key | Heading | Unit | Definition |", "|---|---|---|---|"]
    for column in one.all_columns:
        more = " Not in DLProf's layout." if column.extra else ""
        rows.append(f"| `{column.key}` | {column.heading} | {column.unit} | {column.text}{more} |")
    return [*parts, "\n".join(rows) + "\n", *(_option(option) for option in one.options)]


def _option(option: Option) -> str:
    """What can be chosen, and the columns that each value leaves out."""
    rows = []
    for value, out in option.choices.items():
        without = f" (without {', '.join(f'`{key}`' for key in out)})" if out else ""
        rows.append(f"`{value}`{without}")
    name = option.name.replace("_", "-")
    return f"`--{name}`: {option.text} One of {'; '.join(rows)}; default: `{option.default}`.\n"


if __name__ == "__main__":
    print(markdown(), end="")
