# SPDX-License-Identifier: Apache-2.0
"""Tasks of a server in a thread of the tests' process, which has imported already what each child process would import
anew (2 s). For tests of what is answered; those of the processes themselves need real ones."""

from __future__ import annotations

import asyncio
import io
import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from pyprof.server import child
from pyprof.server.engine import Child
from pyprof.server.task_context import Session


class _Thread:
    """What `Child` needs of a process and of its pipes."""

    def __init__(self, path: str):
        self.returncode: int | None = None
        self.stdin, self.stdout = self, asyncio.StreamReader(limit=1 << 26)
        self._session, self._written = Session(path), b""
        self._work = ThreadPoolExecutor(1)  # one thread, as a connection to SQLite is that of its thread

    def write(self, data: bytes) -> None:
        self._written += data

    async def drain(self) -> None:
        line, _, body = self._written.partition(b"\n")
        out, self._written = io.BytesIO(), b""
        answered = self._work.submit(child._answer, out, self._session, json.loads(line), body)
        await asyncio.wrap_future(answered)
        self.stdout.feed_data(out.getvalue())

    def kill(self) -> None:
        self.returncode = -signal.SIGKILL
        self._work.submit(self._close)
        self._work.shutdown(wait=False)

    def _close(self) -> None:
        if "_store" in vars(self._session):
            self._session.store.close()

    async def wait(self) -> int | None:
        return self.returncode


async def _start(path: str) -> Any:
    return Child(_Thread(path))  # type: ignore[arg-type]


@contextmanager
def in_process() -> Iterator[None]:
    """While this lasts, what servers start are threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Child, "start", staticmethod(_start))
        patch.setattr(child, "_resident", lambda: 0)  # of a process that others use, too
        yield
