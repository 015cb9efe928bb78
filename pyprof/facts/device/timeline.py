# SPDX-License-Identifier: Apache-2.0
"""The activity of one worker as columns: GPU events with their launches, API calls, and CPU ranges.

It serves reports that look at stretches of time. Each table is read on first use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import pandas as pd

from pyprof.core.marker import COLLECTION, SAVING
from pyprof.core.model import KERNELS, MEMCPY, MEMSET, NO_PHASE, OPERATOR, PUSH_POP, Bools, Column, Ints
from pyprof.facts.device import communication
from pyprof.facts.device.partition import Union, pauses
from pyprof.parse.paths import is_step
from pyprof.store import reads
from pyprof.store.files import Store
from pyprof.store.ids import first_id
from pyprof.store.kinds import OPERATOR_EVENT
from pyprof.store.moments import first_from

_CODES = {"kind", "device", "tc", "thread", "copy_from", "copy_to"}  # columns of few values


def _small(column: Column) -> Column:
    """Return a column of small numbers in a quarter of the memory."""
    values = column.values
    if not len(values) or (values.min() >= np.iinfo(np.int16).min and values.max() <= np.iinfo(np.int16).max):
        return Column(values.astype(np.int16), column.present)
    return column


class Columns(Mapping[str, Column]):
    """Columns of a worker's rows of a table, each read on first use; those `names` at once, if that is cheaper."""

    def __init__(self, activity: Activity, table: str, names: tuple[str, ...], kinds: tuple[int, ...] = ()):
        """`kinds`: of the rows, if not all."""
        self._store, self._table, self._names, self._kinds = activity.store, table, names, kinds
        self._ids = activity.ids(table)
        self._known: dict[str, Column] = {}

    def _read(self, names: tuple[str, ...]) -> dict[str, Column]:
        columns = self._store.table(self._table, names, *self._ids)
        if self._selected is not None:
            columns = {name: column.take(self._selected) for name, column in columns.items()}
        return {name: _small(column) if name in _CODES else column for name, column in columns.items()}

    @cached_property
    def _selected(self) -> Ints | None:
        """Places of the rows of the kinds; None if they are all."""
        if not self._kinds:
            return None
        mask = np.isin(self._store.table(self._table, ("kind",), *self._ids)["kind"].values, self._kinds)
        return None if mask.all() else np.flatnonzero(mask)

    def __getitem__(self, name: str) -> Column:
        if name not in self._known:
            at_once = name in self._names and not self._store.is_packed(self._table)
            self._known |= self._read(self._names if at_once else (name,))
        return self._known[name]

    def once(self, *names: str) -> dict[str, Column]:
        """Return columns that few reports need and that are large, without keeping them."""
        fresh = tuple(name for name in names if name not in self._known)
        read = self._read(fresh) if fresh else {}
        return {name: read.get(name) or self._known[name] for name in names}

    def large(self, name: str) -> Column:
        """Return a column without keeping it, if it can be read again at little cost."""
        return self.once(name)[name] if self._store.is_packed(self._table) else self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _data_waits(store: Store) -> tuple[Ints, Ints, Ints]:
    """Return worker, start and end of all waits for data loaders, in order. They are few; no index finds those of a
    worker, and with a thousand workers each would read them all."""
    columns = store.columns(
        """select t.worker, d.start_ns, d.start_ns + d.duration_ns as end_ns
           from dataloader d join thread t on t.id = d.thread order by t.worker, d.start_ns"""
    )
    worker, start, end = (columns[name].values for name in ("worker", "start_ns", "end_ns"))
    return worker, start, end


