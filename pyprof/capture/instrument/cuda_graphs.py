# SPDX-License-Identifier: Apache-2.0
"""Captures of CUDA graphs by any thread: during one, a synchronization on another thread makes it fail.

CUDA only reports on a thread's own stream, so `torch.cuda.CUDAGraph.capture_begin` and `capture_end`, which
`torch.cuda.graph` and torch.compile call, are followed from `init` to `shutdown`. A capture that begins in C++ is
not detected.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from pyprof.capture.instrument.attribute_registry import Registry

# A device that never finishes, because it waits for another rank for instance, must not block the program.
LONGEST_S = 10.0


class Captures:
    """Graphs that are being captured. An abandoned one does not count."""

    def __init__(self) -> None:
        self._graphs: weakref.WeakSet[Any] = weakref.WeakSet()
        self._synchronizing = threading.Lock()

    def __len__(self) -> int:
        return len(self._graphs)

    def begin(self, graph: Any) -> None:
        """Note that a capture is about to begin, after waiting for a synchronization of PyProf's own."""
        self._graphs.add(graph)
        if self._synchronizing.acquire(timeout=LONGEST_S):
            self._synchronizing.release()

    def end(self, graph: Any) -> None:
        """Note that a capture has ended, or failed."""
        self._graphs.discard(graph)

    @contextmanager
    def blocked(self) -> Iterator[bool]:
        """Keep captures from beginning; yields whether none is running."""
        with self._synchronizing:
            yield not self._graphs


captures = Captures()


def install(registry: Registry) -> None:
    """Follow captures until the registry is undone."""
    graph: Any = torch.cuda.CUDAGraph
    begin, end = graph.capture_begin, graph.capture_end

    @functools.wraps(begin)
    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        captures.begin(self)
        try:
            return begin(self, *args, **kwargs)
        except BaseException:
            captures.end(self)
            raise

    @functools.wraps(end)
    def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return end(self, *args, **kwargs)
        finally:
            captures.end(self)

    registry.replace(graph, "capture_begin", capture_begin)
    registry.replace(graph, "capture_end", capture_end)
