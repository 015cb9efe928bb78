# SPDX-License-Identifier: Apache-2.0
"""Gaps: times in which a device was idle, each with its cause and the place of the host that it waited for.

They are worked out once, when a database is built (`add`), and are rows like the others from then on. A database that
has none, because it is older, is read as if it had.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof.core.api_names import API_KINDS
from pyprof.core.model import Bools, Ints
from pyprof.facts.device.timeline import Activity
from pyprof.facts.host.host_work import HostWork, Places
from pyprof.facts.host.places import PLACE_COLUMNS, place_texts
from pyprof.store import packed
from pyprof.store.files import Store, ingest, insert_packed
from pyprof.store.ids import first_id

# In the order of their priority.
CAUSES = ("queued", "data loader", "synchronization", "host copy", "launch-bound", "not recorded")
QUEUED, DATALOADER, SYNC, COPY, LAUNCH, NOTHING = range(len(CAUSES))
NONE = -1
COLUMNS = (*PLACE_COLUMNS, "op_id")  # of a place
ALL = -(1 << 62)  # the device of times in which all of a worker's devices were idle
_AT_ONCE = 1 << 18  # gaps that are worked out at a time: small arrays are made in memory that is used again


class Gaps(NamedTuple):
    """Gaps of a worker, by device and time. `start`, `end`: ns; `cause`: place in CAUSES; `event`: id of the event that
    ended it; `thread`, `since`, `until`: the thread that the device waited for, and from when to when; `place`: number
    of the place of most of that time, for `describe_places`. -1 is none. Each device has a first and a last gap, which
    may be empty: they reach to the ends of what is asked for."""

    device: Ints
    start: Ints
    end: Ints
    cause: Ints
    event: Ints
    thread: Ints
    since: Ints
    until: Ints
    place: Ints

    def take(self, mask: Bools | Ints) -> Gaps:
        """Return those that a mask or places select."""
        return Gaps(*(column[mask] for column in self))


def gaps(activity: Activity, device: int = ALL) -> Gaps:
    """Return the gaps of a device of a worker, by time."""
    own = activity.store.cached(("gaps", activity.worker), lambda: _read(activity))
    if device == ALL and ALL not in own.device:
        device = int(own.device[0]) if len(own.device) else ALL
    return own.take(slice(*np.searchsorted(own.device, (device, device + 1)).tolist()))  # type: ignore[arg-type]


def gaps_within(activity: Activity, device: int, low: int, high: int) -> tuple[Gaps, Ints]:
    """Return the gaps of a device that lie in [low, high) or extend into it, clipped to it, and the length in ns of
    each, without pauses in which the recording was read. Gaps of nothing but a pause are left out."""
    own = clipped(gaps(activity, device), low, high)
    length = own.end - own.start - activity.paused.within(own.start, own.end)
    return own.take(length > 0), length[length > 0]


def clipped(own: Gaps, low: int, high: int) -> Gaps:
    """Return gaps of a device as far as they are in [low, high). The first and the last reach beyond the recording."""
    if not len(own.start):
        return own
    start, end = own.start.copy(), own.end.copy()
    start[0], end[-1] = min(low, start[0]), max(high, end[-1])
    np.clip(start, low, high, out=start)
    np.clip(end, low, high, out=end)
    return own._replace(start=start, end=end).take(end > start)


def by_cause(activity: Activity, device: int, low: int, high: int) -> dict[str, tuple[Ints, Ints]]:
    """Return the starts and ends of the gaps of a device in [low, high), by their cause."""
    own = clipped(gaps(activity, device), low, high)
    return {
        name: (own.start[mask], own.end[mask]) for code, name in enumerate(CAUSES) if (mask := own.cause == code).any()
    }


def launch_bound(activity: Activity, first: int, last: int, low: int) -> tuple[Gaps, Ints]:
    """Return the gaps in which all devices of a worker waited for the launches of events with ids in [first, last), and
    how long from `low` on, in ns."""
    own = gaps(activity)
    own = own.take((own.cause == LAUNCH) & (own.event >= first) & (own.event < last))
    own = own.take(own.end > low)
    own = own._replace(start=np.maximum(own.start, low), since=np.maximum(own.since, low))
    return own, own.end - own.start - activity.paused.within(own.start, own.end)


def longest(activity: Activity, device: int) -> int | None:
    """Return the number of the longest gap of a device, of those with a known cause if it has any; None without one."""
    own = clipped(gaps(activity, device), *activity.extent)
    order = np.lexsort((own.end - own.start, own.cause != NOTHING))
    return int(order[-1]) if len(order) else None


def describe_places(store: Store, number: Ints) -> pd.DataFrame:
    """Return COLUMNS of places, None where there is none; `number`: of `Gaps.place`."""
    table = _place_table(store).reindex(number)
    return table.astype(object).where(table.notna(), None).reset_index(drop=True)


def add(store: Store, name: str) -> None:
    """Work out the gaps of a database that was just built, and write them into its file."""
    places = _PlaceNumbers()
    for worker in store.rows("select id from worker order by id"):
        own = compute_gaps(Activity(store, *worker), places)
        for first in range(0, len(own.start), packed.MOST_ROWS):
            rows = own.take(slice(first, first + packed.MOST_ROWS))  # type: ignore[arg-type]
            id_ = first_id(*worker) + np.arange(first, first + len(rows.start))
            insert_packed(name, [packed.piece("gap", pa.table({"id": id_, **rows._asdict()}))])
    if len(table := places.table):
        ingest(name, "place", pa.Table.from_pandas(table.reset_index(names="id"), preserve_index=False))


def _read(activity: Activity) -> Gaps:
    store = activity.store
    if not store.is_packed("gap"):
        return compute_gaps(activity, store.cached("computed places", _PlaceNumbers, small=True))
    columns = store.table("gap", Gaps._fields, *activity.ids("gap"))
    own = Gaps(*(column.values for column in columns.values()))
    known = (own.cause >= 0) & (own.cause < len(CAUSES)) & (own.start <= own.end)
    if not known.all() or (np.diff(own.device) < 0).any() or any(one.present is not None for one in columns.values()):
        raise store.damaged("gaps that cannot be")
    return own


def _place_table(store: Store) -> pd.DataFrame:
    if not store.is_packed("gap"):
        return store.cached("computed places", _PlaceNumbers, small=True).table
    return store.cached("places", lambda: _read_places(store), small=True)


def _read_places(store: Store) -> pd.DataFrame:
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    rows = store.rows(f"select id, {names} from place")
    return pd.DataFrame(rows, columns=["id", *COLUMNS], dtype=object).set_index("id")


class _PlaceNumbers:
    """Distinct places of the gaps of a recording as texts, numbered."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str | None, ...], int] = {}

    @property
    def table(self) -> pd.DataFrame:
        """COLUMNS by number."""
        return pd.DataFrame(list(self._rows), columns=list(COLUMNS), dtype=object)

    def numbers(self, activity: Activity, work: HostWork, table: pd.DataFrame) -> Ints:
        """Return the numbers of places that are numbers of a worker."""
        keys = table.drop_duplicates()
        texts = place_texts(activity.store, work.stack, keys)
        op_ids = dict(activity.store.rows("select id, op_id from operator"))
        texts["op_id"] = [op_ids.get(number) for number in keys["operator"].tolist()]
        texts.loc[texts["operator"].isna(), "op_id"] = None
        own = [self._rows.setdefault(row, len(self._rows)) for row in texts.itertuples(index=False, name=None)]
        merged = table.merge(keys.assign(number=own), how="left", on=list(keys))
        return merged["number"].to_numpy(np.int64)


