# SPDX-License-Identifier: Apache-2.0
"""Idle time of devices, by cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from pyprof.analysis.device_steps import activities
from pyprof.analysis.host_parts import Piece, Pieces
from pyprof.analysis.host_work import PLACE, HostWork, Places, added, longest
from pyprof.analysis.idle_gaps import CAUSES, NONE, QUEUED, Causes, Gaps, Waits, causes_of, recorded
from pyprof.analysis.places import PLACE_COLUMNS, place_texts
from pyprof.analysis.source import Source
from pyprof.analysis.stretches import EVER, Part, stretches
from pyprof.analysis.timeline import Activity
from pyprof.model import Ints, Stack
from pyprof.reports import Column, Option, View, report
from pyprof.reports.step_time import WORKER

IDLE = "idle: "  # before a cause, in the name of a part of a step
ADVICE = {
    "queued": "The work was launched in time: the GPU needs a few microseconds between kernels. Fewer, larger kernels "
    "help: fuse with torch.compile, or replay a CUDA graph.",
    "data loader": "The loop waits for data: raise num_workers, keep workers alive (persistent_workers), and move "
    "preparation of samples out of the loop.",
    "synchronization": "Avoid the call, or make it rarer or later: .item(), .cpu(), printing a tensor, and tests of "
    "its value wait for the GPU.",
    "host copy": "Copy from pinned memory with non_blocking=True: pin_memory=True of the data loader, or "
    "tensor.pin_memory().",
    "launch-bound": "The CPU is too slow here: launch fewer kernels (torch.compile, CUDA graphs, fused optimizers), do "
    "less in Python, or use larger batches.",
    "not recorded": "The recording does not show what the GPU waited for: it worked on launches from before the "
    "recording, nothing follows until the end, or calls were not recorded (record API calls and operators too).",
}
# Where in the program a thread was.
IN_PROGRAM = (
    Column("operator", "Operator", "", "Path of the operator.", str),
    Column("module", "Module", "", "Path of its module, or of the one around the Python function.", str),
    Column("line", "Source Line", "", "Last line of the stack trace.", str),
    Column(
        "stack", "Stack Trace", "",
        "Source lines, one per line, outermost first: of the Python functions around the thread's place where the "
        "recording has them, else of the operator's call.", str,
    ),
)  # fmt: skip
_COLUMNS = (
    WORKER,
    Column("device", "Device", "", "Number of the device."),
    Column("cause", "Cause", "", f"One of {', '.join(CAUSES)}, as described above.", str),
    Column("call", "API Call", "", "For synchronization and host copy: the call in which the CPU waited.", str),
    Column(
        "host", "Host", "",
        "Innermost range or Python function in which the launching thread was for most of the gap; empty for queued.",
        str,
    ),
    Column(
        "where", "Where", "",
        "in: the thread was in the operator; before: it was in none, and this is the next; kernel of: queued, and the "
        "operator launched the kernel after the gap. Empty where no operator was recorded.", str,
    ),
    *IN_PROGRAM,
    Column("count", "Count", "count", "Gaps that lie in the window or extend into it."),
    Column("total_ns", "Total (ns)", "ns", "Sum of the gaps, clipped to the window."),
    Column("share", "Share (%)", "%", "Total as a share of the window: all steps, as in step_time.", float),
    Column("longest_ns", "Longest (ns)", "ns", "Longest of the gaps, clipped to the window."),
    Column("advice", "What To Do", "", "What usually helps against this cause.", str),
)  # fmt: skip
_PLACE = PLACE_COLUMNS[:-2]
_KEYS = {"place": PLACE_COLUMNS, "line": ("line",), "cause": ()}


@report(
    "idle",
    "Idle Time",
    _COLUMNS,
    needs="a GPU",
    options=(
        Option(
            "group_by",
            "What each row covers besides the cause: the place of the host, its source line, or nothing.",
            {"place": (), "line": (*_PLACE, "stack"), "cause": (*_PLACE, "line", "stack")},
        ),
    ),
    view=View("Time", sort="-total_ns", sums="count total_ns"),
)
def idle(source: Source, group_by: str) -> pd.DataFrame:
    """One row per worker, device, cause and place of the host, sorted by total time, for gaps in which no kernel,
    copy or set ran on the device. A gap has one cause, the first of these that holds. queued: the launch of the event
    after the gap had returned before the gap began, so the device waited for other work of its own. data loader: the
    CPU waited for it for at least half of the time from the start of the gap to the end of that launch.
    synchronization, host copy: when the gap began, the launching thread was in a call that waits for the device, or
    in a copy call that returned only after the copy had ended, so nothing could be queued. launch-bound: the launch
    came too late for another reason. not recorded: no event follows, or its launch was not recorded; waits of any
    thread then count. So is a gap at the start of the recording in which the launch had returned before half of it:
    the device worked on what was launched before. For a gap that extends beyond the recording of its process, the
    cause is that of the recorded part. All gaps and the time in which the device worked add up to the window, without
    pauses in which the recording was read. The place of the host is that of most of the time from the start of the
    gap to the end of that launch, on the launching thread; without a launch, on the thread with the most launches. A
    recording without a GPU has no rows."""
    rows: list[pd.DataFrame] = []
    for activity, steps in activities(source):
        if not activity.devices:
            continue
        low, high = steps.window
        window = high - low - int(activity.paused.within(np.array([low]), np.array([high]))[0])
        table = idle_sums(source, activity, low, high, bool(_KEYS[group_by]))
        for device in activity.devices:
            own = table[table["device"] == device]
            rows.append(_sums(own, ["cause", *_KEYS[group_by]], activity.name, device, window))
    if not rows:
        return pd.DataFrame(columns=[column.key for column in _COLUMNS], dtype=object)
    return pd.concat([table.astype(object) for table in rows], ignore_index=True)


_SUMMED = {"count": "sum", "total_ns": "sum", "longest_ns": "max"}
_CODES = ("call", "host", "where", "operator", "stack")  # places as numbers
_KINDS = ("device", "cause", *_CODES)
_OPEN = ("start", "end", "thread", "device", "cause", "call", "inside", "next", "length")
_UNSEEN = -2  # a call stack that was not looked up


class Stacks:
    """Distinct call stacks, numbered."""

    def __init__(self) -> None:
        self._entries: list[Stack] = []
        self._numbers: dict[Stack, int] = {}

    def number(self, stack: Stack) -> int:
        if stack not in self._numbers:
            self._numbers[stack] = len(self._entries)
            self._entries.append(stack)
        return self._numbers[stack]

    def stack(self, number: int) -> Stack:
        """Return a call stack, empty for -1."""
        return self._entries[number] if number >= 0 else Stack()


def idle_sums(source: Source, activity: Activity, low: int, high: int, places: bool = True) -> pd.DataFrame:
    """Return sums of the gaps in [low, high) by device and cause, and by place."""
    if not places:
        return _by_cause(source, activity, low, high)

    def sums() -> pd.DataFrame:
        stacks = Stacks()
        table = _Walk(activity, stacks).sums(low, high)
        return table.drop(columns=list(_CODES)).join(place_texts(source.store, stacks.stack, table))

    return source.store.cached(("idle", activity.worker, low, high), sums, small=True)


def _by_cause(source: Source, activity: Activity, low: int, high: int) -> pd.DataFrame:
    """Return sums by device and cause."""
    waits = Waits(activity)
    tables = [_counted(np.empty(0, np.int64), device=0, cause=0)]
    for device in activity.devices:
        for gaps, length in recorded(activity, device, low, high):
            cause = causes_of(activity, gaps, waits).cause
            tables.append(_added(_counted(length, device=device, cause=cause), ["device", "cause"]))
    return _added(pd.concat(tables), ["device", "cause"])


def _counted(length: Ints, **keys: Ints | int) -> pd.DataFrame:
    """Return a row per gap with its keys."""
    table = pd.DataFrame({"total_ns": length, "longest_ns": length, "count": np.ones(len(length), np.int64)})
    return table.assign(**keys)


def _added(table: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return the sums of rows of equal keys."""
    return table.groupby(list(keys), sort=False).agg(_SUMMED).reset_index()


