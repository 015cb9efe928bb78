# SPDX-License-Identifier: Apache-2.0
"""Capture file: those tables of an Nsight Systems export (schema 3.16.1) that have rows, and `PYPROF_*`.

SQLite, complete or absent (`core/atomic_file.py`). Times are ns since the start of the session. Each distinct text is
stored once in StringIds. `globalTid` is pid << 24 | tid, as in an export. The tables of device events are in
`device_tables.py`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

import pyprof
from pyprof.capture.collectors.device import Records
from pyprof.capture.core.operators import Operators
from pyprof.capture.output import device_tables
from pyprof.capture.output.merge_calls import CallRow, RangeRow
from pyprof.capture.output.sources import Source
from pyprof.core import atomic_file
from pyprof.core.marker import cut_stack, encode, refer
from pyprof.core.model import Ints

SCHEMA_VERSION = "3.16.1"
FORMAT_VERSION = "2"
DOMAIN = 1  # of NVTX ranges: PyProf's own; 0 is the user's
DOMAIN_CREATE, PUSH_POP = 75, 59
_CHUNK = 1 << 14  # rows converted to Python numbers at once

_TABLES = """
create table META_DATA_EXPORT (name text, value text);
create table StringIds (id integer primary key, value text);
create table ThreadNames (nameId integer, priority integer, globalTid integer);
create table PROCESSES (globalPid integer, pid integer, name text);
create table TARGET_INFO_SESSION_START_TIME (utcEpochNs integer, utcTime text, localTime text);
create table ANALYSIS_DETAILS (globalVid integer, duration integer, startTime integer, stopTime integer);
create table NVTX_EVENTS (
    start integer, end integer, eventType integer, rangeId integer, category integer, color integer, text text,
    globalTid integer, endGlobalTid integer, textId integer, domainId integer, uint64Value integer,
    int64Value integer, doubleValue real, uint32Value integer, int32Value integer, floatValue real,
    jsonTextId integer, jsonText text, binaryData text);
-- Stacks of calls, with what follows them in the texts. StringIds has their numbers: 'trace': 17} ends such a text.
create table PYPROF_CALL_STACK (id integer primary key, text text);
-- One RecordFunction event: scope 0 function, 1 backward function; textId is the operator's marker.
create table PYPROF_OP (
    start integer, end integer, globalTid integer, nameId integer, scope integer, textId integer, seq integer,
    forwardGlobalTid integer);
