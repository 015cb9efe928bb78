# SPDX-License-Identifier: Apache-2.0
"""Small profile databases, written row by row: whatever a rule may meet, in a few lines.

>>> made = Small(steps=2, length=1000)
>>> made.kernel("volta_sgemm", 400, 50, made.op("linear", 100, 300))
>>> with opened(made) as database:
...     database.rows("select kind, start_ns, duration_ns from event")
[(0, 400, 50)]
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyprof.core.api_names import api_kind
from pyprof.core.model import KERNEL, MEMCPY, MEMSET, OPERATOR, PUSH_POP
from pyprof.costs import kernels
from pyprof.facts.steps.aggregation import aggregate
from pyprof.store.files import Store, create
from pyprof.store.write import columns

PAGEABLE, PINNED, DEVICE = 0, 1, 2
_COPIES = {(0, 2): "memcpy HtoD", (1, 2): "memcpy HtoD", (2, 0): "memcpy DtoH", (2, 1): "memcpy DtoH"}
# What a recording of ours always says.
SWITCHES = {"anomaly_mode": "no", "deterministic": "no", "cudnn.deterministic": "no", "cudnn.enabled": "yes"}
V100 = ("Tesla V100-SXM2-16GB", 80, "7.0", 16 << 30)
A100 = ("NVIDIA A100-SXM4-40GB", 108, "8.0", 40 << 30)
_OPERATOR = "id op_id name type mod direction phase module stack params dtype shapes eligible dtype_ok unassociated"
_EVENT = (
    "id kind device stream name operator op site api start_ns duration_ns total_ns geometry tc flops dense_flops "
    "bytes basis copied_bytes copy_from copy_to graph"
)
_COLLECTIVE = "event name sent_bytes received_bytes dtype process_group size seq"
_TEXTS = "op_id name type mod module params dtype shapes frames text process_group"  # of the tables that hold texts


class Small:
    """A recording of one worker: `steps` marked steps of `length` ns, all of GPU number `device` of one kind."""

    def __init__(
        self, steps: int = 10, length: int = 1_000_000, gpu: tuple[Any, ...] | None = V100,
        meta: Mapping[str, str] | None = None, lost: Mapping[str, int] | None = None,
    ):  # fmt: skip
        self.steps, self.length, self.gpu = steps, length, gpu
        self.marks = [(i * length, (i + 1) * length) for i in range(steps)]
        self.range: tuple[int | None, int | None] = (None, None)  # iterations to aggregate
        self.meta = {"format": "capture", **SWITCHES, **(meta or {})}
        self.lost = dict(lost or {})
        self.idle: list[tuple[Any, ...]] = []  # GPUs on which nothing ran
        self._ops: list[dict[str, Any]] = []
        self._operators: dict[tuple[Any, ...], int] = {}
        self._events: list[dict[str, Any]] = []
        self._apis: list[dict[str, Any]] = []
        self._waits: list[tuple[int, int]] = []
        self._batches: list[dict[str, int]] = []
        self._ranges: list[dict[str, Any]] = []
        self._memory: list[dict[str, Any]] = []
        self._geometries: dict[tuple[Any, ...], int] = {}
        self._strings: dict[str, int] = {}
        self._names: dict[str, int] = {}
        self._stacks: dict[str, int] = {}

    def each(self) -> range:
        """Starts of the steps."""
        return range(0, self.steps * self.length, self.length)

    def op(
        self, type_: str, start: int, end: int, *, name: str | None = None, mod: str = "torch", direction: int = 0,
        phase: int = 0, params: str | None = None, dtype: str | None = None, eligible: bool = False, line: int = 1,
        shapes: str | None = None, module: str | None = None, forward: int | None = None,
    ) -> int:  # fmt: skip
        """An execution; its number. `forward`: that of the execution whose backward it is."""
        key = (name or type_, type_, mod, direction, phase, params, dtype, eligible, line, shapes, module)
        operator = self._operators.setdefault(key, len(self._operators))
        self._ops.append({"operator": operator, "start_ns": start, "end_ns": end, "of": forward})
        return len(self._ops) - 1

    def kernel(
        self, name: str, start: int, dur: int, op: int | None = None, *, launch: int | None = None,
        launch_dur: int = 1_000, linked: bool = True, tc: int = 2, flops: int | None = None, size: int | None = None,
        blocks: int = 1000, threads: int = 128, registers: int | None = 32, shared: int = 0, device: int = 0,
        stream: int = 7, graph: int | None = None, collective: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """A kernel and its launch, by default long before it; `collective`: columns of that table."""
        geometry = self._geometries.setdefault((blocks, threads, registers, shared), len(self._geometries))
        self._event(
            name, start, dur, op, launch, launch_dur, linked, "cudaLaunchKernel_v7000", kind=KERNEL, device=device,
            stream=stream, tc=tc, flops=flops, bytes=size, geometry=geometry, graph=graph,
            collective=collective,
        )  # fmt: skip

    def copy(
        self,
        source: int | None,
        target: int | None,
        size: int,
        start: int,
        dur: int,
        op: int | None = None,
        **more: Any,
    ) -> None:
        """A copy between kinds of memory; None: unknown."""
        name = _COPIES.get((source, target), "memcpy DtoD")  # type: ignore[arg-type]
        self._event(
            name, start, dur, op, more.get("launch"), 1_000, True, "cudaMemcpyAsync_v3020", kind=MEMCPY, device=0,
            stream=more.get("stream", 7), tc=2, copied_bytes=size, copy_from=source, copy_to=target,
        )  # fmt: skip

    def memset(self, size: int, start: int, dur: int, op: int | None = None) -> None:
        self._event(
            "memset", start, dur, op, None, 1_000, True, "cudaMemsetAsync_v3020", kind=MEMSET, device=0, stream=7, tc=2,
            copied_bytes=size,
        )  # fmt: skip

    def cpu(self, name: str, start: int, dur: int, op: int, flops: int | None = None, size: int | None = None) -> None:
        """An operator event of a run without a GPU."""
        self._event(
            name,
            start,
            dur,
            op,
            None,
            0,
            False,
            "",
            kind=OPERATOR,
            total_ns=dur,
            tc=2,
            flops=flops,
            bytes=size,
        )

    def _event(
        self, name: str, start: int, dur: int, op: int | None, launch: int | None, launch_dur: int, linked: bool,
        call: str, **row: Any,
    ) -> None:  # fmt: skip
        code = self._names.setdefault(name, len(self._names))
        begin = max(start - 2 * launch_dur - 10, start // self.length * self.length) if launch is None else launch
        op = self.op("unassociated", begin, begin) if op is None else op
        api = self.api(call, begin, launch_dur, op) if linked else None
        self._events.append(
            {
                **row,
                "name": code,
                "op": op,
                "api": api,
                "start_ns": start,
                "duration_ns": dur,
                "launch": begin,
            }
        )

    def api(self, name: str, start: int, dur: int, op: int | None = None) -> int:
        """A call of the CUDA API; its number."""
        code = self._strings.setdefault(name, len(self._strings))
        self._apis.append({"name": code, "kind": api_kind(name), "start_ns": start, "duration_ns": dur, "op": op})
        return len(self._apis) - 1

    def wait(self, start: int, dur: int) -> None:
        """The loop waits for its DataLoader."""
        self._waits.append((start, dur))

    def batch(self, wait: int, end: int, samples: int, *, getting: int, collating: int, cpu: int, **more: int) -> None:
        """A batch of a worker that the loop waited for until it was sent, at `end`; times in ns."""
        self._batches.append({
            "loader": 0, "pid": 2, "samples": samples, "start_ns": end - getting - collating,
            "collate_start_ns": end - collating, "collate_end_ns": end, "send_end_ns": end, "cpu_ns": cpu,
            "send_cpu_ns": 0, "wait_start_ns": wait, "wait_end_ns": end, **more,
        })  # fmt: skip

    def ran(self, text: str, start: int, dur: int, kind: int = PUSH_POP, seq: int | None = None) -> None:
        """A range, an operator event (kind 3), or a Python function (4). `seq`: the number of autograd's next node."""
        code = self._strings.setdefault(text, len(self._strings))
        self._ranges.append({"kind": kind, "start_ns": start, "duration_ns": dur, "text": code, "seq": seq})

    def allocated(self, time: int, total: int | None, device: int | None = 0) -> None:
        """An allocation after which so much is in use."""
        self._memory.append(
            {
                "time_ns": time,
                "thread": 0,
                "device": device,
                "bytes": 512,
                "allocated_bytes": total,
                "reserved_bytes": total,
            }
        )

    def held(self, time: int, size: int, address: int) -> None:
        """An allocation on the CPU, or the release of one (size < 0)."""
        self._memory.append({"time_ns": time, "thread": 0, "address": address, "bytes": size})

    # --- as tables

    def write(self, path: str) -> None:
        """The database, with its first aggregation."""
        tables = dict(self._tables())
        create(path, tables.items(), self.meta)
        with Store(path) as database:
            aggregate(database)

    def _tables(self) -> Iterator[tuple[str, Any]]:
        def made(names: str, rows: list[dict[str, Any]], texts: str = "") -> Any:
            kinds = {name: str if name in texts.split() else int for name in names.split()}
            return columns.rows(kinds, [[row.get(name) for name in kinds] for row in rows])

        op_ids = _order(self._ops, "start_ns")
        api_ids = _order(self._apis, "start_ns")
        event_ids = _order(self._events, "launch")
        for op in self._ops:
            mine = [e for e in self._events if self._ops[e["op"]] is op]
            run = [e for e in mine if e["kind"] in (KERNEL, OPERATOR)]
            op |= {
                "cpu_ns": op["end_ns"] - op["start_ns"],
                "api_ns": sum(a["duration_ns"] for a in self._apis if a["op"] is not None and self._ops[a["op"]] is op),
                "gpu_ns": sum(e["duration_ns"] for e in mine), "idle_ns": 0, "thread": 0, "kernels": len(run),
                "kernel_ns": sum(e["duration_ns"] for e in run),
                "tc_ns": sum(e["duration_ns"] for e in run if e["tc"] == 1),
                "tc_kernels": sum(e["tc"] == 1 for e in run),
            }  # fmt: skip
        ops = [
            {**op, "id": op_ids[i], "forward": None if op["of"] is None else op_ids[op["of"]]}
            for i, op in enumerate(self._ops)
        ]
        yield (
            "op",
            made(
                "id thread operator start_ns end_ns cpu_ns api_ns gpu_ns idle_ns kernel_ns tc_ns kernels tc_kernels "
                "seq forward",
                _sorted(ops),
            ),
        )
        apis = [
            {**a, "id": api_ids[i], "thread": 0, "op": op_ids[a["op"]] if a["op"] is not None else None}
            for i, a in enumerate(self._apis)
        ]
        yield "api", made("id thread name kind start_ns duration_ns op", _sorted(apis))
        events = [
            {**e, "id": event_ids[i], "operator": self._ops[e["op"]]["operator"], "op": op_ids[e["op"]], "site": 0,
             "api": api_ids[e["api"]] if e["api"] is not None else None, "basis": 0}
            for i, e in enumerate(self._events)
        ]  # fmt: skip
        yield "event", made(_EVENT, _sorted(events))
        told = [{"event": e["id"], **e["collective"]} for e in _sorted(events) if e.get("collective")]
        yield "collective", made(_COLLECTIVE, told, _TEXTS)
        order = _order(self._ranges, "start_ns")
        ranges = [{**one, "id": order[i], "thread": 0} for i, one in enumerate(self._ranges)]
        yield "range", made("id thread kind start_ns duration_ns text seq", _sorted(ranges))
        memory = [{**one, "id": i} for i, one in enumerate(sorted(self._memory, key=lambda one: one["time_ns"]))]
        yield "memory", made("id thread time_ns device address bytes allocated_bytes reserved_bytes", memory)
        yield (
            "operator",
            made(_OPERATOR, [self._operator(key, n) for key, n in self._operators.items()], _TEXTS),
        )
        yield (
            "stack",
            made("id frames", [{"id": n, "frames": text} for text, n in self._stacks.items()], _TEXTS),
        )
        names = [(n, name, name.partition("<")[0], self._kind(name), None) for name, n in self._names.items()]
        yield (
            "kernel_name",
            columns.rows({"id": int, "name": str, "short_name": str, "kind": str, "tc": int}, names),
        )
        geometry = "id grid_x grid_y grid_z block_x block_y block_z registers shared_memory_bytes"
        yield (
            "geometry",
            columns.rows(
                dict.fromkeys(geometry.split(), int),
                [(n, b, 1, 1, t, 1, 1, r, s) for (b, t, r, s), n in self._geometries.items()],
            ),
        )
        yield (
            "string",
            made("id text", [{"id": n, "text": text} for text, n in self._strings.items()], _TEXTS),
        )
        end = max(
            [
                *(end for _, end in self.marks),
                *(o["end_ns"] for o in self._ops),
                *(e["start_ns"] + e["duration_ns"] for e in self._events),
            ]
        )
        yield (
            "worker",
            columns.rows(
                {"id": int, "name": str, "pid": int, "start_ns": int, "end_ns": int},
                [(0, "host_1", 1, 0, end)],
            ),
        )
        yield "thread", columns.rows({"id": int, "worker": int, "tid": int}, [(0, 0, 1)])
        yield (
            "dataloader",
            columns.rows(
                dict.fromkeys(("id", "thread", "start_ns", "duration_ns"), int),
                [(i, 0, *w) for i, w in enumerate(sorted(self._waits))],
            ),
        )
        names = [
            "id",
            "worker",
            "loader",
            "pid",
            "number",
            "samples",
            "start_ns",
            "collate_start_ns",
            "collate_end_ns",
            "send_end_ns",
            "cpu_ns",
            "send_cpu_ns",
            "slowest_ns",
            "slowest_sample",
            "wait_start_ns",
            "wait_end_ns",
        ]
        batches = [{"id": n, "worker": 0, "number": n, **batch} for n, batch in enumerate(self._batches)]
        yield (
            "loader_batch",
            columns.rows(dict.fromkeys(names, int), [[b.get(name) for name in names] for b in batches]),
        )
        used = sorted({e["device"] for e in self._events if e.get("device") is not None})
        devices = [(0, n, *(self.gpu or (None,) * 4), self._count(n)) for n in used]
        devices += [(0, len(used) + n, *gpu, 0) for n, gpu in enumerate(self.idle)]
        kinds = {"worker": int, "number": int, "name": str, "sm_count": int, "compute_capability": str,
                 "memory_bytes": int, "events": int}  # fmt: skip
        yield "device", columns.rows(kinds, devices)
        yield (
            "step",
            columns.rows(
                dict.fromkeys(("worker", "number", "start_ns", "end_ns"), int),
                [(0, i, *mark) for i, mark in enumerate(self.marks)],
            ),
        )
        yield "lost", columns.rows({"reason": str, "count": int}, self.lost.items())

    def _count(self, device: int) -> int:
        return sum(e.get("device") == device for e in self._events)

    def _kind(self, name: str) -> str:
        return kernels.copy_kind(name) if name.startswith("mem") else kernels.kind(name)

    def _operator(self, key: tuple[Any, ...], number: int) -> dict[str, Any]:
        name, type_, mod, direction, phase, params, dtype, eligible, line, shapes, module = key
        stack = self._stacks.setdefault(f"train.py:{line}", len(self._stacks))
        return {
            "id": number, "op_id": f"{type_.upper()}_{number}", "name": name, "type": type_, "mod": mod,
            "direction": direction, "phase": phase, "stack": stack, "params": params, "dtype": dtype,
            "shapes": shapes, "module": module, "eligible": int(eligible), "unassociated": int(type_ == "unassociated"),
        }  # fmt: skip


def _order(rows: list[dict[str, Any]], by: str) -> dict[int, int]:
    """Ids by place: rows are numbered by a time."""
    order = sorted(range(len(rows)), key=lambda place: rows[place][by])
    return {place: number for number, place in enumerate(order)}


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: int(row["id"]))


@contextmanager
def opened(made: Small) -> Iterator[Store]:
    """The database of a recording; gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "small.sqlite")
        made.write(path)
        with Store(path) as database:
            yield database
