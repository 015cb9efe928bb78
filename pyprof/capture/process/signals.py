# SPDX-License-Identifier: Apache-2.0
"""Signals wait while a recording is read or written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2")
_SIGNALS = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]


@contextmanager
def held() -> Iterator[None]:
    """Keep the program's signal handlers from running inside; a signal that came meanwhile is handled at the end.

    What a handler raises, as Python's own does at ctrl-C, would leave torch's records half read, and lost. A second
    signal of the same kind is handled at once: somebody does not want to wait. Only handlers written in Python run
    inside Python code, and only in the main thread; anything else is left as it is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers: dict[int, Any] = {}
    came: dict[int, Any] = {}

    def hold(number: int, frame: Any) -> None:
        if number in came:
            handlers[number](number, frame)
        came[number] = frame

    try:
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, hold)
        yield
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is hold:
                signal.signal(number, handler)
        with ExitStack() as rest:  # each of them, whatever another one raises
            for number, frame in came.items():
                rest.callback(handlers[number], number, frame)
