# SPDX-License-Identifier: Apache-2.0
"""Ranges for what holds a program up outside of operators, with the line that waits: garbage collection, torch.save.

Python calls `gc.callbacks` around each collection. Most are of young objects and take microseconds; those that take
longer are recorded. torch.save is followed where it opens and closes its file, whichever name the program calls it by.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Callable
from time import time_ns
from types import FrameType
from typing import Any

import torch

from pyprof.capture.core.state import Slot, Until, owned
from pyprof.capture.core.torch_internals import part
from pyprof.capture.instrument import notebook_cells
from pyprof.capture.instrument.attribute_registry import Registry
from pyprof.capture.instrument.compiled import collector_callback
from pyprof.capture.instrument.recorder import PUSH_POP, RangeRecord, local, recorder
from pyprof.capture.instrument.stacks import OWN
from pyprof.capture.instrument.user_ranges import safely
from pyprof.core.marker import COLLECTION, SAVING

_SHORTEST = 200_000  # ns, of a collection that is recorded
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep


def install(registry: Registry) -> None:
    """Follow both until the registry is undone."""
    registry.add(gc.callbacks, collector_callback(functools.partial(safely, _collects)))
    with part("torch.serialization._open_zipfile_writer", "time in torch.save"):
        _install_saving(registry)


def _install_saving(registry: Registry) -> None:
    """Follow torch's writers of archives, from the opening to the end of `with`: nothing of ours is around what pickles
    the program's objects."""
    module: Any = torch.serialization
    opens = module._open_zipfile_writer

    def opened(*args: Any, **kwargs: Any) -> Any:
        start = time_ns()
        writer = opens(*args, **kwargs)
        safely(setattr, writer, "_pyprof_start", start)
        return writer

    for cls in (module._open_zipfile_writer_file, module._open_zipfile_writer_buffer):
        registry.replace(cls, "__exit__", _closing(cls.__exit__))
    registry.replace(module, "_open_zipfile_writer", functools.update_wrapper(opened, opens))


def _closing(leave: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(leave)
    def __exit__(self: Any, *error: Any) -> Any:
        try:
            return leave(self, *error)
        finally:
            safely(_saved, self)

    return __exit__


def _saved(writer: Any) -> None:
    start = writer.__dict__.pop("_pyprof_start", None)
    if start is not None:
        _note(SAVING, start)


def _collects(phase: str, _: dict[str, int]) -> None:
    """Note a collection; on one thread at a time, since it runs under the interpreter's lock."""
    now = time_ns()
    if phase == "start":
        _begun.value = now
    elif now - _begun.value >= _SHORTEST:
        _note(COLLECTION, _begun.value)


_begun = owned(Slot(0), Until.FORKED)


def _note(name: str, start: int) -> None:
    """Record a range that ends now, with the innermost line outside of torch and PyProf."""
    end = time_ns()
    if not recorder.keeping:
        return
    frame: FrameType | None = sys._getframe()  # of a line that runs: nothing is kept of it
    while frame is not None and frame.f_code.co_filename.startswith((OWN, _TORCH)):
        frame = frame.f_back
    if frame is not None:  # without its folder: a slash divides ranges in reports
        file = os.path.basename(notebook_cells.name(frame.f_code.co_filename))
        name += f" ({file}:{frame.f_lineno})"
    local.state.ranges.append(RangeRecord(PUSH_POP, name, start, end, "pyprof"))