def compute_gaps(activity: Activity, places: _PlaceNumbers) -> Gaps:
    """Work out the gaps of a worker, and number their places."""
    devices = activity.devices
    parts = [Gaps(*(np.empty(0, np.int64) for _ in Gaps._fields))]
    if devices:
        waits, work = Waits(activity), HostWork(activity)
        for device in [ALL, *devices] if len(devices) > 1 else devices:
            for start, end, event in _bounds(activity, device):
                parts.append(_with_causes(activity, device, start, end, event, waits, work, places))
    return Gaps(*(np.concatenate(columns) for columns in zip(*parts)))


def _bounds(activity: Activity, device: int) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield starts and ends of the gaps of a device, and the place of the event that ended each, in parts."""
    selected = np.ones(len(activity.id), bool) if device == ALL else activity.on(device)
    busy = activity.union(selected)
    low, high = activity.span
    event = _first_at(activity, selected, busy.start)
    start = np.clip(np.r_[low, busy.end], low, high)
    end = np.maximum(np.clip(np.r_[busy.start, high], low, high), start)
    for first in range(0, len(start), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        yield start[part], end[part], event[part]


def _first_at(activity: Activity, selected: Bools, time: Ints) -> Ints:
    """Return the place of the first of the selected events that starts at each time, and -1 at the end."""
    place = np.full(len(time) + 1, NONE, np.int64)
    begin, on = activity.start, None
    if not selected.all():
        on = np.flatnonzero(selected)
        begin = begin[on]
    if (begin[1:] < begin[:-1]).any():
        order = np.argsort(begin, kind="stable")
        begin, on = begin[order], order if on is None else on[order]
    place[:-1] = np.searchsorted(begin, time)
    if on is not None:
        place[:-1] = on[place[:-1]]
    return place


def _with_causes(
    activity: Activity, device: int, start: Ints, end: Ints, event: Ints, waits: Waits, work: HostWork,
    places: _PlaceNumbers,
) -> Gaps:  # fmt: skip
    """Return gaps with their causes and places. Causes depend only on the recorded part, whichever steps are asked
    for."""
    call = activity.call
    launch = _at(activity.launch, event)
    has_launch = launch >= 0
    returned = _at(call["start_ns"].values, launch) + _at(call["duration_ns"].values, launch)
    thread = _at(call["thread"].values, launch)
    until = np.where(has_launch, np.minimum(returned, end), end)
    queued = has_launch & (returned <= start)
    until = np.maximum(until, start)
    # Nothing was recorded yet, and the first event had to wait on the device: for what was launched before.
    earlier = has_launch & (start <= activity.span[0]) & (end - until > until - start)
    loading = activity.dataloader.within(start, until)
    wait = waits.at(start, thread)
    kind = _at(call["kind"].values, wait)
    cause = np.select(
        [
            queued, earlier, (loading > 0) & (2 * loading >= until - start), kind == API_KINDS.index("sync"),
            wait >= 0, has_launch,
        ],
        [QUEUED, NOTHING, DATALOADER, SYNC, COPY, LAUNCH],
        NOTHING,
    )  # fmt: skip
    waited = (cause == SYNC) | (cause == COPY)
    thread = np.where(waited, _at(call["thread"].values, wait), thread)
    unknown = thread == NONE
    if unknown.any():
        thread = np.where(unknown, activity.launching_thread, thread)
    wait, stop = np.where(waited, wait, NONE), np.where(waited, start, until)
    late = np.flatnonzero(cause != QUEUED)
    place = _host_places(activity, work, cause, late, wait, event, thread, start, stop)
    return Gaps(
        np.full(len(start), device, np.int64), start, end, cause.astype(np.int64), _at(activity.id, event),
        thread.astype(np.int64), start, stop, places.numbers(activity, work, place),
    )  # fmt: skip


def _host_places(
    activity: Activity, work: HostWork, cause: Ints, late: Ints, wait: Ints, event: Ints, thread: Ints, start: Ints,
    until: Ints,
) -> pd.DataFrame:  # fmt: skip
    """Return the place of the host of each gap as numbers: `call`, `host`: ids of texts; `where`: place in WHERE;
    `operator`: in the table `operator`; `stack`: of Python functions, for `HostWork.stack`. -1 is none."""
    queued = cause == QUEUED
    own = Places(*(np.full(len(queued), NONE, np.int64) for _ in Places._fields))
    for column, values in zip(own, work.places(thread[late], start[late], until[late])):
        column[late] = values
    inside = activity.operators_of(wait)  # a call knows its operator
    inside = np.where(inside >= 0, inside, own.operator)
    kernel = np.where(queued, _at(activity.event["operator"].values, event), NONE)
    operator = np.where(queued, kernel, np.where(inside >= 0, inside, own.following))
    return pd.DataFrame(
        {
            "call": _at(activity.of_calls("name").values, wait),
            "host": np.where(own.text >= 0, own.text, own.function),
            "where": np.where(operator < 0, NONE, np.where(queued, 2, np.where(inside >= 0, 0, 1))),
            "operator": operator,
            "stack": own.stack,
        }
    )


def _at(values: Ints, place: Ints) -> Ints:
    """Return the values at some places, -1 at place -1."""
    out = np.full(len(place), NONE, np.int64)
    known = np.flatnonzero(place >= 0)
    out[known] = values[place[known]]
    return out


class Waits:
    """Calls in which a thread waited for the device, without nested ones. `threads`: starts, ends and places, by thread
    and start; `calls`: their places, ascending."""

    def __init__(self, activity: Activity):
        call = activity.call
        start = activity.of_calls("start_ns").values
        end = start + activity.of_calls("duration_ns").values
        sync = call["kind"].values == API_KINDS.index("sync")
        waiting = np.flatnonzero(sync | self._blocking(activity, end))
        self.threads: dict[int, tuple[Ints, Ints, Ints]] = {}
        thread = call["thread"].values[waiting]
        for number in np.unique(thread).tolist():
            calls = waiting[thread == number]
            reached = np.maximum.accumulate(end[calls])
            calls = calls[np.r_[True, end[calls][1:] > reached[:-1]]]
            self.threads[number] = start[calls], end[calls], calls
        self.calls: Ints = np.sort(np.concatenate([waiting[:0], *(one[2] for one in self.threads.values())]))

    @staticmethod
    def _blocking(activity: Activity, end: Ints) -> Bools:
        """Return a mask of copy calls that returned only after one of their copies had ended."""
        out = np.zeros(len(end), bool)
        copies = np.append(activity.call["kind"].values == API_KINDS.index("memcpy"), False)
        launched = np.flatnonzero(copies[activity.launch])
        place = activity.launch[launched]
        out[place[activity.end[launched] <= end[place]]] = True
        return out

    def at(self, time: Ints, thread: Ints) -> Ints:
        """Return the call that ran at each time on a thread, -1 for none; thread -1 matches any thread."""
        out = np.full(len(time), NONE, np.int64)
        for number, (start, end, place) in self.threads.items():
            pending = np.flatnonzero(((thread == number) | (thread == NONE)) & (out == NONE))
            last = np.searchsorted(start, time[pending], side="right") - 1
            runs = (last >= 0) & (end[np.maximum(last, 0)] > time[pending])
            out[pending[runs]] = place[last[runs]]
        return out
