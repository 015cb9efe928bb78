# SPDX-License-Identifier: Apache-2.0
"""Records of an open window: the state of each thread, and the tables that its records index.

A wrapper appends a few integers per call to its thread's flat list; texts are built when the file is written. No
tensor and no frame is kept, only code objects, integers and shapes, and no container per call, which would trigger
the garbage collector. Times are nanoseconds of the Unix epoch, as torch's own profiler reports them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from pyprof.capture.core.state import Until, owned
from pyprof.capture.instrument.arguments import Key
from pyprof.capture.instrument.stacks import Stacks


class CallRecord(NamedTuple):
    """One outermost patched call. `function` indexes `Recorder.functions`, `args` its `keys`; -1: not noted."""

    function: int
    site: int
    args: int
    layer: str
    start: int
    end: int


class ModuleRecord(NamedTuple):
    """One call of a module; `context` is its entry in `Stacks`, with path and frames."""

    context: int
    start: int
    end: int


PUSH_POP, START_END, MARK = 59, 60, 34  # NVTX event types in an Nsight Systems export


class RangeRecord(NamedTuple):
    """A range that the user's code opened; `end` None: not closed in the window. `kind` is an NVTX event type."""

    kind: int
    name: str
    start: int
    end: int | None
    source: str  # entry point: nvtx, annotate, record_function


class Ranges(Protocol):
    """Writer of calls as NVTX ranges while they run: `nvtx_ranges.py`."""

    full: bool

    def push(self, state: ThreadState, number: int, site: int, args_id: int, key: Key | None) -> int:
        """Open the ranges of a call; return how many."""

    def pop(self, depth: int) -> None:
        """Close the ranges."""


class Observer(Protocol):
    """Receiver of calls for an estimate instead of a recording: `call_log.py`."""

    def begin(self, state: ThreadState, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Begin a call; return False if it is not to be noted. Sets `state.busy`."""

    def leave(self, state: ThreadState) -> None:
        """Leave a call, which has returned or raised."""

    def end(self, number: int, result: Any) -> None:
        """Note a call that has returned."""

    def add_model(self, root: Any, path_of: Callable[[Any], str | None]) -> None:
        """Note a model that runs for the first time; `path_of` returns the path of a module."""


class ThreadState:
    """Current activity of one thread, and its records."""

    __slots__ = (
        "attributes",
        "busy",
        "calls",
        "context",
        "gradients",
        "layer",
        "modules",
        "name",
        "open",
        "ranges",
        "root",
        "scopes",
        "thread",
        "tid",
    )

    def __init__(self) -> None:
        self.tid = threading.get_native_id()
        self.thread = weakref.ref(threading.current_thread())
        self.name = threading.current_thread().name
        self.busy = False  # inside a recorded call: inner calls count as operators
        self.context = 0  # of the innermost module that is running
        self.root: Callable[[], Any] | None = None  # weak reference to the outermost module that is running
        self.layer = ""  # names of the open layer: ranges, joined by ":"
        self.open: list[tuple[str, int, str, str]] = []  # open ranges: name, start, source, layer outside
        self.scopes: list[Any] = []  # open ranges of record_function
        self.calls: list[Any] = []  # CallRecord after CallRecord, flat
        self.modules: list[int] = []  # ModuleRecord after ModuleRecord, flat
        self.gradients: list[int] = []  # time and number of each parameter with a gradient, flat
        self.ranges: list[RangeRecord] = []
        self.attributes: dict[tuple[Any, ...], tuple[Any, ...]] = {}  # of the NVTX ranges of its calls

    def call_records(self) -> Iterator[CallRecord]:
        """Return the calls of this thread, by end."""
        return map(CallRecord, *(self.calls[column::6] for column in range(6)))

    def module_records(self) -> Iterator[ModuleRecord]:
        """Return the module calls of this thread, by end."""
        return map(ModuleRecord, *(self.modules[column::3] for column in range(3)))


class _Local(threading.local):
    """The running thread's state as the attribute `state`, created on first access."""

    def __init__(self) -> None:
        self.state = ThreadState()
        recorder.add(self.state)


class Recorder:
    """Switches that every wrapper reads first, and the tables shared by windows."""

    __slots__ = (
        "_numbers",
        "active",
        "counting",
        "excess",
        "functions",
        "keeping",
        "keys",
        "limit",
        "lost",
        "observer",
        "on_full",
        "ranges",
        "stacks",
        "threads",
    )

    def __init__(self) -> None:
        self.active = False
        self.keeping = False  # active, and records go to a file
        self.ranges: Ranges | None = None  # calls are also, or only, written as NVTX ranges
        self.observer: Observer | None = None  # an estimate is running, not a recording
        self._reset()
        self.threads: list[ThreadState] = []
        self.stacks = Stacks()
        self.functions: list[tuple[str, str]] = []  # (mod, op) of each wrapper
        self._numbers: dict[tuple[str, str], int] = {}
        self.keys: dict[Key, int] = {}  # arguments, each distinct description once
        self.lost: dict[str, int] = {}

    def _reset(self) -> None:
        self.counting = False  # the window is full: calls are only counted
        self.excess = 0
        self.limit = 0  # length of a thread's `calls` at which `on_full` decides
        self.on_full: Callable[[], None] = _do_nothing

    def function(self, mod: str, op: str) -> int:
        """Register the function of a wrapper; return its number."""
        with self.stacks.lock:
            number = self._numbers.setdefault((mod, op), len(self.functions))
            if number == len(self.functions):
                self.functions.append((mod, op))
            return number

    def describe(self, key: Key) -> int:
        """Return the number of a new description of arguments."""
        with self.stacks.lock:
            return self.keys.setdefault(key, len(self.keys))

    def drop(self, reason: str, count: int = 1) -> None:
        """Count events that could not be recorded."""
        self.lost[reason] = self.lost.get(reason, 0) + count

    def add(self, state: ThreadState) -> None:
        """Add a new thread. If nothing is recorded, ended threads are released."""
        if not self.keeping and len(self.threads) >= 256:
            self._drop_ended()
        self.threads.append(state)

    def _drop_ended(self) -> None:
        alive = threading.enumerate()  # not by id: in a forked child Python's is still that of the parent
        self.threads[:] = [state for state in self.threads if state.thread() in alive]

    def clear(self) -> None:
        """Forget what was recorded; open ranges and running modules stay as they are."""
        self._drop_ended()
        for state in self.threads:
            state.calls, state.modules, state.gradients, state.ranges = [], [], [], []
        self.lost = {}

    def forget(self) -> None:
        """Drop the tables as well, unless they are needed: calls are observed, or a thread is inside a module."""
        if self.active or any(state.context for state in self.threads):
            return
        self.clear()
        self._reset()
        self.keys.clear()
        self.stacks.clear()
        for state in self.threads:
            state.attributes.clear()


def _do_nothing() -> None:
    pass


def forked() -> None:
    """Reset the threads in a forked child: it has one thread, with another id, and open calls are the parent's."""
    recorder.stacks.lock = threading.RLock()  # another thread may have held it
    recorder.threads[:] = []
    local.state = ThreadState()
    recorder.add(local.state)


recorder = owned(Recorder(), Until.WRITTEN, Recorder.forget)
local = _Local()
