# SPDX-License-Identifier: Apache-2.0
"""Time by category of work: matrix products, attention, elementwise, copies ..."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from pyprof.core.intervals import groups
from pyprof.core.model import KERNELS, MEMCPY, MEMSET, OPERATOR, Ints
from pyprof.core.model import Column as Values
from pyprof.facts.device.categories import of_kernel, of_operator
from pyprof.facts.device.partition import Union
from pyprof.facts.steps.source import Source
from pyprof.measures.queries import codes, launched_parts
from pyprof.reports import Column, Option, View, report
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
            "bytes", "Bytes Accessed (B)", "B",
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
            "by",
            "What each row covers: a category; a category and kind of kernel; or a category, kind and operator.",
            {"category": ("kind", "operator"), "kind": ("operator",), "operator": ()},
        ),
    ),
    view=View("Operators", sort="-time_ns", sums="calls time_ns flops bytes tc_ns no_tc_ns tc_unknown_ns"),
)  # fmt: skip
def categories(source: Source, by: str) -> pd.DataFrame:
    """One row per category of work launched in the aggregated iterations, sorted by time; --by=kind and
    --by=operator split each category. The kind of a kernel decides its category, or the operator that launched
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
    numbers: dict[int, int] = {}  # of kernel names with calls
    places: dict[int, int] = {}  # of devices of workers
    sums, intervals = [], []
    for event in launched_parts(source, names, (*KERNELS, MEMCPY, MEMSET) if source.gpu else (OPERATOR,)):
        pair = _numbered((event["name"].values << 32) + codes(event["site"]) + 1, numbers)
        device = _numbered((worker_of(event["id"].values) << 20) + codes(event["device"]), places)
        sums.append(_sums(event).groupby(pair).sum())
        start = event["start_ns"].values
        intervals.append((pair, device, start, start + event["duration_ns"].values))
    row, keys = _keys(source, numbers, by)
    added = pd.concat(sums)
    table = keys.join(added.groupby(row[added.index.to_numpy()]).sum())
    table["busy_ns"] = _busy(row, intervals, len(table), len(places))
    table["no_tc_ns"] = table["time_ns"] - table["tc_ns"] - table["tc_unknown_ns"]
    table["share"] = 100 * table["time_ns"] / max(int(table["time_ns"].sum()), 1)
    for name in ("flops", "bytes"):
        table[name] = table[name].astype("Int64").where(table.pop(f"{name}_of") > 0)
    if not source.gpu:
        table = table.assign(busy_ns=None, tc_ns=None, no_tc_ns=None, tc_unknown_ns=None)
    return table.sort_values("time_ns", ascending=False, kind="stable", ignore_index=True)


def _numbered(values: Ints, numbers: dict[int, int]) -> npt.NDArray[np.int32]:
    """Return a number for each value; `numbers` has those of former ones, and gets new ones."""
    code, unique = pd.factorize(values)
    return np.array([numbers.setdefault(value, len(numbers)) for value in unique.tolist()], np.int32)[code]


def _sums(event: dict[str, Values]) -> pd.DataFrame:
    """Return what is added up of each event."""
    moves = np.isin(event["kind"].values, (MEMCPY, MEMSET))
    of_copies, of_others = event["copied_bytes"], event["bytes"]
    event["bytes"] = Values(
        np.where(moves, of_copies.values, of_others.values),
        np.where(moves, of_copies.mask(), of_others.mask()),
    )
    duration, tc = event["duration_ns"].values, event["tc"]
    sums: dict[str, Any] = {"calls": np.ones(len(duration), np.int64), "time_ns": duration}
    for name in ("flops", "bytes"):
        known = event[name].mask()
        sums |= {name: np.where(known, event[name].values, 0), f"{name}_of": known.astype(np.int64)}
        sums[f"{name}_unknown_ns"] = np.where(known, 0, duration)
    used = tc.mask() & (tc.values == 1)
    sums["tc_ns"], sums["tc_unknown_ns"] = np.where(used, duration, 0), np.where(tc.mask(), 0, duration)
    return pd.DataFrame(sums)


def _keys(source: Source, pairs: Iterable[int], by: str) -> tuple[Ints, pd.DataFrame]:
    """Return the row number of each pair of a kernel's name and a call, and a table of each row's category, kind and
    operator."""
    names = {number: (text, kind) for number, text, kind in source.store.rows("select id, name, kind from kernel_name")}
    sites = {number: (mod, op) for number, mod, op in source.store.rows("select id, mod, op from site")}
    rows: list[dict[str, str | None]] = []
    for pair in pairs:
        text, kind = names[pair >> 32]
        mod, op = sites.get((pair & 0xFFFFFFFF) - 1, (None, None))
        rows.append({"category": _category(text, kind, mod, op), "kind": kind, "operator": op})
    keys = ["category", "kind", "operator"][: ("category", "kind", "operator").index(by) + 1]
    table = pd.DataFrame(rows, columns=["category", "kind", "operator"])
    row = table.groupby(keys, sort=True, dropna=False).ngroup().to_numpy()
    return row, table.assign(row=row).drop_duplicates("row").set_index("row").sort_index()


def _category(name: str, kind: str, mod: str | None, op: str | None) -> str:
    own = of_operator("aten", name) if kind == _CPU else of_kernel(kind, name)
    return own or (of_operator(mod or "", op) if op else None) or _OTHER


def _busy(
    row: Ints,
    parts: Sequence[tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], Ints, Ints]],
    rows: int,
    devices: int,
) -> Ints:
    """Return the length of the union of each row's events, per device of a worker, summed. `parts`: pair, device, start
    and end of events."""
    out = np.zeros(rows, np.int64)
    pair, device, start, end = map(np.concatenate, zip(*parts))
    for group, places in groups(row[pair] * max(devices, 1) + device):
        out[group // devices] += len(Union(start[places], end[places]))
    return out
