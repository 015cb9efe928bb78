# SPDX-License-Identifier: Apache-2.0
"""Hooks on the sources of ranges in the user's code: torch.cuda.nvtx, the nvtx package and record_function."""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable
from typing import Any

from pyprof.capture.core.torch_internals import part
from pyprof.capture.instrument import loader_workers, optimizers, seen_objects
from pyprof.capture.instrument.attribute_registry import Registry
from pyprof.capture.instrument.recorder import local, recorder
from pyprof.capture.instrument.user_ranges import begin, end, mark, on_loader_next, pop, push, safely

_NEXT = "enumerate(DataLoader)#"


def install(registry: Registry) -> None:
    """Follow these entry points until the registry is undone."""
    with part("torch.cuda.nvtx", "ranges of torch.cuda.nvtx"):
        _install_torch_nvtx(registry)
    with part("nvtx", "ranges of the nvtx package"):
        _install_nvtx(registry)
    with part("torch.autograd.profiler.record_function", "ranges of record_function, and steps of optimizers"):
        _install_record_function(registry)


def _install_torch_nvtx(registry: Registry) -> None:
    """Follow torch.cuda.nvtx, whose `range` calls these functions. Without CUDA the originals raise and are not
    called."""
    import torch
    from torch.cuda import nvtx

    real = hasattr(torch._C, "_nvtx")
    handles = itertools.count(1)

    def follow(name: str, action: Callable[..., Any]) -> None:
        original = getattr(nvtx, name)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not real:
                return safely(action, *args, **kwargs)
            result = original(*args, **kwargs)
            if name == "range_start":
                return safely(action, *args, handle=result, **kwargs) or result
            safely(action, *args, **kwargs)
            return result

        registry.replace(nvtx, name, call)

    def started(msg: str, handle: Any = None) -> Any:
        handle = handle or next(handles)  # torch returns 0 for every range if nothing listens
        begin(("torch", handle), msg)
        return handle

    follow("range_push", lambda msg: push(msg, "nvtx"))
    follow("range_pop", pop)
    follow("range_start", started)
    follow("range_end", lambda range_id: end(("torch", range_id)))
    follow("mark", mark)


def _install_nvtx(registry: Registry) -> None:
    """Follow the nvtx package, if it is installed; ranges of named domains too, under their message."""
    try:
        import nvtx
    except ImportError:
        return
    modules = [module for module in (nvtx, sys.modules.get("nvtx.nvtx")) if module is not None]

    def follow(name: str, action: Callable[..., Any]) -> None:
        original = getattr(nvtx, name)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            safely(action, result, *args, **kwargs)
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

    _follow_class(registry, nvtx.annotate, lambda self: push(str(self.init_args[0] or ""), "nvtx"), lambda self: pop())
    decorate = nvtx.annotate.__call__  # without a tool it returns the function unchanged

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
                    seen_objects.note_loader(iterator)
                    self._pyprof_wait = loader_workers.begin_wait(iterator)
            push(name, "record_function")
            self._pyprof_open = True

    def closed(self: Any) -> None:
        optimizers.ends(self)
        if end_wait := self.__dict__.pop("_pyprof_wait", None):
            end_wait()

    _follow_class(registry, torch.autograd.profiler.record_function, opened, closed)


def _follow_class(registry: Registry, cls: Any, opened: Callable[[Any], Any], closed: Callable[[Any], Any]) -> None:
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
        if error and error[0] is not None:
            self.__dict__.pop("_pyprof_wait", None)  # the loop did not get its batch
        try:
            return leave(self, *error)
        finally:
            # Before any call, where ctrl-C may come.
            if is_record_function and "_pyprof_call" in self.__dict__:
                self.__dict__["_pyprof_call"][0].busy = False
            if is_record_function and self in (scopes := self.__dict__.pop("_pyprof_scopes", ())):
                scopes.remove(self)
            if not torch.compiler.is_dynamo_compiling():
                safely(closed, self)

    registry.replace(cls, "__enter__", __enter__)
    registry.replace(cls, "__exit__", __exit__)
