# SPDX-License-Identifier: Apache-2.0
"""Time by category of work: matrix products, attention, elementwise, copies ..."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof import intervals
from pyprof.analysis.categories import of_kernel, of_operator
from pyprof.analysis.source import Source
from pyprof.model import KERNEL, MEMCPY, MEMSET, OPERATOR, Ints
from pyprof.model import Column as Values
from pyprof.reports import Column, Option, View, report
from pyprof.reports.operator_queries import codes, launched
from pyprof.store.ids import worker_of

_OTHER = "other"
_CPU = "operator"  # kind of the "kernels" of a recording without a GPU


@report(
    "categories",
    "Categories of Work",
    (
        Column("category", "Category", "", "Category of work; docs/reports.md lists them.", str),
        Column("kind", "Kind", "", "Kind of kernel, from its name; without a GPU, operator.", str),
        Column("operator", "Operator", "", "Innermost operator that launched it; empty if none did.", str),
        Column("calls", "Calls", "count", "Kernels, copies and sets; operator events without a GPU."),
        Column("time_ns", "Time (ns)", "ns", "Sum of their times on the device."),
        Column("share", "Share (%)", "%", "Time as a share of the time of all rows.", float),
        Column(
            "busy_ns", "Busy (ns)", "ns",
            "Time in which at least one of them ran, summed over workers and devices. Rows may overlap in time.",
        ),
        Column("flops", "FLOPs", "count", "Sum of the known FLOPs; empty if none are known."),
        Column("flops_unknown_ns", "FLOPs Unknown (ns)", "ns", "Time of calls with unknown FLOPs."),
        Column(
            "bytes", "Bytes (B)", "B",
            "Sum of the known bytes: for kernels the minimum that they need, for copies and sets the bytes moved.",
        ),
        Column("bytes_unknown_ns", "Bytes Unknown (ns)", "ns", "Time of calls with unknown bytes."),
        Column("tc_ns", "With Tensor Cores (ns)", "ns", "Time of kernels that used tensor cores."),
        Column(
            "no_tc_ns", "Without Tensor Cores (ns)", "ns",
            "Time of those that did not; the three columns add up to the time.",
        ),
        Column("tc_unknown_ns", "Tensor Cores Unknown (ns)", "ns", "Time of kernels whose names do not show it."),
    ),
    options=(
        Option(
            "group_by",
            "What each row covers: a category; a category and kind of kernel; or a category, kind and operator.",
            {"category": ("kind", "operator"), "kind": ("operator",), "operator": ()},
        ),
    ),
    view=View("Operators", sort="-time_ns", sums="calls time_ns flops bytes tc_ns no_tc_ns tc_unknown_ns"),
)  # fmt: skip
def categories(source: Source, group_by: str) -> pd.DataFrame:
    """One row per category of work launched in the aggregated iterations, sorted by time; --group-by=kind and
    --group-by=operator split each category. The kind of a kernel decides its category, or the operator that launched
    it if the kernel's name does not tell. So the parts of one call are in several categories, as the copies in a linear
    layer; reports by operator or type have the call as a whole. Values of several workers and devices are
    summed. Without a GPU, times are the operators' own time, and busy time and tensor core columns are empty."""
    names = (
        "kind",
        "name",
        "site",
        "device",
        "start_ns",
        "duration_ns",
        "tc",
        "flops",
        "bytes",
        "copied_bytes",
    )
    event = launched(source, names, (KERNEL, MEMCPY, MEMSET) if source.gpu else (OPERATOR,))
    moves = np.isin(event["kind"].values, (MEMCPY, MEMSET))
    of_copies, of_others = event.pop("copied_bytes"), event["bytes"]
    event["bytes"] = Values(
        np.where(moves, of_copies.values, of_others.values),
        np.where(moves, of_copies.mask(), of_others.mask()),
    )
    code, keys = _keys(source, event["name"].values, codes(event["site"]), group_by)
    duration, tc = event["duration_ns"].values, event["tc"]
    sums: dict[str, Any] = {"calls": np.ones(len(code), np.int64), "time_ns": duration}
    for name in ("flops", "bytes"):
        known = event[name].mask()
        sums |= {name: np.where(known, event[name].values, 0), f"{name}_of": known.astype(np.int64)}
        sums[f"{name}_unknown_ns"] = np.where(known, 0, duration)
    used = tc.mask() & (tc.values == 1)
    sums["tc_ns"], sums["tc_unknown_ns"] = np.where(used, duration, 0), np.where(tc.mask(), 0, duration)
    table = keys.join(pd.DataFrame(sums).groupby(code).sum())
    table["busy_ns"] = _busy(event, code, len(table))
    table["no_tc_ns"] = table["time_ns"] - table["tc_ns"] - table["tc_unknown_ns"]
    table["share"] = 100 * table["time_ns"] / max(int(table["time_ns"].sum()), 1)
    for name in ("flops", "bytes"):
        table[name] = table[name].astype("Int64").where(table.pop(f"{name}_of") > 0)
    if not source.gpu:
        table = table.assign(busy_ns=None, tc_ns=None, no_tc_ns=None, tc_unknown_ns=None)
    return table.sort_values("time_ns", ascending=False, kind="stable", ignore_index=True)


def _keys(source: Source, name: Ints, site: Ints, group_by: str) -> tuple[Ints, pd.DataFrame]:
    """Return the row number of each event, and a table of each row's category, kind and operator."""
    names = {
        number: (text, kind)
        for number, text, kind in source.store.rows("select id, name, kind from kernel_name")
    }
    sites = {number: (mod, op) for number, mod, op in source.store.rows("select id, mod, op from site")}
    first = len(sites) + 1
    pair, pairs = pd.factorize(name * first + site + 1)
    rows: list[dict[str, str | None]] = []
    for number in pairs.tolist():
        text, kind = names[number // first]
        mod, op = sites.get(number % first - 1, (None, None))
        rows.append({"category": _category(text, kind, mod, op), "kind": kind, "operator": op})
    keys = ["category", "kind", "operator"][: ("category", "kind", "operator").index(group_by) + 1]
    table = pd.DataFrame(rows, columns=["category", "kind", "operator"])
    of_pair = table.groupby(keys, sort=True, dropna=False).ngroup().to_numpy()
    return of_pair[pair], table.assign(row=of_pair).drop_duplicates("row").set_index("row").sort_index()


def _category(name: str, kind: str, mod: str | None, op: str | None) -> str:
    own = of_operator("aten", name) if kind == _CPU else of_kernel(kind, name)
    return own or (of_operator(mod or "", op) if op else None) or _OTHER


def _busy(event: dict[str, Values], code: Ints, rows: int) -> Ints:
    """Return the length of the union of each row's events, per worker and device, summed."""
    device = np.where(event["device"].mask(), event["device"].values, -1)
    place, places = pd.factorize((worker_of(event["id"].values) << 20) + device)
    start = event["start_ns"].values
    union = intervals.union_by(
        code * len(places) + place, start, start + event["duration_ns"].values, rows * len(places)
    )
    return np.asarray(union.reshape(rows, -1).sum(axis=1)) if len(places) else np.zeros(rows, np.int64)
