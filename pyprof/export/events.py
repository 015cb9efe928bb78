# SPDX-License-Identifier: Apache-2.0
"""Common parts of all events of a Chrome trace: database rows in pieces, numbers of threads, executions and calls."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pyprof.core.model import Bools, Column, Ints
from pyprof.export import Window, dimensions
from pyprof.export.json_text import line, micro, number
from pyprof.export.tracks import Tracks
from pyprof.store import reads
from pyprof.store.files import Store

PIECE = 1 << 16  # rows
SHIFT = 40
MASK = (1 << SHIFT) - 1


class Events:
    """Database and window, the source of columns of JSON objects."""

    def __init__(self, store: Store, window: Window):
        self.store, self.window, self.tracks = store, window, Tracks(store)
        self.gpu = reads.has_gpu(store)
        self._bases = {table: self._first(table) for table in ("op", "api")}
        self.strings = reads.texts(store)
        self.operators, self.places = dimensions.operators(store), dimensions.places(store)
        self.sites = dimensions.sites(store)

    def _first(self, table: str) -> dict[int, int]:
        """Return the offset added to each worker's row numbers to make them unique across workers; from 1."""
        out, base = {}, 1
        for (worker,) in self.store.rows("select id from worker order by id"):
            out[worker] = base
            low, high = worker << SHIFT, (worker + 1) << SHIFT
            last = self.store.rows(f"select max(id) from {table} where id >= ? and id < ?", (low, high))[0][0]
            base += 0 if last is None else (last & MASK) + 1
        return out

    def pieces(self, table: str, worker: int, query: str, begin: str, length: str) -> Iterator[dict[str, Column]]:
        """Yield rows of a table in the window in pieces; the query ends so that the condition on the id can be
        appended."""
        first, stop = worker << SHIFT, (worker + 1) << SHIFT
        bounds = f"select min(id), max(id) from {table} where id >= {first} and id < {stop}"
        low, high = self.store.rows(bounds)[0]
        within = self.window.sql(begin, length)
        for at in range(low or 0, (-1 if high is None else high) + 1, PIECE):
            rows = self.store.columns(
                f"{query} {table}.id >= {at} and {table}.id < {min(at + PIECE, stop)} and {within} order by {table}.id"
            )
            if len(rows["id"].values):
                yield rows

    def on_thread(self, thread: Ints) -> tuple[pa.Array, pa.Array]:
        """Return process and thread."""
        return number(self.tracks.thread_pid[thread]), number(self.tracks.tid[thread])

    def external(self, op: Column) -> pa.Array:
        """Return the number of an execution."""
        return number(Column(self.number_of("op", op.values), op.mask()))

    def number_of(self, table: str, ids: Ints) -> Ints:
        """Return numbers of rows of `op` or `api` that are unique across workers."""
        workers, place = np.unique(ids >> SHIFT, return_inverse=True)
        bases = np.array([self._bases[table].get(worker, 0) for worker in workers.tolist()], np.int64)
        out: Ints = bases[place] + (ids & MASK)
        return out

    def inside(self, start: Ints, dur: Ints) -> Bools:
        """Return a mask of the calls in the window."""
        begin, end = self.window
        inside: Bools = np.ones(len(start), bool) if end is None else start < end
        return inside if begin is None else inside & ((start + dur > begin) | (start == begin))


def event(
    phase: str, common: pa.Array, start: Ints, dur: Ints | None, tail: pa.Array, places: Ints | None = None
) -> pa.Array:
    """Return events of a phase, for the rows at `places` or all."""
    if places is not None:
        index = pa.array(places)
        common, tail = common.take(index), tail.take(index)
        start, dur = start[places], None if dur is None else dur[places]
    length: tuple[pa.Array | str, ...] = () if dur is None else (',"dur":', micro(dur))
    return line(f'{{"ph":"{phase}",', common, ',"ts":', micro(start), *length, tail)


def flow(phase: str, name: str, identity: pa.Array, pid: pa.Array, tid: pa.Array, time: Ints) -> pa.Array:
    """Return one end of flow arrows; an end of phase `f` binds to the enclosing event."""
    end = ',"bp":"e"}' if phase == "f" else "}"
    return line(
        f'{{"ph":"{phase}","id":', identity, ',"pid":', pid, ',"tid":', tid, ',"ts":', micro(time),
        f',"cat":"{name}","name":"{name}"{end}',
    )  # fmt: skip
