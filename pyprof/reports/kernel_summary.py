# SPDX-License-Identifier: Apache-2.0
"""Kernels by name, or by anything else that they can be grouped by."""

from __future__ import annotations

import pandas as pd

from pyprof.facts.steps.source import Source
from pyprof.measures import efficiency
from pyprof.measures.table import columns, table
from pyprof.reports import Option, View, report

_LAUNCH = ("grid", "block", "registers", "shared_memory")
_MEASURES = (
    "tc", "calls", "total_ns", "mean_ns", "max_ns", "min_ns", "blocks_per_sm", "occupancy", "flops_per_s", "bandwidth",
    "intensity",
)  # fmt: skip
# What each row covers: its keys.
_BY = {
    "name": ("name",),
    "operator": ("name", "operator", "tc_eligible"),
    "properties": ("name", "operator", *_LAUNCH, "tc_eligible"),
    "module": ("module",),
    "line": ("line",),
    "type": ("type",),
    "shapes": ("operator", "shapes"),
    "direction": ("direction",),
    "worker": ("worker",),
    "step": ("step",),
    "stream": ("worker", "device", "stream"),
}
_KEYS = (
    "name",
    "operator",
    *_LAUNCH,
    "module",
    "line",
    "type",
    "shapes",
    "direction",
    "worker",
    "device",
    "stream",
    "step",
)
_ORDER = (*_KEYS, *_MEASURES[:8], "tc_eligible", *_MEASURES[8:])


@report(
    "kernel_summary",
    "Kernel Summary",
    (*columns(_ORDER), *efficiency.columns("these kernels")),
    options=(
        Option(
            "by",
            "What each row covers: kernels of one name; of one name and operator; of one name, operator, launch "
            "geometry, registers and shared memory; or of one module, source line, type of operation, operator and "
            "shapes, direction, worker, step, or stream.",
            {value: tuple(key for key in (*_KEYS, "tc_eligible") if key not in by) for value, by in _BY.items()},
        ),
    ),
    needs="kernels on a GPU",
    view=View("Kernels", sort="-total_ns", sums="calls total_ns"),
)
def kernel_summary(source: Source, by: str) -> pd.DataFrame:
    """One row per name of a kernel launched in the aggregated iterations, sorted by total time; with --by, one
    per group of other keys. Values of several workers and devices are summed. Copies and sets are not kernels. A
    recording without a GPU has no rows."""
    return table(source, _BY[by], _MEASURES)
