# SPDX-License-Identifier: Apache-2.0
"""Memory that operators allocate, and how much was in use when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from pyprof.analysis.allocations import CPU, Allocations, allocations, pairs
from pyprof.analysis.dataframes import integer
from pyprof.analysis.operator_tree import Places, operator_name, places
from pyprof.analysis.source import Source
from pyprof.model import Bools, Column, Ints
from pyprof.reports import Column as Shown
from pyprof.reports import Option, View, report
from pyprof.reports.step_time import WORKER
from pyprof.store.write.operators import UNASSOCIATED

PART = 1 << 17  # rows made at a time
_OF_OPERATORS = (
    "calls", "size_increase", "self_size_increase", "allocations", "self_allocations", "allocation_bytes",
    "self_allocation_bytes", "peak",
)  # fmt: skip
_OF_CURVE = ("time_ns", "allocated", "reserved")
_OF_EVENTS = ("bytes", "allocated_ns", "released_ns", "duration_ns")
_INSIDE = "those in operators inside it included"
_COLUMNS = (
    WORKER,
    Shown("device", "Device", "", "Number of the device; empty for the CPU."),
    Shown("operator", "Operator", "", "Innermost operator event around it; unassociated: none.", str),
    Shown("calls", "Calls", "count", "Operator events in which memory of the device was allocated or freed."),
    Shown("size_increase", "Size Increase (B)", "B", f"Bytes allocated less bytes freed, {_INSIDE}."),
    Shown("self_size_increase", "Self Size Increase (B)", "B", "The same without operators inside it."),
    Shown("allocations", "Allocation Count", "count", f"Allocations, {_INSIDE}."),
    Shown("self_allocations", "Self Allocation Count", "count", "The same without operators inside it."),
    Shown("allocation_bytes", "Allocation Size (B)", "B", f"Bytes allocated, {_INSIDE}."),
    Shown("self_allocation_bytes", "Self Allocation Size (B)", "B", "The same without operators inside it."),
    Shown("peak", "Peak (B)", "B", f"Most bytes in use on the device after an allocation or release, {_INSIDE}."),
    Shown("time_ns", "Time (ns)", "ns", "When memory was allocated or freed, from the recording's first event."),
    Shown("allocated", "Allocated (B)", "B", "Bytes in use on the device after that."),
    Shown("reserved", "Reserved (B)", "B", "Bytes that the allocator holds after that; empty if not recorded."),
    Shown("bytes", "Size (B)", "B", "Size of the allocation."),
    Shown("allocated_ns", "Allocation Time (ns)", "ns", "When it was made; empty: before the recording."),
    Shown("released_ns", "Release Time (ns)", "ns", "When it was freed; empty: not in the recording."),
    Shown("duration_ns", "Duration (ns)", "ns", "From allocation to release; empty if one is unknown."),
    Shown(
        "recorded", "Total Recorded", "",
        "Whether bytes in use are the allocator's own count; if not, they are the sum of all events from 0 at the "
        "beginning of the recording: too small by what was in use then.", bool,
    ),
)  # fmt: skip


@report(
    "memory",
    "Memory",
    _COLUMNS,
    needs="allocations: pyprof run --memory, or profile_memory=True in torch.profiler",
    options=(
        Option(
            "show",
            "What a row is of: an operator's name, a moment of the curve of memory in use, or an allocation.",
            {
                "operators": (*_OF_CURVE, *_OF_EVENTS),
                "curve": ("operator", *_OF_OPERATORS, *_OF_EVENTS),
                "allocations": (*_OF_OPERATORS, *_OF_CURVE, "recorded"),
            },
        ),
    ),
    view=View("Memory"),
)
def memory(source: Source, show: str) -> Iterator[pd.DataFrame]:
    """What allocators gave and took back in the aggregated iterations, where the recording has that
    (profile_memory=True of torch.profiler). Of operators one row per worker, device and name, by bytes allocated: the
    self columns add up to all events, totals of operators inside each other overlap. Of the curve one row per event,
    by time, none left out. Of allocations one row each, by time: what was taken back at an address is what was given
    there before; without addresses nothing is paired, and each release is a row of its own."""
    yield from stretch(source, show, None, None)


def stretch(source: Source, show: str, start: int | None, end: int | None) -> Iterator[pd.DataFrame]:
    """The report's rows of what happened in [start, end) ns alone; None is no bound. An allocation is there if it was
    made or freed then."""
    texts = dict(source.store.rows("select id, text from string"))
    workers = dict(source.store.rows("select id, name from worker"))
    made = False
    for everything in allocations(source):
        found = everything._replace(inside=everything.inside & within(everything.time, start, end))
        if show == "curve":
            table = _curve(found)
        else:
            at = places(source.activity(found.worker), texts, found.thread, found.time)
            table = _operators(found, at, texts) if show == "operators" else _allocations(found, at, texts)
        device = None if found.device == CPU else found.device
        table = table.assign(worker=workers[found.worker], device=device, recorded=found.recorded)
        for low in range(0, len(table), PART):
            made = True
            yield _complete(table.iloc[low : low + PART])
    if not made:
        yield _complete(pd.DataFrame())


def _complete(table: pd.DataFrame) -> pd.DataFrame:
    """With the columns of other choices, which are not shown."""
    return table.reindex(columns=[column.key for column in _COLUMNS])


def within(time: Ints, start: int | None, end: int | None) -> Bools:
    """Which times are in [start, end).

    >>> within(np.array([1, 2, 3]), 2, None).tolist()
    [False, True, True]
    """
    out = np.ones(len(time), bool)
    if start is not None:
        out &= time >= start
    if end is not None:
        out &= time < end
    return out


def _curve(found: Allocations) -> pd.DataFrame:
    here = np.flatnonzero(found.inside)
    return pd.DataFrame({
        "time_ns": found.time[here], "allocated": found.allocated[here],
        "reserved": integer(found.reserved.take(here)),
    })  # fmt: skip


def _operators(found: Allocations, at: Places, texts: dict[int, str]) -> pd.DataFrame:
    """Sums by operator's name."""
    here = np.flatnonzero(found.inside)
    place, size = at.at[here], found.bytes[here]
    some = place >= 0
    own: dict[str, Ints] = {}
    values = {"events": np.ones_like(size), "size_increase": size, "allocations": (size > 0).astype(np.int64),
              "allocation_bytes": np.maximum(size, 0)}  # fmt: skip
    for name, value in values.items():
        own[name] = np.zeros(len(at.text), np.int64)
        np.add.at(own[name], place[some], value[some])
    peak = np.full(len(at.text), np.iinfo(np.int64).min)
    np.maximum.at(peak, place[some], found.allocated[here][some])
    total = {name: at.inclusive(value) for name, value in own.items()}
    peak = at.inclusive(peak, np.maximum)
    kept = np.flatnonzero(total["events"])
    columns: dict[str, Any] = {"operator": _named(at.text[kept], texts), "calls": 1, "peak": peak[kept]}
    for name in ("size_increase", "allocations", "allocation_bytes"):
        columns |= {name: total[name][kept], f"self_{name}": own[name][kept]}
    rows = pd.DataFrame(columns)
    sums = dict.fromkeys([key for key in _OF_OPERATORS if key != "peak"], "sum") | {"peak": "max"}
    table = rows.groupby("operator", sort=True).agg(sums).reset_index().astype({"calls": "Int64"})
    if not some.all():
        outside: dict[str, Any] = {
            "operator": UNASSOCIATED,
            "calls": pd.NA,
            "peak": found.allocated[here][~some].max(),
        }
        for name in ("size_increase", "allocations", "allocation_bytes"):
            outside[name] = outside[f"self_{name}"] = int(values[name][~some].sum())
        table = pd.concat([table, pd.DataFrame([outside]).astype({"calls": "Int64"})], ignore_index=True)
    return table.sort_values(
        ["self_allocation_bytes", "operator"], ascending=[False, True], kind="stable", ignore_index=True
    )


def _allocations(found: Allocations, at: Places, texts: dict[int, str]) -> pd.DataFrame:
    """Each allocation that was made or freed in the aggregated iterations."""
    given, freed = pairs(found)
    of = np.where(given >= 0, given, freed)
    kept = found.inside[of] | ((freed >= 0) & found.inside[freed])
    given, freed, of = given[kept], freed[kept], of[kept]
    operator = at.at[of]
    names = np.full(len(of), UNASSOCIATED, object)
    some = operator >= 0
    names[some] = _named(at.text[operator[some]], texts)
    start, end = (Column(found.time[place], place >= 0) for place in (given, freed))
    both = Column(end.values - start.values, start.mask() & end.mask())
    times = {"allocated_ns": start, "released_ns": end, "duration_ns": both}
    return pd.DataFrame({
        "operator": names, "bytes": np.abs(found.bytes[of]), **{key: integer(value) for key, value in times.items()}
    })  # fmt: skip


def _named(text: Ints, texts: dict[int, str]) -> Any:
    """Names of operators by the texts of their events, each worked out once."""
    codes, used = pd.factorize(text)
    names = np.array([operator_name(texts[one]) for one in used.tolist()] or [""], object)
    return names[codes]
