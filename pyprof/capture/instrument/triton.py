# SPDX-License-Identifier: Apache-2.0
"""Launches of Triton kernels: calls of the namespace `triton`, named like the kernel.

Those of a program are `kernel[grid](x, y, n)`; autotuners and heuristics wrap the kernel and have its name. Inductor
calls `run` of its autotuners, whose positional arguments are tensors and the sizes of the loops. torch's profiler
records these only for one thread (`_RecordFunctionFast`, up to 2.15).

Neither library is imported for this. Triton is followed if the program has imported it when the window opens, Inductor
also from the first compilation on. A launch inside a recorded call (an operator defined with `torch.library.triton_op`)
belongs to that call.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch

from pyprof.capture.core.operators import THREAD, Operators
from pyprof.capture.core.state import Slot, Until, owned
from pyprof.capture.instrument.arguments import arguments
from pyprof.capture.instrument.recorder import Recorder, local, recorder
from pyprof.core.model import Call

_INTERFACE = "triton.runtime.jit", "KernelInterface"
_INDUCTOR = "torch._inductor.runtime.triton_heuristics", "CachingAutotuner"
_NAMESPACE, _OURS = "triton", "_pyprof"
Make = Callable[[Callable[..., Any], int], Callable[..., Any]]


class Replaces(Protocol):
    """Registry of replaced attributes, `attribute_registry.Registry`."""

    def replace(self, owner: Any, name: str, new: Any) -> None: ...


# Registry of the open window, and what creates its wrappers.
_window: Slot[tuple[Replaces, Make] | None] = owned(Slot(None), Until.WRITTEN)


def install(registry: Replaces, make: Make) -> None:
    """Follow launches until the registry is undone; `make` creates a wrapper, as `wrappers.recording` does."""
    _window.value = registry, make
    follow_inductor()
    interface = getattr(sys.modules.get(_INTERFACE[0]), _INTERFACE[1], None)
    original = vars(interface).get("__getitem__") if isinstance(interface, type) else None
    if original is None:
        return

    @functools.wraps(original)
    def __getitem__(self: Any, grid: Any) -> Any:
        launch = original(self, grid)
        if torch.compiler.is_dynamo_compiling() or not recorder.active or local.state.busy:
            return launch
        name = _name(self)
        return launch if name is None else make(launch, recorder.function(_NAMESPACE, name))

    registry.replace(interface, "__getitem__", __getitem__)


def follow_inductor() -> None:
    """Follow the launches of Inductor's kernels, if it is imported and not followed yet."""
    autotuner = getattr(sys.modules.get(_INDUCTOR[0]), _INDUCTOR[1], None)
    original = vars(autotuner).get("run") if isinstance(autotuner, type) else None
    if _window.value is None or original is None or hasattr(original, _OURS):
        return
    registry, make = _window.value
    calls: dict[Any, Callable[..., Any]] = {}

    @functools.wraps(original)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not recorder.active or local.state.busy or torch.compiler.is_dynamo_compiling():
            return original(self, *args, **kwargs)
        key = (id(self), *kwargs.items())  # the stream, a number
        try:
            call = calls.get(key)
        except TypeError:  # this torch passes more
            return original(self, *args, **kwargs)
        if call is None:
            name = getattr(self, "inductor_meta", {}).get("kernel_name") or _name(self) or "triton kernel"
            call = make(functools.partial(original, self, **kwargs), recorder.function(_NAMESPACE, name))
            calls[key] = call
        return call(*args)

    setattr(run, _OURS, True)
    registry.replace(autotuner, "run", run)


def describe(operators: Operators, recorder: Recorder) -> None:
    """Give the operator that Inductor announces for a launch the arguments of the call around it."""
    numbers = {n: op for n, (mod, op) in enumerate(recorder.functions) if mod == _NAMESPACE}
    if not numbers:
        return
    keys, calls = list(recorder.keys), dict[tuple[int, int], Call]()
    places = {op: operators.places(op) for op in set(numbers.values())}
    for state in recorder.threads:
        own = {op: where[operators.rows[where, THREAD] == state.tid] for op, where in places.items()}
        own = {op: where[np.argsort(operators.start[where], kind="stable")] for op, where in own.items()}
        for record in state.call_records():
            op = numbers.get(record.function)
            if op is None or record.args < 0:
                continue
            starts = operators.start[own[op]]
            first, last = np.searchsorted(starts, (record.start, record.end)).tolist()
            key = record.function, record.args
            for place in own[op][first:last].tolist():
                call = calls.get(key) or Call("aten", op, arguments(keys[record.args]))
                operators.name(place, calls.setdefault(key, call), "")


def _name(kernel: Any) -> str | None:
    """Return the kernel's Python name, below autotuners and heuristics."""
    for _ in range(8):
        name = getattr(kernel, "__name__", None)
        if isinstance(name, str):
            return name
        kernel = getattr(kernel, "fn", None)
    return None
