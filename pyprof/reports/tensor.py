# SPDX-License-Identifier: Apache-2.0
"""Operators that tensor cores could do, and whether they did."""

from __future__ import annotations

import pandas as pd

from pyprof.analysis.source import Source
from pyprof.metrics import METRICS, share
from pyprof.reports import Column, View, figure, report
from pyprof.reports.detail import DIRECTION, NAME, OP_ID, TYPE, USING
from pyprof.reports.operator_queries import MINE, frame, operators


def _names(key: str, heading: str, which: str) -> Column:
    return Column(key, heading, "", f"Short names of its kernels that {which}, in alphabetical order.", str)


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
            "other", "Non-TC GPU Time (ns)", "ns",
            "Sum of the times of its other kernels: kernel time less TC GPU time. Copies and sets are in neither.",
        ),
        Column("utilization", "TC Utilization (%)", "%", METRICS["tc_utilization"].text, float),
        figure("kernels", heading="Total Kernel Count"),
        figure("tc_kernels", heading="TC Kernel Count"),
        _names("tc_names", "TC Kernel Names", "used tensor cores"),
        Column("other_kernels", "Non-TC Kernel Count", "count", "Its other kernels."),
        _names("other_names", "Non-TC Kernel Names", "did not, or whose name does not tell"),
        figure("kernel", extra=True),
    ),
    suffix="tensor_core",
    view=View("Operators", sort="-gpu", bar="gpu"),
)  # fmt: skip
def tensor(source: Source) -> pd.DataFrame:
    """One row per operator that tensor cores could do, whatever its type, by GPU time. GPU time is that of the detail
    report; the two parts beside it are sums of kernels, without copies."""
    table = operators(source)
    table = table[table["eligible"] == 1].reset_index(drop=True)
    kernels = frame(
        source,
        f"""select s.operator, k.short_name as name, s.tc = 1 as tc from op_kernel_stat s
            join kernel_name k on k.id = s.name where {MINE} and s.kind = 0 group by 1, 2, 3 order by 1, 3, 2""",
    )
    names: dict[tuple[int, int], list[str]] = {}
    for operator, name, tc in kernels.itertuples(index=False):
        names.setdefault((operator, tc), []).append(name)
    for key, tc in (("tc_names", 1), ("other_names", 0)):
        table[key] = [", ".join(names.get((operator, tc), [])) or None for operator in table["id"]]
    known = source.gpu
    table["other"] = table["kernel"] - table["tc"] if known else None
    table["other_kernels"] = table["kernels"] - table["tc_kernels"] if known else None
    table["utilization"] = [share(t, k) if known else None for t, k in zip(table["tc"], table["kernel"])]
    return table
