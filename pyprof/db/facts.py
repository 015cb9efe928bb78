# SPDX-License-Identifier: Apache-2.0
"""From a recording to the tables of facts, one at a time: what is written is freed.

Ids are worker << 40 | number; numbers follow the start (of events the launch), so that a stretch of time is a range of
ids. See schema.sql for the columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof import intervals
from pyprof.db import blocks, columns, dimensions, hosts
from pyprof.db.columns import NONE, Stacks, ids, plain, table
from pyprof.db.operators import Operators
from pyprof.model import KERNEL, OPERATOR, Column, Ints, Rows, Trace
from pyprof.parse.api_names import api_kind
from pyprof.parse.instances import Instances, instances
from pyprof.parse.rows import Joined, join
from pyprof.prof import hardware
from pyprof.prof.attribute import TC_UNKNOWN, USED
from pyprof.prof.columns import View


class Facts:
    """The tables of one recording. Raises FormatError if it has neither kernels nor operators."""

    def __init__(self, trace: Trace):
        self.trace = trace
        self.joined: Joined = join(trace)
        self.rows: Rows = self.joined.rows
        self.instances: Instances = instances(trace, self.joined.found, self.joined.forward)
        self.operators = Operators()

    def tables(self) -> Iterator[tuple[str, pa.Table]]:
        """Every table of facts with its rows."""
        yield from self._events()
        yield "api", self._api()
        yield from self._op_tables()
        yield "operator", dimensions.operators(self.operators.rows, self._stacks, self.trace)
        yield from hosts.tables(self.trace, self.thread_worker)
        yield "step", hosts.steps(self.trace, self.workers)
        yield from self._small()

    @cached_property
    def workers(self) -> Ints:
        """Worker of each process, -1 for one without operators and GPU events; the last is of events of no process."""
        n = len(self.trace.processes)
        found = np.zeros(n + 1, bool)
        found[self.instances.process] = True
        found[self._row_process] = True
        out: Ints = np.where(found, np.cumsum(found) - 1, NONE)
        return out

    @cached_property
    def thread_worker(self) -> Ints:
        """Worker of each thread; the last is of "no thread"."""
        out: Ints = np.r_[self.workers[[t.process for t in self.trace.threads]], NONE].astype(np.int64)
        return out

    @cached_property
    def _row_process(self) -> Ints:
        """Process of each row; one more than there are stands for unknown."""
        pids = {process.pid: i for i, process in enumerate(self.trace.processes)}
        code, distinct = pd.factorize(np.where(self.rows.pid.mask(), self.rows.pid.values, NONE))
        return np.array([pids.get(pid, len(pids)) for pid in distinct.tolist()] or [0], np.int64)[code]

    # --- API calls

    @cached_property
    def _api_order(self) -> Ints:
        """API calls of workers, by worker and start."""
        launches = self.trace.launches
        worker = self.thread_worker[launches.thread]
        order = intervals.order_by(launches.start, launches.thread, -launches.end)
        order = order[np.argsort(worker[order], kind="stable")]
        return order[worker[order] >= 0]

    @cached_property
    def _api_id(self) -> Ints:
        """Id of each API call of the trace, -1 for one that is not kept; the last for "none"."""
        out = np.full(len(self.trace.launches) + 1, NONE, np.int64)
        order = self._api_order
        out[order] = ids(self.thread_worker[self.trace.launches.thread[order]])
        return out

    def _api(self) -> pa.Table:
        launches, order = self.trace.launches, self._api_order
        thread, name = launches.thread[order], launches.name[order]
        names = self.trace.strings
        used = np.unique(name)
        kinds = np.zeros(len(names), np.int8)
        kinds[used] = [api_kind(names[code]) for code in used.tolist()]
        return table(
            id=self._api_id[order], thread=thread, name=name, kind=kinds[name], start=launches.start[order],
            dur=launches.end[order] - launches.start[order], op=self._op_id[self._api_op[order]],
        )  # fmt: skip

    # --- executions of operators

    @cached_property
    def _pseudo(self) -> tuple[Ints, Ints]:
        """API calls outside of every operator, and rows that nothing launched: each stands for an execution."""
        span = self.joined.launch_span
        of_span = np.r_[self.instances.of_span, NONE]
        api = np.flatnonzero((of_span[span] < 0) & (self._api_id[:-1] >= 0))
        rows = np.flatnonzero((self.joined.row_launch < 0) & (of_span[self.joined.row_span] < 0))
        return api, rows

    @cached_property
    def _api_op(self) -> Ints:
        """Execution around each API call, by its number in `instances`, then `_pseudo`."""
        out: Ints = np.r_[self.instances.of_span, NONE][self.joined.launch_span].astype(np.int64)
        api = self._pseudo[0]
        out[api] = len(self.instances) + np.arange(len(api))
        return out

    @cached_property
    def _row_op(self) -> Ints:
        launch = self.joined.row_launch
        out: Ints = np.r_[self.instances.of_span, NONE][self.joined.row_span].astype(np.int64)
        if len(self.trace.launches):
            out = np.where(launch >= 0, self._api_op[launch], out)
        api, rows = self._pseudo
        out[rows] = len(self.instances) + len(api) + np.arange(len(rows))
        return out

    @cached_property
    def _ops(self) -> dict[str, Ints]:
        """Thread, start, end, cpu and worker of all executions, the pseudo ones last."""
        found, launches = self.instances, self.trace.launches
        api, rows = self._pseudo
        nowhere = np.full(len(rows), NONE, np.int64)
        start, end = launches.start[api], launches.end[api]
        row_start = self.rows.start[rows]
        return {
            "thread": np.r_[found.thread, launches.thread[api], nowhere],
            "start": np.r_[found.start, start, row_start],
            "end": np.r_[found.end, end, row_start],
            "cpu": np.r_[found.cpu, end - start, np.zeros(len(rows), np.int64)],
            "worker": np.r_[
                self.workers[found.process],
                self.thread_worker[launches.thread[api]],
                self.workers[self._row_process[rows]],
            ],
        }

    @cached_property
    def _op_order(self) -> Ints:
        ops = self._ops
        order = intervals.order_by(ops["start"], ops["thread"], -ops["end"])
        return order[np.argsort(ops["worker"][order], kind="stable")]

    @cached_property
    def _op_id(self) -> Ints:
        """Id of each execution; the last for "none"."""
        out = np.full(len(self._op_order) + 1, NONE, np.int64)
        out[self._op_order] = ids(self._ops["worker"][self._op_order])
        return out

    @cached_property
    def _operator(self) -> Ints:
        """Operator of each execution, numbered in the order in which they first ran."""
        api, rows = self._pseudo
        launches, names = self.trace.launches, self.trace.strings
        # A kind per execution: its site, else the name of the API call, else "no launch".
        site, n_sites = self.instances.site, len(self.instances.sites)
        kind = np.r_[site, n_sites + launches.name[api], np.full(len(rows), n_sites + len(names))]
        code, first = pd.factorize(kind[self._op_order])
        numbers = []
        for one in first.tolist():
            if one < n_sites:
                numbers.append(self.operators.of_site(self.instances.sites[one]))
            elif one < n_sites + len(names):
                numbers.append(self.operators.unassociated(names[one - n_sites].partition("_v")[0]))
            else:
                numbers.append(self.operators.unassociated("gpu_event"))
        out = np.empty(len(kind), np.int64)
        out[self._op_order] = np.array(numbers or [0], np.int64)[code]
        return out

    def _op_tables(self) -> Iterator[tuple[str, pa.Table]]:
        ops, order, found = self._ops, self._op_order, self.instances
        n, launches = len(order), self.trace.launches
        api = intervals.union_by(self._api_op, launches.start, launches.end, n)
        gpu, idle, kernel, kernels, tc, tc_kernels = self._on_device(n)
        forward = np.r_[found.forward, np.full(n - len(found), NONE)]
        seq = np.zeros(n, np.int64)
        seq[: len(found)] = found.seq.values
        numbered = np.zeros(n, bool)
        numbered[: len(found)] = found.seq.mask()
        parts: dict[str, Any] = {
            "thread": Column(ops["thread"], ops["thread"] >= 0), "operator": self._operator, "start": ops["start"],
            "end": ops["end"], "cpu": ops["cpu"], "api": api, "gpu": gpu, "idle": idle, "kernel": kernel, "tc": tc,
            "kernels": kernels, "tc_kernels": tc_kernels, "seq": Column(seq, numbered),
            "forward": Column(self._op_id[forward], forward >= 0),
        }  # fmt: skip
        parts = {key: columns.take(part, order) for key, part in parts.items()}
        identity = self._op_id[order]
        yield "op", table(id=identity, **parts)
        keys, sums = blocks.reduce(
            [identity >> blocks.SHIFT, parts["operator"]], blocks.of_ops(parts), blocks.OPS
        )
        yield "op_block", table(block=keys[0], operator=keys[1], **sums)

    def _on_device(self, n: int) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints]:
        """Per execution: union of its GPU events and idle time between them, sums and numbers of kernels."""
        rows, op = self.rows, self._row_op
        kernel = (rows.kind == KERNEL) | (rows.kind == OPERATOR)
        tc = self._tc == USED
        sums = [
            np.bincount(op[chosen], rows.duration[chosen], n).astype(np.int64)
            if len(op)
            else np.zeros(n, np.int64)
            for chosen in (kernel, tc)
        ]
        counts = [np.bincount(op[chosen], minlength=n) for chosen in (kernel, tc)]
        if (rows.kind == OPERATOR).any():  # own times do not overlap
            return sums[0], np.zeros(n, np.int64), sums[0], counts[0], sums[1], counts[1]
        device, distinct = pd.factorize(np.where(rows.device.mask(), rows.device.values, NONE))
        gpu, idle = np.zeros(n, np.int64), np.zeros(n, np.int64)
        for number in range(len(distinct)):
            here = np.flatnonzero(device == number)
            busy, extent = intervals.union_and_extent_by(op[here], rows.start[here], rows.end[here], n)
            gpu += busy
            idle += extent - busy
        return gpu, idle, sums[0], counts[0], sums[1], counts[1]

    # --- events

    @cached_property
    def _stacks(self) -> Stacks:
        return Stacks()

    @cached_property
    def _view(self) -> View:
        return View(self.rows, hardware.recorded(self.trace.devices, self.trace.meta))

    @cached_property
    def _costs(self) -> Any:
        return self._view.costs

    @cached_property
    def _tc(self) -> Ints:
        out: Ints = self._costs.tensor_cores
        return out

    def _events(self) -> Iterator[tuple[str, pa.Table]]:
        rows, joined = self.rows, self.joined
        worker = self.workers[self._row_process]
        launched = rows.launch_start.mask()
        launch = np.where(launched, rows.launch_start.values, rows.start)
        order = intervals.order_by(
            launch,
            rows.start,
            plain(rows.device),
            plain(rows.stream),
            plain(rows.correlation),
            rows.end,
            rows.name,
        )
        order = order[np.argsort(worker[order], kind="stable")]
        costs, cpu = self._costs, rows.kind == OPERATOR
        api = self._api_id[joined.row_launch]
        geometry, shapes = dimensions.geometry(rows)
        gpu, place, op = self.trace.gpu, joined.row_gpu, self._row_op
        copy = Column.missing(len(rows))
        copied, source, target = (
            (column.take(place) for column in (gpu.bytes, gpu.source_kind, gpu.target_kind))
            if len(gpu)
            else (copy, copy, copy)
        )
        least = self._view.roofline.time
        roofline = Column(np.rint(np.nan_to_num(least)).astype(np.int64), ~np.isnan(least))
        parts: dict[str, Any] = {
            "kind": rows.kind, "device": rows.device, "stream": rows.stream, "name": rows.name,
            "operator": self._operator[op], "op": self._op_id[op], "site": rows.site, "api": Column(api, api >= 0),
            "start": rows.start, "dur": rows.duration, "total": Column(rows.end - rows.start, cpu),
            "geometry": Column(geometry, rows.grid.mask()), "tc": Column(self._tc, self._tc != TC_UNKNOWN),
            "flops": costs.flops, "dense": costs.flops, "bytes": costs.bytes, "basis": costs.basis,
            "roofline": roofline, "copied": copied,
            "copy_from": source, "copy_to": target, "graph": rows.graph,
        }  # fmt: skip
        parts = {key: columns.take(part, order) for key, part in parts.items()}
        identity = ids(worker[order])
        yield "event", table(id=identity, **parts)
        parts["launch"] = Column(rows.launch_end.values - rows.launch_start.values, launched & ~cpu).take(
            order
        )
        by = [parts[name] for name in ("operator", "name", "kind")] + [self._tc[order]]
        keys, sums = blocks.reduce([identity >> blocks.SHIFT, *by], blocks.of_events(parts), blocks.EVENTS)
        del parts, identity
        yield "event_block", table(**dict(zip(("block", *blocks.EVENTS.keys), keys)), **sums)
        yield "geometry", shapes
        yield "kernel_name", dimensions.kernel_names(rows)
        yield "site", dimensions.sites(rows.sites, self._stacks)

    def _small(self) -> Iterator[tuple[str, pa.Table]]:
        stacks = (("\n".join(frames),) for frames in self._stacks.rows)
        yield (
            "stack",
            columns.rows({"id": int, "frames": str}, ((i, *frames) for i, frames in enumerate(stacks))),
        )
        row_worker, ops, spans = self.workers[self._row_process], self._ops, {}
        for worker in self.workers[self.workers >= 0].tolist():
            mine, events = ops["worker"] == worker, row_worker == worker
            starts = [int(part.min()) for part in (ops["start"][mine], self.rows.start[events]) if len(part)]
            ends = [int(part.max()) for part in (ops["end"][mine], self.rows.end[events]) if len(part)]
            spans[worker] = min(starts), max(ends)
        yield "worker", dimensions.workers(self.trace, self.workers, spans)
        yield "device", dimensions.devices(self.trace, self.rows, row_worker)
        yield "lost", columns.rows({"reason": str, "count": int}, self.rows.lost.items())
