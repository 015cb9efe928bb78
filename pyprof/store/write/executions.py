# SPDX-License-Identifier: Apache-2.0
"""Executions of operators, with their work on the CPU and on devices: the table `op`, and that of API calls.

API calls and GPU events outside of every operator count as executions too, of operators with `unassociated` set. So
every event belongs to exactly one execution, and sums over operators are sums over everything. API calls inside a
user's range, outside of operators, are executions of an operator with the range's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof.core import intervals
from pyprof.core.api_names import api_kind, without_version
from pyprof.core.model import KERNELS, OPERATOR, Bools, Column, Ints, Launches, Rows, Strings
from pyprof.parse.instances import Instances
from pyprof.parse.rows import Linked
from pyprof.store.moments import BEFORE
from pyprof.store.write import columns
from pyprof.store.write.columns import NONE, WORKER_SHIFT, ids, pieces, plain, table
from pyprof.store.write.operators import Operators


class ApiCalls:
    """API calls by worker and start. `id[i]` is the id of call i, -1 for one of a process that is not a worker. One
    more element, -1, is for index -1 (no call)."""

    def __init__(self, launches: Launches, thread_worker: Ints):
        self._launches = launches
        worker = thread_worker[launches.thread]
        order = intervals.order_by(launches.start, launches.thread, lambda index: -launches.end[index])
        self._order = order[np.argsort(worker[order], kind="stable")].astype(np.int32)
        if len(worker) and worker.min() < 0:
            self._order = self._order[worker[self._order] >= 0]
        self.id = np.full(len(launches) + 1, NONE, np.int64)
        self.id[self._order] = ids(worker[self._order])

    def tables(self, names: Strings, op: Ints) -> Iterator[pa.Table]:
        """Yield the table `api` in pieces; `op`: id of the execution around each call."""
        launches = self._launches
        used = np.unique(launches.name)
        kinds = np.zeros(len(names), np.int8)
        kinds[used] = [api_kind(names[code]) for code in used.tolist()]
        for piece in pieces(self.id[self._order] >> WORKER_SHIFT):
            order = self._order[piece]
            name, start = launches.name[order], launches.start[order]
            yield table(
                id=self.id[order], thread=launches.thread[order], name=name, kind=kinds[name], start_ns=start,
                duration_ns=launches.end[order] - start, op=op[order],
            )  # fmt: skip


def launch_times(rows: Rows, worker: Ints) -> Ints:
    """Return when each row was launched, ns.

    Streams work in order, so an event without a launch record was launched after the event before it on its stream, at
    whose launch it stands here, or before the recording began (-1), if there is none. Of events that start together it
    is the first, as in the order of rows. Without any record of a worker, its events stand at their starts.
    """
    known = rows.launch_start.mask()
    launch: Ints = np.where(known, rows.launch_start.values, rows.start)
    if known.all() or not known.any():
        return launch
    device, stream = plain(rows.device), plain(rows.stream)
    order = intervals.order_by(worker, device, stream, rows.start)
    key = np.column_stack([worker, device, stream])[order]
    fresh = np.r_[True, (key[1:] != key[:-1]).any(axis=1)]
    first = np.maximum.accumulate(np.where(fresh, np.arange(len(order)), 0))
    before = np.maximum.accumulate(np.where(known[order], np.arange(len(order)), -1))
    recorded = np.isin(worker, np.unique(worker[known]))[order]
    late = np.where(before >= first, launch[order[np.maximum(before, 0)]], BEFORE)
    launch[order] = np.where(known[order] | ~recorded, launch[order], late)
    return launch


class Executions:
    """All executions: those of `instances`, then API calls outside of them, then rows (GPU events) without a launch.

    `of_call`, `of_row`: index of the execution of each API call and of each row. Per execution: `operator`, the number
    of its operator, and `id`, with one more element, -1, for index -1 (no execution).
    """

    def __init__(
        self,
        instances: Instances,
        linked: Linked,
        calls: ApiCalls,
        launches: Launches,
        names: Strings,
        workers: Ints,
        thread_worker: Ints,
        row_process: Ints,
    ):
        of_span = np.r_[instances.of_span, NONE].astype(np.int32)
        rows, self._instances, self._launches = linked.rows, instances, launches
        self.of_call = of_span[linked.launch_span]
        outside = np.flatnonzero((self.of_call < 0) & (calls.id[:-1] >= 0))  # API calls outside of operators
        self.of_call[outside] = len(instances) + np.arange(len(outside))
        self.of_row = of_span[linked.row_span]
        if len(launches):
            launched = (self.of_row < 0) & (linked.row_launch >= 0)
            self.of_row = np.where(launched, self.of_call[linked.row_launch], self.of_row)
        unlaunched = np.flatnonzero(self.of_row < 0)  # rows without a launch
        self.of_row[unlaunched] = len(instances) + len(outside) + np.arange(len(unlaunched))
        self._thread = np.r_[instances.thread, launches.thread[outside], np.full(len(unlaunched), NONE)]
        # A row without a launch has no side on the CPU: its execution has no length.
        begun = launch_times(rows, workers[row_process])[unlaunched]
        self.start = np.r_[instances.start, launches.start[outside], begun]
        self.end = np.r_[instances.end, launches.end[outside], begun]
        outside_cpu = np.r_[(launches.end - launches.start)[outside], np.zeros(len(unlaunched), np.int64)]
        self._cpu = Column(
            np.r_[instances.cpu.values, outside_cpu],
            np.r_[instances.cpu.mask(), np.ones(len(outside_cpu), bool)],
        )
        self.worker = np.r_[
            workers[instances.process],
            thread_worker[launches.thread[outside]],
            workers[row_process[unlaunched]],
        ].astype(np.int32)
        order = intervals.order_by(self.start, self._thread, lambda index: -self.end[index])
        self._order = order[np.argsort(self.worker[order], kind="stable")].astype(np.int32)
        self.id = np.full(len(order) + 1, NONE, np.int64)
        self.id[self._order] = ids(self.worker[self._order])
        self.operators = Operators()
        self.operator = self._number_operators(names, linked, outside, len(unlaunched))

    def __len__(self) -> int:
        return len(self.start)

    def keep_operators(self) -> None:
        """Release all but `of_row`, `operator` and `id`, once the tables are made."""
        for name in vars(self).keys() - {"of_row", "operator", "id"}:
            delattr(self, name)

    def _number_operators(self, names: Strings, linked: Linked, outside: Ints, unlaunched: int) -> Ints:
        """Return the number of the operator of each execution, counted in the order of first execution. `outside`: API
        calls outside of operators; `unlaunched`: how many rows have no launch.

        A key identifies the operator of an execution: the number of its site; above those, the name of an API call
        outside of operators combined with the user's ranges around it; last, one key for all rows without a launch.
        """
        sites, ranges = self._instances.sites, linked.ranges
        first_call_key, no_launch_key = len(sites), len(sites) + len(names) * len(ranges)
        call_name = self._launches.name[outside].astype(np.int64)
        call_key = first_call_key + call_name * len(ranges) + linked.launch_ranges[outside]
        keys = np.r_[self._instances.site, call_key, np.full(unlaunched, no_launch_key)]
        code, distinct = pd.factorize(keys[self._order])
        numbers = []
        for key in distinct.tolist():
            if key < first_call_key:
                numbers.append(self.operators.of_site(sites[key]))
            elif key < no_launch_key:
                name, path = divmod(key - first_call_key, len(ranges))
                numbers.append(self.operators.outside(without_version(names[name]), ranges[path]))
            else:
                numbers.append(self.operators.outside("gpu_event"))
        out = np.empty(len(keys), np.int32)
        out[self._order] = np.array(numbers or [0], np.int32)[code]
        return out

    def tables(self, rows: Rows, uses_tc: Bools) -> Iterator[pa.Table]:
        """Yield the table `op` in pieces. `uses_tc`: rows that used tensor cores."""
        order, n, instance_count = self._order, len(self), len(self._instances)
        forward = np.r_[self._instances.forward, np.full(n - instance_count, NONE)]
        seq, has_seq = np.zeros(n, np.int64), np.zeros(n, bool)
        seq[:instance_count], has_seq[:instance_count] = (
            self._instances.seq.values,
            self._instances.seq.mask(),
        )
        parts: dict[str, Any] = {
            "thread": Column(self._thread, self._thread >= 0), "operator": self.operator, "start_ns": self.start,
            "end_ns": self.end, "cpu_ns": self._cpu, "seq": Column(seq, has_seq),
            "api_ns": intervals.union_by(self.of_call, self._launches.start, self._launches.end, n),
            "forward": Column(self.id[forward], forward >= 0), **self._on_device(rows, uses_tc),
        }  # fmt: skip
        for piece in pieces(self.worker[order]):
            index = order[piece]
            own: dict[str, Any] = {key: columns.take(part, index) for key, part in parts.items()}
            yield table(id=self.id[index], **own)

    def _on_device(self, rows: Rows, uses_tc: Bools) -> dict[str, Ints]:
        """Return the columns of `op` about devices, as schema.sql describes them, per execution; times in ns."""
        n, op = len(self), self.of_row
        kernel = np.isin(rows.kind, (*KERNELS, OPERATOR))
        out: dict[str, Ints] = {}
        for name, count, mask in (("kernel_ns", "kernels", kernel), ("tc_ns", "tc_kernels", uses_tc)):
            # Sums of ns stay below 2**53, where a float is exact.
            out[name] = np.bincount(op[mask], rows.duration[mask], n).astype(np.int64)
            out[count] = np.bincount(op[mask], minlength=n)
        if (rows.kind == OPERATOR).any():  # without a GPU: the rows' own times, which do not overlap
            return {**out, "gpu_ns": out["kernel_ns"], "idle_ns": np.zeros(n, np.int64)}
        device, distinct = pd.factorize(plain(rows.device))
        if len(distinct) <= 1:
            busy, extent = intervals.union_and_extent_by(op, rows.start, rows.end, n)
            return {**out, "gpu_ns": busy, "idle_ns": extent - busy}
        pair, pairs = pd.factorize(np.where(op >= 0, op.astype(np.int64) * len(distinct) + device, -1))
        busy, extent = intervals.union_and_extent_by(pair, rows.start, rows.end, len(pairs))
        out["gpu_ns"], out["idle_ns"] = np.zeros(n, np.int64), np.zeros(n, np.int64)
        in_execution = np.flatnonzero(pairs >= 0)
        np.add.at(out["gpu_ns"], pairs[in_execution] // len(distinct), busy[in_execution])
        np.add.at(out["idle_ns"], pairs[in_execution] // len(distinct), (extent - busy)[in_execution])
        return out
