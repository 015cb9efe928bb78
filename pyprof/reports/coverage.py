# SPDX-License-Identifier: Apache-2.0
"""How much of the time on the device is explained."""

from __future__ import annotations

import pandas as pd

from pyprof.analysis.coverage import ledger
from pyprof.analysis.source import Source
from pyprof.reports import Column, View, report
from pyprof.reports.operator_queries import spans
from pyprof.reports.step_time import WORKER


@report(
    "coverage",
    "Coverage",
    (
        WORKER,
        Column(
            "line", "Line", "",
            "What is asked of each kernel: whether its operator, the shapes in the operator's call, the source line, "
            "the module, its launch record, FLOPs and bytes are known.", str,
        ),
        Column("part", "Part", "", "known or unknown; of FLOPs and bytes what they rest on: docs/costs.md.", str),
        Column("time", "Time (ns)", "ns", "Time of kernels on the device; without a GPU operators' own time."),
        Column("count", "Count", "count", "Kernels, or operator events; of a line dropped what was lost."),
        Column("share", "Share (%)", "%", "Part of the line's time: the parts of a line are 100 %.", float),
    ),
    view=View("Summary"),
)  # fmt: skip
def coverage(source: Source) -> pd.DataFrame:
    """One row per worker, line of the ledger and part: of kernels that were launched in the aggregated iterations.
    Lines named dropped say what the recording or its reading left out, with a count alone, of the whole file."""
    table = ledger(source.store, spans(source))
    names = dict(source.store.rows("select id, name from worker"))
    return table.assign(worker=table["worker"].map(names))
