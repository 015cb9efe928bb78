# SPDX-License-Identifier: Apache-2.0
"""Steps of optimizers as calls (`torch.optim`, `AdamW.step`), and the program code that runs inside them.

torch.optim marks `step` and `zero_grad` with record_function, so schedulers that wrap `step` on an instance, and
optimizers of the user, need no patch. The step's own work appears as operators of its call.

A closure, `optimizer.step(closure)`, is program code again: forward and backward of a model. Lightning trains this
way with every optimizer. While the closure runs, the step's call is interrupted: calls are recorded, inside a range
that marks it. So a step with a closure is several calls, one per part. A pre-hook of the instance, present for the
length of the step, wraps the closure.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from time import time_ns
from typing import Any

from pyprof.capture.instrument import seen_objects
from pyprof.capture.instrument import user_ranges as ranges
from pyprof.capture.instrument.recorder import local, recorder
from pyprof.capture.instrument.wrappers import hide_from_warnings
from pyprof.core.marker import CLOSURE

NAMES = ("Optimizer.step#", "Optimizer.zero_grad#")
_STEP = NAMES[0]
_HOOK = "pyprof"  # key among an optimizer's hooks, whose own keys are numbers


def begins(self: Any, name: str) -> None:
    """Handle the record_function `self` around a step or zero_grad, entered from `__enter__` by way of two
    functions."""
    # Who called step is the fourth frame outwards: before it are functions of ours, and torch's around step.
    frame = sys._getframe(4)
    if ranges.on_optimizer_step and name.startswith(_STEP):
        self._pyprof_stepped = frame.f_locals.get("self")
    state = local.state
    if state.busy or not recorder.active or recorder.observer is not None:  # an estimate wants what a step runs
        return
    site = recorder.stacks.site(frame, state.context)
    number = recorder.function("torch.optim", name.split("#", 1)[1])
    if name.startswith(_STEP):
        around = frame.f_locals
        seen_objects.note_optimizer(around.get("self"))
        if len(around.get("args", ())) > 1 or around.get("kwargs"):
            _follow_closure(self, around.get("self"), name)
    writer = recorder.ranges
    depth = writer.push(state, number, site, -1, None) if writer is not None else 0
    self._pyprof_call = (state, number, site, state.layer, time_ns(), writer, depth)
    state.busy = True


def ends(self: Any) -> None:
    """Handle the end of a record_function, an optimizer's or another. All in one function: the stack may be full."""
    held = self.__dict__
    call = held.pop("_pyprof_call", None)
    if call is not None:
        state, number, site, layer, start, writer, depth = call
        if depth:
            writer.pop(depth)
        if recorder.keeping:
            state.calls += (number, site, -1, layer, start, time_ns())
        state.busy = False
    elif held.pop("_pyprof_open", False):
        ranges.pop()
    hooks = held.pop("_pyprof_hooks", None)
    if hooks is not None:
        hooks.pop(_HOOK, None)
    stepped = held.pop("_pyprof_stepped", None)
    if stepped is not None:
        for follow in tuple(ranges.on_optimizer_step):  # one that leaves is not to hide the next
            follow(stepped)


def _follow_closure(self: Any, optimizer: Any, name: str) -> None:
    """Replace the closure by a wrapper, after all other hooks have seen the arguments."""
    hooks = getattr(optimizer, "_optimizer_step_pre_hooks", None)
    if hooks is None:
        return

    def hook(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": _closure(self, kwargs["closure"], name)}
        if len(args) > 1 and callable(args[1]):
            return (args[0], _closure(self, args[1], name), *args[2:]), kwargs
        return None

    hooks[_HOOK] = hook
    self._pyprof_hooks = hooks


def _interrupt(self: Any) -> None:
    """End the part of the call that ran so far."""
    state, number, site, layer, start, writer, depth = self.__dict__.pop("_pyprof_call")
    if depth:
        writer.pop(depth)
    if recorder.keeping:
        state.calls += (number, site, -1, layer, start, time_ns())


def _resume(self: Any, number: int, site: int, layer: str) -> None:
    """Begin another part of the call."""
    state, writer = local.state, recorder.ranges
    depth = writer.push(state, number, site, -1, None) if writer is not None else 0
    self._pyprof_call = (state, number, site, layer, time_ns(), writer, depth)
    state.busy = True


def _closure(self: Any, original: Callable[..., Any], name: str) -> Callable[..., Any]:
    inside = f"{CLOSURE}{name.split('#', 1)[1]}"

    @functools.wraps(original)
    def closure(*args: Any, **kwargs: Any) -> Any:
        call = self.__dict__.get("_pyprof_call")
        if call is None or call[0] is not local.state:  # the step is over, or another thread does it
            return original(*args, **kwargs)
        call[0].busy = False  # before any call, where ctrl-C may come
        named = ranges.annotate(inside)
        ranges.safely(_interrupt, self)
        ranges.safely(named.__enter__)
        try:
            return original(*args, **kwargs)
        finally:
            ranges.safely(named.__exit__)
            if recorder.active and not local.state.busy:
                ranges.safely(_resume, self, *call[1:4])

    function: Any = closure
    function.__code__ = hide_from_warnings(function.__code__)
    return closure