class _Walk:
    """The sums of a worker's gaps by their places, found piece by piece of the recording.

    A gap that extends over several pieces is `_open` until it ends, with the times in each place so far in `_times`. A
    gap outside of operators takes the one that begins next, in a later piece perhaps: until then it is part of a sum in
    `_waiting`, by thread.
    """

    def __init__(self, activity: Activity, stacks: Stacks):
        self._activity, self._stacks = activity, stacks
        self._waits = Waits(activity)
        # Of each call in which a thread waited.
        self._calls = np.sort(self._waits.calls)
        self._operator = activity.operators_of(self._calls)
        self._name = activity.of_calls("name").values[self._calls]
        self._open = pd.DataFrame(columns=_OPEN, dtype=np.int64)
        self._times = pd.DataFrame(columns=["stretch", *PLACE, "low", "time", "stack"], dtype=np.int64)
        self._waiting = pd.DataFrame(columns=[*_KINDS, "thread", *_SUMMED], dtype=np.int64)
        self._done: list[pd.DataFrame] = []

    def sums(self, low: int, high: int) -> pd.DataFrame:
        """Return sums by _KINDS."""
        pieces = Pieces(self._activity)
        devices = self._activity.devices
        sources = [self._gaps(device, low, high) for device in devices]
        begin = -EVER
        for end, (executions, ranges, *gaps) in stretches([*pieces.sources(), *sources]):
            self._piece(pieces.next(executions, ranges, end), begin, end, zip(devices, gaps))
            begin = end
        self._finish(self._waiting.assign(operator=NONE, where=NONE))
        return _added(pd.concat(self._done), _KINDS)

    def _gaps(self, device: int, low: int, high: int) -> Iterator[Part]:
        """Yield the gaps of a device by time."""
        yield dict.fromkeys((*Gaps._fields, "length"), np.empty(0, np.int64))
        for gaps, length in recorded(self._activity, device, low, high):
            yield {**gaps._asdict(), "length": length}

    def _piece(self, work: Piece, begin: int, end: int, gaps: Iterable[tuple[int, Part]]) -> None:
        """Add the gaps that begin in [begin, end), and go on with those before."""
        self._follow(work, begin)
        thread, known = (self._open[name].to_numpy(np.int64) for name in ("thread", "next"))
        following = work.following(thread, np.full(len(thread), begin))
        self._open = self._open.assign(start=begin, next=np.where(known >= 0, known, following))
        for device, part in gaps:
            self._begin(device, Gaps(part["start"], part["end"], part["event"]), part["length"], work)
        self._advance(work, end)

    def _begin(self, device: int, gaps: Gaps, length: Ints, work: Piece) -> None:
        """Add the gaps that were queued, and open the others."""
        activity = self._activity
        causes = causes_of(activity, gaps, self._waits)
        queued = causes.cause == QUEUED
        operator = _of(activity.event["operator"].values, causes.event[queued])
        self._finish(_counted(
            length[queued], device=device, cause=QUEUED, call=NONE, host=NONE, operator=operator,
            where=np.where(operator < 0, NONE, 2), stack=NONE,
        ))  # fmt: skip
        late = ~queued
        causes = Causes(*(column[late] for column in causes))
        waited = np.searchsorted(self._calls, causes.call)
        waited = np.where(causes.call >= 0, waited, NONE)
        fresh = pd.DataFrame({
            "start": causes.start, "end": causes.end, "thread": causes.thread, "device": device,
            "cause": causes.cause, "call": _of(self._name, waited), "inside": _of(self._operator, waited),
            "next": work.following(causes.thread, causes.start), "length": length[late],
        }, columns=_OPEN)  # fmt: skip
        self._open = pd.concat([self._open, fresh], ignore_index=True)

    def _advance(self, work: Piece, end: int) -> None:
        """Add up the times of the open gaps in each place until the end of a piece, and close those that end in it."""
        gaps, self._open = self._open, self._open.iloc[:0]
        thread, start, stop = (gaps[name].to_numpy(np.int64) for name in ("thread", "start", "end"))
        times = work.times(thread, start, np.minimum(stop, end)).assign(stack=_UNSEEN)
        if len(self._times):
            again = times["stretch"].isin(self._times["stretch"])
            times = pd.concat([added(pd.concat([self._times, times[again]])), times[~again]])
        over = (stop <= end)[times["stretch"]]
        most = longest(times[over])
        most["stack"] = self._seen(most, work, thread)
        self._close(gaps[stop <= end], most)
        rest = times[~over]
        self._open = gaps[stop > end].reset_index(drop=True)
        number = np.cumsum(stop > end) - 1
        self._times = rest.assign(stack=self._seen(rest, work, thread), stretch=number[rest["stretch"]])

    def _seen(self, times: pd.DataFrame, work: Piece, thread: Ints) -> Ints:
        """Return the numbers of the call stacks of places, of those in this piece from the moment there."""
        out: Ints = times["stack"].to_numpy(np.int64, copy=True)
        fresh = np.flatnonzero(out == _UNSEEN)
        stretch, low = (times[name].to_numpy(np.int64)[fresh] for name in ("stretch", "low"))
        numbers, which = np.unique(work.stacks(thread[stretch], low), return_inverse=True)
        own = [
            self._stacks.number(work.stack(number)) if number >= 0 else NONE for number in numbers.tolist()
        ]
        out[fresh] = np.array(own, np.int64)[which]
        return out

    def _close(self, gaps: pd.DataFrame, most: pd.DataFrame) -> None:
        """Add gaps with the place of most of each. Those outside of operators wait for the next, if it is not known."""
        operator, text, function, stack = (most[name].to_numpy(np.int64) for name in (*PLACE, "stack"))
        inside = gaps["inside"].to_numpy(np.int64)
        inside = np.where(inside >= 0, inside, operator)
        table = _counted(
            gaps["length"].to_numpy(np.int64), host=np.where(text >= 0, text, function), stack=stack,
            **{name: gaps[name].to_numpy(np.int64) for name in ("device", "cause", "call", "thread")},
            operator=np.where(inside >= 0, inside, gaps["next"].to_numpy(np.int64)),
            where=np.where(inside >= 0, 0, 1),
        )  # fmt: skip
        waits = table["operator"] < 0
        self._finish(table[~waits])
        self._waiting = _added(pd.concat([self._waiting, table[waits]]), [*_KINDS, "thread"])

    def _follow(self, work: Piece, begin: int) -> None:
        """Give gaps that wait for the next operator on their thread the first that begins in a piece."""
        waiting = self._waiting
        operator = work.following(waiting["thread"].to_numpy(np.int64), np.full(len(waiting), begin))
        self._finish(waiting.assign(operator=operator)[operator >= 0])
        self._waiting = waiting[operator < 0]

    def _finish(self, table: pd.DataFrame) -> None:
        """Add gaps whose places are known."""
        self._done.append(_added(table, _KINDS))


