# SPDX-License-Identifier: Apache-2.0
"""Ranges of the user's code: `pyprof.annotate`, torch.cuda.nvtx, the nvtx package and record_function.

Whatever opens a range, its name and time are kept, also on a machine without CUDA, where torch.cuda.nvtx would raise.
Open ranges whose name begins with `layer:` make the layer of the calls inside, nested names joined by ":".

record_function is also how torch.optim marks `step` and `zero_grad`: `optimizers.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from time import time_ns
from typing import Any

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
