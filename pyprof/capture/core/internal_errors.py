# SPDX-License-Identifier: Apache-2.0
"""Internal errors, told apart from what the program's own signal handlers raise while PyProf's code runs.

Python calls a handler between two bytecodes of the main thread, whoever's they are. An exception of it, such as that
of a time limit, is the program's, and must reach it: it passes through PyProf's code as ctrl-C does. So code that must
not raise into the program catches `internal()` where it would catch `Exception`.

>>> try:
...     raise OSError
... except internal() as error:
...     type(error).__name__
'OSError'
"""

from __future__ import annotations

import os
import sys
from itertools import chain, pairwise
from pathlib import Path
from types import FrameType


def internal() -> tuple[type[Exception], ...]:
    """Return what an `except` clause is to catch: Exception; nothing if the exception comes from a signal handler."""
    return () if from_handler(sys.exception()) else (Exception,)


def from_handler(error: BaseException | None) -> bool:
    """Return whether a signal handler in Python has raised an exception."""
    entry = error.__traceback__ if error is not None else None
    while entry is not None:
        if _is_handler(entry.tb_frame):
            return True
        entry = entry.tb_next
    return False


def _is_handler(frame: FrameType) -> bool:
    """Return whether this is the frame of a handler of the program: its arguments are a number and the interrupted
    frame. Functions of PyProf with such arguments are none."""
    code, values = frame.f_code, frame.f_locals
    if code.co_filename.startswith(_OWN):
        return False
    positional = code.co_argcount
    more = code.co_varnames[positional + code.co_kwonlyargcount :][: bool(code.co_flags & _VARARGS)]
    arguments = chain(
        (values.get(name) for name in code.co_varnames[:positional]),
        chain.from_iterable(values.get(name) or () for name in more),
    )
    return any(isinstance(left, int) and isinstance(right, FrameType) for left, right in pairwise(arguments))


_OWN = str(Path(__file__).parents[2]) + os.sep
_VARARGS = 4  # inspect.CO_VARARGS


class tolerated:
    """Leave the rest of a block out after an internal error, as `contextlib.suppress`."""

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        return isinstance(error, Exception) and not from_handler(error)
