# SPDX-License-Identifier: Apache-2.0
"""Operators added up by type of operation, as "linear", however the call spells it."""

from __future__ import annotations

import pandas as pd

from pyprof.facts.steps.source import Source
from pyprof.measures.queries import SELECTED, SPREADS, clear_unknown, frame, spreads
from pyprof.reports import Column, View, figure, report, spread
from pyprof.reports.detail import TC_UNKNOWN
from pyprof.store.kinds import IS_KERNEL


@report(
    "op_type",
    "Op Type Summary Report",
    (
        Column("type", "Op Type", "", "Kind of operation, independent of how the call spells it.", str),
        Column("ops", "# Ops", "count", "Operators of the type: places in the model, directions and shapes."),
        figure("calls", heading="# Calls"),
        *(column for name in SPREADS for column in spread(name)),
        figure("tc", extra=True),
        TC_UNKNOWN,
    ),
    of_summary=True,
    view=View("Operators", sort="-gpu", sums="ops calls cpu gpu overhead idle tc tc_unknown"),
)
def op_type(source: Source) -> pd.DataFrame:
    """One row per type of operation, sorted by GPU time. What is outside all operators has types of its own, so that
    the columns add up to the totals of the summary."""
    return clear_unknown(
        source,
        frame(
            source,
            f"""with unknown as (
                    select o.type, sum(s.gpu_ns) as time_ns from op_kernel_stat s join operator o on o.id = s.operator
                    where {SELECTED} and s.tc = 3 and s.{IS_KERNEL} group by o.type)
                select o.type, count(distinct o.id) as ops, sum(s.calls) as calls, sum(s.tc_ns) as tc,
                       coalesce(max(unknown.time_ns), 0) as tc_unknown, {spreads()}
                from op_stat s
                join operator o on o.id = s.operator left join unknown on unknown.type = o.type
                where {SELECTED}
                group by o.type
                order by gpu desc, cpu desc, o.type""",
        ),
    )
