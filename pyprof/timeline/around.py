# SPDX-License-Identifier: Apache-2.0
"""The surroundings of a gap of a device: as much of the recording as its cause and the place of the host need.

The tiles of the timeline say what touches a stretch of time, so that it costs the same however long the recording is.
Only the thread with the most launches is counted over all of it, for a gap whose end was not launched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np

from pyprof.analysis.host_work import EXECUTED, SHORTEST, HostWork, Spans
from pyprof.analysis.idle_gaps import CAUSES, NOTHING
from pyprof.analysis.timeline import Activity
from pyprof.api_names import API_KINDS
from pyprof.model import Column, Ints
from pyprof.reports.idle import Gap, gap
from pyprof.store.files import Store
from pyprof.store.ids import first_id
from pyprof.store.kinds import ON_GPU
from pyprof.store.moments import first_from
from pyprof.timeline import stored
from pyprof.timeline.records import Records

_NONE = -1
_LAST = 1000  # executions
_EVER = 1 << 61  # ns, beyond any recording


def gap_of(store: Store, worker: int, device: int, number: int) -> Gap | None:
    """Return a gap of a device by its number, from 0 in the order of time; None if there are fewer, or no such
    device."""
    tracks = [track for track in stored.places(store, worker, ("idle",)) if track.device == device]
    time = stored.with_id(store, tracks[0], number) if tracks else None
    if time is None:
        return None
    around = _Around(store, worker, device, *time)
    return gap(around, *time, around.after, lambda thread: _Host(around, thread, *time))


def longest_gaps(store: Store) -> list[str]:
    """Return the ids, WORKER.DEVICE.NUMBER, of the longest gap of each device: of those with a known cause, if it has
    any."""
    labels = dict(store.rows("select id, text from label"))
    out = []
    for track in stored.places(store, None, ("idle",)):
        best: tuple[bool, int, int] | None = None
        for records in stored.events(store, track, -_EVER, _EVER):
            unknown = np.array([labels[name] == CAUSES[NOTHING] for name in records.name.tolist()], bool)
            for mask in (unknown, ~unknown):
                if mask.any():
                    lengths = np.where(mask, records.end - records.start, -1)
                    place = int(lengths.argmax())
                    own = not unknown[place], int(lengths[place]), int(records.id[place])
                    best = own if best is None else max(best, own)
        if best is not None:
            out.append(f"{track.worker}.{track.device}.{best[2]}")
    return out


def _touching(store: Store, track: stored.Place, start: int, end: int) -> Records:
    parts = list(stored.events(store, track, start, end))
    if not parts:
        return Records(*(np.empty(0, np.int64),) * len(Records._fields))
    return Records(*(np.concatenate(columns) for columns in zip(*parts)))


class _Around(Activity):
    """The calls during which a gap begins, what their copies copied, and the event that ended it, with its launch."""

    def __init__(self, store: Store, worker: int, device: int, start: int, end: int):
        super().__init__(store, worker)
        start, end = np.clip((start, end), *self.span).tolist()  # a step may be longer than the recording
        began: list[int] = []
        after: list[int] = []
        for track in stored.places(store, worker, ("api", "stream")):
            if track.kind == "api":
                began += _touching(store, track, start, start + 1).id.tolist()
            elif track.device == device:
                records = _touching(store, track, end - 1, end + 1)
                after += records.id[records.start == end].tolist()
        last = min(after, default=None)
        events = {last} if last is not None else set()
        for call, begin in self._copies(began):
            events.update(self._launched_by(call, begin))
        self._events = sorted(events)
        launches = store.rows(
            f"select api from event where id in ({_list(events)}) and api is not null order by api"
        )
        self._calls = sorted({*began, *(call for (call,) in launches)})
        # Place of the event that ended the gap.
        self.after = _NONE if last is None else self._events.index(last)

    def _copies(self, calls: Sequence[int]) -> list[tuple[int, int]]:
        return self.store.rows(
            f"select id, start_ns from api where id in ({_list(calls)}) and kind = ?",
            (API_KINDS.index("memcpy"),),
        )

    def _launched_by(self, call: int, begin: int) -> Iterator[int]:
        """Yield the events of a call, which are in the order of the starts of their launches."""
        first, last = (first_from(self.store, "event", self.worker, time) for time in (begin, begin + 1))
        for (event,) in self.store.rows(
            "select id from event where id >= ? and id < ? and api = ?", (first, last, call)
        ):
            yield event

    @cached_property
    def event(self) -> dict[str, Column]:
        return self.store.columns(
            f"""select id, kind, device, name, operator, api, start_ns, duration_ns from event
                where id in ({_list(self._events)}) and {ON_GPU} order by id"""
        )

    @cached_property
    def call(self) -> dict[str, Column]:
        return self.store.columns(
            f"""select id, thread, name, kind, start_ns, duration_ns, op from api where id in ({_list(self._calls)})
                order by id"""
        )

    @cached_property
    def launch(self) -> Ints:
        place = np.searchsorted(self.call["id"].values, self.event["api"].values)
        return np.where(self.event["api"].mask(), place, _NONE)

    @cached_property
    def launching_thread(self) -> int:
        rows = self.store.rows(
            f"""select a.thread from event e join api a on a.id = e.api where {self.own("e.id")} and e.{ON_GPU}
                group by 1 order by count(*) desc, 1 limit 1"""
        )
        return int(rows[0][0]) if rows else _NONE


def _list(numbers: Iterable[int]) -> str:
    """Return ids for a statement."""
    return ", ".join(str(int(number)) for number in numbers)


class _Host(HostWork):
    """The work of a thread in a gap."""

    def __init__(self, activity: Activity, thread: int, start: int, end: int):
        super().__init__(activity)
        self._thread, self._start, self._end = thread, start, max(end, start + 1)

    def _records(self, kind: str) -> Records:
        parts = [
            _touching(self._store, track, self._start, self._end)
            for track in stored.places(self._store, self._activity.worker, (kind,))
            if track.thread == self._thread
        ]
        columns = [np.concatenate(part) for part in zip(*parts)] if parts else [np.empty(0, np.int64)] * 8
        records = Records(*columns)
        return records.take(np.argsort(records.id, kind="stable"))

    def _spans(self, kind: str) -> Spans:
        one = self._records(kind)
        return Spans(np.full(len(one), self._thread), one.name, one.start, one.end - one.start)

    def ranges(self) -> Spans:
        return self._spans("range")

    def functions(self) -> Spans:
        spans = self._spans("function")
        return spans.take(spans.length >= SHORTEST)

    def executions_of_operators(self) -> Spans:
        """Return the executions that touch the gap, and those that begin next after its beginning."""
        rows = set(self._begun(self._start, self._end))
        # One that began before begins with a range that is still open, or, if it has several, as a backward may, is one
        # of the last.
        first = first_from(self._store, "op", self._activity.worker, self._start)
        rows.update(self._read(first - _LAST, first, self._start))
        for time in np.unique(self._records("range").start).tolist():
            if time < self._start:
                rows.update(self._begun(time, time + 1))
        if all(start < self._start for _, _, start, _ in rows):
            rows.update(self._next())
        columns = list(zip(*sorted(rows))) or [()] * 4
        _, operator, start, length = (np.array(column, np.int64) for column in columns)
        return Spans(np.full(len(start), self._thread), operator, start, length)

    def _begun(self, start: int, end: int) -> list[tuple[int, int, int, int]]:
        """Return the executions that begin in [start, end)."""
        first, last = (first_from(self._store, "op", self._activity.worker, time) for time in (start, end))
        return self._read(first, last, start)

    def _read(self, first: int, last: int, time: int) -> list[tuple[int, int, int, int]]:
        """Return the executions of the thread by their ids, if they have not ended before a time."""
        return self._store.rows(
            f"""select id, operator, start_ns, end_ns - start_ns from op where id >= ? and id < ? and thread = ?
                and end_ns >= ? and {EXECUTED}""",
            (max(first, first_id(self._activity.worker)), last, self._thread, time),
        )

    def _next(self) -> list[tuple[int, int, int, int]]:
        """Return the executions that begin next after the gap."""
        worker = self._activity.worker
        rows = self._store.rows(
            f"""select start_ns from op where id >= ? and id < ? and thread = ? and {EXECUTED} order by id limit 1""",
            (first_from(self._store, "op", worker, self._end), first_id(worker + 1), self._thread),
        )
        return self._begun(rows[0][0], rows[0][0] + 1) if rows else []
