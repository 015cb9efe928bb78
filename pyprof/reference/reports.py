# SPDX-License-Identifier: Apache-2.0
"""docs/reports.md, from the registry of reports."""

from __future__ import annotations

from pyprof.analysis.categories import CATEGORIES, FAMILIES, KINDS
from pyprof.reference import page
from pyprof.reports import Option, Report, diff, every

_HEAD = """# Reports

Tables of an aggregation, as `prof.report("op_type")`, on a terminal, or as files. This page is generated:
`python -m pyprof.reference reports`. Figures are those of docs/metrics.md: the same number everywhere.

Files are named `NAME_SUFFIX.EXTENSION`. A file is written whole or not at all.

| Format | What it is |
|---|---|
| csv | One line of headings, which pandas reads. Numbers are not rounded; `True` and `False`; empty where unknown. \
A text that a spreadsheet would take for a formula begins with `'`; `--raw` gives texts as they are. |
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

## The overview

`pyprof report FILE`, without the name of a report, prints an overview: at most 15 lines that fit the terminal.
`pyprof run` ends with the same lines, on stderr. `pyprof run --quiet` leaves them out.

| Lines | What they show | Report |
|---|---|---|
| step | The median length of the steady steps, the ones that the expert rules look at, and what they were spent on; \
the shares are 100 % together. Without steps: the whole recording. | `step_time --categories=phase` |
| operators | The five types with the most time, all aggregated iterations together: the share of the time of all, the \
line of your own code with most of this time, and `+N` if it has N more lines. | `op_type`, `detail` |
| modules | The five modules with the most time of their own, without that of the modules inside them. | `module` |
| known | The part of the time of which operator, line, module and FLOPs are known. | `coverage` |
| finding | The first finding of the expert rules, with its estimated saving. | `expert_systems` |
| next | The command that shows more. | |

At 80 columns times are added, at 110 the number of calls. Without operators, the kernels with the most time take their
place. `na` is unknown. At the end of `pyprof run` there is no overview if the script failed, on other ranks than the
first, and of a file of more than 16 MiB; there one line names the command.
"""

_CATEGORIES = """## Categories of work

The kind of a kernel, which its name tells (docs/roofline.md), decides the category of its work. Of kernels that copy,
sort, add up or are of no known kind the name tells the routing of mixtures of experts, of those that copy gathers and
scatters. Where it tells nothing, the family of the operator that launched it decides: the file of `pyprof/prof/ops`
with its formula. Operators of a recording without a GPU go by their family.
"""


@page("reports")
def markdown() -> str:
    """The whole page."""
    parts = [_HEAD, *_categories()]
    for one in every():
        parts += _section(one, f"Files: `NAME_{one.suffix}.csv`.")
    parts += _section(
        diff.STEPS, "`pyprof diff BASE OTHER [--base-worker NAME] [--other-worker NAME]`, `prof.diff(other)`."
    )
    parts += _section(
        diff.REPORT._replace(name="diff by operator or kernel"),
        "`pyprof diff BASE OTHER --by=operator|kernel`, `prof.diff(other, by)`.",
    )
    return "\n".join(parts)


def _categories() -> list[str]:
    """What is in each category of work."""
    rows = ["| Category | What it is | Kinds of kernels | Families of operators |", "|---|---|---|---|"]
    for category, text in CATEGORIES.items():
        kinds, families = (
            ", ".join(sorted(name for name, one in table.items() if one == category))
            for table in (KINDS, FAMILIES)
        )
        rows.append(f"| `{category}` | {text} | {kinds} | {families} |")
    return [_CATEGORIES, "\n".join(rows) + "\n"]


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