-- One step of the training loop, from mark to mark.
create table PYPROF_STEP (number integer, start integer, end integer, globalTid integer);
-- Time that is not the program's own ("reading": the thread waited while torch's records were read), or
-- without operators ("no operators": torch's profiler could not go on).
create table PYPROF_PAUSE (start integer, end integer, globalTid integer, what text);
-- Facts of the run.
create table PYPROF_META (name text, value text);
-- What was not recorded, by reason.
create table PYPROF_LOST (reason text, count integer);
-- Files of the program in its stacks, each distinct text once.
create table PYPROF_SOURCE (path text, sha256 text);
create table PYPROF_SOURCE_TEXT (sha256 text, text text);
"""


class StepRow(NamedTuple):
    """One step, in ns of the epoch."""

    number: int
    start: int
    end: int
    tid: int


class PauseRow(NamedTuple):
    """Part of the window that does not reflect the program, in ns of the epoch; `tid` 0: no particular thread."""

    start: int
    end: int
    tid: int
    what: str


class Recording(NamedTuple):
    """Contents of a capture file. Times are ns of the epoch; `start` is the beginning of the session."""

    start: int
    end: int
    calls: list[CallRow]
    ranges: list[RangeRow]
    operators: Operators
    steps: list[StepRow]
    threads: dict[int, str]
    meta: dict[str, str]
    lost: dict[str, int]
    pauses: list[PauseRow]
    sources: list[Source]
    device: Records = Records()  # shared default, never modified
    gpus: tuple[dict[str, Any], ...] = ()  # rows of TARGET_INFO_GPU
    tables: Sequence[Table] = ()  # of optional recordings: `extras`


class Table(NamedTuple):
    """Table of the file: its definition, and its rows as a function of (recording, code of a text, globalTid of the
    process)."""

    create: str
    insert: str
    rows: Callable[[Recording, Callable[[str], int], int], Iterable[tuple[object, ...]]]


def write(
    path: str,
    recording: Recording,
    process_name: str,
    before: Callable[[str], object] | None = None,
) -> None:
    """Write the file; `before` is called just before it gets its name. Raises CaptureError on failure, and leaves no
    file."""
    _fill(path, recording, process_name, before)


class _Strings:
    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.stacks: dict[str, int] = {}
        self._calls: dict[str, int] = {}

    def code(self, text: str) -> int:
        return self.codes.setdefault(text, len(self.codes))

    def call(self, text: str) -> int:
        """Return the code of the text of a call, which is stored without its stack."""
        code = self._calls.get(text)
        if code is None:
            head, stack = cut_stack(text)
            short = refer(head, self.stacks.setdefault(stack, len(self.stacks))) if stack else text
            code = self._calls[text] = self.code(short)
        return code


def _fill(path: str, recording: Recording, process_name: str, before: Callable[[str], object] | None) -> None:
    with atomic_file.database(path, before) as connection:
        connection.executescript(_TABLES)
        connection.execute("begin")
        strings, pid = _Strings(), os.getpid()
        _facts(connection, recording, process_name, strings, pid)
        _ranges(connection, recording, strings, pid << 24)
        _operators(connection, recording, strings, pid << 24)
        device_tables.write(
            connection, recording.device, list(recording.gpus), recording.start, pid << 24, strings.code
        )
        connection.executemany(
            "insert into PYPROF_STEP values (?, ?, ?, ?)",
            (
                (step.number, step.start - recording.start, step.end - recording.start, pid << 24 | step.tid)
                for step in recording.steps
            ),
        )
        connection.executemany(
            "insert into PYPROF_PAUSE values (?, ?, ?, ?)",
            (
                (
                    pause.start - recording.start,
                    pause.end - recording.start,
                    pid << 24 | pause.tid,
                    pause.what,
                )
                for pause in recording.pauses
            ),
        )
        for table in recording.tables:
            connection.execute(table.create)
            connection.executemany(table.insert, table.rows(recording, strings.code, pid << 24))
        for name, numbers in (("StringIds", strings.codes), ("PYPROF_CALL_STACK", strings.stacks)):
            connection.executemany(
                f"insert into {name} values (?, ?)", ((number, text) for text, number in numbers.items())
            )
        connection.execute("commit")


def _facts(
    connection: sqlite3.Connection, recording: Recording, process_name: str, strings: _Strings, pid: int
) -> None:
    facts = {
        "EXPORT_PRODUCT_NAME": "PyProf",
        "EXPORT_PRODUCT_VERSION": pyprof.__version__,
        "EXPORT_SCHEMA_VERSION": SCHEMA_VERSION,
    }
    connection.executemany("insert into META_DATA_EXPORT values (?, ?)", facts.items())
    connection.execute("insert into PROCESSES values (?, ?, ?)", (pid << 24, pid, process_name))
    seconds = recording.start / 1e9
    utc = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    local = datetime.fromtimestamp(seconds).strftime("%Y-%m-%dT%H:%M:%S")
    connection.execute("insert into TARGET_INFO_SESSION_START_TIME values (?, ?, ?)", (recording.start, utc, local))
    duration = recording.end - recording.start
    connection.execute("insert into ANALYSIS_DETAILS values (?, ?, ?, ?)", (pid << 24, duration, 0, duration))
    connection.executemany(
        "insert into ThreadNames values (?, ?, ?)",
        ((strings.code(name), 0, pid << 24 | tid) for tid, name in recording.threads.items()),
    )
    connection.executemany(
        "insert into PYPROF_META values (?, ?)", {"format_version": FORMAT_VERSION, **recording.meta}.items()
    )
    connection.executemany("insert into PYPROF_LOST values (?, ?)", recording.lost.items())
    connection.executemany(
        "insert into PYPROF_SOURCE values (?, ?)",
        ((source.path, source.sha256) for source in recording.sources),
    )
    texts = {source.sha256: source.text for source in recording.sources}
    connection.executemany("insert into PYPROF_SOURCE_TEXT values (?, ?)", texts.items())


def _ranges(connection: sqlite3.Connection, recording: Recording, strings: _Strings, process: int) -> None:
    t0 = recording.start

    def rows() -> Iterable[tuple[object, ...]]:
        yield 0, None, DOMAIN_CREATE, None, "pyprof", process, None, None, DOMAIN, None
        for number, call in enumerate(recording.calls):
            yield (
                call.start - t0, call.end - t0, PUSH_POP, None, None, process | call.tid, None,
                strings.call(call.text), DOMAIN, number,
            )  # fmt: skip
        for item in recording.ranges:
            end = None if item.end is None else item.end - t0
            yield (
                max(item.start - t0, 0),
                end,
                item.kind,
                None,
                item.name,
                process | item.tid,
                None,
                None,
                0,
                None,
            )

    connection.executemany(
        """insert into NVTX_EVENTS (
               start, end, eventType, rangeId, text, globalTid, endGlobalTid, textId, domainId, uint64Value)
           values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        rows(),
    )


def _operators(connection: sqlite3.Connection, recording: Recording, strings: _Strings, process: int) -> None:
    """Write the operators, possibly millions of rows: Python code runs only per distinct call."""
    operators, t0 = recording.operators, recording.start
    distinct, index = operators.distinct()
    names, texts = np.zeros(len(distinct), np.int64), np.zeros(len(distinct), np.int64)
    for number in np.unique(index).tolist():
        call, module = distinct[number]
        names[number] = strings.code(call.op)
        texts[number] = strings.code(encode(call, module=module or None))
    start, end, tid, scope, seq, forward = (operators.rows[:, column] for column in (0, 1, 2, 4, 5, 6))
    columns = (start - t0, end - t0, process | tid, names[index], scope, texts[index])
    forward = np.where(forward < 0, -1, process | forward)
    for first in range(0, len(index), _CHUNK):
        chunk = slice(first, first + _CHUNK)
        connection.executemany(
            "insert into PYPROF_OP values (?, ?, ?, ?, ?, ?, ?, ?)",
            zip(*(column[chunk].tolist() for column in columns), _nulls(seq[chunk]), _nulls(forward[chunk])),
        )


def _nulls(numbers: Ints) -> list[int | None]:
    """Return the numbers, None for negative ones."""
    return [number if number >= 0 else None for number in numbers.tolist()]