class Activity:
    """The activity of one worker. GPU events are in the order of their ids, which is that of their launches."""

    def __init__(self, store: Store, worker: int):
        self.store, self.worker = store, worker
        self.name: str
        query = "select name, start_ns, end_ns from worker where id = ?"
        self.name, start, end = store.rows(query, (worker,))[0]
        self.span: tuple[int, int] = (start, end)
        self._ids = first_id(worker), first_id(worker + 1)

    def ids(self, table: str) -> tuple[int, int]:
        """Return the first id of its rows of a table, and the one after the last."""
        return self._ids

    @cached_property
    def extent(self) -> tuple[int, int]:
        """The time of the recording and of the steps that reach into it, which may begin before its first event."""
        query = "select min(start_ns), max(end_ns) from step where worker = ? and start_ns < ? and end_ns > ?"
        start, end = self.store.rows(query, (self.worker, *self.span[::-1]))[0]
        return (min(self.span[0], start), max(self.span[1], end)) if start is not None else self.span

    def parts(self, table: str, names: Sequence[str]) -> Iterator[dict[str, Column]]:
        """Yield columns, `start_ns` among them, of its rows of a table in the order of the ids, which is that of the
        times. Raises FormatError for rows in another order."""
        last = np.iinfo(np.int64).min
        for columns in self.store.parts(table, names, *self.ids(table)):
            time = columns["start_ns"].values
            if len(time):
                if time[0] < last or (time[1:] < time[:-1]).any():
                    raise self.store.damaged(f"table {table} is not in the order of its times")
                last = time[-1]
            yield columns

    def own(self, column: str) -> str:
        """Return the condition in SQL that a column of ids is of this worker."""
        return f"{column} >= {first_id(self.worker)} and {column} < {first_id(self.worker + 1)}"

    @cached_property
    def paused(self) -> Union:
        """Time in which the program waited for its recording to be read."""
        return pauses(self.store, self.worker)

    @cached_property
    def event(self) -> Columns:
        """Kernels, copies, sets and whole replays of graphs."""
        names = (
            "id", "kind", "device", "name", "operator", "api", "start_ns", "duration_ns", "geometry", "tc",
            "copied_bytes", "copy_from", "copy_to",
        )  # fmt: skip
        return Columns(self, "event", names, (*KERNELS, MEMCPY, MEMSET))

    @cached_property
    def operator_event(self) -> Columns:
        """Operator events, which a recording without a GPU has instead."""
        return Columns(self, "event", ("id", "name", "operator", "op", "start_ns", "duration_ns"), (OPERATOR,))

    def once(self, *names: str) -> dict[str, Column]:
        """Return columns of the events without keeping them."""
        return self.event.once(*names)

    def work(self) -> dict[str, Column]:
        """Return what the roofline says of each GPU event. Not cached: few reports read it, and it is large."""
        return self.once(
            "duration_ns",
            "tc",
            "verdict",
            "roofline_ns",
            "hardware_ps",
            "model_ps",
            "operator",
            "flops",
            "bytes",
        )

    @cached_property
    def call(self) -> Columns:
        """API calls; the place of each is its number."""
        return Columns(self, "api", ("id", "thread", "name", "kind", "start_ns", "duration_ns", "op"))

    @cached_property
    def id(self) -> Ints:
        return self.event["id"].values

    @cached_property
    def start(self) -> Ints:
        return self.event["start_ns"].values

    @cached_property
    def end(self) -> Ints:
        return self.start + self.once("duration_ns")["duration_ns"].values

    @cached_property
    def launched(self) -> Bools:
        """Events with a launch record."""
        return self.launch >= 0

    @cached_property
    def launch(self) -> Ints:
        """Place of each event's launch in `call`, -1 without one."""
        api = self.once("api")["api"]
        place: Ints = (api.values - self.ids("api")[0]).astype(np.int32)
        if api.present is not None:
            place[~api.present] = -1
        return place

    def operators_of(self, calls: Ints) -> Ints:
        """Return the operator of some API calls, by their places in `call`; -1 for none, and for place -1."""
        apart = [number for (number,) in self.store.rows("select id from operator where unassociated = 1")]
        op = self.of_calls("op")
        known = np.flatnonzero(calls >= 0)
        known = known[op.mask()[calls[known]]]
        ops, which = np.unique(op.values[calls[known]], return_inverse=True)
        operator = np.full(len(ops), -1, np.int64)
        span = (int(ops[0]), int(ops[-1]) + 1) if len(ops) else (0, 0)
        for part in self.store.parts("op", ("id", "operator"), *span):
            place = np.searchsorted(part["id"].values, ops)
            there = np.flatnonzero(np.r_[part["id"].values, -1][place] == ops)
            operator[there] = part["operator"].values[place[there]]
        operator[np.isin(operator, apart)] = -1
        out = np.full(len(calls), -1, np.int64)
        out[known] = operator[which]
        return out

    def of_calls(self, name: str) -> Column:
        """Return a column of the API calls without keeping it, if it is large."""
        return self.call.large(name)

    def of_events(self, name: str) -> Column:
        """Return a column of the events without keeping it, if it is large."""
        return self.event.large(name)

    @cached_property
    def launching_thread(self) -> int:
        """The thread with the most launches, -1 without any."""
        launching = self.call["thread"].values[self.launch[self.launched]]
        return int(np.bincount(launching).argmax()) if len(launching) else -1

    @cached_property
    def replayed(self) -> tuple[Ints, Ints]:
        """Places of events of graph replays, and the ranges that they belong to."""
        columns = self.store.columns(f"select event, range from replayed where {self.own('event')} order by event")
        return np.searchsorted(self.id, columns["event"].values), columns["range"].values

    def phases(self, gpu: bool) -> tuple[Ints, Ints, Ints]:
        """Return phase (`model.PHASES`), start and end of each GPU event, or of each operator event, by start."""
        names = ("site", "start_ns", "duration_ns", "total_ns")
        columns = self.once(*names) if gpu else self.operator_event.once(*names)
        phase, total = self._phase_of(columns.pop("site")), columns.pop("total_ns")
        start, end = columns["start_ns"].values, columns["duration_ns"].values
        if total.mask().any():
            end = np.where(total.mask(), total.values, end)
        end = end + start
        if (start[1:] < start[:-1]).any():
            order = np.argsort(start, kind="stable")
            phase, start, end = phase[order], start[order], end[order]
        return phase, start, end

    def event_phases(self) -> Ints:
        """Return the phase of each GPU event, in the order of their ids."""
        return self._phase_of(self.once("site")["site"])

    def _phase_of(self, site: Column) -> Ints:
        rows = self.store.rows("select id, phase from site where phase is not null")
        phase_of = np.full(max((number for number, _ in rows), default=-1) + 2, NO_PHASE, np.int8)
        phase_of[[number for number, _ in rows]] = [phase for _, phase in rows]
        last = len(phase_of) - 1
        out: Ints = phase_of[np.where(site.mask(), np.clip(site.values, -1, last), last)]
        return out

    @cached_property
    def kernel(self) -> Bools:
        """Kernels, collectives and whole replays of graphs among them."""
        mask: Bools = np.isin(self.event["kind"].values, KERNELS)
        return mask

    @cached_property
    def communication(self) -> Bools:
        """Kernels of collectives, and copies between devices."""
        mask: Bools = communication.names(self.store)[self.of_events("name").values]
        return mask

    @cached_property
    def devices(self) -> list[int]:
        """Devices on which something ran."""
        device = self.event["device"]
        numbers = device.values if device.present is None else device.values[device.present]
        return sorted(map(int, pd.unique(numbers)))

    def on(self, device: int) -> Bools:
        """Return which events ran on a device."""
        mask: Bools = self.event["device"].mask() & (self.event["device"].values == device)
        return mask

    def union(self, mask: Bools) -> Union:
        """Return the time in which at least one of the selected events ran."""
        return Union(self.start, self.end) if mask.all() else Union(self.start[mask], self.end[mask])

    def classes(self, mask: Bools) -> dict[str, Union]:
        """Return the time of selected events: kernels, copies and sets without communication, and communication."""
        kind, apart = self.event["kind"].values, self.communication
        parts = {
            "kernel": self.kernel & ~apart,
            "memcpy": (kind == MEMCPY) & ~apart,
            "memset": kind == MEMSET,
            "communication": apart,
        }
        return {name: self.union(part & mask) for name, part in parts.items()}

    @cached_property
    def runtime(self) -> Union:
        """Time in API calls, of any thread."""
        start = self.of_calls("start_ns").values
        return Union(start, start + self.of_calls("duration_ns").values)

    @cached_property
    def dataloader(self) -> Union:
        """Time in which a thread waited for its data loader."""
        worker, start, end = self.store.cached("dataloader", lambda: _data_waits(self.store), small=True)
        own = slice(*np.searchsorted(worker, [self.worker, self.worker + 1]).tolist())
        return Union(start[own], end[own])

    @cached_property
    def ranges(self) -> Columns:
        """Push/pop ranges and RecordFunction events."""
        names = ("id", "thread", "start_ns", "duration_ns", "text", "args", "stack", "kind")
        return Columns(self, "range", names, (PUSH_POP, OPERATOR_EVENT))

    @cached_property
    def executed(self) -> dict[str, Column]:
        """Executions of operators with the call stack of each; of one that ran backward that of its forward."""
        return self.store.columns(
            f"""select op.thread, op.start_ns, op.end_ns, o.stack
                from op join operator o on o.id = op.operator join stack on stack.id = o.stack
                where {self.own("op.id")} and stack.frames != '' order by op.id"""
        )

    @cached_property
    def cpu(self) -> Union:
        """Time in operator events and in ranges of any text except those of steps, garbage collection and saving."""
        texts = reads.texts(self.store)
        apart = (COLLECTION, SAVING)
        other = [number for number, text in texts.items() if is_step(text) or text.startswith(apart)]
        unions = [Union(*np.empty((2, 0), np.int64))]
        # A piece at a time: nested ranges, most of them, leave little of their ten million intervals.
        for piece in self.store.parts("range", ("kind", "text", "start_ns", "duration_ns"), *self._ids):
            counted = np.isin(piece["kind"].values, (PUSH_POP, OPERATOR_EVENT))
            counted &= ~np.isin(piece["text"].values, np.array(other, np.int64))
            start = piece["start_ns"].values[counted]
            unions.append(Union(start, start + piece["duration_ns"].values[counted]))
        return Union(np.concatenate([one.start for one in unions]), np.concatenate([one.end for one in unions]))


class Excerpt(Activity):
    """The activity of a worker in a stretch of time: what began on the host between two times in ns, and the events
    with these ids, with the calls that launched them."""

    def __init__(self, store: Store, worker: int, window: tuple[int, int], events: tuple[int, int] = (0, 0)):
        super().__init__(store, worker)
        self.window = window
        self._of_table = {"event": events}
        low, high = self.ids("api")
        query = "select min(api), max(api) + 1 from event where id >= ? and id < ?"
        first, last = store.rows(query, events)[0]
        if first is not None:
            self._of_table["api"] = min(low, first), max(high, last)

    def ids(self, table: str) -> tuple[int, int]:
        if table not in self._of_table:
            first, last = (first_from(self.store, table, self.worker, time) for time in self.window)
            self._of_table[table] = first, last
        return self._of_table[table]
