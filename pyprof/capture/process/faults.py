# SPDX-License-Identifier: Apache-2.0
"""A fault of PyProf's own costs the recording a part, never the program: one line on stderr, and the program goes on.

Errors that PyProf raises on purpose (`PyProfError`: a wrong argument, a window inside a window) are for the program's
author and pass.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from pyprof.capture.instrument.recorder import recorder
from pyprof.errors import PyProfError

log = logging.getLogger(__name__)
_P = ParamSpec("_P")
_R = TypeVar("_R")
_said: set[str] = set()


def guarded(step: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs) -> bool:
    """Take one step of a window's life; returns whether it succeeded. What it raises is told and counted as lost."""
    try:
        step(*args, **kwargs)
    except Exception as error:
        tell(_name(step), error)
        return False
    return True


def contained(function: Callable[_P, _R]) -> Callable[_P, _R | None]:
    """Keep an entry point from raising into the program what is not for it: then it returns None."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R | None:
        try:
            return function(*args, **kwargs)
        except PyProfError:
            raise
        except Exception as error:
            tell(_name(function), error)
            return None

    return call


def tell(what: str, error: Exception) -> None:
    """Print one line about a fault, the first time, and count it."""
    try:
        log.debug("%s failed", what, exc_info=error)
        reason = f"{what} failed ({type(error).__name__})"
        recorder.drop(reason)
        if reason not in _said:
            _said.add(reason)
            print(
                f"pyprof: {what} failed ({type(error).__name__}: {error}). The program goes on; the recording may lack "
                "a part. Please report this.",
                file=sys.stderr,
            )
    except Exception:  # stderr is closed, say: there is nobody to tell
        log.debug("a fault could not be told", exc_info=True)


def _name(function: Any) -> str:
    module = str(getattr(function, "__module__", "")).rpartition(".")[2]
    return f"{module}.{getattr(function, '__qualname__', type(function).__name__)}"
