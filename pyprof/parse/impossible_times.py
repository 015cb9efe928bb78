# SPDX-License-Identifier: Apache-2.0
"""Times of device events that cannot be: recorders sometimes write the end of another event, or 0 for a start.

A stream runs its events in order. The next may begin a little before the one before it ends (programmatic dependent
launch, rounding), a third may not: an event that lasts over the starts of two later ones of its stream has the end of
another and is cut at the next start; one that ends after a cudaDeviceSynchronize that waited for it, at the end of
that call. An event that starts long before its launch, or hours before or after everything on the host, is left out.
Where many events of a stream are so, their numbers mean something else (several queues with one number, a clock with
an offset), and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pyprof.core import intervals
from pyprof.core.model import Bools, Ints, Trace
from pyprof.parse.join import link
from pyprof.parse.trace_builder import Clock, take

_IMPOSSIBLE = "GPU events with impossible times"
_OVER = f"{_IMPOSSIBLE}: they end after the starts of later ones of their stream (cut there)"
_SYNC = f"{_IMPOSSIBLE}: they end after a synchronization that waited for them (cut there)"
_LONG = f"{_IMPOSSIBLE}: they go on for far longer than all that was recorded (cut at its end)"
_FAR = f"{_IMPOSSIBLE}: they start long before their launch, or hours before or after all else (left out)"
_LEAST_NS = 10_000  # overlaps below it are errors of the clock
_USUAL = 10  # times the largest overlap with one later event, which is usual in the stream
_EARLY_NS = 10**9  # before the launch
_APART_NS = 3600 * 10**9
_CLOCK_NS = 1_000_000  # error between the clocks of host and device
_WAITS = ("cudaDeviceSynchronize", "cuCtxSynchronize", "hipDeviceSynchronize")


def count(lost: Mapping[str, int]) -> int:
    """Return the number of events with impossible times, of losses by reason."""
    return sum(number for reason, number in lost.items() if reason.startswith(_IMPOSSIBLE))


def repair(trace: Trace) -> None:
    """Leave out or cut device events with impossible times, and count them."""
    if not len(trace.gpu):
        return
    owner = np.array([thread.process for thread in trace.threads] or [0], np.int64)
    launch = link(trace.gpu, trace.launches, owner)
    far = _far(trace, launch)
    if far.any():
        _leave_out(trace, far)
        launch = launch[~far]
    trace.gpu.end = _cut_at_starts(trace)
    trace.gpu.end = _cut_at_waits(trace, launch, owner)
    trace.gpu.end = _cut_at_host(trace)


def _far(trace: Trace, launch: Ints) -> Bools:
    """Return which events start where they cannot, or none if half of them do."""
    start = trace.gpu.start
    (low, high), apart = _host(trace), _APART_NS
    if high < low:
        low = high = int(np.median(start))
        apart *= 24
    out = (start < low - apart) | (start > high + apart)
    called = np.r_[trace.launches.start, 0][launch]
    out |= (launch >= 0) & (start < called - _EARLY_NS)
    return out if 2 * int(out.sum()) < len(out) else np.zeros(len(out), bool)


def _leave_out(trace: Trace, far: Bools) -> None:
    keep = np.flatnonzero(~far)
    row = np.full(len(far) + 1, -1)
    row[keep] = np.arange(len(keep))
    described = trace.collectives
    of_kept = (described.gpu < 0) | (row[described.gpu] >= 0)
    trace.collectives = replace(
        described, gpu=row[described.gpu][of_kept], thread=described.thread[of_kept], start=described.start[of_kept],
        end=described.end[of_kept], what=[what for what, stays in zip(described.what, of_kept.tolist()) if stays],
    )  # fmt: skip
    trace.gpu = take(trace.gpu, keep)
    trace.drop(_FAR, int(far.sum()))
    zero = trace.t0
    Clock().start_at_zero(trace)
    trace.t0 += zero


def _cut_at_starts(trace: Trace) -> Ints:
    """Return the ends, cut where an event lasts over two later starts of its stream."""
    gpu = trace.gpu
    end = gpu.end
    known = np.flatnonzero(gpu.stream.mask() & gpu.device.mask() & ~gpu.graph_node.mask())
    order = known[
        intervals.order_by(
            gpu.process[known], gpu.device.values[known], gpu.stream.values[known], gpu.start[known], -end[known]
        )
    ]
    key = np.stack([gpu.process[order], gpu.device.values[order], gpu.stream.values[order]])
    edges = np.flatnonzero((key[:, 1:] != key[:, :-1]).any(axis=0)) + 1
    for rows in np.split(order, edges):
        start, last = gpu.start[rows], end[rows]
        if len(rows) < 3 or (last[:-2] <= start[2:] + _LEAST_NS).all():
            continue
        over, second = last[:-1] - start[1:], np.r_[last[:-2] - start[2:], -1]
        usual = int(over[second <= 0].max(initial=0))
        wrong = second > max(_LEAST_NS, _USUAL * usual)
        if 2 * int(wrong.sum()) > len(rows):
            continue
        end = end.copy() if end is gpu.end else end
        end[rows[:-1][wrong]] = start[1:][wrong]
        trace.drop(_OVER, int(wrong.sum()))
    return end


def _cut_at_waits(trace: Trace, launch: Ints, owner: Ints) -> Ints:
    """Return the ends, cut where a process with one device waited for it and went on before."""
    gpu, launches = trace.gpu, trace.launches
    waits = [code for code in np.unique(launches.name).tolist() if trace.strings[code].startswith(_WAITS)]
    calls = np.flatnonzero(np.isin(launches.name, waits))
    end = gpu.end
    for process, places in intervals.groups(owner[launches.thread[calls]] if len(calls) else calls):
        own = calls[places]
        rows = np.flatnonzero((gpu.process == process) & (launch >= 0))
        if len(np.unique(gpu.device.values[rows])) > 1:
            continue
        own = own[np.argsort(launches.start[own], kind="stable")]
        first = np.searchsorted(launches.start[own], launches.end[launch[rows]])
        waited = np.minimum.accumulate(launches.end[own][::-1])[::-1]  # no later call ended before
        latest = np.r_[waited, np.iinfo(np.int64).max - _CLOCK_NS][first]
        wrong = (end[rows] > latest + _CLOCK_NS) & (gpu.start[rows] < latest)
        if not wrong.any() or 2 * int(wrong.sum()) > len(rows):
            continue
        end = end.copy() if end is gpu.end else end
        end[rows[wrong]] = latest[wrong]
        trace.drop(_SYNC, int(wrong.sum()))
    return end


def _cut_at_host(trace: Trace) -> Ints:
    """Return the ends, cut at the end of the host where an event goes on for far longer than all that was recorded."""
    gpu, (low, high) = trace.gpu, _host(trace)
    late = gpu.end > high + 10 * (high - low) + _EARLY_NS
    if high < low or 2 * int(late.sum()) > len(gpu):
        return gpu.end
    trace.drop(_LONG, int(late.sum()))
    return np.where(late, np.maximum(gpu.start, high), gpu.end)


def _host(trace: Trace) -> tuple[int, int]:
    """Return the first start and the last end on the host; (0, -1) without any."""
    tables = [table for table in (trace.launches, trace.ops) if len(table)]
    if not tables:
        return 0, -1
    return min(int(table.start.min()) for table in tables), max(int(table.end.max()) for table in tables)
