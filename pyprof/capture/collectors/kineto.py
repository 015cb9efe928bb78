# SPDX-License-Identifier: Apache-2.0
"""Operators from torch's own profiler (Kineto), read from memory: no trace file is written.

One event per RecordFunction: name, times (ns, Unix epoch), thread, sequence number, the thread of the forward, and
inputs as shapes, dtypes, strides and scalars. `device_resource_id` of a CPU event is the system's thread id. With
`devices` Kineto records the events of the GPU as well (`kineto_device.py`).

Kineto serves one profiler at a time: while the user's own torch.profiler runs, PyProf does not use it (`hooks.py`).
"""

from __future__ import annotations

import logging
import marshal
import threading
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import BuiltinFunctionType
from typing import Any, NamedTuple

import numpy as np

from pyprof.capture.collectors import gil_pause, kineto_device
from pyprof.capture.collectors.device import Records
from pyprof.capture.collectors.gpus import finish_kernels
from pyprof.capture.collectors.kineto_cpu import Reader
from pyprof.capture.collectors.kineto_start import OPERATORS, ProfilerActivity, begin, enable, prepare
from pyprof.capture.collectors.unfinished import MARK, Function, cut_ranges, error_ns, mark, unfinished
from pyprof.capture.core.internal_errors import internal
from pyprof.capture.core.operators import COLUMNS, Operators
from pyprof.capture.core.state import Until, owned
from pyprof.capture.core.torch_internals import lack, look_up, never
from pyprof.capture.instrument.recorder import recorder
from pyprof.capture.process.gc_pause import gc_disabled
from pyprof.core.marker import EVALUATE
from pyprof.core.model import Arg, Call, Ints, Other, Value, tensor
from pyprof.core.symbols import dtype_of

log = logging.getLogger(__name__)
FUNCTION, BACKWARD_FUNCTION, USER_SCOPE = 0, 1, 7  # at::RecordScope
_NO_SCOPE = -1
_SETTLE = 0.5  # seconds that the end of a recording waits for the operators of other threads


def _config_takes(option: str) -> bool:
    """Return whether an experimental option of torch's profiler exists."""
    try:
        _ExperimentalConfig(**{option: True})
    except TypeError:
        return False
    return True


ProfilerConfig, ProfilerState, _ExperimentalConfig = (
    look_up(f"torch._C._profiler.{name}", OPERATORS)
    for name in ("ProfilerConfig", "ProfilerState", "_ExperimentalConfig")
)


def _without_arguments(disable: Any) -> None:
    """Check the signature of the function that ends a profile; it cannot be tried."""
    if not isinstance(disable, BuiltinFunctionType) or f"{disable.__name__}()" not in (disable.__doc__ or ""):
        raise TypeError("takes other arguments")


_disable = look_up("torch._C._autograd._disable_profiler", OPERATORS, check=_without_arguments)
_device_stopped = look_up("torch._C._autograd._is_kineto_stopped", "", never, check=lambda stopped: stopped())
_get_schema = look_up(
    "torch._C._get_schema", "arguments of operators of TorchScript", check=lambda get: get("aten::mm", "")
)
_get_schemas = look_up("torch._C._jit_get_schemas_for_operator", "", otherwise=lambda name: [])
_PARTS = (ProfilerActivity, ProfilerConfig, ProfilerState, _ExperimentalConfig, prepare, enable, _disable)
# Before torch 2.7 operators are those of the thread that opens the window and of its backward, and it alone can
# close the window.
ALL_THREADS = None not in _PARTS and _config_takes("profile_all_threads")
_OVERFLOW = "readings whose end lacks device events: the buffers of torch's profiler were full"


class Waiting(RuntimeError):
    """Torch's profiler must not be started yet, see `unfinished.py`."""


class UserRange(NamedTuple):
    """One record_function range, from Python or C++."""

    start: int
    end: int
    tid: int
    name: str


