# SPDX-License-Identifier: Apache-2.0
"""Cost of recording: an empty call, timed with and without its wrapper when a recording ends.

The wrappers and lookups of a window run here on a recorder of their own: each Python function is copied with other
globals (same code, another `recorder` and `local`), so the measurement leaves no trace in the recording, and no
other thread is affected. The minimum of several rounds counts, so other load on the machine is not included. Not in
the figures: the overhead of torch's own profiler per operator, which cannot be timed without running operators.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from types import FrameType, FunctionType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import torch

from pyprof.capture.core.internal_errors import internal
from pyprof.capture.instrument import compiled, lookups, modules, wrappers
from pyprof.capture.instrument.recorder import Recorder, ThreadState

_ROUNDS, _CALLS = 5, 100  # of each kind
_LONGEST_NS = 4_000_000  # a slow machine gets fewer rounds
_SAMPLE = torch.empty((2, 2), device="cpu")  # the argument of the empty call


class Costs(NamedTuple):
    """Estimated extra ns of a recorded call, and of a recorded call of a module."""

    call: int
    module: int


class _Local(threading.local):
    """Counterpart of `recorder.local` whose state belongs to no recorder."""

    def __init__(self) -> None:
        self.state = ThreadState()


class _Model:
    """Stand-in for a module."""


def calibrate() -> Costs | None:
    """Measure the costs on this machine; takes a few ms. None if that fails."""
    try:
        scratch, local = Recorder(), _Local()
        for switch in ("active", "keeping"):
            if hasattr(scratch, switch):
                setattr(scratch, switch, True)
        scratch.limit = 1 << 60
        until = perf_counter_ns() + _LONGEST_NS
        return Costs(_call(scratch, local, until), _module(scratch, local, until))
    except internal():  # an estimate must not break the recording
        return None


def _copy(function: Any, names: dict[str, Any]) -> Any:
    """Return the same function with other globals."""
    return FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)


def _empty(value: Any) -> Any:
    return value


def _call(scratch: Recorder, local: _Local, until: int) -> int:
    """Measure a call of a module's function: the lookup and the wrapper, as for `F.relu(x)`."""
    plain, watched = ModuleType("plain"), ModuleType("watched")
    for module in (plain, watched):
        module.empty = _empty  # type: ignore[attr-defined]
    number = scratch.function("", "empty")
    watch = compiled.watch(scratch, local)
    names: dict[str, Any] = {**vars(wrappers), **vars(lookups), "recorder": scratch, "local": local}
    names["compiled"] = SimpleNamespace(
        WATCH=watch, function=partial(compiled.function, watch=watch), getattribute=compiled.getattribute
    )

    def make(frame: FrameType) -> Any:
        if watch is not None:
            return compiled.call(_empty, number, watch)
        return wrappers.placed(_copy(wrappers.recording, names)(_empty, number), frame, False)

    get = _copy(lookups.function, names)(vars(watched), "empty", _empty, make)
    body = {"empty": get, **_copy(lookups.getattribute, names)(ModuleType)}
    watched.__class__ = type("module", (ModuleType,), body)

    def loop(module: Any) -> None:
        for _ in range(_CALLS):
            module.empty(_SAMPLE)

    def recorded() -> None:
        loop(watched)
        local.state.calls.clear()

    loop(watched)
    if len(local.state.calls) != 6 * _CALLS:
        raise ValueError("the empty call was not recorded")
    return _difference(recorded, lambda: loop(plain), until)


def _module(scratch: Recorder, local: _Local, until: int) -> int:
    """Measure a repeated call of a module from the same place."""
    contexts: dict[Any, Any] = {}
    names: dict[str, Any] = {**vars(modules), "recorder": scratch, "local": local, "_contexts": contexts}
    names["_original"] = _empty
    names["_enter"] = lambda module, state, frame, key: contexts.setdefault(key, (0, weakref.ref(module)))
    call, model = _copy(modules._call_module, names), _Model()

    def loop(function: Callable[[Any], Any]) -> None:
        for _ in range(_CALLS):
            function(model)

    def recorded() -> None:
        loop(call)
        local.state.modules.clear()

    return _difference(recorded, lambda: loop(_empty), until)


def _difference(recorded: Callable[[], None], plain: Callable[[], None], until: int) -> int:
    """Return the ns per call that `recorded` takes longer than `plain`; both run `_CALLS` calls."""
    best = [1 << 60, 1 << 60]
    for round_ in range(_ROUNDS):
        for index, run in enumerate((recorded, plain)):
            start = perf_counter_ns()
            run()
            best[index] = min(best[index], perf_counter_ns() - start)
        if round_ and perf_counter_ns() > until:
            break
    return max((best[0] - best[1]) // _CALLS, 0)
