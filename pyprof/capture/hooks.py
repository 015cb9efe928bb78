# SPDX-License-Identifier: Apache-2.0
"""Hooks from `init` to `shutdown`, with or without a window: switches of other profilers in a script.

* `torch.autograd.profiler.emit_nvtx` does nothing without CUDA (it would raise), if no tool reads its ranges, and
  while PyProf records or has entered it itself.
* `torch.cuda.profiler.start` and `stop`, and the functions behind them (`torch.cuda.cudart().cudaProfilerStart`), open
  and close the window; without CUDA they do nothing else.
* torch.profiler of the user: torch serves one profiler at a time and would silently cancel the first, so PyProf's gives
  way before it starts, whichever starts first. Its CUPTI monitor frees the buffers of `cupti/pool.py` before that.
* Captures of CUDA graphs are followed (`cuda_graphs.py`), and loaders with workers (`loader_workers.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import torch

from pyprof.capture.core.state import Slot, Until, owned
from pyprof.capture.core.torch_internals import look_up, part, profiler_enabled
from pyprof.capture.instrument import cuda_graphs, interruptions, loader_workers, range_sources
from pyprof.capture.instrument.attribute_registry import Registry


class Listener(Protocol):
    """Receiver of a script's own switches."""

    def recording(self) -> bool:
        """Return whether a range of emit_nvtx would have no reader: PyProf records, has it running, or no tool
        listens."""

    def cuda_profiler(self, start: bool) -> None:
        """Handle a call of torch.cuda.profiler.start or stop."""

    def user_profiler(self, running: bool) -> None:
        """Handle the user's own torch.profiler, which is about to start or has ended."""


_user_profiler = owned(Slot(False), Until.SHUTDOWN)


def user_profiler_runs() -> bool:
    """Return whether a profiler of the user is running, as far as torch or the hooks know."""
    return _user_profiler.value or profiler_enabled()


def install(registry: Registry, listener: Listener) -> None:
    """Set the hooks until the registry is undone."""
    with part("torch.cuda.nvtx", "ranges"):
        range_sources.install(registry)
    interruptions.install(registry)
    with part("torch.autograd.profiler.emit_nvtx", "emit_nvtx without CUDA"):
        _install_emit_nvtx(registry, listener)
    with part("torch.cuda.profiler", "windows of torch.cuda.profiler.start and stop"):
        _install_cuda_profiler(registry, listener)
    with part("torch.autograd.profiler", "whether the program runs a torch.profiler of its own"):
        _install_user_profiler(registry, listener)
        _install_monitor(registry, listener)
    with part("torch.cuda.CUDAGraph", "kernels of a window that ends while a CUDA graph is captured"):
        cuda_graphs.install(registry)
    with part("torch.utils.data", "workers of data loaders"):
        loader_workers.install(registry)


def _install_emit_nvtx(registry: Registry, listener: Listener) -> None:
    emit_nvtx: Any = torch.autograd.profiler.emit_nvtx
    enter, leave = emit_nvtx.__enter__, emit_nvtx.__exit__

    @functools.wraps(enter)
    def __enter__(self: Any) -> Any:
        if torch.cuda.is_available() and not listener.recording():
            return enter(self)
        self._pyprof_silent = True
        return self

    @functools.wraps(leave)
    def __exit__(self: Any, *error: Any) -> Any:
        return None if self.__dict__.pop("_pyprof_silent", False) else leave(self, *error)

    registry.replace(emit_nvtx, "__enter__", __enter__)
    registry.replace(emit_nvtx, "__exit__", __exit__)


def _install_cuda_profiler(registry: Registry, listener: Listener) -> None:
    from torch.cuda import profiler

    def follow(module: Any, name: str, start: bool, needs_cuda: bool) -> None:
        path = f"torch.cuda.profiler.{name}" if needs_cuda else f"torch._C._cudart.{name}"
        original = look_up(path, "windows of torch.cuda.profiler.start and stop")
        if original is None:
            return

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if start:
                listener.cuda_profiler(True)
            try:
                return None if needs_cuda and not torch.cuda.is_available() else original(*args, **kwargs)
            finally:
                if not start:
                    listener.cuda_profiler(False)

        registry.replace(module, name, call)

    follow(profiler, "start", True, needs_cuda=True)
    follow(profiler, "stop", False, needs_cuda=True)
    runtime = getattr(torch._C, "_cudart", None)  # only in a build with CUDA: the module behind torch.cuda.cudart()
    if runtime is not None:
        follow(runtime, "cudaProfilerStart", True, needs_cuda=False)
        follow(runtime, "cudaProfilerStop", False, needs_cuda=False)


def _install_user_profiler(registry: Registry, listener: Listener) -> None:
    """Replace the functions that start and end a profile; torch.autograd.profiler has its own references to them."""
    module = torch.autograd.profiler

    def follow(name: str, running: bool) -> None:
        original: Callable[..., Any] | None = look_up(
            f"torch.autograd.profiler.{name}", "whether the program runs a torch.profiler of its own"
        )
        if original is None:
            return

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if running:
                _user_profiler.value = True
                listener.user_profiler(True)
                return original(*args, **kwargs)
            try:
                return original(*args, **kwargs)
            finally:
                _user_profiler.value = False
                listener.user_profiler(False)

        registry.replace(module, name, call)

    follow("_prepare_profiler", True)
    follow("_disable_profiler", False)


def _install_monitor(registry: Registry, listener: Listener) -> None:
    """Follow torch.profiler with its CUPTI monitor (torch 2.13), which starts before the profile does."""
    profile: Any = look_up("torch.profiler.profiler._KinetoProfile", "")
    prepare = getattr(profile, "prepare_trace", None)
    if prepare is None:
        return

    @functools.wraps(prepare)
    def prepare_trace(self: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(self, "_use_cupti_monitor", False):
            listener.user_profiler(True)
        return prepare(self, *args, **kwargs)

    registry.replace(profile, "prepare_trace", prepare_trace)
