# SPDX-License-Identifier: Apache-2.0
"""Internal errors: they cost a part of the recording, never the program. One line on stderr, and the program goes on.

Errors that PyProf raises on purpose (`PyProfError`: a wrong argument, a window inside a window) are meant for the
program's author and propagate.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from pyprof.capture.core.internal_errors import internal
from pyprof.capture.instrument.recorder import recorder
from pyprof.core.errors import PyProfError

log = logging.getLogger(__name__)
_P = ParamSpec("_P")
_R = TypeVar("_R")
_reported: set[str] = set()


def guarded(step: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs) -> None:
    """Run one step of a window's life. An exception is reported and counted as lost."""
    try:
        step(*args, **kwargs)
    except internal() as error:
        report(_name(step), error)


def contained(function: Callable[_P, _R]) -> Callable[_P, _R | None]:
    """Keep internal errors of an entry point out of the program: it returns None instead."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R | None:
        try:
            return function(*args, **kwargs)
        except PyProfError:
            raise
        except internal() as error:
            report(_name(function), error)
            return None

    return call


def report(action: str, error: Exception) -> None:
    """Print one line about an internal error, the first time, and count it."""
    try:
        log.debug("%s failed", action, exc_info=error)
        reason = f"{action} failed ({type(error).__name__})"
        recorder.drop(reason)
        if reason not in _reported:
            _reported.add(reason)
            print(
                f"pyprof: {action} failed ({type(error).__name__}: {error}). The program goes on; the recording may "
                "lack a part. Please report this.",
                file=sys.stderr,
            )
    except internal():  # stderr may be closed
        log.debug("an error could not be reported", exc_info=True)


def _name(function: Any) -> str:
    module = str(getattr(function, "__module__", "")).rpartition(".")[2]
    return f"{module}.{getattr(function, '__qualname__', type(function).__name__)}"
