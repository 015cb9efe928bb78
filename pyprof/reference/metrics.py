# SPDX-License-Identifier: Apache-2.0
"""docs/metrics.md, from the definitions of figures."""

from __future__ import annotations

from pyprof.metrics import FIGURES, METRICS
from pyprof.reference import page

_HEAD = """# Figures

Every figure is defined once, in `pyprof/metrics`; reports, expert rules, the Python API and `prof.report(...)` take it
from there. This page is generated: `python -m pyprof.reference metrics`.

Times are integers of ns. Sums, unions and partitions of intervals are exact; only averages and shares are rounded, to
the nearest double. Nothing is divided by nothing: a share of an empty whole is unknown, and what is unknown is empty in
files, `None` or missing in Python, never 0. The *window* is the iterations that were aggregated: an execution of an
operator belongs to the iteration in which it starts, a kernel, copy or set to that in which it was launched.

*Communication* is kernels of collectives and of messages, told by their names, and copies between devices (PtoP),
which no kernel makes. In what is busy, overlapped, exposed or idle they are communication, no copies. In times, counts
and shares of kernels (`kernel`, `kernels`, `kernel_utilization`) the kernels of collectives count and copies between
devices do not; in those of copies and sets (`memory`, `memory_share`) all copies count.

## Figures of the window

| Name | Heading | Unit | Share of | Definition |
|---|---|---|---|---|
"""
_ROWS = """
The seven durations (`tc_share` to `other_share`) are a partition of the wall time by priority, in the order above: what
two of them do at once counts for the first. In ns they add up to the wall time exactly.

## Figures of rows

Of an operator these are sums over its executions, with the mean, the smallest and the largest of one execution beside
them; of a group or a type of operators, sums of those.

| Name | Heading | Unit | Definition |
|---|---|---|---|
"""


@page("metrics")
def markdown() -> str:
    """The whole page."""
    window = "".join(
        f"| `{one.name}` | {one.heading} | {one.unit} | {one.denominator} | {one.text} |\n"
        for one in METRICS.values()
    )
    rows = "".join(f"| `{key}` | {one.heading} | {one.unit} | {one.text} |\n" for key, one in FIGURES.items())
    return _HEAD + window + _ROWS + rows
