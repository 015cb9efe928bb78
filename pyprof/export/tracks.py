# SPDX-License-Identifier: Apache-2.0
"""Rows of a Chrome trace: threads of processes and streams of devices, numbered as in torch.profiler.

A process has its pid, a thread its tid, a device its number as pid and a stream its number as tid. If two workers
would share one (device 0 of each rank, equal pids in containers), the later one gets a number above those of
processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from pyprof.core.model import Column, Ints
from pyprof.export.json_text import quoted
from pyprof.store.files import Store
from pyprof.store.kinds import ON_GPU

_FREE = 10_000_000  # Linux has no pid above 4194304
_DEVICES_AFTER = 5_000_000  # torch.profiler's sort_index of the first device
_UNKNOWN = -1  # stream of an event without one


class _Worker(NamedTuple):
    number: int
    name: str
    pid: int | None
    process: str | None


class Tracks:
    """Numbers of all rows. `pid` by worker, `thread_pid` and `tid` by thread, `stream` by event."""

    def __init__(self, store: Store):
        self._workers = [_Worker(*row) for row in store.rows("select id, name, pid, process from worker order by id")]
        self._streams = store.rows(
            f"select distinct id >> 40, device, stream from event where {ON_GPU} order by 1, 2, 3"
        )
        self._used: set[int] = set()
        self._free = _FREE
        self.device = {
            key: self._take(key[1]) for key in dict.fromkeys((worker, device) for worker, device, _ in self._streams)
        }
        self.pid = {worker.number: self._take(worker.pid) for worker in self._workers}
        self._threads = store.rows("select id, worker, tid from thread order by id")
        size = max((row[0] for row in self._threads), default=0) + 1
        self.thread_pid, self.tid = np.zeros(size, np.int64), np.zeros(size, np.int64)
        for number, worker, tid in self._threads:
            self.thread_pid[number], self.tid[number] = self.pid[worker], tid

    def _take(self, number: int | None) -> int:
        """Reserve a number, or a free one if it is None or in use."""
        if number is None or number in self._used:
            number, self._free = self._free, self._free + 1
        self._used.add(number)
        return number

    def of_event(self, worker: int, device: Column, stream: Column) -> tuple[Ints, Ints]:
        """Return process and thread of GPU events of one worker."""
        has_device = device.mask()
        numbers, code = np.unique(device.values, return_inverse=True)
        pids = [self.device.get((worker, number), 0) for number in numbers.tolist()]
        device_pid = np.array(pids or [0], np.int64)[code]
        pid = np.where(has_device, device_pid, self.device.get((worker, None), 0))
        return pid, np.where(stream.mask(), stream.values, _UNKNOWN)

    def lines(self) -> Iterator[str]:
        """Yield names and order of all rows, as JSON objects."""
        several = len(self._workers) > 1
        for worker in self._workers:
            pid, name = self.pid[worker.number], worker.process or "python"
            label = f" {worker.name}" if several else ""
            yield from _process(pid, name, f"CPU{label}", worker.number)
        for place, ((number, device), pid) in enumerate(self.device.items()):
            worker = next(candidate for candidate in self._workers if candidate.number == number)
            label = f" {worker.name}" if several else ""
            gpu = "GPU" if device is None else f"GPU {device}"
            yield from _process(pid, worker.process or "python", f"{gpu}{label}", _DEVICES_AFTER + place)
        for number, worker_number, tid in self._threads:
            process = next(candidate.process for candidate in self._workers if candidate.number == worker_number)
            yield from _thread(self.pid[worker_number], tid, f"thread {tid} ({process or 'python'})", number)
        for place, (worker_number, device, stream) in enumerate(self._streams):
            pid, tid = self.device[worker_number, device], _UNKNOWN if stream is None else stream
            yield from _thread(pid, tid, "stream unknown" if stream is None else f"stream {stream}", place)


def _process(pid: int, name: str, label: str, order: int) -> Iterator[str]:
    yield _meta("process_name", pid, 0, "name", quoted(name))
    yield _meta("process_labels", pid, 0, "labels", quoted(label))
    yield _meta("process_sort_index", pid, 0, "sort_index", order)


def _thread(pid: int, tid: int, name: str, order: int) -> Iterator[str]:
    yield _meta("thread_name", pid, tid, "name", quoted(name))
    yield _meta("thread_sort_index", pid, tid, "sort_index", order)


def _meta(name: str, pid: int, tid: int, key: str, value: Any) -> str:
    return f'{{"ph":"M","name":"{name}","ts":0,"pid":{pid},"tid":{tid},"args":{{"{key}":{value}}}}}'
