# SPDX-License-Identifier: Apache-2.0
"""Log of the workers of a DataLoader: what each batch took them, in memory that they share with the program.

The memory has no name in a file system, and nothing waits for it: a forked worker inherits it, a spawned one gets its
descriptor with its arguments, a killed one leaves what it has sent. Each worker has a part of it, with the number of
batches that it has sent so far and the last `CAPACITY` of them. Times are ns of the epoch.

This module runs in workers and imports nothing but the standard library.

>>> log = SharedLog(workers=2)
>>> log.append(1, 0, Batch(7, 4, 100, 180, 190, 60, 30, 28, 200, 5))
>>> log.read(0, 0), log.read(1, 0)
(([], 0), ([Batch(number=7, samples=4, start_ns=100, collate_ns=180, ready_ns=190, cpu_ns=60, slowest_ns=30, \
slowest=28, sent_ns=200, send_cpu_ns=5)], 1))
"""

from __future__ import annotations

import importlib
import inspect
import mmap
import os
import re
import struct
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from time import thread_time_ns, time_ns
from typing import Any, NamedTuple

from pyprof.capture.core.internal_errors import internal, tolerated

CAPACITY = 1024  # batches of each worker
_COUNT = struct.Struct("=q")
# Of the function around collate_fn, in a traceback: that is to be the program's own.
_OWN_FRAME = re.compile(rf'  File "{re.escape(__file__)}", line \d+, in \w+\n(?:    .*\n)*')
_ITERABLE = 1  # torch.utils.data._DatasetKind.Iterable


class Batch(NamedTuple):
    """A batch that a worker has sent. `cpu_ns`: of the worker's thread, from start to ready; `send_cpu_ns`: of the
    thread that sends; `slowest`: index of the sample that took `slowest_ns`, -1 where the samples are not known one by
    one, or have no number."""

    number: int
    samples: int
    start_ns: int  # the worker has the indices
    collate_ns: int  # it has the samples
    ready_ns: int  # and has collated them
    cpu_ns: int
    slowest_ns: int
    slowest: int
    sent_ns: int
    send_cpu_ns: int


_BATCH = struct.Struct(f"={len(Batch._fields)}q")
_PART = _COUNT.size + CAPACITY * _BATCH.size


class SharedLog:
    """The memory of the workers of a loader; `file`: its descriptor, which is closed, of a log that exists already.
    Raises OSError."""

    def __init__(self, workers: int, file: int | None = None):
        self.workers, size = workers, workers * _PART
        self.file = _allocated(size) if file is None else file
        try:
            self._memory = mmap.mmap(self.file, size)  # which has a descriptor of its own
        except (OSError, ValueError):
            self.close()
            raise

    def close(self) -> None:
        """Close the descriptor: all workers have been started. The memory lives as long as this object."""
        file, self.file = self.file, -1
        if file >= 0:
            os.close(file)

    def append(self, worker: int, count: int, batch: tuple[int, ...]) -> None:
        """Add the batch of a worker that has sent `count` before it."""
        _BATCH.pack_into(self._memory, self._offset(worker, count), *batch)
        _COUNT.pack_into(self._memory, worker * _PART, count + 1)

    def count(self, worker: int) -> int:
        """Return how many batches a worker has sent."""
        return int(_COUNT.unpack_from(self._memory, worker * _PART)[0])

    def read(self, worker: int, first: int) -> tuple[list[Batch], int]:
        """Return what is left of the batches of a worker from the one with this number in the log, and their end."""
        end = self.count(worker)
        batches = [
            Batch._make(_BATCH.unpack_from(self._memory, self._offset(worker, number)))
            for number in range(max(first, end - CAPACITY), end)
        ]
        overwritten = self.count(worker) + 1 - CAPACITY - (end - len(batches))  # meanwhile, or just now
        return batches[max(overwritten, 0) :], end

    @staticmethod
    def _offset(worker: int, number: int) -> int:
        return worker * _PART + _COUNT.size + number % CAPACITY * _BATCH.size


def _allocated(size: int) -> int:
    """Return the descriptor of memory without a name. All of it exists: a worker must not fail when it writes there."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("pyprof")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    try:
        written = 0
        while written < size:
            written += os.write(file, bytes(min(size - written, 1 << 20)))
    except OSError:
        os.close(file)
        raise
    return file


def torch_loop() -> Callable[..., Any]:
    """Return torch's loop of a worker, in a process that has no hooks."""
    loop: Callable[..., Any] = importlib.import_module("torch.utils.data._utils.worker")._worker_loop
    return loop


def attached(file: Any, workers: int) -> Callable[..., Any]:
    """Return the loop of a spawned worker; `file` is the descriptor of its log, as multiprocessing passes it on."""
    loop = torch_loop()
    with tolerated():
        log = SharedLog(workers, file.detach())
        log.close()
        return partial(follow, loop, log)
    return loop


