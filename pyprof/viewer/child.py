# SPDX-License-Identifier: Apache-2.0
"""The process that works out what looks at every event: reports, rules, imports, re-aggregations.

It is started as `python -c`, reads a task per line of JSON on stdin, which says how many bytes of a table follow, and
answers on stdout with lines of progress and one line that says the same. It ends when stdin does, however the server
went; a database that it was writing is whole or not there. Killing it is how a task is cancelled.
"""

from __future__ import annotations

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

from pyprof.errors import PyProfError
from pyprof.viewer.column_table import stream
from pyprof.viewer.problems import of_error, of_file
from pyprof.viewer.task_context import Session

_FAULT = "The server made a mistake ({}); its terminal says more."
_LEAST = 0.2  # seconds between two lines of progress
_LARGE = 1 << 30  # bytes: a process that holds more ends when its task is done


def main() -> None:
    """Serve tasks until stdin ends."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    from pyprof.viewer import tasks  # noqa: F401 - what every task needs, before the first one is there

    gc.freeze()
    gc.enable()
    session = Session(sys.argv[1])
    with suppress(BrokenPipeError):  # the server has gone
        for line in sys.stdin.buffer:
            task = json.loads(line)
            _answer(out, session, task, sys.stdin.buffer.read(task["size"]))


def _answer(out: BinaryIO, session: Session, task: dict[str, Any], given: bytes) -> None:
    from pyprof.viewer.tasks import TASKS

    last = 0.0

    def told(share: float, what: str = "") -> None:
        nonlocal last
        if time.monotonic() - last >= _LEAST:
            last = time.monotonic()
            _line(out, {"progress": share, "what": what})

    of_recording = task["task"] == "import"  # else of the database, which may hold what no profile does
    try:
        table = {"given": pa.ipc.open_stream(given).read_all()} if given else {}
        with nullcontext() if of_recording else session.store.translate_errors():
            result = TASKS[task["task"]](session, told, **task["args"], **table)
    except PyProfError as error:
        path = Path(task["args"].get("source", session.path))
        trouble = of_file(path, error) if of_recording else of_error(error)
        _line(out, {"trouble": trouble.body})
        return
    except BrokenPipeError:
        raise
    except Exception as error:
        traceback.print_exc()  # on the server's stderr
        said = (
            "There is not enough memory for this."
            if isinstance(error, MemoryError)
            else _FAULT.format(type(error).__name__)
        )
        _line(out, {"trouble": of_error(PyProfError(said)).body})
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
    """Bytes of memory that this process holds; 0 where nobody tells."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def _line(out: BinaryIO, value: dict[str, Any]) -> None:
    out.write(json.dumps(value).encode() + b"\n")
    out.flush()
