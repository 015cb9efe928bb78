# SPDX-License-Identifier: Apache-2.0
"""docs/metrics.md, from the definitions of figures."""

from __future__ import annotations

from pyprof.metrics import FIGURES, METRICS
from pyprof.reference import page

_HEAD = """# Figures

Every figure is defined once, in `pyprof/metrics`; reports, expert rules, the Python API and `prof.report(...)` take it
from there. This page is generated: `python -m pyprof.reference metrics`.

Times are integers of ns. Sums, unions and partitions of intervals are exact; only averages and shares are rounded, to
the nearest double. A share of an empty whole is unknown; unknown values are empty in files, and `None` or missing in
Python, never 0. The *window* consists of the aggregated iterations: an execution of an operator belongs to the
iteration in which it starts, a kernel, copy or set to the one in which it was launched.

*Communication* is kernels of collectives and of messages, recognised by their names, and copies between devices (PtoP),
which run no kernel. In busy, overlapped, exposed and idle time these copies are communication, not copies. In times,
counts and shares of kernels (`kernel`, `kernels`, `kernel_utilization`) the kernels of collectives count and copies
between devices do not; in those of copies and sets (`memory`, `memory_share`) all copies count.

## Figures of the window

| Name | Heading | Unit | Share of | Definition |
|---|---|---|---|---|
"""
_ROWS = """
The seven durations (`tc_share` to `other_share`) are a partition of the wall time by priority, in the order above: time
in which two of them overlap counts for the first. In ns they add up to the wall time exactly.

## Figures of rows

For an operator these are sums over its executions, together with the mean, smallest and largest of one execution; for a
group or a type of operators, sums of these.

| Name | Heading | Unit | Definition |
|---|---|---|---|
"""


@page("metrics")
def markdown() -> str:
    """Return the page."""
    window = "".join(
        f"| `{figure.name}` | {figure.heading} | {figure.unit} | {figure.denominator} | {figure.text} |\n"
        for figure in METRICS.values()
    )
    rows = "".join(
        f"| `{key}` | {figure.heading} | {figure.unit} | {figure.text} |\n" for key, figure in FIGURES.items()
    )
    return _HEAD + window + _ROWS + rows
