# SPDX-License-Identifier: Apache-2.0
"""Operators that could cut a run into iterations."""

from __future__ import annotations

from pyprof.facts.steps.source import Source
from pyprof.measures.queries import SELECTED, total
from pyprof.metrics import FIGURES
from pyprof.reports import Column
from pyprof.views.column_table import Frame, from_rows

COLUMNS = (
    Column("id", "Operator", "", "Number of the operator."),
    Column("op_id", "Op ID", "", "Type and number of the operator.", str),
    Column("name", "Op Name", "", "Path in the model.", str),
    Column("type", "Op Type", "", "Kind of operation.", str),
    Column("direction", "Direction", "", "fprop or bprop.", str),
    Column("calls", "Calls", "count", FIGURES["calls"].text),
    Column("gpu", "GPU Time", "ns", FIGURES["gpu"].text),
    Column("cpu", "CPU Time", "ns", FIGURES["cpu"].text),
    Column("per_iteration", "Calls per Iteration", "", "Calls per iteration and worker.", float),
    Column("per_step", "Once per Iteration", "", "Whether every worker calls it once in each iteration.", bool),
)


def key_operators(source: Source) -> Frame:
    """Return one row per operator that ran in the aggregated iterations; those that run once in each come first."""
    window = source.aggregation
    count = window.last - window.first + 1
    workers = max(len(source.window.workers), 1)
    rows = source.store.rows(
        f"""select o.id, o.op_id, o.name, o.type, case o.direction when 0 then 'fprop' when 1 then 'bprop' end,
                   sum(s.calls), sum(s.gpu_ns), {total("cpu")}, sum(s.calls) * 1.0 / :count, sum(s.calls) = :count
            from op_stat s join operator o on o.id = s.operator where {SELECTED} and o.unassociated = 0
            group by o.id order by sum(s.calls) = :count desc, sum(s.gpu_ns) desc, o.id""",
        {"aggregation": window.id, "worker": source.worker, "count": count * workers},
    )
    return from_rows(rows, COLUMNS)
