# SPDX-License-Identifier: Apache-2.0
"""Operators that tensor cores could do, and their use of tensor cores."""

from __future__ import annotations

import pandas as pd

from pyprof.facts.steps.source import Source
from pyprof.measures.queries import SELECTED, frame, operators
from pyprof.metrics import METRICS, share
from pyprof.reports import Column, View, figure, report
from pyprof.reports.detail import DIRECTION, NAME, OP_ID, TYPE, USING
from pyprof.store.kinds import IS_KERNEL


def _names(key: str, heading: str, condition: str) -> Column:
    """Return a column with names of kernels."""
    return Column(key, heading, "", f"Short names of its kernels that {condition}, in alphabetical order.", str)


@report(
    "tensor",
    "Tensor Core Report",
    (
        OP_ID,
        NAME,
        DIRECTION,
        TYPE,
        USING._replace(heading="Uses TC"),
        figure("gpu", heading="Total GPU Time (ns)"),
        figure("tc", heading="TC GPU Time (ns)"),
        Column(
            "other",
            "Non-TC GPU Time (ns)",
            "ns",
            "Sum of the times of its other kernels: kernel time minus TC GPU time. Neither includes copies and sets.",
        ),
        Column("utilization", "TC Utilization (%)", "%", METRICS["tc_utilization"].text, float),
        figure("kernels", heading="Total Kernel Count"),
        figure("tc_kernels", heading="TC Kernel Count"),
        _names("tc_names", "TC Kernel Names", "used tensor cores"),
        Column("other_kernels", "Non-TC Kernel Count", "count", "Number of its other kernels."),
        _names("other_names", "Non-TC Kernel Names", "did not, or whose name does not show it"),
        figure("kernel", extra=True),
    ),
    suffix="tensor_core",
    of_summary=True,
    view=View("Operators", sort="-gpu", sums="gpu tc other kernels tc_kernels other_kernels kernel"),
)
def tensor(source: Source) -> pd.DataFrame:
    """One row per operator that tensor cores could do, whatever its type, sorted by GPU time. GPU time is that of the
    detail report; the two parts beside it are sums over kernels, without copies."""
    table = operators(source)
    table = table[table["eligible"] == 1].reset_index(drop=True)
    kernels = frame(
        source,
        f"""select s.operator, k.short_name as name, s.tc = 1 as tc from op_kernel_stat s
            join kernel_name k on k.id = s.name where {SELECTED} and s.{IS_KERNEL} group by 1, 2, 3 order by 1, 3, 2""",
    )
    names: dict[tuple[int, int], list[str]] = {}
    for operator, name, tc in kernels.itertuples(index=False):
        names.setdefault((operator, tc), []).append(name)
    for key, tc in (("tc_names", 1), ("other_names", 0)):
        table[key] = [", ".join(names.get((operator, tc), [])) or None for operator in table["id"]]
    has_gpu = source.gpu
    table["other"] = table["kernel"] - table["tc"] if has_gpu else None
    table["other_kernels"] = table["kernels"] - table["tc_kernels"] if has_gpu else None
    table["utilization"] = [share(t, k) if has_gpu else None for t, k in zip(table["tc"], table["kernel"])]
    return table
