# SPDX-License-Identifier: Apache-2.0
"""Ranges of the user's code: `pyprof.annotate`, torch.cuda.nvtx, the nvtx package and record_function.

Name and time of a range are kept whatever its source, also on a machine without CUDA, where torch.cuda.nvtx would
raise. Open ranges whose name begins with `layer:` form the layer of the calls inside, nested names joined by ":".

torch.optim also uses record_function, to mark `step` and `zero_grad`: `optimizers.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from time import time_ns
from typing import Any

from pyprof.capture.core.internal_errors import internal
from pyprof.capture.core.state import Until, owned
from pyprof.capture.instrument import nvtx_ranges as ranges
from pyprof.capture.instrument.recorder import (
    MARK,
    PUSH_POP,
    START_END,
    RangeRecord,
    ThreadState,
    local,
    recorder,
)

LAYER = "layer:"
WRITTEN = "annotate, written"  # as an NVTX range too
_NEXT = "enumerate(DataLoader)#"
# Called with the optimizer after each of its steps, while steps are counted.
on_optimizer_step: list[Callable[[Any], None]] = owned([], Until.FORKED)
# Called with the iterator of a DataLoader before its next batch.
on_loader_next: list[Callable[[Any], None]] = owned([], Until.FORKED)


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
    """Open a nested range on this thread; return its depth, from 0."""
    state = local.state
    state.open.append((name, time_ns(), source, state.layer))
    if name.startswith(LAYER):
        own = name[len(LAYER) :]
        state.layer = f"{state.layer}:{own}" if state.layer else own
    return len(state.open) - 1


def pop() -> int:
    """Close the innermost range of this thread; return its depth, or -1 without an open range, as NVTX does."""
    state = local.state
    if not state.open:
        return -1
    name, start, source, state.layer = state.open.pop()
    if recorder.keeping:
        state.ranges.append(RangeRecord(PUSH_POP, name, start, time_ns(), source))
    return len(state.open)


def mark(name: str) -> None:
    """Record an instant."""
    if recorder.keeping:
        now = time_ns()
        local.state.ranges.append(RangeRecord(MARK, name, now, now, "nvtx"))


_started: dict[Any, list[tuple[str, int]]] = owned({}, Until.FORKED)


def begin(handle: Any, name: str) -> None:
    """Begin a range that may end on another thread."""
    _started.setdefault(handle, []).append((name, time_ns()))


def end(handle: Any) -> None:
    """End a range of `begin`; an unknown handle is ignored."""
    opened = _started.get(handle)  # the nvtx package returns None for every range if nothing listens
    if not opened:
        return
    name, start = opened.pop()
    if not opened:
        del _started[handle]
    if recorder.keeping:
        local.state.ranges.append(RangeRecord(START_END, name, start, time_ns(), "nvtx"))


def safely(action: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run PyProf's part of a call; an error in it is counted and never reaches the user's code."""
    try:
        return action(*args, **kwargs)
    except internal() as error:
        recorder.drop(f"range not recorded ({type(error).__name__})")
        return None


def open_ranges(state: ThreadState) -> list[RangeRecord]:
    """Return the ranges that are open on a thread."""
    return [RangeRecord(PUSH_POP, name, start, None, source) for name, start, source, _ in state.open]
