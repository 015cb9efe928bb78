# SPDX-License-Identifier: Apache-2.0
"""Compilations by torch.compile: each is one call `torch.compile`, from its start to its end.

While it compiles, torch runs the program's operators on tensors without data, forward and backward, and its profiler
records them like any others. Without this call they would look like the program's own work. Torch reports start and
end (torch._dynamo.callback); that module is never imported for it.

Inductor records its Triton kernels as operators only while `torch.autograd.profiler` says that a
profiler runs. That is told to it alone: Dynamo would record the parts of its compilations as well, and a window that
closes in one would leave them open.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from time import time_ns
from types import FrameType, SimpleNamespace
from typing import Any

import torch

from pyprof.capture.core.internal_errors import internal
from pyprof.capture.core.state import Until, owned
from pyprof.capture.core.torch_internals import lack
from pyprof.capture.instrument import triton
from pyprof.capture.instrument.attribute_registry import Registry
from pyprof.capture.instrument.recorder import local, recorder

_TORCH = os.path.dirname(torch.__file__) + os.sep
# by thread: start and site of a compilation
_began: dict[int, tuple[int, int]] = owned({}, Until.FORKED, lambda _: remove())
_INDUCTOR, _PROFILER = "torch._inductor.runtime.triton_heuristics", "autograd_profiler"
_RUNNING = SimpleNamespace(_is_profiler_enabled=True)
_registry = owned(Registry(), Until.FORKED, Registry.undo)


def install() -> None:
    """Follow compilations until `remove`, if torch's compiler is imported."""
    callback = sys.modules.get("torch._dynamo.callback")
    if callback is None or not recorder.keeping:
        return
    _announce_kernels()
    try:  # not `part`: between two graphs torch.compile would compile contextlib's code
        handler = callback.callback_handler
        if _start not in handler.start_callbacks:  # torch._dynamo.reset() drops them
            handler.register_start_callback(_start)
            handler.register_end_callback(_end)
    except internal() as error:
        lack("torch._dynamo.callback.callback_handler", "when torch.compile compiles", error)


def _announce_kernels() -> None:
    """Have Inductor record its kernels, if it is imported."""
    triton.follow_inductor()
    module = sys.modules.get(_INDUCTOR)
    if module is not None and getattr(module, _PROFILER, None) is torch.autograd.profiler:
        _registry.replace(module, _PROFILER, _RUNNING)


def remove() -> None:
    """Stop following compilations."""
    _registry.undo()
    for state in recorder.threads:  # that are compiling now
        if _began.pop(state.tid, None) is not None:
            state.busy = False
    _began.clear()
    handler: Any = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
    with suppress(ValueError, AttributeError):
        handler.remove_start_callback(_start)
    with suppress(ValueError, AttributeError):
        handler.remove_end_callback(_end)


def following(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return torch.compile for a window in which the compiler is imported."""

    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:
        compiled = original(*args, **kwargs)
        install()
        return compiled

    return compile


def _start(*_: Any) -> None:
    state = local.state
    if state.busy or not recorder.keeping:  # part of a recorded call
        return
    try:
        site = recorder.stacks.site(_caller(sys._getframe(1)), state.context)
    except internal() as error:  # never into the user's code
        recorder.drop(f"call not described ({type(error).__name__})")
        return
    state.busy = True
    _began[state.tid] = time_ns(), site


def running() -> bool:
    """Return whether this thread is inside compiled code: torch's profiler has a range open around it, which only C++
    ends."""
    module = sys.modules.get("torch._dynamo.eval_frame")
    file, frame = getattr(module, "__file__", None), sys._getframe(1)
    while file is not None and frame is not None:
        if frame.f_code.co_filename == file:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _caller(frame: FrameType) -> FrameType:
    """Return the frame that called compiled code: the frames in between belong to the compiler."""
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_TORCH, contextlib.__file__)):
        frame = frame.f_back
    return frame


def _end(*_: Any) -> None:
    state = local.state
    began = _began.pop(state.tid, None)
    if began is None:
        return
    state.busy = False
    if recorder.keeping:
        _announce_kernels()  # the first compilation imports Inductor
        start, site = began
        number = recorder.function("torch", "compile")
        state.calls += (number, site, -1, state.layer, start, time_ns())
