# SPDX-License-Identifier: Apache-2.0
"""The small tables that facts refer to: operators, kernel names, launch geometries, sites, workers, devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from pyprof.core.model import MEMCPY, MEMSET, OPERATOR, Column, Device, Ints, Process, Rows, Site, Trace
from pyprof.costs import kernels
from pyprof.parse.merge import processes
from pyprof.store.write.columns import Stacks, flag, plain, rows, table
from pyprof.store.write.operators import Operators, dtype_ok

NUMBERING = ("key", "group_path")  # columns of the table of operators that the database lacks


def operators(registry: Operators, stacks: Stacks, trace: Trace) -> pa.Table:
    """Return one row per operator; by the columns NUMBERING those of several recordings are numbered (`combine`)."""
    capability, tf32 = _capability(trace), _tf32(trace)
    kinds = {
        "id": int, "op_id": str, "name": str, "type": str, "mod": str, "direction": int, "phase": int, "module": str,
        "stack": int, "params": str, "dtype": str, "shapes": str, "eligible": int, "dtype_ok": int,
        "unassociated": int, "key": str, "group_path": str,
    }  # fmt: skip
    cells = (
        (
            number, op.op_id, op.name, op.type, op.mod, op.direction, op.phase, op.module, stacks.code(op.stack),
            op.params, op.dtype, op.shapes, int(op.eligible), flag(dtype_ok(op.dtype, capability, tf32)),
            op.unassociated, registry.keys[number], registry.groups[number],
        )
        for number, op in enumerate(registry.rows)
    )  # fmt: skip
    return rows(kinds, cells)


def _capability(trace: Trace) -> tuple[int, int] | None:
    """Return the lowest compute capability of the recorded GPUs."""
    capabilities = []
    for device in trace.devices:
        first, _, second = (device.compute_capability or "").partition(".")
        if first.isdigit() and second.isdigit():
            capabilities.append((int(first), int(second)))
    return min(capabilities, default=None)


def _tf32(trace: Trace) -> bool | None:
    allowed = trace.meta.get("matmul.tf32")
    return None if allowed is None else allowed.lower() in ("yes", "true", "1", "high", "medium", "tf32")


def geometry(events: Rows, occupancy: Column) -> tuple[Ints, pa.Table]:
    """Return, per row, the number of its launch geometry, and the table of distinct geometries."""
    parts = [events.grid.values[:, i] for i in range(3)] + [events.block.values[:, i] for i in range(3)]
    parts += [plain(events.registers), plain(events.shared_memory), plain(occupancy)]
    code: npt.NDArray[np.int64] = np.zeros(len(events), np.int64)
    for part in parts:
        inner, distinct = pd.factorize(part)
        code = pd.factorize(code * len(distinct) + inner)[0]
    first = np.zeros(int(code.max()) + 1 if len(code) else 0, np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]
    names = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers",
             "shared_memory_bytes", "occupancy")  # fmt: skip
    columns = {name: Column(part[first], part[first] >= 0) for name, part in zip(names, parts)}
    return code, table(id=np.arange(len(first)), **columns)


def kernel_names(events: Rows) -> pa.Table:
    """Return each name with its kind and whether such kernels use tensor cores."""
    on_gpu = bool((events.kind != OPERATOR).any())
    copies = set(events.name[np.isin(events.kind, (MEMCPY, MEMSET))].tolist())
    cells: list[tuple[Any, ...]] = []
    for number, (name, short) in enumerate(zip(events.names, events.short_names)):
        kernel = on_gpu and number not in copies
        kind = kernels.kind(name) if kernel else kernels.copy_kind(name) if on_gpu else "operator"
        cells.append((number, name, short, kind, flag(kernels.tensor_core(name)) if kernel else None))
    return rows({"id": int, "name": str, "short_name": str, "kind": str, "tc": int}, cells)


def sites(items: list[Site], stacks: Stacks) -> pa.Table:
    """Return one row per place in the program that launched something."""
    kinds = {"id": int, "mod": str, "op": str, "module": str, "stack": int, "direction": int, "phase": int}
    cells = (
        (
            number, site.mods[0] if site.mods else None, site.ops[0] if site.ops else None, site.module,
            stacks.code(site.trace), site.direction, site.phase,
        )
        for number, site in enumerate(items)
    )  # fmt: skip
    return rows(kinds, cells)


def workers(trace: Trace, numbers: Ints, spans: dict[int, tuple[int, int]]) -> pa.Table:
    """Return one row per worker; `numbers` by process, `spans` by worker. One number after those of the processes
    stands for "unknown"."""
    numbered = [process for process, worker in enumerate(numbers.tolist()) if worker >= 0]
    every = [*processes(trace), Process(-1)]
    present = [every[process] for process in numbered]
    cells = [
        (
            worker, name, None if item.pid < 0 else item.pid, item.rank, item.host, item.name, item.label, item.span,
            *spans[worker],
        )
        for worker, name, item in zip(numbers[numbered].tolist(), worker_names(present), present)
    ]  # fmt: skip
    kinds = {
        "id": int, "name": str, "pid": int, "rank": int, "host": str, "process": str, "label": str, "span": int,
        "start_ns": int, "end_ns": int,
    }  # fmt: skip
    return rows(kinds, cells)


def worker_names(items: list[Process]) -> list[str]:
    """Return unique names of workers: the rank, else the label in the file, else host and process.

    >>> worker_names([Process(7, rank=3), Process(7, rank=3, span=2), Process(8)])
    ['rank3', 'rank3 span 2', 'host_8']
    >>> worker_names([Process(9, label="a"), Process(5, label="a")])
    ['a', 'a_5']
    """
    names: list[str] = []
    for process in items:
        pid = "unknown" if process.pid < 0 else process.pid
        own = f"{process.host or 'host'}_{pid}"
        base = f"rank{process.rank}" if process.rank is not None else process.label or own
        span = f" span {process.span}" if process.span > 1 else ""
        longer = [f"{base}_{part}" for part in (pid, own, process.label or own)]
        candidates = [f"{name}{span}" for name in (base, *longer)]
        candidates += [f"{candidates[0]} ({number})" for number in range(2, len(names) + 3)]
        names.append(next(name for name in candidates if name not in names))
    return names


def devices(trace: Trace, events: Rows, worker: Ints, numbers: Ints) -> pa.Table:
    """Return one row per worker and device, idle devices included. `worker` by row, `numbers` by process."""
    on_device = events.device.mask()
    event_counts = pd.DataFrame({"worker": worker[on_device], "number": events.device.values[on_device]}).value_counts()
    counts: dict[tuple[int, int], int] = {}
    for (owner, number), count in zip(event_counts.index.tolist(), event_counts.tolist()):
        counts[int(owner), int(number)] = int(count)
    active = set(np.unique(worker).tolist())
    recorded: dict[tuple[int, int], Device] = {}
    for device in trace.devices:
        owners = numbers.tolist() if device.process is None else [int(numbers[device.process])]
        for owner in active.intersection(owners):
            recorded[owner, device.number] = device
            counts.setdefault((owner, device.number), 0)
    kinds = {
        "worker": int, "number": int, "name": str, "sm_count": int, "compute_capability": str, "memory_bytes": int,
        "clock_hz": int, "bandwidth_bytes_per_s": int, "events": int,
    }  # fmt: skip
    cells = [
        (*key, *(recorded[key][1:7] if key in recorded else (None,) * 6), count)
        for key, count in sorted(counts.items())
    ]
    return rows(kinds, cells)
