# SPDX-License-Identifier: Apache-2.0
"""What all events of a Chrome trace need: rows of a database in pieces, numbers of threads, executions and calls."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pyprof.export import Window, dimensions
from pyprof.export.json_text import line, micro, number
from pyprof.export.tracks import Tracks
from pyprof.model import Bools, Column, Ints
from pyprof.store.files import Store

PIECE = 1 << 16  # rows
SHIFT = 40
MASK = (1 << SHIFT) - 1


class Events:
    """A database and a window; columns of JSON objects are made of it."""

    def __init__(self, store: Store, window: Window):
        self.store, self.window, self.tracks = store, window, Tracks(store)
        self.gpu = bool(store.rows("select 1 from event_block where kind < 3 limit 1"))
        self._bases = {table: self._first(table) for table in ("op", "api")}
        self.strings = dict(store.rows("select id, text from string"))
        self.operators, self.places = dimensions.operators(store), dimensions.places(store)
        self.sites = dimensions.sites(store)

    def _first(self, table: str) -> dict[int, int]:
        """What is added to the number of a row of a worker, so that rows of all workers differ; from 1."""
        out, base = {}, 1
        for (worker,) in self.store.rows("select id from worker order by id"):
            out[worker] = base
            low, high = worker << SHIFT, (worker + 1) << SHIFT
            last = self.store.rows(f"select max(id) from {table} where id >= ? and id < ?", (low, high))[0][0]
            base += 0 if last is None else (last & MASK) + 1
        return out

    def pieces(
        self, table: str, worker: int, query: str, begin: str, length: str
    ) -> Iterator[dict[str, Column]]:
        """Rows of a table in the window in pieces; the query ends with a condition that the id is added to."""
        first, stop = worker << SHIFT, (worker + 1) << SHIFT
        bounds = f"select min(id), max(id) from {table} where id >= {first} and id < {stop}"
        low, high = self.store.rows(bounds)[0]
        within = self.window.sql(begin, length)
        for at in range(low or 0, (-1 if high is None else high) + 1, PIECE):
            found = self.store.columns(
                f"{query} {table}.id >= {at} and {table}.id < {min(at + PIECE, stop)} and {within} order by {table}.id"
            )
            if len(found["id"].values):
                yield found

    def on_thread(self, thread: Ints) -> tuple[pa.Array, pa.Array]:
        """Process and thread."""
        return number(self.tracks.thread_pid[thread]), number(self.tracks.tid[thread])

    def external(self, op: Column) -> pa.Array:
        """The number of an execution."""
        return number(Column(self.number_of("op", op.values), op.mask()))

    def number_of(self, table: str, ids: Ints) -> Ints:
        """Numbers of rows of `op` or `api` that differ between workers."""
        workers, place = np.unique(ids >> SHIFT, return_inverse=True)
        bases = np.array([self._bases[table].get(one, 0) for one in workers.tolist()], np.int64)
        out: Ints = bases[place] + (ids & MASK)
        return out

    def inside(self, start: Ints, dur: Ints) -> Bools:
        """Which calls are in the window."""
        begin, end = self.window
        inside: Bools = np.ones(len(start), bool) if end is None else start < end
        return inside if begin is None else inside & ((start + dur > begin) | (start == begin))


def event(
    what: str, common: pa.Array, start: Ints, dur: Ints | None, rest: pa.Array, some: Ints | None = None
) -> pa.Array:
    """Events of a phase; `some` of the rows, or all."""
    if some is not None:
        index = pa.array(some)
        common, rest = common.take(index), rest.take(index)
        start, dur = start[some], None if dur is None else dur[some]
    length: tuple[pa.Array | str, ...] = () if dur is None else (',"dur":', micro(dur))
    return line(f'{{"ph":"{what}",', common, ',"ts":', micro(start), *length, rest)


def flow(what: str, name: str, identity: pa.Array, pid: pa.Array, tid: pa.Array, time: Ints) -> pa.Array:
    """One end of arrows; that of an `f` is what encloses it."""
    end = ',"bp":"e"}' if what == "f" else "}"
    return line(
        f'{{"ph":"{what}","id":', identity, ',"pid":', pid, ',"tid":', tid, ',"ts":', micro(time),
        f',"cat":"{name}","name":"{name}"{end}',
    )  # fmt: skip
