# SPDX-License-Identifier: Apache-2.0
"""The process for work that reads every event: reports, rules, imports, re-aggregations.

It is started as `python -c`, reads one task per line of JSON on stdin, which gives the number of bytes of a table
that follows, and answers on stdout with lines of progress and one line of the same form. It ends when stdin does,
however the server ended; a database that it was writing is complete or absent. A task is cancelled by killing the
process.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import time
import traceback
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from pyprof.core.errors import PyProfError
from pyprof.server import problems
from pyprof.server.task_context import Session
from pyprof.views.column_table import stream

_FAULT = "Internal error of the server ({}); see its terminal."
_LEAST = 0.2  # seconds between two lines of progress
_LARGE = 1 << 30  # bytes: a process that holds more ends after its task


def main() -> None:
    """Run tasks until stdin ends."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not mix with answers
    from pyprof.server import tasks  # noqa: F401 - common imports before the first task arrives

    gc.freeze()
    gc.enable()
    session = Session(sys.argv[1])
    with suppress(BrokenPipeError):  # the server has ended
        for line in sys.stdin.buffer:
            task = json.loads(line)
            _answer(out, session, task, sys.stdin.buffer.read(task["size"]))


def _answer(out: BinaryIO, session: Session, task: dict[str, Any], body: bytes) -> None:
    from pyprof.server.tasks import TASKS

    last = 0.0

    def progress(share: float, what: str = "") -> None:
        nonlocal last
        if time.monotonic() - last >= _LEAST:
            last = time.monotonic()
            _line(out, {"progress": share, "what": what})

    of_recording = task["task"] == "import"  # else the database, which may be corrupt
    try:
        table = {"table": pa.ipc.open_stream(body).read_all()} if body else {}
        with nullcontext() if of_recording else session.store.translate_errors():
            result = TASKS[task["task"]](session, progress, **task["args"], **table)
    except PyProfError as error:
        path = Path(task["args"].get("source", session.path))
        trouble = problems.of_file(path, error) if of_recording else problems.of_error(error)
        _line(out, {"trouble": problems.body(trouble)})
        return
    except BrokenPipeError:
        raise
    except Exception as error:
        traceback.print_exc()  # on the server's stderr
        message = (
            "Not enough memory for this." if isinstance(error, MemoryError) else _FAULT.format(type(error).__name__)
        )
        _line(out, {"trouble": problems.body(problems.of_error(PyProfError(message)))})
        return
    _send(out, result)


def _send(out: BinaryIO, result: Any) -> None:
    table: pa.Table | None = None
    if isinstance(result, tuple):
        result, table = result
    body = b"" if table is None else stream(table)
    _line(out, {"result": result, "size": len(body), "large": _resident() > _LARGE})
    out.write(body)
    out.flush()


def _resident() -> int:
    """Return the bytes of memory that this process needs, after it has given back the rest; 0 if unknown."""
    with suppress(AttributeError, OSError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def _line(out: BinaryIO, value: dict[str, Any]) -> None:
    out.write(json.dumps(value).encode() + b"\n")
    out.flush()
