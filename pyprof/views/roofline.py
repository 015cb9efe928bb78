# SPDX-License-Identifier: Apache-2.0
"""Kernels on the roofline: work and time of kernels, and the peaks of the devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from pyprof.core.model import KERNEL, Device
from pyprof.costs.hardware import gpus
from pyprof.facts.steps.source import Source
from pyprof.store.files import Store
from pyprof.store.ids import first_id
from pyprof.store.kinds import COMPUTES
from pyprof.views.models import Ceiling, Point, Roofline

UNKNOWN = 255  # share of an event
_GAPS = 1000  # numbers without an event
_NS = 1e9
# Winograd or FFT, whose executed FLOPs are unknown: the roofline of the definition is no limit of theirs.
_OTHER = "s.hardware_unknown_ns > s.roofline_unknown_ns"
_POINTS = """
select s.name as id, n.name as name, {operator} as operator, o.dtype as dtype, n.kind as kind, sum(s.calls) as calls,
       sum(s.gpu_ns) as gpu, sum(s.flops) as flops, sum(s.bytes) as bytes, sum(s.flops_unknown_ns) as no_flops,
       sum(s.bytes_unknown_ns) as no_bytes,
       sum(case when {other} then 0 else s.roofline_ns end) as least,
       sum(case when {other} then s.gpu_ns else s.roofline_unknown_ns end) as no_least,
       max(s.tc = 1) as used, max(s.tc = 3) as untold
from op_kernel_stat s join operator o on o.id = s.operator join kernel_name n on n.id = s.name
where s.aggregation = :aggregation and (:worker is null or s.worker = :worker) and s.{computes} and {condition}
group by {group} order by sum(s.gpu_ns) desc, s.name"""


def roofline(source: Source, limit: int) -> Roofline:
    """Return kernels by name and operand type, longest total time first."""
    points = _points(source, "s.name, o.dtype", "1", "null", {})
    notes = []
    unknown = sum(point.flops is None or point.bytes is None for point in points)
    if unknown:
        notes.append(
            f"{unknown:,} of {len(points):,} {'kernels' if source.gpu else 'operators'} are not shown: their FLOPs or "
            "bytes are unknown."
        )
    other = source.store.rows(
        f"""select count(distinct s.name) from op_kernel_stat s where s.aggregation = ? and (? is null or s.worker = ?)
            and s.{COMPUTES} and {_OTHER}""",
        (source.aggregation.id, source.worker, source.worker),
    )[0][0]
    if other:
        notes.append(
            f"{other:,} kernels compute convolutions by Winograd or FFT. They execute fewer FLOPs than the definition, "
            "which counts here: they may lie above the roof."
        )
    ceilings, reasons = _ceilings(source)
    return Roofline(points=points[:limit], ceilings=ceilings, total=len(points), notes=notes + reasons)


def of_operator(source: Source, operator: int) -> Point | None:
    """Return all kernels of an operator as one point."""
    points = _points(source, "s.operator", "s.operator = :operator", "o.op_id", {"operator": operator})
    return points[0] if points else None


def of_kernel(source: Source, name: int) -> Point | None:
    """Return all executions of a kernel as one point."""
    points = _points(source, "s.name", "s.name = :name", "null", {"name": name})
    return points[0] if points else None


def shares(store: Store, worker: int) -> pa.Table:
    """Return the share of the roofline that each event of a worker reaches, by the number of the event, as a task of a
    child: whole percent rounded down, at most 254, and 255 where it is unknown, as for Winograd and FFT, or another
    kernel carries the work.
    Raises FormatError."""
    columns = store.columns(
        f"""select id, kind, duration_ns, roofline_ns, hardware_ps, verdict from event
            where id >= {first_id(worker)} and id < {first_id(worker + 1)} order by id"""
    )
    number = columns["id"].values - first_id(worker)
    size = int(number[-1]) + 1 if len(number) else 0
    if size > 2 * len(number) + _GAPS:
        raise store.damaged("the numbers of events are far apart")
    length, roofline = columns["duration_ns"], columns["roofline_ns"]
    known = (columns["kind"].values == KERNEL) & length.mask() & roofline.mask()
    known &= (length.values > 0) & (roofline.values >= 0) & columns["hardware_ps"].mask()
    helpers = [row[0] for row in store.rows("select id from verdict where bound = '-'")]
    known &= ~np.isin(columns["verdict"].values, helpers)
    out = np.full(size, UNKNOWN, np.uint8)
    out[number[known]] = np.minimum(100.0 * roofline.values[known] / length.values[known], UNKNOWN - 1)
    return pa.table({"share": out})


def _points(source: Source, group: str, condition: str, operator: str, parameters: dict[str, Any]) -> list[Point]:
    names, rows = source.store.named(
        _POINTS.format(computes=COMPUTES, other=_OTHER, group=group, condition=condition, operator=operator),
        {"aggregation": source.aggregation.id, "worker": source.worker, **parameters},
    )
    return [_point(dict(zip(names, row)), source.gpu) for row in rows]


def _point(row: dict[str, Any], gpu: bool) -> Point:
    """Return a point. Rates use only the time with known work: neither sum includes the unknown."""
    time_flops, time_bytes = row["gpu"] - row["no_flops"], row["gpu"] - row["no_bytes"]
    flops = row["flops"] if time_flops else None
    size = row["bytes"] if time_bytes else None
    time_roofline = row["gpu"] - row["no_least"]
    # As in measures/efficiency.py: what carries the work is not among them.
    only_zeros = not row["least"] and (row["no_least"] or not (row["flops"] or row["bytes"]))
    efficiency = 100 * row["least"] / time_roofline if time_roofline and gpu and not only_zeros else None
    return Point(
        id=str(row["id"]),
        name=row["name"],
        operator=row["operator"],
        dtype=row["dtype"],
        kind=row["kind"],
        calls=row["calls"],
        time=row["gpu"],
        flops=flops,
        bytes=size,
        intensity=flops / size if flops is not None and size else None,
        achieved=flops * _NS / time_flops if flops is not None else None,
        bandwidth=size * _NS / time_bytes if size is not None else None,
        efficiency=None if efficiency is None or efficiency > 100 else efficiency,
        tc=None if not gpu or (row["untold"] and not row["used"]) else bool(row["used"]),
    )


def _ceilings(source: Source) -> tuple[list[Ceiling], list[str]]:
    """Return the peaks of the devices in use, once per kind of device."""
    rows = source.store.rows(
        """select distinct name, sm_count, compute_capability, memory_bytes, clock_hz, bandwidth_bytes_per_s
           from device where events > 0 and name is not null and (? is null or worker = ?)""",
        (source.worker, source.worker),
    )
    out, reasons = [], []
    for name, *facts in rows:
        gpu = gpus.of(Device(0, name, *facts))
        if gpu is None:
            reasons.append(f"{name} is not in the table of GPUs, so it has no ceilings.")
            continue
        for tensor, peaks in ((True, gpu.matrix), (False, gpu.vector)):
            out += [
                Ceiling(
                    device=gpu.name,
                    dtype=dtype,
                    flops=peak,
                    tensor_cores=tensor,
                    bandwidth=gpu.bandwidth,
                    source=gpu.source,
                )
                for dtype, peak in peaks.items()
            ]
    if not rows:
        unnamed = "The recording does not name its GPU, so there are no ceilings."
        reasons.append(unnamed if source.gpu else "No ceilings are drawn for a CPU.")
    return out, reasons
