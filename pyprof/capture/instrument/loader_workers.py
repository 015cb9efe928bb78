# SPDX-License-Identifier: Apache-2.0
"""Hooks on DataLoaders with workers: what each worker does for a batch, and how long the loop waits for it.

A loader's iterator is followed from its construction, also while no window is open, so that one may open in the middle
of an epoch. Workers write to a log (`worker_log.py`), which this process reads now and then while a window is open, and
when it closes. Without workers nothing is allocated.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from time import time_ns
from typing import Any, NamedTuple

import torch

from pyprof.capture.core.internal_errors import tolerated
from pyprof.capture.core.state import Slot, Until, owned
from pyprof.capture.core.torch_internals import look_up
from pyprof.capture.core.worker_log import CAPACITY, Batch, Queue, SharedLog, attached, follow, torch_loop
from pyprof.capture.instrument import notebook_cells
from pyprof.capture.instrument.attribute_registry import Registry
from pyprof.capture.instrument.recorder import recorder
from pyprof.capture.instrument.user_ranges import safely

MOST = 100_000  # batches of a recording
_READ_AFTER = CAPACITY // 4  # batches of a loader
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_PINS = "_pyprof_pins"  # attribute of the queue that the thread which pins memory puts its batches into
room = owned(Slot(MOST), Until.WRITTEN)  # how many more batches the recording keeps


class Wait(NamedTuple):
    """A wait for a batch, in ns of the epoch."""

    number: int
    start: int
    end: int


class Row(NamedTuple):
    """A batch of a worker. `pinned`: the time in which its memory was pinned; `wait`: in which the loop waited."""

    pid: int
    batch: Batch
    pinned: Wait | None
    wait: Wait | None


class Followed:
    """An iterator of a DataLoader, with its workers."""

    def __init__(self, log: SharedLog, iterator: Any):
        self._log: SharedLog | None = log
        self._iterator = weakref.ref(iterator)
        self._pids = [worker.pid for worker in iterator._workers]
        self._ahead = iterator._prefetch_factor + 1
        self._received = 0
        self._pins: deque[Wait] = deque()
        if iterator._pin_memory:
            self._pins = vars(iterator._data_queue).setdefault(_PINS, deque(maxlen=MOST))
        self.facts = {
            "workers": str(log.workers),
            "samples": _source(_sampled(iterator._dataset)),
            "collate_fn": _source(iterator._collate_fn),
        }
        self.begin()

    @property
    def is_gone(self) -> bool:
        return self._iterator() is None

    def begin(self) -> None:
        """Begin a window: keep of the log only what the loop may still wait for."""
        self.lost = 0
        self._batches: list[tuple[int, Batch]] = []
        self._waits: list[Wait] = []
        self._rows: list[Row] = []
        log = self._log
        self._next = [max(log.count(one) - self._ahead, 0) for one in range(log.workers)] if log else []

    def received(self, wait: Wait) -> None:
        """Note a wait that has ended."""
        if len(self._waits) < MOST:
            self._waits.append(wait)
        self._received += 1
        if self._received % _READ_AFTER == 0:
            self._read()

    def _read(self) -> None:
        for worker, first in enumerate(self._next):
            assert self._log is not None
            batches, self._next[worker] = self._log.read(worker, first)
            batches = batches[: max(room.value, 0)]
            room.value -= len(batches)
            self.lost += self._next[worker] - first - len(batches)
            self._batches += ((self._pids[worker], batch) for batch in batches)

    def end(self) -> None:
        """Read what is left of the log of an iterator that is gone, and release it."""
        self._join()
        self._log, self._next = None, []

    def rows(self, since: int) -> list[Row]:
        """Return the batches that were sent since a time, or that the loop waited for."""
        self._join()
        rows, self._rows = self._rows, []
        return [row for row in rows if row.wait is not None or row.batch.sent_ns >= since]

    def _join(self) -> None:
        self._read()
        batches = [batch for _, batch in self._batches]
        pinned = [self._pins.popleft() for _ in range(len(self._pins))]  # the thread that pins may add to them
        pins, waits = _joined(batches, pinned), _joined(batches, self._waits)
        self._rows += (
            Row(pid, batch, pins.get(index), waits.get(index)) for index, (pid, batch) in enumerate(self._batches)
        )
        self._batches, self._waits = [], []


def _joined(batches: list[Batch], waits: Iterable[Wait]) -> dict[int, Wait]:
    """Return the wait for each batch by its index: numbers begin anew with each epoch, so a wait is for the last batch
    of its number that was ready before it ended."""
    ready: dict[int, list[tuple[int, int]]] = {}
    for index, batch in enumerate(batches):
        ready.setdefault(batch.number, []).append((batch.ready_ns, index))
    out = {}
    for wait in waits:
        before = [each for each in ready.get(wait.number, ()) if each[0] <= wait.end]
        if before:
            out[max(before)[1]] = wait
    return out


followed: list[Followed] = owned([], Until.FORKED)


class _Starting(threading.local):
    """The log of the loader whose workers this thread starts."""

    log: SharedLog | None = None


_starting = _Starting()


class _WorkerLoop:
    """torch's loop of a worker, in its module while hooks are set. A forked worker calls it, a spawned one gets what
    pickle makes of it; both without a log where PyProf does not follow the loader."""

    def __init__(self, loop: Callable[..., Any]):
        self._loop = loop
        functools.update_wrapper(self, loop)
        del self.__wrapped__  # type: ignore[attr-defined]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        log = _starting.log
        return self._loop(*args, **kwargs) if log is None else follow(self._loop, log, *args, **kwargs)

    def __reduce__(self) -> Any:
        log = _starting.log
        with tolerated():
            if log is not None:
                from multiprocessing import context, reduction

                if context.get_spawning_popen() is not None:
                    return attached, (reduction.DupFd(log.file), log.workers)
        return torch_loop, ()


def install(registry: Registry) -> None:
    """Follow loaders with workers until the registry is undone."""
    without = "the workers of data loaders"
    iterator: Any = look_up("torch.utils.data.dataloader._MultiProcessingDataLoaderIter", without)
    worker: Any = look_up("torch.utils.data._utils.worker", without)
    pin_memory: Any = look_up("torch.utils.data._utils.pin_memory", without)
    if None in (iterator, worker, pin_memory):
        return
    registry.replace(worker, "_worker_loop", _WorkerLoop(worker._worker_loop))
    registry.replace(pin_memory, "_pin_memory_loop", _pinning(pin_memory._pin_memory_loop))
    registry.replace(iterator, "__init__", _starting_workers(iterator.__init__))


def _starting_workers(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __init__(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        log = _starting.log = safely(_log_of, loader)
        try:
            original(self, loader, *args, **kwargs)
        finally:
            _starting.log = None
            if log is not None:
                log.close()
        if log is not None:
            safely(_follow, log, self)

    return __init__


def _log_of(loader: Any) -> SharedLog:
    return SharedLog(loader.num_workers)


def _follow(log: SharedLog, iterator: Any) -> None:
    forget_gone()
    iterator._pyprof_loader = Followed(log, iterator)
    followed.append(iterator._pyprof_loader)


def forget_gone() -> None:
    """Release the logs of iterators that are gone; while a window is open, keep what is in them."""
    for one in followed:
        if one.is_gone:
            one.end()
    if not recorder.keeping:
        followed[:] = [one for one in followed if not one.is_gone]


def begin_wait(iterator: Any) -> Callable[[], None] | None:
    """Note that a loop begins to wait for a batch of an iterator. Return what is to be called when it has it; None for
    an iterator without workers, or without an order in which the number of the batch is known."""
    one, start = vars(iterator).get("_pyprof_loader"), time_ns()
    if one is None or not getattr(iterator, "_in_order", True):
        return None
    return lambda: one.received(Wait(iterator._rcvd_idx - 1, start, time_ns()))


def _pinning(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _pin_memory_loop(in_queue: Any, out_queue: Any, *args: Any, **kwargs: Any) -> Any:
        queues = safely(_pinned_queues, in_queue, out_queue) or (in_queue, out_queue)
        return original(*queues, *args, **kwargs)

    return _pin_memory_loop


def _pinned_queues(in_queue: Any, out_queue: Any) -> tuple[Queue, Queue]:
    """Return the queues of the thread that pins memory: it does so from a `get` to the next `put`."""
    pins = vars(out_queue).setdefault(_PINS, deque(maxlen=MOST))
    start = 0

    def get(*args: Any, **kwargs: Any) -> Any:
        nonlocal start
        item = in_queue.get(*args, **kwargs)
        start = time_ns()
        return item

    def put(item: Any, *args: Any, **kwargs: Any) -> Any:
        safely(note, item, time_ns())
        return out_queue.put(item, *args, **kwargs)

    def note(item: Any, end: int) -> None:
        if recorder.keeping and type(item[0]) is int:
            pins.append(Wait(item[0], start, end))

    return Queue(in_queue, get=get), Queue(out_queue, put=put)


def _sampled(dataset: Any) -> Any:
    """Return the method that gets samples: of the program's dataset, where torch's are around it."""
    for _ in range(8):
        if not type(dataset).__module__.startswith("torch.utils.data"):
            break
        inner = getattr(dataset, "dataset", None) or next(iter(getattr(dataset, "datasets", ())), None)
        if inner is None:
            break
        dataset = inner
    kind = type(dataset)
    names = ("__getitems__", "__getitem__", "__iter__")
    if isinstance(dataset, torch.utils.data.IterableDataset):
        names = names[::-1]
    return next((getattr(kind, name) for name in names if hasattr(kind, name)), kind)


def _source(function: Any) -> str:
    """Return a function by name, with the line of its definition if that is the program's.

    >>> import functools
    >>> _source(functools.partial(torch.utils.data.default_collate)), _source(len)
    ('default_collate', 'len')
    """
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    if not hasattr(function, "__qualname__"):  # an object that is called
        function = type(function).__call__
    code = getattr(function, "__code__", None)
    if code is None or code.co_filename.startswith(_TORCH):
        return str(function.__qualname__)
    return f"{function.__qualname__} ({notebook_cells.name(code.co_filename)}:{code.co_firstlineno})"
