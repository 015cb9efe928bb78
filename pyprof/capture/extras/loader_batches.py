# SPDX-License-Identifier: Apache-2.0
"""Table of the batches that workers of a DataLoader made (`loader_workers.py`), joined to the waits of the loop.

Always on: it costs nothing without workers, and the file then has no such table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import time_ns

from pyprof.capture.instrument import loader_workers
from pyprof.capture.instrument.attribute_registry import Registry
from pyprof.capture.instrument.loader_workers import MOST, Row
from pyprof.capture.instrument.recorder import Recorder
from pyprof.capture.output.capture_file import Recording, Table

_LOST = f"batches of loader workers after the first {MOST:,}, or not read in time"
_CREATE = """
-- A batch that a worker of a data loader made. loader: that of the facts loader_workers.*; pid: of the worker. It had
-- the indices at start, the samples at collateStart, the batch at collateEnd, and had sent it at sendEnd. cpu: time of
-- its thread from start to collateEnd; sendCpu: of its thread that sends. slowest: time of the sample that took
-- longest, slowestSample its index. The loop waited for the batch from waitStart to waitEnd.
create table PYPROF_LOADER_BATCH (
    loader integer, pid integer, number integer, samples integer, start integer, collateStart integer,
    collateEnd integer, sendEnd integer, cpu integer, sendCpu integer, slowest integer, slowestSample integer,
    pinStart integer, pinEnd integer, waitStart integer, waitEnd integer);
"""


class LoaderBatches:
    """Batches of one recording so far."""

    def __init__(self) -> None:
        self._since = 0
        self.clear()

    def start(self, registry: Registry) -> None:
        self._since = time_ns()
        loader_workers.forget_gone()
        for one in loader_workers.followed:
            one.begin()

    def stop(self) -> None:
        """Do nothing: workers write on, and `take` reads it."""

    def take(self, recorder: Recorder) -> None:
        for one in loader_workers.followed:
            rows = one.rows(self._since)
            if rows and one.facts not in self._loaders:
                self._loaders.append(one.facts)
            self._rows += ((self._loaders.index(one.facts), row) for row in rows)
            self.lost[_LOST] += one.lost
        loader_workers.forget_gone()

    def clear(self) -> None:
        loader_workers.room.clear()
        self._rows: list[tuple[int, Row]] = []
        self._loaders: list[dict[str, str]] = []
        self.lost = {_LOST: 0}

    def tables(self) -> list[Table]:
        insert = f"insert into PYPROF_LOADER_BATCH values ({', '.join('?' * 16)})"
        return [Table(_CREATE, insert, self._cells)] if self._rows else []

    def _cells(self, recording: Recording, code: Callable[[str], int], process: int) -> Iterable[tuple[object, ...]]:
        zero = recording.start
        for loader, (pid, batch, *waits) in self._rows:
            yield (
                loader, pid, batch.number, batch.samples, batch.start_ns - zero, batch.collate_ns - zero,
                batch.ready_ns - zero, batch.sent_ns - zero, batch.cpu_ns, batch.send_cpu_ns,
                *(number if number >= 0 else None for number in (batch.slowest_ns, batch.slowest)),
                *(time for wait in waits for time in ((wait.start - zero, wait.end - zero) if wait else (None, None))),
            )  # fmt: skip

    def facts(self) -> dict[str, str]:
        return {
            f"loader_workers.{number}.{name}": text
            for number, facts in enumerate(self._loaders)
            for name, text in facts.items()
        }