class Kineto:
    """Collector of operators on top of torch's profiler. Its contents grow with each `stop`, until `clear`."""

    def __init__(self, memory: Any = None) -> None:
        self._memory = memory  # reads the allocator's events as well: `allocations.py`
        self.tid = 0  # system thread id of the thread that began the recording
        self._thread = 0  # that began the recording, where only it can end it
        self.running = False
        self.last = 0  # events of the last reading
        self.devices = False  # set before `start`: record the GPUs
        self.sync = False  # set before `start`: record synchronizations as well
        self.knows_gpus = False  # set before `start`: there are GPUs, recorded or not
        self.started: Callable[[], None] = lambda: None  # called after each start, and before each stop
        self.stopping: Callable[[], None] = lambda: None
        self._overflowed = False  # since the last start
        self.records = Records()
        self.ranges: list[UserRange] = []
        # Flat columns of `COLUMNS` integers per event: a million tuples would slow the program's garbage collector.
        self._events = array("q")
        self._calls: list[Call] = []
        self._numbers: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self._events) // COLUMNS + len(self.records)

    def start(self) -> None:
        """Start recording the operators of all threads, and the GPUs if `devices` is set. Raises RuntimeError."""
        if None in _PARTS:
            raise RuntimeError("PyProf does not support the profiler of this torch")
        if unfinished.remain:
            raise Waiting("a function of the last recording is still running")
        if not stranded.end():
            raise RuntimeError("the last window was closed by another thread than the one that opened it")
        if self._all_threads:
            gil_pause.let_others_finish()
        try:
            begin(self._config(), self.devices, self.knows_gpus)
        except (AttributeError, TypeError) as error:
            lack("torch._C._profiler.ProfilerConfig", OPERATORS, error)
            raise RuntimeError("PyProf does not support the profiler of this torch") from error
        self.running = True
        self.tid = threading.get_native_id()
        if not self._all_threads:
            self._thread = threading.get_ident()
        self._overflowed = False
        self.started()

    @property
    def _all_threads(self) -> bool:
        return ALL_THREADS and self._memory is None

    def _config(self) -> Any:
        requested = {
            "profile_all_threads": self._all_threads,
            "capture_overload_names": True,
            "enable_cuda_sync_events": self.devices and self.sync,
        }
        options = {name: value for name, value in requested.items() if value and _config_takes(name)}
        shapes, stacks, flops, modules = True, False, False, False
        return ProfilerConfig(
            ProfilerState.KINETO, shapes, self._memory is not None, stacks, flops, modules,
            _ExperimentalConfig(**options),
        )  # fmt: skip

    @property
    def of_another_thread(self) -> bool:
        """True if this thread cannot end the recording."""
        return self.running and not self._all_threads and self._thread != threading.get_ident()

    def look(self) -> None:
        """Count, once per reading, that Kineto has stopped recording the GPUs: it does so when its buffers are full."""
        if self.running:
            self._look()

    def _look(self) -> None:
        if self.devices and not self._overflowed and _device_stopped():
            self._overflowed = True
            self.records.drop(_OVERFLOW, 1)

    def stop(self) -> None:
        """End the recording and keep its contents."""
        if not self.running:
            return
        foreign, self.running = self.of_another_thread, False
        if foreign:
            stranded.thread = self._thread
            what = OPERATORS if self._memory is None else "operators and memory"
            recorder.drop(f"{what}: the window was closed by another thread than the one that opened it")
            return
        self.stopping()
        if self.devices:
            finish_kernels()
        self._look()
        before = len(self)
        if self._all_threads:
            gil_pause.wait_for_others(_SETTLE)
        marked = mark()
        cut = cut_ranges()
        result = self._end()
        try:
            with gc_disabled():
                self._read(result, cut, marked)
                if self.devices:
                    self._read_devices(result)
                if self._memory is not None:
                    self._memory.read(result)
        finally:
            self.last = len(self) - before

    def _end(self) -> Any:
        if not self._all_threads:
            return _disable()
        gil_pause.wait_for_others(_SETTLE)
        return gil_pause.call_after_pause(_disable)

    def _read_devices(self, result: Any) -> None:
        try:
            self.records.extend(kineto_device.decode(kineto_device.events(result)))
        except internal():  # keep the operators; Kineto's device events change from version to version
            log.debug("the device events of Kineto", exc_info=True)
            self.records.drop("readings of Kineto whose device events were not understood", 1)

    def _read(self, result: Any, cut: Mapping[int, list[Any]], marked: Sequence[int]) -> None:
        try:
            self._read_operators(Reader(result), cut, marked)
        except MemoryError:
            raise
        except internal() as error:  # calls are kept without them
            lack("torch._C._autograd._KinetoEvent", OPERATORS, error)
            recorder.drop(f"readings of torch's profiler that were not understood ({type(error).__name__})")

    def _read_operators(self, reader: Reader, cut: Mapping[int, list[Any]], marked: Sequence[int]) -> None:
        """Read the events column by column: a loop that reads all fields of one event at a time takes half as long
        again."""
        events = reader.events
        names, tids = list(map(reader.name, events)), list(map(reader.tid, events))
        start, end, scope, seq = (
            np.fromiter(map(column, events), np.int64, len(events))
            for column in (reader.start, reader.end, reader.scope, reader.seq)
        )
        # Not where it records the GPUs: times of launches have the same error, and belong to those of operators.
        marks = sorted((index for index, name in enumerate(names) if name == MARK), key=start.__getitem__)
        if marks and len(marks) == len(marked) and not self.devices:
            error = error_ns(start[marks], end[marks], np.array(marked))
            start, end = start - error, end - error
        self._note_unfinished(names, tids, end, scope, cut)
        for index in np.flatnonzero(scope == USER_SCOPE).tolist():
            self.ranges.append(UserRange(int(start[index]), int(end[index]), tids[index], names[index]))
        calls = self._call_numbers(reader, names, scope.tolist())
        # Kineto numbers threads from 1; the resource of a CPU event is its system thread id.
        threads = dict(zip(map(reader.thread, events), tids))
        forward = [threads.get(number, -1) for number in map(reader.forward_thread, events)]
        backward = (seq >= 0) & np.isin(calls, [n for n, call in enumerate(self._calls) if mod_is_autograd(call)])
        columns = (
            start,
            end,
            tids,
            calls,
            scope,
            seq,
            np.where(backward, forward, -1),
            np.full(len(events), -1),
        )
        rows = np.array(columns, np.int64).reshape(COLUMNS, len(events)).T[calls >= 0]
        self._events.frombytes(rows.tobytes())

    def _note_unfinished(
        self, names: list[str], tids: list[int], end: Ints, scope: Ints, cut: Mapping[int, list[Any]]
    ) -> None:
        """Note the functions that were open at the stop. Python ranges among them have no complete record here."""
        marks = [index for index, name in enumerate(names) if name == MARK]
        if not marks:
            return
        functions, ranges = [], Counter[int]()
        for index in np.flatnonzero(end > end[marks[-1]]).tolist()[::-1]:  # the innermost first
            tid, kind = tids[index], int(scope[index])
            functions.append(
                Function(tid, names[index], kind == FUNCTION, kind == BACKWARD_FUNCTION, kind == USER_SCOPE)
            )
            if kind == USER_SCOPE and ranges[tid] < len(cut.get(tid, ())):
                ranges[tid] += 1
                scope[index] = _NO_SCOPE
        unfinished.note(functions, cut)

    def _call_numbers(self, reader: Reader, names: list[str], scopes: list[int]) -> Ints:
        """Return the number of each event's call, -1 for events that are not operators: ranges, and the events of
        record_function itself."""
        events, numbers, out = reader.events, self._numbers, []
        kinds, overloads = map(tuple, map(reader.dtypes, events)), map(reader.overload, events)
        shapes, strides, concrete = (map(column, events) for column in (reader.shapes, reader.strides, reader.concrete))
        for event, name, scope, kind, overload, shape, stride, scalars in zip(
            events, names, scopes, kinds, overloads, shapes, strides, concrete
        ):
            if scope not in (FUNCTION, BACKWARD_FUNCTION) or name.startswith("profiler::"):
                out.append(-1)
                continue
            in_lists = reader.in_lists(event) if "TensorList" in kind else ()
            key = (name, overload, scope, kind, _bytes((shape, stride, scalars)), in_lists)
            number = numbers.get(key)
            if number is None:
                number = numbers[key] = len(self._calls)
                mod = "autograd" if scope == BACKWARD_FUNCTION or name.startswith(EVALUATE) else "aten"
                args = arguments(kind, shape, stride, scalars, in_lists, arity=_arity(name, overload, len(kind)))
                self._calls.append(Call(mod, name, args))
            out.append(number)
        return np.array(out, np.int64)

    def operators(self) -> Operators:
        """Return the operators so far, in torch's order."""
        return Operators(np.array(self._events, np.int64).reshape(-1, COLUMNS), self._calls)

    def clear(self) -> None:
        """Forget all records."""
        self.ranges, self._events, self._calls, self._numbers = [], array("q"), [], {}
        self.records = Records()


