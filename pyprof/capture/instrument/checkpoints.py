# SPDX-License-Identifier: Apache-2.0
"""Activation checkpoints (torch.utils.checkpoint) are part of the program, not operators.

The reentrant kind is a custom Function; its body is recorded as if the Function were not there. Both kinds run a
function again in the backward. If that function is not a module (but its `forward`, or any function), the
recomputation belongs to the module that created the checkpoint.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from time import time_ns
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import checkpoint

from pyprof.capture.core.internal_errors import internal
from pyprof.capture.core.state import Until, owned
from pyprof.capture.core.torch_internals import look_up
from pyprof.capture.instrument.recorder import MARK, RangeRecord, local, recorder
from pyprof.capture.instrument.stacks import ENDS, walk
from pyprof.capture.instrument.wrappers import hide_from_warnings
from pyprof.core.marker import STOP

if TYPE_CHECKING:
    from pyprof.capture.instrument.attribute_registry import Registry

_getframe = sys._getframe
# Functions of torch: the Function, and the one behind the other kind. Without them such calls have no module.
_LOST = "modules of what activation checkpoints run"
REENTRANT = look_up("torch.utils.checkpoint.CheckpointFunction", _LOST)
_GENERATOR = "_checkpoint_without_reentrant_generator"
# Ends a recomputation once it has all missing tensors. Its last operator may have an event, but computes nothing.
_ENOUGH: Any = look_up(
    "torch.utils.checkpoint._StopRecomputationError",
    "operators that checkpoints stop",
    (),
    lambda error: issubclass(error, Exception),
)
# module of a checkpoint, and its whole stack -> its context
_contexts: dict[tuple[Any, ...], int] = owned({}, Until.WRITTEN)


def resumed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function of a checkpoint, so that its recomputation in the backward belongs to the module that runs
    now."""
    state = local.state
    path, root = recorder.stacks.contexts[state.context].path, state.root
    if state.busy or not recorder.active:
        return function
    function = _watched(function)
    if not path:
        return function

    @functools.wraps(function)
    def again(*args: Any, **kwargs: Any) -> Any:
        state = local.state
        if state.busy or not recorder.active:
            return function(*args, **kwargs)
        outside = state.context, state.root
        try:
            try:
                state.context, state.root = _context(path, _getframe(1), outside[0]), root
            except internal() as error:  # never into the user's code
                recorder.drop(f"module not named ({type(error).__name__})")
            return function(*args, **kwargs)
        finally:
            state.context, state.root = outside

    wrapper: Any = again
    wrapper.__code__ = hide_from_warnings(wrapper.__code__)
    if not any(wrapper.__code__ is end for end in ENDS):
        ENDS.append(wrapper.__code__)
    return again


def _watched(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function to mark the moment at which its recomputation is stopped."""

    @functools.wraps(function)
    def watched(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except _ENOUGH:
            if recorder.keeping:
                now = time_ns()
                local.state.ranges.append(RangeRecord(MARK, STOP, now, now, "checkpoint"))
            raise

    wrapper: Any = watched
    wrapper.__code__ = hide_from_warnings(wrapper.__code__)
    return watched


def _context(path: str, frame: FrameType, outside: int) -> int:
    # The whole stack: checkpoints of one module are recomputed in nodes of torch, or in a Function of the user's.
    key = path, outside, *((id(code), instruction) for code, instruction in walk(frame))
    context = _contexts.get(key)
    if context is None:
        context = _contexts[key] = recorder.stacks.add_context(outside, frame, path)
    return context


def install(registry: Registry) -> None:
    """Wrap the functions of checkpoints that are not reentrant, until the registry is undone."""
    original = look_up(f"torch.utils.checkpoint.{_GENERATOR}", _LOST)
    if original is None:
        return

    @functools.wraps(original)
    def generator(fn: Any, *args: Any, **kwargs: Any) -> Any:
        return original(fn if torch.compiler.is_dynamo_compiling() else resumed(fn), *args, **kwargs)

    registry.replace(checkpoint, _GENERATOR, generator)
