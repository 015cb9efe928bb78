# SPDX-License-Identifier: Apache-2.0
"""Kernels of every operator."""

from __future__ import annotations

import pandas as pd

from pyprof.core.model import KINDS
from pyprof.facts.steps.source import Source
from pyprof.measures import efficiency
from pyprof.measures.queries import SELECTED, clear_unknown, frame
from pyprof.reports import Column, View, report, spread
from pyprof.reports.detail import DIRECTION, NAME, OP_ID
from pyprof.store.kinds import IS_KERNEL, ON_CPU

KIND = Column("kind", "Kind", "", "kernel, memcpy, memset, or operator: an event on the CPU.", str, True)


@report(
    "kernel",
    "Kernel Report",
    (
        Column("kernel", "Kernel Name", "", "Name without arguments and template parameters.", str),
        OP_ID,
        NAME,
        DIRECTION,
        Column(
            "uses_tc",
            "Uses TC",
            "",
            "Whether it used tensor cores; empty if the name does not show it.",
            bool,
        ),
        *spread("gpu", "kernel_gpu", "", "events"),
        *spread("api", "kernel_api", "", "events with a launch record"),
        Column("calls", "Calls", "count", "Events on the device.", int, True),
        KIND,
        *efficiency.columns("these kernels", extra=True),
    ),
    of_summary=True,
    view=View("Kernels", sort="-gpu", sums="gpu api calls"),
)
def kernel(source: Source) -> pd.DataFrame:
    """One row per operator and short name of a kernel, copy or set, sorted by GPU time."""
    table = frame(
        source,
        f"""select s.operator, k.short_name as kernel, o.op_id, o.name, o.direction, s.kind,
                   case when s.{ON_CPU} then null when max(s.tc = 1) then 1
                        when max(s.tc = 3) and s.{IS_KERNEL} then null else 0 end as uses_tc,
                   sum(s.gpu_ns) as gpu, sum(s.gpu_ns) * 1.0 / sum(s.calls) as gpu_avg,
                   min(s.gpu_min_ns) as gpu_min, max(s.gpu_max_ns) as gpu_max, sum(s.calls) as calls,
                   case when sum(s.launched) then sum(s.api_ns) end as api, min(s.api_min_ns) as api_min,
                   sum(s.api_ns) * 1.0 / nullif(sum(s.launched), 0) as api_avg, max(s.api_max_ns) as api_max
            from op_kernel_stat s join operator o on o.id = s.operator join kernel_name k on k.id = s.name
            where {SELECTED}
            group by s.operator, k.short_name, s.kind
            order by gpu desc, o.id, k.short_name""",
    )
    keys = ["operator", "kernel", "kind"]
    work = efficiency.of_operators(source, ("s.operator", "k.short_name", "s.kind")).rename_axis(keys)
    table = table.join(work, on=keys)
    table["kind"] = [KINDS[code] for code in table["kind"]]
    return clear_unknown(source, efficiency.explained(source, table))
