# SPDX-License-Identifier: Apache-2.0
"""Kills processes that write a profile database, or add to one, at random moments, and looks at what is left.

python killing.py write|aggregate|replace FOLDER ROUNDS SEED prints how many rounds left what; an AssertionError is a
fault. `replace` writes the file anew after each kill, without looking at what is left. `journal`: the process was
killed in the middle of a transaction; `torn`: and had already changed the file.
"""

from __future__ import annotations

import copy
import os
import random
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from pyprof.facts.steps.aggregation import aggregate, aggregations
from pyprof.parse import loader
from pyprof.profiles import Profile
from pyprof.store import access, files
from tests.build import call, recording, write_nsys

STEPS, OPS = 40, 25


def training(steps: int = STEPS, ops: int = OPS) -> str:
    """Lines of a recording: steps of operators with one kernel each."""
    lines = []
    for step in range(steps):
        lines.append(f"step {step}")
        for op in range(ops):
            lines += [f"    {call('torch.relu', (op + 1, step + 1))}", f"        > {10 + op} relu_{op}"]
    return "\n".join(lines)


def slow_cache() -> None:
    """Have SQLite write pages before the end of a transaction, as it does with more of them than fit its cache."""
    original = access.connect

    def connect(path: Path, mode: str) -> sqlite3.Connection:
        connection = original(path, mode)
        connection.execute("pragma cache_size = 4")
        return connection

    access.connect = connect


def at_tick(tick: int) -> None:
    """End this process by SIGKILL while it writes: at an instruction of SQLite's."""
    original = access.restrict

    def restrict(connection: sqlite3.Connection, writing: bool = False) -> None:
        original(connection, writing)
        left = [tick]

        def handler() -> int:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return 0

        if writing:
            connection.set_progress_handler(handler, 200)

    access.restrict = restrict


def killed(work: Callable[[], object], after: float | None, tick: int | None = None) -> None:
    """Do work in a child, which is killed after so many seconds or at a tick; None: never."""
    child = os.fork()
    if not child:
        slow_cache()
        if tick is not None:
            at_tick(tick)
        work()
        os._exit(0)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def duration(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    killed(work, None)
    return time.perf_counter() - begun


def whole(path: Path) -> list[tuple[int, int, str | None]]:
    """Open a database as anyone does; everything in it is right. Returns its aggregations."""
    with files.Store(path) as database:
        with closing(sqlite3.connect(database.uri, uri=True)) as connection:
            assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
        found = aggregations(database)
        for one in found:
            sums = database.rows("select sum(calls), sum(cpu_ns) from op_stat where aggregation = ?", (one.id,))
            direct = database.rows(
                """select count(*), sum(op.cpu_ns) from op join iteration i on op.id >= i.first_op and op.id < i.last_op
                   where i.iteration_set = ? and i.number between ? and ?""",
                (one.iteration_set, one.first, one.last),
            )
            assert sums == direct, (one, sums, direct)
        return [(one.first, one.last, one.key) for one in found]


def rounds(kind: str, folder: Path, count: int, seed: int) -> Counter[str]:
    rng = random.Random(seed)
    source = write_nsys(folder / "net.sqlite", recording(training()))
    target = folder / "net_dldb.sqlite"
    seen: Counter[str] = Counter()

    (folder / "other").mkdir()
    other = write_nsys(folder / "other" / "net.sqlite", recording(training(OPS, STEPS)))
    traces = {path: loader.load(path) for path in (source, other)}  # read before anything is killed

    def write(source: Path = source) -> None:
        Profile(copy.copy(traces[source])).save(target)

    def add(first: int) -> None:
        with files.Store(target) as database:
            aggregate(database, first, None, "relu" if first % 2 else None)

    if kind == "write":
        took = duration(write)
        for number in range(count):
            if number % 2:
                target.unlink(missing_ok=True)
            existed = target.exists()
            if number % 3:
                killed(write, rng.uniform(0, took))
            else:
                killed(write, None, rng.randrange(1, 60))
            assert existed <= target.exists(), "what was there has gone"
            seen["there" if target.exists() and whole(target) else "absent"] += 1
    else:
        write()
        took = duration(lambda: add(1))
        for number in range(count):
            before, content = whole(target), target.read_bytes()
            work = lambda number=number: add(number % (OPS - 3) + 2)  # noqa: E731
            if number % 3 == 2:
                killed(work, rng.uniform(0, took))
            else:
                killed(work, None, rng.randrange(1, 60))
            journal = target.with_name(target.name + "-journal").exists()
            seen["journal"] += journal
            seen["torn"] += journal and target.read_bytes() != content
            if kind == "replace":
                write((other, source)[number % 2])
                steps = (OPS, STEPS)[number % 2]
                assert whole(target) == [(0, steps - 1, None)], "the new file is not what was written"
                continue
            after = whole(target)
            assert after[: len(before)] == before, "an aggregation that was there has gone"
            assert len(after) - len(before) in (0, 1)
            seen["added" if len(after) > len(before) else "same"] += 1
    write()
    assert sorted(os.listdir(folder)) == ["net.sqlite", "net_dldb.sqlite", "other"], os.listdir(folder)
    return seen


if __name__ == "__main__":
    found = rounds(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    print(*(f"{name}={number}" for name, number in sorted(found.items())))