def _bytes(inputs: tuple[Any, ...]) -> bytes:
    """Serialize shapes, strides and numbers so that equal inputs give equal bytes; without references, which depend on
    object identity."""
    try:
        return marshal.dumps(inputs, 2)
    except ValueError:  # an object of torch
        return repr(inputs).encode()


class _Stranded:
    """A recording of one thread that another thread tried to end: torch can only end it on its own thread."""

    thread = 0

    def end(self) -> bool:
        """End the recording if this is its thread. Returns whether none is left."""
        if self.thread == threading.get_ident():
            _disable()
            self.thread = 0
        return not self.thread


stranded = owned(_Stranded(), Until.SHUTDOWN, _Stranded.end)


def mod_is_autograd(call: Call) -> bool:
    """Return whether an operator is an autograd node, or the engine's range around one."""
    return call.mod == "autograd"


def arguments(
    kinds: Sequence[str],
    shapes: Sequence[Any],
    strides: Sequence[Any],
    concrete: Sequence[Any],
    in_lists: Sequence[tuple[str, ...] | None] = (),
    arity: int | None = None,
) -> tuple[Arg, ...]:
    """Return the inputs of an event in the order of the operator's schema; None where Kineto does not provide a
    value."""
    # TorchScript's interpreter passes its whole stack as inputs; those of the operator are on top.
    first = max(len(kinds) - arity, 0) if arity is not None else 0
    out = []
    for index, kind in list(enumerate(kinds))[first:]:
        shape = shapes[index] if index < len(shapes) else []
        stride = strides[index] if index < len(strides) else []
        scalar = concrete[index] if index < len(concrete) else None
        if kind == "TensorList":
            dtypes = in_lists[index] if index < len(in_lists) else None
            out.append(Arg("", _tensors(shape, stride or (), dtypes or ())))
        else:
            out.append(Arg("", _value(kind, shape, stride, scalar)))
    return tuple(out)


