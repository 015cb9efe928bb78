# SPDX-License-Identifier: Apache-2.0
"""Operators by type."""

from __future__ import annotations

import pandas as pd

from pyprof.db.aggregate import frame
from pyprof.db.source import Source
from pyprof.reports import Column, figure, report, spread

_SPREADS = ("cpu", "gpu", "overhead", "idle")


@report(
    "op_type",
    "Op Type Summary Report",
    (
        Column("type", "Op Type", "", "Kind of operation, however the call spells it.", str),
        Column(
            "ops", "No. Ops", "count", "Operators of the type: places in the model, directions and shapes."
        ),
        figure("calls", heading="No. Calls"),
        *(column for name in _SPREADS for column in spread(name)),
    ),
)
def op_type(source: Source) -> pd.DataFrame:
    """One row per type of operation, by GPU time. What is outside every operator has types of its own, so that the
    columns add up to the totals of the summary."""
    spreads = ", ".join(
        f"sum(s.{n}) as {n}, sum(s.{n}) * 1.0 / sum(s.calls) as {n}_avg, min(s.{n}_min) as {n}_min, "
        f"max(s.{n}_max) as {n}_max"
        for n in _SPREADS
    )
    return frame(
        source.store,
        f"""select o.type, count(distinct o.id) as ops, sum(s.calls) as calls, {spreads}
            from op_stat s
            join operator o on o.id = s.operator
            where s.aggregation = ? and (? is null or s.worker = ?)
            group by o.type
            order by gpu desc, cpu desc, o.type""",
        (source.aggregation.id, source.worker, source.worker),
    )
