# SPDX-License-Identifier: Apache-2.0
"""Memory that operators allocate, and memory in use over time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from pyprof.core.model import Bools, Column, Ints
from pyprof.facts.allocations import CPU, Allocations, allocations, pairs
from pyprof.facts.host.operator_tree import Enclosing, enclosing, operator_name
from pyprof.facts.steps.dataframes import integer
from pyprof.facts.steps.source import Source
from pyprof.reports import Column as ReportColumn
from pyprof.reports import Option, View, report
from pyprof.reports.step_time import WORKER
from pyprof.store import reads
from pyprof.store.write.operators import UNASSOCIATED

PART = 1 << 17  # rows built at a time
_OF_OPERATORS = (
    "calls", "size_increase", "self_size_increase", "allocations", "self_allocations", "allocation_bytes",
    "self_allocation_bytes", "peak",
)  # fmt: skip
_OF_CURVE = ("time_ns", "allocated", "reserved")
_OF_EVENTS = ("bytes", "allocated_ns", "released_ns", "duration_ns")
_INSIDE = "including nested operators"
_COLUMNS = (
    WORKER,
    ReportColumn("device", "Device", "", "Number of the device; empty for the CPU."),
    ReportColumn("operator", "Operator", "", "Innermost operator event around it; unassociated if there is none.", str),
    ReportColumn("calls", "Calls", "count", "Operator events in which memory of the device was allocated or freed."),
    ReportColumn("size_increase", "Size Increase (B)", "B", f"Bytes allocated minus bytes freed, {_INSIDE}."),
    ReportColumn("self_size_increase", "Self Size Increase (B)", "B", "The same without nested operators."),
    ReportColumn("allocations", "Allocation Count", "count", f"Allocations, {_INSIDE}."),
    ReportColumn("self_allocations", "Self Allocation Count", "count", "The same without nested operators."),
    ReportColumn("allocation_bytes", "Allocation Size (B)", "B", f"Bytes allocated, {_INSIDE}."),
    ReportColumn("self_allocation_bytes", "Self Allocation Size (B)", "B", "The same without nested operators."),
    ReportColumn(
        "peak", "Peak (B)", "B",
        f"Peak of bytes in use on the device after an allocation or release, {_INSIDE}; without what was allocated "
        "before the recording where Total Recorded is false.",
    ),
    ReportColumn(
        "time_ns", "Time (ns)", "ns",
        "Time of the allocation or release, since the first event of the recording.",
    ),
    ReportColumn("allocated", "Allocated (B)", "B", "Bytes in use on the device after it."),
    ReportColumn("reserved", "Reserved (B)", "B", "Bytes that the allocator holds after it; empty if not recorded."),
    ReportColumn("bytes", "Size (B)", "B", "Size of the allocation."),
    ReportColumn(
        "allocated_ns", "Allocation Time (ns)", "ns",
        "Time of the allocation; empty if before the recording.",
    ),
    ReportColumn("released_ns", "Release Time (ns)", "ns", "Time of the release; empty if not in the recording."),
    ReportColumn("duration_ns", "Duration (ns)", "ns", "From allocation to release; empty if one is unknown."),
    ReportColumn(
        "recorded", "Total Recorded", "",
        "Whether bytes in use are the allocator's own count; if not, they are the sum of all events, starting from 0 "
        "at the beginning of the recording, and too low by the bytes in use then.", bool,
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
            "What each row covers: an operator's name, a moment of the curve of memory in use, or an allocation.",
            {
                "operators": (*_OF_CURVE, *_OF_EVENTS),
                "curve": ("operator", *_OF_OPERATORS, *_OF_EVENTS),
                "allocations": (*_OF_OPERATORS, *_OF_CURVE, "recorded"),
            },
        ),
    ),
    view=View("Memory", sums="self_size_increase self_allocations self_allocation_bytes"),
)
def memory(source: Source, show: str) -> Iterator[pd.DataFrame]:
    """Memory allocated and freed in the aggregated iterations, if the recording has that (profile_memory=True of
    torch.profiler). Of operators, one row per worker, device and name, sorted by bytes allocated: the self columns
    add up to all events, totals of nested operators overlap. Of the curve, one row per event, sorted by time, with
    none left out. Of allocations, one row each, sorted by time: a release belongs to the last allocation at its
    address; without addresses nothing is paired, and each release is a row of its own."""
    yield from stretch(source, show, None, None)


def stretch(source: Source, show: str, start: int | None, end: int | None) -> Iterator[pd.DataFrame]:
    """Yield the report's rows for [start, end) ns only; None is no bound. An allocation is included if it was made or
    freed in that time."""
    texts = reads.texts(source.store)
    workers = reads.worker_names(source.store)
    any_rows = False
    for recorded in allocations(source):
        selected = recorded._replace(inside=recorded.inside & within(recorded.time, start, end))
        if show == "curve":
            table = _curve(selected)
        else:
            at = enclosing(source.activity(selected.worker), texts, selected.thread, selected.time)
            table = _operators(selected, at, texts) if show == "operators" else _allocations(selected, at, texts)
        device = None if selected.device == CPU else selected.device
        table = table.assign(worker=workers[selected.worker], device=device, recorded=selected.recorded)
        for low in range(0, len(table), PART):
            any_rows = True
            yield _complete(table.iloc[low : low + PART])
    if not any_rows:
        yield _complete(pd.DataFrame())


def _complete(table: pd.DataFrame) -> pd.DataFrame:
    """Add the columns of other choices, which are hidden."""
    return table.reindex(columns=[column.key for column in _COLUMNS])


def within(time: Ints, start: int | None, end: int | None) -> Bools:
    """Return a mask of the times in [start, end).

    >>> within(np.array([1, 2, 3]), 2, None).tolist()
    [False, True, True]
    """
    out = np.ones(len(time), bool)
    if start is not None:
        out &= time >= start
    if end is not None:
        out &= time < end
    return out


def _curve(events: Allocations) -> pd.DataFrame:
    """Return the curve of memory in use, one row per event."""
    rows = np.flatnonzero(events.inside)
    return pd.DataFrame({
        "time_ns": events.time[rows], "allocated": events.allocated[rows],
        "reserved": integer(events.reserved.take(rows)),
    })  # fmt: skip


def _operators(events: Allocations, at: Enclosing, texts: dict[int, str]) -> pd.DataFrame:
    """Return sums by the operator's name."""
    selected = np.flatnonzero(events.inside)
    place, size = at.at[selected], events.bytes[selected]
    in_operator = place >= 0
    own: dict[str, Ints] = {}
    values = {"events": np.ones_like(size), "size_increase": size, "allocations": (size > 0).astype(np.int64),
              "allocation_bytes": np.maximum(size, 0)}  # fmt: skip
    for name, value in values.items():
        own[name] = np.zeros(len(at.text), np.int64)
        np.add.at(own[name], place[in_operator], value[in_operator])
    peak = np.full(len(at.text), np.iinfo(np.int64).min)
    np.maximum.at(peak, place[in_operator], events.allocated[selected][in_operator])
    total = {name: at.inclusive(value) for name, value in own.items()}
    peak = at.inclusive(peak, np.maximum)
    active = np.flatnonzero(total["events"])
    columns: dict[str, Any] = {"operator": _named(at.text[active], texts), "calls": 1, "peak": peak[active]}
    for name in ("size_increase", "allocations", "allocation_bytes"):
        columns |= {name: total[name][active], f"self_{name}": own[name][active]}
    rows = pd.DataFrame(columns)
    sums = dict.fromkeys([key for key in _OF_OPERATORS if key != "peak"], "sum") | {"peak": "max"}
    table = rows.groupby("operator", sort=True).agg(sums).reset_index().astype({"calls": "Int64"})
    if not in_operator.all():
        outside: dict[str, Any] = {
            "operator": UNASSOCIATED,
            "calls": pd.NA,
            "peak": events.allocated[selected][~in_operator].max(),
        }
        for name in ("size_increase", "allocations", "allocation_bytes"):
            outside[name] = outside[f"self_{name}"] = int(values[name][~in_operator].sum())
        table = pd.concat([table, pd.DataFrame([outside]).astype({"calls": "Int64"})], ignore_index=True)
    return table.sort_values(
        ["self_allocation_bytes", "operator"], ascending=[False, True], kind="stable", ignore_index=True
    )


def _allocations(events: Allocations, at: Enclosing, texts: dict[int, str]) -> pd.DataFrame:
    """Return the allocations that were made or freed in the aggregated iterations."""
    allocated, freed = pairs(events)
    of = np.where(allocated >= 0, allocated, freed)
    selected = events.inside[of] | ((freed >= 0) & events.inside[freed])
    allocated, freed, of = allocated[selected], freed[selected], of[selected]
    operator = at.at[of]
    names = np.full(len(of), UNASSOCIATED, object)
    in_operator = operator >= 0
    names[in_operator] = _named(at.text[operator[in_operator]], texts)
    start, end = (Column(events.time[place], place >= 0) for place in (allocated, freed))
    both = Column(end.values - start.values, start.mask() & end.mask())
    times = {"allocated_ns": start, "released_ns": end, "duration_ns": both}
    return pd.DataFrame(
        {"operator": names, "bytes": np.abs(events.bytes[of]), **{key: integer(value) for key, value in times.items()}}
    )


def _named(text: Ints, texts: dict[int, str]) -> Any:
    """Return the names of operators from the texts of their events, computed once per text."""
    codes, used = pd.factorize(text)
    names = np.array([operator_name(texts[code]) for code in used.tolist()] or [""], object)
    return names[codes]
