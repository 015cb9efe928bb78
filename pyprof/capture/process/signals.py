# SPDX-License-Identifier: Apache-2.0
"""Deferral of signals while a recording is read or written."""

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
    """Defer the program's signal handlers until the end of the block.

    An exception from a handler, such as Python's own at ctrl-C, would leave torch's records half read, and lost. A
    second signal of the same kind is handled immediately: the user does not want to wait. Only handlers written in
    Python run inside Python code, and only in the main thread; anything else is left as it is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers: dict[int, Any] = {}
    arrived: dict[int, Any] = {}

    def defer(number: int, frame: Any) -> None:
        if number in arrived:
            handlers[number](number, frame)
        arrived[number] = frame

    try:
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, defer)
        yield
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is defer:
                signal.signal(number, handler)
        with ExitStack() as callbacks:  # each of them, even if another one raises
            for number, frame in arrived.items():
                callbacks.callback(handlers[number], number, frame)
