# SPDX-License-Identifier: Apache-2.0
"""Time by source line of the program."""

from __future__ import annotations

from typing import Any

import pandas as pd

from pyprof.facts.steps.source import Source
from pyprof.measures.queries import operators
from pyprof.reports import Column, View, report

_HOST = "Time of executions on the CPU with their API calls, minus that of executions inside them"
_DEVICE = "Time with work on the device, summed over executions"
_SELF = "of operators that this line itself calls"
_TOTAL = "of these and of operators called from functions that it calls"


@report(
    "source_line",
    "Source Lines",
    (
        Column("line", "Source Line", "", "File and line; empty for operators without a call stack.", str),
        Column("operators", "Operators", "count", "Operators that the line itself calls: docs/columns.md."),
        Column("calls", "Operator Calls", "count", "Executions of these, forward and backward."),
        Column("kernels", "Kernels", "count", "Kernels that they launched; copies and sets do not count."),
        Column("device_self_ns", "Device Busy Self (ns)", "ns", f"{_DEVICE}; {_SELF}."),
        Column("device_total_ns", "Device Busy Total (ns)", "ns", f"{_DEVICE}; {_TOTAL}."),
        Column("host_self_ns", "Host Self incl. API (ns)", "ns", f"{_HOST}; {_SELF}."),
        Column("host_total_ns", "Host Total (ns)", "ns", f"{_HOST}; {_TOTAL}."),
    ),
    needs="call stacks: pyprof.init(), or with_stack=True in torch.profiler",
    of_summary=True,
    view=View(
        "Operators",
        sort="-device_self_ns",
        sums="operators calls kernels device_self_ns host_self_ns",
        nested={"device_total_ns": "device_self_ns", "host_total_ns": "host_self_ns"},
    ),
)
def source_line(source: Source) -> pd.DataFrame:
    """One row per line of the call stacks, sorted by device self time, then by host self time. A backward operation
    counts for the line of its forward. Self times add up to the total of the detail report; operators without a call
    stack are the row without a line. A line that is several times in a stack counts once. Without a GPU, device times
    are empty."""
    rows = operators(source)
    own = {
        "operators": pd.Series(1, rows.index), "calls": rows["calls"], "kernels": rows["kernels"],
        "device": rows["gpu"].fillna(0), "host": rows["cpu"].fillna(0), "timed": rows["timed"],
    }  # fmt: skip
    by_stack = pd.DataFrame(own).astype("int64").groupby(rows["stack"].fillna(""), sort=False).sum()
    direct: dict[str, Any] = {}
    total: dict[str, Any] = {}
    for stack, values in zip(by_stack.index, by_stack.to_numpy()):
        lines = stack.split("\n")
        direct[lines[-1]] = direct.get(lines[-1], 0) + values
        for line in dict.fromkeys(lines):
            total[line] = total.get(line, 0) + values
    table = pd.DataFrame(
        [(line or None, *direct.get(line, by_stack.to_numpy()[0] * 0), *total[line][3:]) for line in total],
        columns=["line", *own, "device_total", "host_total", "timed_total"],
    )
    out = table[["line", "operators", "calls", "kernels"]].copy()
    for name in ("self", "total"):
        end = "" if name == "self" else "_total"
        out[f"device_{name}_ns"] = table[f"device{end}"] if source.gpu else None
        unknown = (table[f"timed{end}"] == 0) & (table["operators"] > 0)  # of replays the CPU time is not known
        out[f"host_{name}_ns"] = table[f"host{end}"].astype("Int64").mask(unknown)
    keys = [key for key in ("device_self_ns", "host_self_ns") if source.gpu or key != "device_self_ns"]
    return out.sort_values(keys, ascending=False, kind="stable", ignore_index=True)
