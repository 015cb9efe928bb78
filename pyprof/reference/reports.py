# SPDX-License-Identifier: Apache-2.0
"""docs/reports.md, from the registry of reports."""

from __future__ import annotations

from pyprof.facts.device.categories import CATEGORIES, CATEGORY_OF_FAMILY, CATEGORY_OF_KIND
from pyprof.reference import page
from pyprof.reports import Option, Report, diff, every

_HEAD = """# Reports

Tables of an aggregation, as `prof.report("op_type")`, on a terminal, or as files. This page is generated:
`python -m pyprof.reference reports`. Figures are those of docs/metrics.md: the same number everywhere.

Files are named `NAME_SUFFIX.EXTENSION`. A file is written completely or not at all.

| Format | Description |
|---|---|
| csv | One line of headings, which pandas reads. Numbers are not rounded; `True` and `False`; empty where unknown. \
A text that a spreadsheet would take for a formula begins with `'`; `--raw` leaves texts unchanged. |
| csv, style dlprof | DLProf's layout: the title on its own line, every text quoted, `yes` and `no`, \
averages and shares with one decimal, only DLProf's columns; the summary as sections with blank lines between them. |
| json | `{title: [{heading: value, ...}, ...]}` with numbers, `true`, `false` and `null`. |
| table | For a terminal, as wide as its texts; numbers are grouped, fractions have four digits. |
| md | A Markdown table, as above. |
| parquet | Typed columns named by heading, with unit and definition as metadata. |

Names of kernels, layers and arguments come from the recorded program and may be hostile. In CSV a text that begins with
`=`, `+`, `-` or `@` and is not a number is prefixed with `'`, so that a spreadsheet does not run it. Control characters
become blanks in CSV, tables and Markdown, where no character has a meaning; JSON escapes them.

An execution of an operator belongs to the iteration in which it starts, a kernel, copy or set to the one in which it
was launched. Rows of several workers are added up (minima and maxima over all workers); `worker=` selects one. In a
recording without a GPU, GPU time is the operators' own time, and columns that need a GPU are empty.

## The overview

`pyprof report FILE`, without the name of a report, prints an overview: at most 18 lines that fit the terminal.
`pyprof run` ends with the same lines, on stderr. `pyprof run --quiet` omits them.

| Lines | Content | Report |
|---|---|---|
| step | The median length of the steady steps, the ones that the expert rules examine, and how they were spent; \
the shares add up to 100 %. Without steps: the whole recording. | `step_time --categories=phase` |
| operators | The five types with the most time over all aggregated iterations: the share of the total time, the \
line of your own code with most of this time, and `+N` for N more lines. | `op_type`, `detail` |
| modules | The five modules with the most time of their own, excluding the modules inside them. | `module` |
| known | The part of the time for which operator, line, module and FLOPs are known. | `coverage` |
| finding | The first finding of the expert rules, with its estimated saving. | `expert_systems` |
| next | The command that shows more. | |

From 80 columns on times are added, from 110 on the number of calls. Without operators, the kernels with the most time
take their place. `na` is unknown. At the end of `pyprof run` there is no overview if the script failed, on ranks other
than the first, and for a file of more than 16 MiB; then one line names the command.
"""

_CATEGORIES = """## Categories of work

The kind of a kernel, derived from its name (docs/roofline.md), decides the category of its work. For kernels that copy,
sort, reduce or have no known kind, the name identifies the routing of mixtures of experts, and for copies also gathers
and scatters. If it identifies nothing, the family of the operator that launched the kernel decides: the file of
`pyprof/costs/ops` with its formula. Operators of a recording without a GPU are classified by their family.
"""


@page("reports")
def markdown() -> str:
    """Return the page."""
    parts = [_HEAD, *_categories()]
    for report in every():
        parts += _section(report, f"Files: `NAME_{report.suffix}.csv`.")
    parts += _section(
        diff.STEPS, "`pyprof diff BASE OTHER [--base-worker NAME] [--other-worker NAME]`, `prof.diff(other)`."
    )
    parts += _section(
        diff.REPORT._replace(name="diff by operator or kernel"),
        "`pyprof diff BASE OTHER --by=operator|kernel`, `prof.diff(other, by)`.",
    )
    return "\n".join(parts)


def _categories() -> list[str]:
    """Return the table of the categories of work."""
    rows = ["| Category | Description | Kinds of kernels | Families of operators |", "|---|---|---|---|"]
    for category, text in CATEGORIES.items():
        kinds, families = (
            ", ".join(sorted(name for name, kind_of_work in table.items() if kind_of_work == category))
            for table in (CATEGORY_OF_KIND, CATEGORY_OF_FAMILY)
        )
        rows.append(f"| `{category}` | {text} | {kinds} | {families} |")
    return [_CATEGORIES, "\n".join(rows) + "\n"]


def _section(report: Report, files: str) -> list[str]:
    """Return a report's text and columns."""
    parts = [f"## {report.name}\n\n{report.text}\n\nTitle: {report.title}. {files}\n"]
    rows = ["| Key | Heading | Unit | Definition |", "|---|---|---|---|"]
    for column in report.all_columns:
        note = " Not in DLProf's layout." if column.extra else ""
        rows.append(f"| `{column.key}` | {column.heading} | {column.unit} | {column.text}{note} |")
    return [*parts, "\n".join(rows) + "\n", *(_option(option) for option in report.options)]


def _option(option: Option) -> str:
    """Return the choices of an option, with the columns that each leaves out."""
    rows = []
    for value, out in option.choices.items():
        without = f" (without {', '.join(f'`{key}`' for key in out)})" if out else ""
        rows.append(f"`{value}`{without}")
    name = option.name.replace("_", "-")
    return f"`--{name}`: {option.text} One of {'; '.join(rows)}; default: `{option.default}`.\n"