class Gap(NamedTuple):
    """A gap of a device. `length_ns`: without pauses in which the recording was read; `thread`: the row of the thread
    that the device waited for; `event`: the id of the event that ended it; `op_id`: of its operator; the others are
    columns of the report, None where there is none."""

    start_ns: int
    end_ns: int
    length_ns: int
    cause: str
    thread: int | None
    event: int | None
    call: str | None
    host: str | None
    where: str | None
    operator: str | None
    op_id: str | None
    module: str | None
    line: str | None
    stack: str | None
    advice: str


def gap(activity: Activity, start: int, end: int, event: int, work: Callable[[int], HostWork]) -> Gap:
    """Return a gap of a device. `activity`: at least the event that ended it, with its launch (`event`: its place, -1
    for none), and the calls during which it began, with what their copies copied; `work`: of a thread, at least in the
    gap."""
    begin, stop = np.array([start]), np.array([end])
    recorded = Gaps(np.clip(begin, *activity.span), np.clip(stop, *activity.span), np.array([event]))
    own = causes_of(activity, recorded, Waits(activity))
    host = work(int(own.thread[0]))
    places = pd.DataFrame(_places(activity, host, own))
    texts = place_texts(activity.store, host.stack, places).iloc[0]
    operator, cause = int(places["operator"].iloc[0]), CAUSES[int(own.cause[0])]
    op_id = activity.store.rows("select op_id from operator where id = ?", (operator,))
    return Gap(
        start_ns=start,
        end_ns=end,
        length_ns=int((stop - begin - activity.paused.within(begin, stop))[0]),
        cause=cause,
        thread=None if own.thread[0] == NONE else int(own.thread[0]),
        event=None if event == NONE else int(activity.id[event]),
        **{key: texts[key] for key in _KEYS["place"]},
        op_id=op_id[0][0] if op_id and texts["operator"] else None,
        advice=ADVICE[cause],
    )


