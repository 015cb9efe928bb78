# SPDX-License-Identifier: Apache-2.0
"""The longest kernel of each name."""

import pandas as pd

from pyprof.reports import Column, View, report


@report(
    "longest", "Longest Kernels",
    (Column("kernel", "Kernel", "", "Its name.", str), Column("longest_ns", "Longest (ns)", "ns", "Its longest time.")),
    view=View("Kernels", sort="-longest_ns"),
)  # fmt: skip
def longest(source):
    """One row per name of a kernel."""
    rows = source.store.rows(
        """select n.name, max(e.duration_ns) from event e join kernel_name n on n.id = e.name
           where e.kind = 0 group by 1 order by 1"""
    )
    return pd.DataFrame(rows, columns=["kernel", "longest_ns"])
