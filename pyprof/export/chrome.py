# SPDX-License-Identifier: Apache-2.0
"""Chrome trace JSON, as torch.profiler writes it, for Perfetto and everything else that reads such traces.

Threads of processes and streams of devices are rows. Launches and what they started are joined by `ac2g` flows, forward
and backward executions of operators by `fwdbwd` flows; iterations are ranges ProfilerStep#N. Arguments beyond
torch.profiler's say what the profile knows: op, module, stack, flops, bytes. "External id" is the execution of an
operator that an event belongs to. Events are written in pieces: memory does not grow with their number.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa

import pyprof
from pyprof.db.store import Store
from pyprof.export import Window, describe, dimensions, exporter
from pyprof.export.text import chosen, line, micro, number, optional, put, quoted
from pyprof.export.tracks import Tracks
from pyprof.model import MARK, MEMSET, START_END, Bools, Column, Ints
from pyprof.parse.merge import unix_start

_PIECE = 1 << 16  # rows
_SHIFT = 40
_MASK = (1 << _SHIFT) - 1
_LEVEL = 5  # of gzip
_EVENT, _FUNCTION = 3, 4  # kinds of ranges


@exporter("chrome")
def chrome(store: Store, window: Window, path: str, compress: bool) -> None:
    """Chrome trace JSON, of a name that ends in .gz compressed."""
    with open(path, "wb") as raw:
        if not compress:
            _write(store, window, raw)
            return
        with gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as file:
            _write(store, window, file)  # type: ignore[arg-type]


def _write(store: Store, window: Window, file: BinaryIO) -> None:
    head: dict[str, Any] = {
        "schemaVersion": 1, "pyprof": pyprof.__version__, "deviceProperties": dimensions.devices(store),
        "displayTimeUnit": "ms", "traceName": store.meta.get("source", ""),
    }  # fmt: skip
    begin = unix_start(int(store.meta.get("t0", 0)), store.meta)
    if begin is not None:
        head["baseTimeNanoseconds"] = begin
    file.write(json.dumps(head)[:-1].encode() + b', "traceEvents": [\n')
    trace = _Trace(store, window)
    file.write(",\n".join(trace.tracks.lines()).encode())
    for part in trace.parts():
        put(line(",\n", part), file)
    file.write(b"\n]}\n")


class _Trace:
    """All events of a database in a window, as columns of JSON objects."""

    def __init__(self, store: Store, window: Window):
        self.store, self.window, self.tracks = store, window, Tracks(store)
        self._gpu = bool(store.rows("select 1 from event_block where kind < 3 limit 1"))
        self._base = self._bases("op"), self._bases("api")
        self._strings = dict(store.rows("select id, text from string"))
        self._operators, self._places = dimensions.operators(store), dimensions.places(store)
        self._sites = dimensions.sites(store)

    def _bases(self, table: str) -> dict[int, int]:
        """What is added to the number of a row of a worker, so that rows of all workers differ; from 1."""
        out, base = {}, 1
        for (worker,) in self.store.rows("select id from worker order by id"):
            out[worker] = base
            low, high = worker << _SHIFT, (worker + 1) << _SHIFT
            last = self.store.rows(f"select max(id) from {table} where id >= ? and id < ?", (low, high))[0][0]
            base += 0 if last is None else (last & _MASK) + 1
        return out

    def parts(self) -> Iterator[pa.Array]:
        """All events."""
        yield from self._steps()
        for worker in self.tracks.pid:
            yield from self._ranges(worker)
            yield from self._api(worker)
            if self._gpu:
                yield from self._events(worker)
            yield from self._backward(worker)
            yield from self._memory(worker)

    # --- reading

    def _pieces(
        self, table: str, worker: int, query: str, begin: str, length: str
    ) -> Iterator[dict[str, Column]]:
        """Rows of a table in the window in pieces; the query ends with a condition that the id is added to."""
        first, stop = worker << _SHIFT, (worker + 1) << _SHIFT
        bounds = f"select min(id), max(id) from {table} where id >= {first} and id < {stop}"
        low, high = self.store.rows(bounds)[0]
        within = self.window.sql(begin, length)
        for at in range(low or 0, (-1 if high is None else high) + 1, _PIECE):
            found = self.store.columns(
                f"{query} {table}.id >= {at} and {table}.id < {min(at + _PIECE, stop)} and {within} order by {table}.id"
            )
            if len(found["id"].values):
                yield found

    def _on_thread(self, thread: Ints) -> tuple[pa.Array, pa.Array]:
        return number(self.tracks.thread_pid[thread]), number(self.tracks.tid[thread])

    def _external(self, op: Column) -> pa.Array:
        """The number of an execution."""
        return number(Column(self._global(op.values, 0), op.mask()))

    def _global(self, ids: Ints, which: int) -> Ints:
        workers = np.array(
            [self._base[which].get(int(w), 0) for w in np.unique(ids >> _SHIFT)] or [0], np.int64
        )
        return workers[np.unique(ids >> _SHIFT, return_inverse=True)[1]] + (ids & _MASK)

    # --- what ran on the CPU

    def _ranges(self, worker: int) -> Iterator[pa.Array]:
        event = "null"
        if not self._gpu:  # its figures are those of the operator event
            event = """(select e.id from event e join kernel_name k on k.id = e.name
                        where e.kind = 3 and e.device is null and e.stream = thread.tid and e.start = range.start
                        and e.total = range.dur and k.name = string.text and e.id >> 40 = range.id >> 40 limit 1)"""
        query = f"""select range.id, range.thread, range.kind, range.start, range.dur, range.text, range.args,
                           range.seq, event.operator, event.site, event.op, event.flops, event.bytes
                    from range join thread on thread.id = range.thread join string on string.id = range.text
                    left join event on event.id = {event} where"""
        for found in self._pieces("range", worker, query, "range.start", "range.dur"):
            kind = found["kind"].values
            shown, code = self._shown(found)
            operator = np.array([one.category == describe.OPERATOR for one in shown], bool)[code]
            if self._gpu:
                self._executions(worker, found, operator)
            ids = found["id"].values
            args = line(
                chosen([one.args for one in shown], code),
                optional(',"Sequence number":', number(found["seq"])),
                optional(',"External id":', self._external(found["op"])),
                optional(',"flops":', number(found["flops"])), optional(',"bytes":', number(found["bytes"])),
                optional("", chosen(self._operators, found["operator"])),
                optional("", chosen(self._places, found["operator"])),
            )  # fmt: skip
            pid, tid = self._on_thread(found["thread"].values)
            start, dur = found["start"].values, found["dur"].values
            common = line(
                '"name":', chosen([one.name for one in shown], code), ',"cat":"',
                chosen([one.category for one in shown], code), '","pid":', pid, ',"tid":', tid,
            )  # fmt: skip
            args = line(',"args":{"Range id":', number(ids & _MASK), args, "}}")
            plain, between, mark = (
                np.flatnonzero(m)
                for m in ((kind != START_END) & (kind != MARK), kind == START_END, kind == MARK)
            )
            yield _event("X", common, start, dur, args, plain)
            yield _event("i", common, start, None, line(',"s":"t"', args), mark)
            same = line(',"id":', number(ids))
            yield _event("b", common, start, None, line(same, args), between)
            yield _event("e", common, start + dur, None, line(same, "}"), between)

    def _shown(self, found: dict[str, Column]) -> tuple[list[describe.Shown], Ints]:
        """What the distinct ranges are, and which each is."""
        kind, args, numbered = found["kind"].values, found["args"], found["seq"].mask()
        keys = np.column_stack([
            np.minimum(kind, _FUNCTION), found["text"].values, np.where(args.mask(), args.values, -1), numbered,
        ])  # fmt: skip
        distinct, code = np.unique(keys, axis=0, return_inverse=True)
        out = []
        for what, text, more, has in distinct.tolist():
            name = self._strings[text]
            if what == _FUNCTION:
                out.append(describe.Shown(quoted(name), describe.FUNCTION))
            elif what == _EVENT:
                out.append(describe.of_event(name, self._strings.get(more)))
            else:
                out.append(describe.of_range(name, bool(has)))
        return out, code.reshape(-1)

    def _executions(self, worker: int, found: dict[str, Column], operator: Bools) -> None:
        """Put into a piece of ranges the executions that begin with one: of equal begins the outermost."""
        start, thread = found["start"].values, found["thread"].values
        low, high = (self._first_op(worker, time) for time in (int(start.min()), int(start.max()) + 1))
        ops = self.store.columns(
            f"""select id, thread, operator, start from op where id >= {low} and id < {high} and thread is not null"""
        )
        left = pd.DataFrame({"thread": thread, "start": start})
        right = pd.DataFrame({name: ops[name].values for name in ("thread", "start", "id", "operator")})
        both = left.merge(right.drop_duplicates(["thread", "start"]), how="left", on=["thread", "start"])
        known = both["id"].notna().to_numpy() & operator
        places = np.flatnonzero(known)
        again = left.iloc[places].duplicated().to_numpy()
        known[places[again]] = False
        for name, key in (("op", "id"), ("operator", "operator")):
            found[name] = Column(both[key].fillna(0).to_numpy().astype(np.int64), known)

    def _first_op(self, worker: int, time: int) -> int:
        """The first execution of a worker that starts at a time or after it: they are in the order of their starts."""
        low = worker << _SHIFT
        high = (
            low
            + (self.store.rows("select max(id) from op where id < ?", ((worker + 1) << _SHIFT,))[0][0] or 0)
            + 1
        )
        high = min(high, (worker + 1) << _SHIFT)
        while low < high:
            middle = (low + high) // 2
            row = self.store.rows("select start from op where id = ?", (middle,))
            if row and row[0][0] < time:
                low = middle + 1
            else:
                high = middle
        return low

    def _api(self, worker: int) -> Iterator[pa.Array]:
        query = "select api.id, api.thread, api.name, api.start, api.dur, api.op from api where"
        names = dimensions.calls(self._strings)
        for found in self._pieces("api", worker, query, "api.start", "api.dur"):
            pid, tid = self._on_thread(found["thread"].values)
            name = found["name"].values
            common = line(chosen(names, name), ',"pid":', pid, ',"tid":', tid)
            args = line(
                ',"args":{"correlation":', number(self._global(found["id"].values, 1)),
                optional(',"External id":', self._external(found["op"])), "}}",
            )  # fmt: skip
            yield _event("X", common, found["start"].values, found["dur"].values, args)

    def _steps(self) -> Iterator[pa.Array]:
        """Iterations of the first cut, unless they are ranges anyway."""
        cut = self.store.rows("select method from iteration_set order by id limit 1")
        if not cut or cut[0][0] in ("ranges", "none"):
            return
        main = dict(
            self.store.rows(
                """select worker, thread from (select id >> 40 as worker, thread, count(*) as n from op
                   where thread is not null group by 1, 2 order by n, thread desc)"""
            )
        )
        rows = self.store.rows(
            f"""select worker, number, start, "end" - start from iteration where iteration_set =
                (select min(id) from iteration_set) and {self.window.sql("start", '("end" - start)')} order by 1, 2"""
        )
        rows = [(*row, main[row[0]]) for row in rows if row[0] in main]
        if rows:
            _, step, start, dur, thread = np.array(rows, np.int64).T
            pid, tid = self._on_thread(thread)
            common = line(
                '"name":"ProfilerStep#', number(step), '","cat":"user_annotation","pid":', pid, ',"tid":', tid
            )
            yield _event("X", common, start, dur, line(',"args":{"step":', number(step), "}}"))

    def _memory(self, worker: int) -> Iterator[pa.Array]:
        query = """select memory.id, thread, time, device, address, bytes, allocated, reserved from memory where"""
        for found in self._pieces("memory", worker, query, "time", "0"):
            pid, tid = self._on_thread(found["thread"].values)
            common = line('"name":"[memory]","cat":"cpu_instant_event","pid":', pid, ',"tid":', tid)
            device = found["device"]
            args = line(
                ',"s":"t","args":{"Bytes":', number(found["bytes"]), optional(',"Addr":', number(found["address"])),
                optional(',"Total Allocated":', number(found["allocated"])),
                optional(',"Total Reserved":', number(found["reserved"])),
                ',"Device Id":', number(np.where(device.mask(), device.values, -1)),
                ',"Device Type":', number(device.mask().astype(np.int64)), "}}",
            )  # fmt: skip
            yield _event("i", common, found["time"].values, None, args)

    # --- what ran on devices, and the flows

    def _events(self, worker: int) -> Iterator[pa.Array]:
        query = """select event.id, event.kind, event.device, event.stream, event.name, event.operator, event.op,
                          event.site, event.api, event.start, event.dur, event.geometry, event.flops, event.bytes,
                          event.copied, event.graph, api.thread, api.start as launch, api.dur as launch_dur
                   from event left join api on api.id = event.api where event.kind < 3 and"""
        names, shapes = dimensions.kernels(self.store), dimensions.geometries(self.store)
        drawn = np.zeros(0, bool)  # by API call: whether its flow has begun
        for found in self._pieces("event", worker, query, "event.start", "event.dur"):
            pids, tids = self.tracks.of_event(worker, found["device"], found["stream"])
            place = line(',"pid":', number(pids), ',"tid":', number(tids))
            common = line(
                chosen(names, found["name"].values),
                chosen(dimensions.CATEGORIES, found["kind"].values),
                place,
            )
            api = found["api"]
            flow = number(Column(self._global(api.values, 1), api.mask()))
            args = line(
                ',"args":{"device":', number(np.where(found["device"].mask(), found["device"].values, -1)),
                ',"stream":', number(tids), optional(',"correlation":', flow),
                optional(',"External id":', self._external(found["op"])),
                optional("", chosen(shapes, found["geometry"])),
                optional(',"bytes":', number(_bytes(found))), optional(',"flops":', number(found["flops"])),
                optional(',"graph node id":', number(found["graph"])),
                optional("", chosen(self._operators, found["operator"])),
                optional("", chosen(self._sites, found["site"])), "}}",
            )  # fmt: skip
            start = found["start"].values
            yield _event("X", common, start, found["dur"].values, args)
            joined = api.mask() & self._inside(found["launch"].values, found["launch_dur"].values)
            if joined.any():
                call = api.values & _MASK
                if len(drawn) <= int(call[joined].max()):
                    drawn = np.r_[drawn, np.zeros(int(call[joined].max()) + 1 - len(drawn), bool)]
                fresh = np.flatnonzero(joined & ~drawn[np.where(joined, call, 0)])
                fresh = fresh[np.unique(call[fresh], return_index=True)[1]]
                drawn[call[fresh]] = True
                pid, tid = self._on_thread(found["thread"].values[fresh])
                yield _flow("s", "ac2g", flow.take(pa.array(fresh)), pid, tid, found["launch"].values[fresh])
                ends = np.flatnonzero(joined)
                yield _flow(
                    "f",
                    "ac2g",
                    flow.take(pa.array(ends)),
                    number(pids[ends]),
                    number(tids[ends]),
                    start[ends],
                )

    def _inside(self, start: Ints, dur: Ints) -> Any:
        """Which calls are in the window."""
        begin, end = self.window
        inside = np.ones(len(start), bool) if end is None else start < end
        return inside if begin is None else inside & ((start + dur > begin) | (start == begin))

    def _backward(self, worker: int) -> Iterator[pa.Array]:
        both = f"{self.window.sql('op.start', 'op.length')}"
        query = f"""select op.id, op.thread, op.start, f.thread as from_thread, f.start as from_start
                    from (select *, "end" - start as length from op) op
                    join (select *, "end" - start as length from op) f on f.id = op.forward
                    where op.thread is not null and f.thread is not null and {both.replace("op.", "f.")} and"""
        for found in self._pieces("op", worker, query, "op.start", "op.length"):
            identity = number(self._global(found["id"].values, 0))
            for what, thread, start in (("s", "from_thread", "from_start"), ("f", "thread", "start")):
                pid, tid = self._on_thread(found[thread].values)
                yield _flow(what, "fwdbwd", identity, pid, tid, found[start].values)


def _bytes(found: dict[str, Column]) -> Column:
    """What a copy or set moves; of a kernel its algorithmic bytes."""
    copied, kernel = found["copied"], found["bytes"]
    memory = (found["kind"].values > 0) & (found["kind"].values <= MEMSET)
    return Column(
        np.where(memory, copied.values, kernel.values), np.where(memory, copied.mask(), kernel.mask())
    )


def _event(
    what: str, common: pa.Array, start: Ints, dur: Ints | None, rest: pa.Array, some: Ints | None = None
) -> pa.Array:
    """Events of a phase; `some` of the rows, or all."""
    if some is not None:
        index = pa.array(some)
        common, rest = common.take(index), rest.take(index)
        start, dur = start[some], None if dur is None else dur[some]
    length: tuple[pa.Array | str, ...] = () if dur is None else (',"dur":', micro(dur))
    return line(f'{{"ph":"{what}",', common, ',"ts":', micro(start), *length, rest)


def _flow(what: str, name: str, identity: pa.Array, pid: pa.Array, tid: pa.Array, time: Ints) -> pa.Array:
    """One end of arrows; that of an `f` is what encloses it."""
    end = ',"bp":"e"}' if what == "f" else "}"
    return line(
        f'{{"ph":"{what}","id":', identity, ',"pid":', pid, ',"tid":', tid, ',"ts":', micro(time),
        f',"cat":"{name}","name":"{name}"{end}',
    )  # fmt: skip