def _places(activity: Activity, work: HostWork, causes: Causes) -> dict[str, Ints]:
    """Return the place of the host of each gap as numbers: `call`, `host`: ids of texts; `where`: place in WHERE;
    `operator`: in the table `operator`; `stack`: of Python functions, for `HostWork.stack`. -1 is none."""
    queued = causes.cause == QUEUED
    late = np.flatnonzero(~queued)
    places = Places(*(np.full(len(queued), NONE, np.int64) for _ in Places._fields))
    for place, values in zip(places, work.places(causes.thread[late], causes.start[late], causes.end[late])):
        place[late] = values
    inside = activity.operators_of(causes.call)  # a call knows its operator
    inside = np.where(inside >= 0, inside, places.operator)
    kernel = np.where(queued, _of(activity.event["operator"].values, causes.event), NONE)
    operator = np.where(queued, kernel, np.where(inside >= 0, inside, places.following))
    return {
        "call": _of(activity.call["name"].values, causes.call),
        "host": np.where(places.text >= 0, places.text, places.function),
        "where": np.where(operator < 0, NONE, np.where(queued, 2, np.where(inside >= 0, 0, 1))),
        "operator": operator,
        "stack": places.stack,
    }


def _of(values: Ints, place: Ints) -> Ints:
    """Return the values at places, -1 where that is -1."""
    out: Ints = np.r_[values, NONE][place]
    return out


def _sums(table: pd.DataFrame, keys: list[str], worker: str, device: int, window: int) -> pd.DataFrame:
    """Return count, total and longest gap by the keys, sorted by total."""
    table = table.groupby(keys, sort=True, dropna=False).agg(
        count=("count", "sum"), total_ns=("total_ns", "sum"), longest_ns=("longest_ns", "max")
    )
    table = table.reset_index().sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
    cause = [CAUSES[number] for number in table["cause"]]
    return table.assign(
        worker=worker, device=device, cause=cause, share=100 * table["total_ns"] / window,
        advice=[ADVICE[name] for name in cause],
    )  # fmt: skip
