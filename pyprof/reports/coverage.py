# SPDX-License-Identifier: Apache-2.0
"""Explained share of the time on the device."""

from __future__ import annotations

import pandas as pd

from pyprof.facts.steps.coverage import ledger
from pyprof.facts.steps.source import Source
from pyprof.measures.queries import spans
from pyprof.reports import Column, View, report
from pyprof.reports.step_time import WORKER
from pyprof.store import reads


@report(
    "coverage",
    "Coverage",
    (
        WORKER,
        Column(
            "line", "Line", "",
            "Fact about each kernel that may be known: its operator, the shapes in the operator's call, the source "
            "line, the module, its launch record, FLOPs and bytes.", str,
        ),
        Column("part", "Part", "", "known or unknown; for FLOPs and bytes, their basis: docs/costs.md.", str),
        Column("time", "Time (ns)", "ns", "Time of kernels on the device; without a GPU, the operators' own time."),
        Column("count", "Count", "count", "Kernels, or operator events; in a line dropped, the number lost."),
        Column("share", "Share (%)", "%", "Part as a share of the line's time.", float),
    ),
    view=View("Summary"),
)  # fmt: skip
def coverage(source: Source) -> pd.DataFrame:
    """One row per worker, line of the ledger and part, for kernels launched in the aggregated iterations. Lines named
    dropped give what the recording or its reading left out, as a count only, for the whole file."""
    table = ledger(source.store, spans(source))
    names = reads.worker_names(source.store)
    return table.assign(worker=table["worker"].map(names))
