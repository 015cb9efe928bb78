# SPDX-License-Identifier: Apache-2.0
"""The thread that computes reports, one after another: a profile and its caches are for one thread at a time.

A report of millions of kernels takes a while. Keys are handled meanwhile, and the program ends without waiting for it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from pyprof.store.files import Store

_Value = TypeVar("_Value")
_ENDING = 2.0  # seconds that the end of the program waits for a report


class Desk:
    """Does work on a database in the order of the questions."""

    def __init__(self, store: Store):
        self._store = store
        self._queue: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="pyprof-top", daemon=True)
        self._thread.start()

    def ask(self, work: Callable[[], _Value]) -> Future[_Value]:
        """Return the result to come of some work, or the PyProfError that it raises."""
        future: Future[_Value] = Future()
        self._queue.put((future, work))
        return future

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            future, work = item
            if self._closed or not future.set_running_or_notify_cancel():
                continue
            try:
                with self._store.translate_errors():
                    result = work()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

    def close(self) -> None:
        """Stop: queries are interrupted, and other work is waited for briefly."""
        self._closed = True
        self._queue.put(None)
        for _ in range(int(_ENDING * 20)):
            if not self._thread.is_alive():
                return
            self._store.connection.interrupt()
            self._thread.join(1 / 20)
