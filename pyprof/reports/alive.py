# SPDX-License-Identifier: Apache-2.0
"""Memory that is in use at one moment: what allocated it, for how long it has been there, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.model import PHASES, Bools, Column, Ints
from pyprof.facts.allocations import CPU, Allocations, allocations, pairs, successors
from pyprof.facts.host.host_work import HostWork
from pyprof.facts.steps.dataframes import integer
from pyprof.facts.steps.source import Source
from pyprof.reports import Column as ReportColumn
from pyprof.reports import Option, View, report
from pyprof.reports.step_time import WORKER
from pyprof.store import reads
from pyprof.store.write.operators import UNASSOCIATED

BEFORE = "before the recording"
NO_RECORD = "no allocation recorded"
NO_ADDRESS = "address not recorded"
SAME, BETWEEN, NEVER, UNKNOWN = "same operator", "between operators", "never", "unknown"
_NONE = -1
_PLACE = ("operator", "module", "line", "shapes", "phase", "until")
_TIMES = ("allocated_ns", "released_ns")
_KEYS = {
    "operator": ("operator",), "module": ("module",), "line": ("line",), "shape": ("operator", "shapes"),
    "phase": ("phase", "until"), "allocation": (*_PLACE, *_TIMES),
}  # fmt: skip
_COLUMNS = (
    WORKER,
    ReportColumn("device", "Device", "", "Number of the device; empty for the CPU."),
    ReportColumn(
        "operator", "Operator", "",
        f"Type of the innermost operator that ran on the allocating thread; {UNASSOCIATED} if there was none.", str,
    ),
    ReportColumn("module", "Module", "", "Path of its module; empty outside of modules, or if not recorded.", str),
    ReportColumn("line", "Source Line", "", "Last line of its call stack, for a backward that of the forward.", str),
    ReportColumn("shapes", "Input Shapes", "", "Shapes of its inputs; empty if not recorded.", str),
    ReportColumn("phase", "Allocated In", "", f"Phase of the operator: {', '.join(PHASES)}; empty if outside.", str),
    ReportColumn(
        "until", "Released In", "",
        f"{SAME}: by the end of the operator that allocated it, so a temporary. Else the phase of the operator that "
        f"ran on the releasing thread, or {BETWEEN}. {NEVER}: not in the recording. {UNKNOWN}: its release is missing, "
        "but its address was given again.", str,
    ),
    ReportColumn("allocations", "Allocations", "count", "Allocations in use at the moment; empty where unknown."),
    ReportColumn("bytes", "Size (B)", "B", "Bytes in use at the moment."),
    ReportColumn("share", "Share (%)", "%", "Of all bytes in use on the device at the moment.", float),
    ReportColumn("unreleased", "Never Released (B)", "B", "Bytes of these that are not released in the recording."),
    ReportColumn("age_ns", "Age (ns)", "ns", "Time since the allocation, of a group since its oldest."),
    ReportColumn(
        "allocated_ns", "Allocation Time (ns)", "ns",
        "Time of the allocation; empty if before the recording.",
    ),
    ReportColumn("released_ns", "Release Time (ns)", "ns", "Time of the release; empty if not in the recording."),
    ReportColumn("at_ns", "Moment (ns)", "ns", "The moment, since the first event of the recording."),
    ReportColumn("allocated", "Allocated (B)", "B", "Bytes in use on the device, as in the curve of memory."),
    ReportColumn("reserved", "Reserved (B)", "B", "Bytes that the allocator holds then; empty if not recorded."),
    ReportColumn(
        "unused", "Reserved, Not In Use (B)", "B",
        "Reserved minus allocated: cached for reuse, or lost to fragmentation; empty if not recorded, and for the CPU.",
    ),
    ReportColumn(
        "recorded", "Total Recorded", "",
        "Whether allocated bytes are the allocator's own count; if not, they are the sum of all events from 0 at the "
        "beginning of the recording.", bool,
    ),
)  # fmt: skip


def _hidden(keys: tuple[str, ...]) -> tuple[str, ...]:
    out = tuple(key for key in (*_PLACE, *_TIMES) if key not in keys)
    return (*out, "allocations", "unreleased") if "allocated_ns" in keys else out


@report(
    "alive",
    "Memory In Use",
    _COLUMNS,
    needs="allocations: pyprof run --memory, or profile_memory=True in torch.profiler",
    options=(
        Option(
            "by",
            "What each row covers: an operator, a module, a source line, an operator with its input shapes, the phases "
            "of allocation and release, or one allocation.",
            {name: _hidden(keys) for name, keys in _KEYS.items()},
        ),
    ),
    view=View("Memory", sort="-bytes", sums="allocations bytes unreleased"),
)
def alive(source: Source, by: str) -> Iterator[pd.DataFrame]:
    """Memory in use when most is, in the aggregated iterations: per worker and device one row per group, sorted by
    bytes. An allocation is in use until it is released, or until the next event at its address. The row "before the
    recording" has what is released in the recording but was allocated before. The row "no allocation recorded" is what
    the allocator counts besides, so that the bytes of a device add up to its count; it is negative where that is less
    than the events. Without a count there is no such row, and shares are of all rows; what has no address, so that its
    release is not known, is the row "address not recorded". Whether a block holds a
    parameter, a gradient or a state of the optimizer is not recorded; the phases of its allocation and release are."""
    return moment(source, by, None)


def moment(source: Source, by: str, at: int | None) -> Iterator[pd.DataFrame]:
    """Yield the report's rows for a moment in ns since the first event, None for the peak of each device. Of several
    events in that ns the moment is after the one that leaves the most in use."""
    any_rows = False
    for events in allocations(source):
        position = _place(events, at)
        if position is None:
            continue
        any_rows = True
        table = _grouped(_in_use(source, events, *position), events, position[0], by)
        yield _complete(table.assign(at_ns=position[1], **_figures(source, events, position[0])))
    if not any_rows:
        yield _complete(pd.DataFrame())


def _complete(table: pd.DataFrame) -> pd.DataFrame:
    """Add the columns of other choices, which are hidden."""
    return table.reindex(columns=[column.key for column in _COLUMNS])


def _place(events: Allocations, at: int | None) -> tuple[int, int] | None:
    """Return the place of the last event before the moment, -1 if none is, and the time of the moment."""
    if at is None:
        inside = np.flatnonzero(events.inside)
        if not len(inside):
            return None
        place = int(inside[events.allocated[inside].argmax()])
        return place, int(events.time[place])
    last = int(np.searchsorted(events.time, at, side="right")) - 1
    if last < 0:
        return _NONE, at
    first = int(np.searchsorted(events.time, events.time[last]))
    return first + int(events.allocated[first : last + 1].argmax()), at


def _allocated(events: Allocations, place: int) -> int:
    """Return the bytes in use after the event, before the first for -1."""
    return int(events.allocated[place]) if place >= 0 else int(events.allocated[0] - events.bytes[0])


def _figures(source: Source, events: Allocations, place: int) -> dict[str, Any]:
    """Return the columns that are the same in all rows of a device."""
    used = _allocated(events, place)
    cpu = events.device == CPU
    known = place >= 0 and bool(events.reserved.mask()[place])
    reserved = int(events.reserved.values[place]) if known else None
    return {
        "worker": reads.worker_names(source.store)[events.worker],
        "device": None if cpu else events.device,
        "allocated": used,
        "reserved": reserved,
        "unused": None if reserved is None or cpu else reserved - used,
        "recorded": events.recorded,
    }


class _Operators(NamedTuple):
    """Facts of operators by their ids; None is unknown."""

    type: dict[int, str | None]
    module: dict[int, str | None]
    line: dict[int, str | None]
    shapes: dict[int, str | None]
    phase: dict[int, str | None]


def _operators(source: Source) -> _Operators:
    rows = source.store.rows(
        "select o.id, o.type, o.module, k.frames, o.shapes, o.phase from operator o left join stack k on k.id = o.stack"
    )
    return _Operators(
        {row[0]: row[1] for row in rows},
        {row[0]: row[2] or None for row in rows},
        {row[0]: row[3].rpartition("\n")[2] or None if row[3] else None for row in rows},
        {row[0]: row[4] or None for row in rows},
        {row[0]: PHASES[row[5]] for row in rows},
    )


def _in_use(source: Source, events: Allocations, place: int, at: int) -> pd.DataFrame:
    """Return what is in use after the event at `place`, one row per allocation. `unreleased`: never released."""
    following, initial = successors(events)
    past = np.arange(len(events.time)) <= place
    allocated = np.flatnonzero(
        past & (events.bytes > 0) & events.address.mask() & ((following < 0) | (following > place))
    )
    older = np.flatnonzero(~past & (events.bytes < 0) & initial)
    begun, freed = pairs(events)
    release = np.full(len(events.time), _NONE, np.int64)
    release[begun[begun >= 0]] = freed[begun >= 0]
    end, event = np.r_[release[allocated], older], np.r_[allocated, older]
    known = np.arange(len(event)) < len(allocated)
    size, unreleased = np.abs(events.bytes[event]), known & (following[event] < 0)
    work, facts = HostWork(source.activity(events.worker)), _operators(source)
    operator, finish = work.executions(events.thread[event], events.time[event])
    operator[~known] = _NONE
    releasing, _ = work.executions(events.thread[end], events.time[end])  # what -1 gives is not read
    temporary = known & (end >= 0) & (events.time[end] <= finish)
    texts = {key: _texts(operator, table) for key, table in facts._asdict().items()}
    texts["operator"] = np.where(operator >= 0, texts.pop("type"), UNASSOCIATED)
    return pd.DataFrame({
        **texts, "until": _until(end, temporary, unreleased, _texts(releasing, facts.phase)), "allocations": 1,
        "bytes": size, "unreleased": np.where(unreleased, size, 0),
        "age_ns": integer(Column(at - events.time[event], known)),
        "allocated_ns": integer(Column(events.time[event], known)),
        "released_ns": integer(Column(events.time[end], end >= 0)), "older": ~known,
    })  # fmt: skip


def _texts(codes: Ints, table: dict[int, str | None]) -> Any:
    """Return the texts of codes, None for -1."""
    return np.array([table.get(code) for code in codes.tolist()], object)


def _until(end: Ints, temporary: Bools, unreleased: Bools, phase: Any) -> Any:
    """Return where each allocation is released."""
    text = np.where(pd.isna(phase), BETWEEN, phase)
    text[end < 0] = UNKNOWN
    text[unreleased] = NEVER
    text[temporary] = SAME
    return text


def _grouped(table: pd.DataFrame, events: Allocations, place: int, by: str) -> pd.DataFrame:
    """Return sums by the keys of a choice, and the row of what no allocation explains."""
    keys, total = list(_KEYS[by]), _allocated(events, place)
    table[keys[0]] = table[keys[0]].mask(table["older"], BEFORE)
    if by != "allocation":
        how = {"allocations": "sum", "bytes": "sum", "unreleased": "sum", "age_ns": "max"}
        table = table.groupby(keys, dropna=False, sort=True).agg(how).reset_index()
    table = table.sort_values("bytes", ascending=False, kind="stable", ignore_index=True)
    explained = int(table["bytes"].sum())
    complete = events.recorded or not events.address.mask().all()
    if complete and total != explained:
        reason = NO_RECORD if events.recorded else NO_ADDRESS
        rest = pd.DataFrame({keys[0]: [reason], "bytes": [total - explained]})
        table = pd.concat([table.astype({"age_ns": "Int64"}), rest], ignore_index=True)
    whole = total if complete else explained
    table["share"] = 100 * table["bytes"] / whole if whole else None
    return table
