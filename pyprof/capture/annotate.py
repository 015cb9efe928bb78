# SPDX-License-Identifier: Apache-2.0
"""Ranges of the user's code: `pyprof.annotate`, torch.cuda.nvtx, the nvtx package and record_function.

Whatever opens a range, its name and time are kept, also on a machine without CUDA, where torch.cuda.nvtx would raise.
Open ranges whose name begins with `layer:` make the layer of the calls inside, nested names joined by ":".

record_function is also how torch.optim marks `step` and `zero_grad`: `optimizers.py`.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable
from contextlib import ContextDecorator
from time import time_ns
from typing import Any

from pyprof.capture import facts
from pyprof.capture.collectors import nvtx as ranges
from pyprof.capture.patch import Registry
from pyprof.capture.private import part
from pyprof.capture.recorder import MARK, PUSH_POP, START_END, RangeRecord, ThreadState, local, recorder

LAYER = "layer:"
WRITTEN = "annotate, written"  # as an NVTX range too
_NEXT = "enumerate(DataLoader)#"
# Called with the optimizer after each step of one, when somebody counts them.
on_optimizer_step: list[Callable[[Any], None]] = []
# Called with the iterator of a DataLoader that is asked for its next batch.
on_loader_next: list[Callable[[Any], None]] = []


class annotate(ContextDecorator):
    """Name a part of the program: `with annotate("layer:encoder"):`, or `@annotate("layer:encoder")`.

    >>> with annotate("layer:encoder"), annotate("layer:attention"):
    ...     local.state.layer
    'encoder:attention'
    """

    def __init__(self, name: str):
        self.name = name

    def __enter__(self) -> annotate:
        safely(self._open)
        return self

    def _open(self) -> None:
        written = recorder.ranges is not None and ranges.push_user(self.name)
        push(self.name, WRITTEN if written else "annotate")

    def __exit__(self, *error: object) -> None:
        safely(self._close)

    def _close(self) -> None:
        opened = local.state.open
        written = bool(opened) and opened[-1][2] == WRITTEN
        pop()
        if written:
            ranges.pop_user()


def push(name: str, source: str) -> int:
    """Open a nested range on this thread; returns its depth, from 0."""
    state = local.state
    state.open.append((name, time_ns(), source, state.layer))
    if name.startswith(LAYER):
        own = name[len(LAYER) :]
        state.layer = f"{state.layer}:{own}" if state.layer else own
    return len(state.open) - 1


def pop() -> int:
    """Close the innermost range of this thread; returns its depth. Without an open range: -1, as NVTX does."""
    state = local.state
    if not state.open:
        return -1
    name, start, source, state.layer = state.open.pop()
    if recorder.keeping:
        state.ranges.append(RangeRecord(PUSH_POP, name, start, time_ns(), source))
    return len(state.open)


def mark(name: str) -> None:
    """An instant."""
    if recorder.keeping:
        now = time_ns()
        local.state.ranges.append(RangeRecord(MARK, name, now, now, "nvtx"))


_started: dict[Any, list[tuple[str, int]]] = {}


def begin(handle: Any, name: str) -> None:
    """A range that may end on another thread."""
    _started.setdefault(handle, []).append((name, time_ns()))


def end(handle: Any) -> None:
    """The end of such a range; a handle that we did not see begin is none of ours."""
    opened = _started.get(handle)  # where nothing listens the nvtx package gives None for every range
    if not opened:
        return
    name, start = opened.pop()
    if not opened:
        del _started[handle]
    if recorder.keeping:
        local.state.ranges.append(RangeRecord(START_END, name, start, time_ns(), "nvtx"))


def install(registry: Registry) -> None:
    """Follow the entry points of others until the registry is undone."""
    with part("torch.cuda.nvtx", "ranges of torch.cuda.nvtx"):
        _install_torch_nvtx(registry)
    with part("nvtx", "ranges of the nvtx package"):
        _install_nvtx(registry)
    with part(
        "torch.autograd.profiler.record_function", "ranges of record_function, and steps of optimizers"
    ):
        _install_record_function(registry)


def _install_torch_nvtx(registry: Registry) -> None:
    """torch.cuda.nvtx: its `range` calls these. Without CUDA the originals raise and are not called."""
    import torch
    from torch.cuda import nvtx

    real = hasattr(torch._C, "_nvtx")
    handles = itertools.count(1)

    def follow(name: str, ours: Callable[..., Any]) -> None:
        original = getattr(nvtx, name)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not real:
                return safely(ours, *args, **kwargs)
            result = original(*args, **kwargs)
            if name == "range_start":
                return safely(ours, *args, handle=result, **kwargs) or result
            safely(ours, *args, **kwargs)
            return result

        registry.replace(nvtx, name, call)

    def started(msg: str, handle: Any = None) -> Any:
        handle = handle or next(handles)  # where nothing listens torch gives 0 for every range
        begin(("torch", handle), msg)
        return handle

    follow("range_push", lambda msg: push(msg, "nvtx"))
    follow("range_pop", pop)
    follow("range_start", started)
    follow("range_end", lambda range_id: end(("torch", range_id)))
    follow("mark", mark)


def _install_nvtx(registry: Registry) -> None:
    """The nvtx package, where it is installed; ranges of named domains too, under their message."""
    try:
        import nvtx
    except ImportError:
        return
    modules = [module for module in (nvtx, sys.modules.get("nvtx.nvtx")) if module is not None]

    def follow(name: str, ours: Callable[..., Any]) -> None:
        original = getattr(nvtx, name)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            safely(ours, result, *args, **kwargs)
            return result

        for module in modules:
            registry.replace(module, name, call)

    def text(message: Any = None, *_: Any, **__: Any) -> str:
        return "" if message is None else str(message)

    follow("push_range", lambda result, *a, **k: push(text(*a, **k), "nvtx"))
    follow("pop_range", lambda result, *a, **k: pop())
    follow("start_range", lambda result, *a, **k: begin(("nvtx", result), text(*a, **k)))
    follow("end_range", lambda result, handle: end(("nvtx", handle)))
    follow("mark", lambda result, *a, **k: mark(text(*a, **k)))

    _follow_class(
        registry, nvtx.annotate, lambda self: push(str(self.init_args[0] or ""), "nvtx"), lambda self: pop()
    )
    decorate = nvtx.annotate.__call__  # without a tool it gives the function back as it is

    @functools.wraps(decorate)
    def __call__(self: Any, function: Callable[..., Any]) -> Callable[..., Any]:
        decorated = decorate(self, function)
        name = str(self.init_args[0] or getattr(function, "__name__", ""))

        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            push(name, "nvtx")
            try:
                return decorated(*args, **kwargs)
            finally:
                pop()

        return inner

    registry.replace(nvtx.annotate, "__call__", __call__)


def _install_record_function(registry: Registry) -> None:
    import torch

    from pyprof.capture import optimizers  # they are ranges too

    def opened(self: Any) -> None:
        name = self.name
        if name.startswith(optimizers.NAMES):
            optimizers.begins(self, name)
        else:
            if (recorder.active or on_loader_next) and name.startswith(_NEXT):
                iterator = sys._getframe(3).f_locals.get("self")
                for follow in tuple(on_loader_next):
                    follow(iterator)
                if recorder.active:
                    facts.met_loader(iterator)
            push(name, "record_function")
            self._pyprof_open = True

    _follow_class(registry, torch.autograd.profiler.record_function, opened, optimizers.ends)


def _follow_class(
    registry: Registry, cls: Any, opened: Callable[[Any], Any], closed: Callable[[Any], Any]
) -> None:
    """Follow `__enter__` and `__exit__` of a context manager class."""
    import torch

    enter, leave = cls.__enter__, cls.__exit__
    is_record_function = cls is torch.autograd.profiler.record_function

    @functools.wraps(enter)
    def __enter__(self: Any) -> Any:
        result = enter(self)
        if not torch.compiler.is_dynamo_compiling():
            if is_record_function:
                self.__dict__["_pyprof_scopes"] = scopes = local.state.scopes
                scopes.append(self)
            safely(opened, self)
        return result

    @functools.wraps(leave)
    def __exit__(self: Any, *error: Any) -> Any:
        try:
            return leave(self, *error)
        finally:
            if (
                is_record_function and "_pyprof_call" in self.__dict__
            ):  # before any call, where ctrl-C may come
                self.__dict__["_pyprof_call"][0].busy = False
            if is_record_function and self in (scopes := self.__dict__.pop("_pyprof_scopes", ())):
                scopes.remove(self)
            if not torch.compiler.is_dynamo_compiling():
                safely(closed, self)

    registry.replace(cls, "__enter__", __enter__)
    registry.replace(cls, "__exit__", __exit__)


def safely(ours: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run our part of a call; what goes wrong in it is counted and never reaches the user's code."""
    try:
        return ours(*args, **kwargs)
    except Exception as error:
        recorder.drop(f"range not recorded ({type(error).__name__})")
        return None


def open_ranges(state: ThreadState) -> list[RangeRecord]:
    """Ranges that are open on a thread right now."""
    return [RangeRecord(PUSH_POP, name, start, None, source) for name, start, source, _ in state.open]
