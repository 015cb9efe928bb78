# SPDX-License-Identifier: Apache-2.0
"""Facts at the beginning and the end of a recording: enough to tell runs apart without reading it.

A format may define `head(path) -> Head`. A fact that is missing or costs more than a few pages of the file to find
stays unknown, and an unknown fact never separates recordings (`separation`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pyprof.core.sqlite_file import Database

# libkineto counts times from the last multiple of three months of 30.44 days, ChromeTraceBaseTime. The multiple is
# behind the events, which in a compressed file is out of reach: then times are known but for it.
QUARTER_NS = 7_889_238 * 10**9
EPOCH_NS = 10**18  # 2001; clocks that count from the start of a session or of the machine are far below


class Head(NamedTuple):
    """Facts of one recording. `distributed`: whether it was recorded as a rank of a process group, None if its format
    does not say. `start`, `end`: unix time in ns, or if `cyclic` the rest of it after multiples of QUARTER_NS."""

    distributed: bool | None = None
    rank: int | None = None
    world_size: int | None = None
    host: str | None = None
    pid: int | None = None
    gpus: frozenset[str] = frozenset()
    program: str | None = None
    start: int | None = None
    end: int | None = None
    cyclic: bool = False


def number(text: object) -> int | None:
    """Return a count of a fact; None for anything else.

    >>> number("8"), number(8), number(True), number("-1")
    (8, 8, None, None)
    """
    if type(text) is int:
        return text if 0 <= text < 2**31 else None
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10 else None


def program(command: str | None) -> str | None:
    """Return the script that a command line runs, without its folder: ranks may have different arguments.

    >>> program("src/train.py --local_rank=3"), program("-c"), program(None)
    ('train.py', None, None)
    """
    first = (command or "").partition(" ")[0].strip("'\"")
    return Path(first).name if first.endswith(".py") else None


def of_export(path: Path, tables: tuple[str, ...]) -> Head:
    """Return the head of an export of Nsight Systems, a file of PyProf or a database of nvprof. Raises FormatError."""
    with Database(path) as database:
        session = next(iter(database.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))), (None,))[0]
        zero = session if type(session) is int and session >= EPOCH_NS else 0
        ends = [database.ends(table, ("start", "end")) for table in tables]
        times = [zero + time for time in (time for pair in ends for time in pair) if zero + time >= EPOCH_NS]
        facts = {str(key): str(value) for key, value in database.rows("PYPROF_META", ("name", "value"))}
        names = database.rows("TARGET_INFO_GPU", ("name",))
        system = dict(database.rows("TARGET_INFO_SYSTEM_ENV", ("name", "value")))
        pids = database.rows("PROCESSES", ("globalPid",))
    host = facts.get("host") or system.get("Hostname")
    key = pids[0][0] if len(pids) == 1 else None
    return Head(
        distributed=None if not facts else "distributed.world_size" in facts, rank=_rank(facts),
        world_size=number(facts.get("distributed.world_size")), host=host if isinstance(host, str) else None,
        pid=key >> 24 & 0xFFFFFF if facts and type(key) is int else None,
        gpus=frozenset(name for (name,) in names if isinstance(name, str)), program=program(facts.get("command")),
        start=min(times, default=None), end=max(times, default=None),
    )  # fmt: skip


def _rank(facts: Mapping[str, str]) -> int | None:
    return number(facts.get("rank", facts.get("distributed.rank")))