@cache
def _arity(name: str, overload: str | None, count: int) -> int | None:
    """Return the number of arguments in the dispatcher's schema of an operator, None if it is not an operator.

    If the overload is unknown and one overload has `count` arguments, that one is meant; else it is unknown which
    inputs are the operator's own: 0.
    """
    try:
        if overload is not None:
            return len(_get_schema(name, overload).arguments)
        arities = {len(schema.arguments) for schema in _get_schemas(name)}
    except (RuntimeError, TypeError):
        return None
    return None if not arities else count if count in arities else 0


def _tensors(shapes: Any, strides: Any, dtypes: Sequence[str]) -> Value:
    return tuple(
        tensor(
            tuple(shape),
            dtypes[index] if index < len(dtypes) else None,
            strides[index] if index < len(strides) else None,
        )
        for index, shape in enumerate(shapes)
    )


def _value(kind: str, shape: Any, stride: Any, scalar: Any) -> Value:
    if kind in ("Scalar", "ScalarList"):
        return _scalar(scalar)
    if not kind:
        return None
    return tensor(tuple(shape), dtype_of(kind), stride)


def _scalar(value: Any) -> Value:
    if isinstance(value, (list, tuple)):
        return tuple(_scalar(item) for item in value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return Other(type(value).__name__, str(value))