def follow(loop: Callable[..., Any], log: SharedLog, *args: Any, **kwargs: Any) -> Any:
    """Run torch's loop of a worker, with its queues and its collate_fn timed. Whatever is not as expected: without."""
    with tolerated():
        bound = inspect.signature(loop).bind(*args, **kwargs)
        bound.arguments.update(_timed(log, bound.arguments))
        args, kwargs = bound.args, bound.kwargs
    return loop(*args, **kwargs)


def _timed(log: SharedLog, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return what replaces arguments of the loop."""
    queue, dataset = arguments["data_queue"], arguments["dataset"]
    batched = bool(arguments["auto_collation"])
    iterable = arguments["dataset_kind"] == _ITERABLE
    each = batched and (iterable or not getattr(dataset, "__getitems__", None))
    worker = _Worker(log, arguments["worker_id"], batched, iterable, each)
    queue._send_bytes = worker.sending(queue._send_bytes)  # the feeder thread, not yet started, calls this
    return {
        "collate_fn": worker.collating(arguments["collate_fn"]),
        "index_queue": Queue(arguments["index_queue"], get=worker.getting(arguments["index_queue"].get)),
        "data_queue": Queue(queue, put=worker.putting(queue.put)),
    }


class Queue:
    """A queue some of whose methods are replaced; it has all others too."""

    def __init__(self, queue: Any, **methods: Callable[..., Any]):
        self._queue = queue
        vars(self).update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class _Worker:
    """State of a worker: the batch that it makes, and those that are to be sent."""

    def __init__(self, log: SharedLog, number: int, batched: bool, iterable: bool, each: bool):
        self._log, self._number, self._count = log, number, 0
        self._batched, self._iterable, self._each = batched, iterable, each
        # What is known of batches in the queue; None: something else goes through it.
        self._waiting: deque[tuple[int, ...] | None] = deque()
        self._sender_cpu = 0
        self._task = (0, 0, 0, 0)  # number, samples, start in ns, CPU time then
        self._batch: tuple[int, ...] | None = None
        self.slowest_ns = self.slowest = -1

    def getting(self, get: Callable[..., Any]) -> Callable[..., Any]:
        """Time the method that gets indices."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            task = get(*args, **kwargs)
            try:
                return self._begin(task)
            except internal():
                return task

        return timed

    def _begin(self, task: Any) -> Any:
        if type(task) is not tuple or type(task[0]) is not int:  # the worker is to end, or an epoch begins
            return task
        number, index = task
        self.slowest_ns = self.slowest = -1
        self._task = number, len(index) if self._batched else 1, time_ns(), thread_time_ns()
        return (number, _Samples(index, self)) if self._each and type(index) is list else task

    def collating(self, collate: Callable[..., Any]) -> Callable[..., Any]:
        """Time the function that makes a batch of samples."""

        def timed(data: Any) -> Any:
            start = time_ns()
            result = collate(data)
            try:
                number, samples, begin, cpu = self._task
                if self._iterable and self._batched:  # the last batch may have fewer
                    samples = len(data)
                used = thread_time_ns() - cpu
                self._batch = (number, samples, begin, start, time_ns(), used, self.slowest_ns, self.slowest)
            except internal():
                pass
            return result

        return timed

    def putting(self, put: Callable[..., Any]) -> Callable[..., Any]:
        """Follow the method that hands a batch to the thread that sends it."""

        def followed(item: Any, *args: Any, **kwargs: Any) -> Any:
            self._waiting.append(self._batch)
            self._batch = None
            try:
                if type(item) is tuple and hasattr(item[1], "exc_msg"):  # an error, with its traceback as text
                    item[1].exc_msg = _OWN_FRAME.sub("", item[1].exc_msg)
            except internal():
                pass
            return put(item, *args, **kwargs)

        return followed

    def sending(self, send: Callable[..., Any]) -> Callable[..., Any]:
        """Time the method that sends a batch, after it has been pickled on the same thread."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            result = send(*args, **kwargs)
            try:
                self._sent()
            except internal():
                pass
            return result

        return timed

    def _sent(self) -> None:
        batch, cpu = self._waiting.popleft(), thread_time_ns()
        used, self._sender_cpu = cpu - self._sender_cpu, cpu
        if batch is not None:
            self._log.append(self._number, self._count, (*batch, time_ns(), used))
            self._count += 1


class _Samples(list[Any]):
    """Indices of a batch; the time from each to the next is that of a sample."""

    def __init__(self, indices: list[Any], worker: _Worker):
        super().__init__(indices)
        self._worker = worker

    def __iter__(self) -> Iterator[Any]:
        start, slowest = time_ns(), -1
        for index in super().__iter__():
            yield index
            now = time_ns()
            if now - start > slowest:
                slowest = self._worker.slowest_ns = now - start
                self._worker.slowest = index if type(index) is int else -1
            start = now
