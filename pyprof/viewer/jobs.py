# SPDX-License-Identifier: Apache-2.0
"""Re-aggregations: each in a process of its own, one at a time per run, the others wait their turn.

A job that fails, is cancelled, or whose process or server is killed leaves the database as it was: what it adds is one
transaction, and a copy gets its name when it is whole.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress

from pyprof.viewer import cache, models
from pyprof.viewer.engine import Child
from pyprof.viewer.library import Library
from pyprof.viewer.problems import Trouble

_KEPT = 50  # jobs that are over
_WAITING = 8  # of one run
_OVER = ("done", "failed", "cancelled")


class Job:
    """A job and everybody who watches it."""

    def __init__(self, run: str, wanted: models.Reaggregate):
        self.id, self.run, self.wanted = secrets.token_hex(8), run, wanted
        self.state, self.progress, self.what = "waiting", 0.0, "waiting for another aggregation"
        self.aggregation: int | None = None
        self.error: str | None = None
        self.changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        return self.state in _OVER

    def say(self, state: str | None = None, progress: float | None = None, what: str | None = None) -> None:
        """Change, and wake up who watches."""
        self.state = self.state if state is None else state
        self.progress = self.progress if progress is None else progress
        self.what = self.what if what is None else what
        event, self.changed = self.changed, asyncio.Event()
        event.set()

    @property
    def model(self) -> models.Job:
        wanted = self.wanted
        return models.Job.model_validate({
            "id": self.id, "run": self.run, "state": self.state, "progress": self.progress, "what": self.what,
            "start": wanted.start, "stop": wanted.stop, "key": wanted.key, "aggregation": self.aggregation,
            "error": self.error,
        })  # fmt: skip


class Jobs:
    """All jobs since the start."""

    def __init__(self, library: Library):
        self._library = library
        self._jobs: dict[str, Job] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    def every(self) -> list[Job]:
        """The latest first."""
        return list(reversed(self._jobs.values()))

    def find(self, id: str) -> Job:
        """Raises Trouble."""
        if id not in self._jobs:
            raise Trouble(
                "missing", f"There is no job {id}; the server was started anew, or it is long over."
            )
        return self._jobs[id]

    async def start(self, run: str | None, wanted: models.Reaggregate) -> Job:
        """Begin, or wait behind the one that is under way. Raises Trouble."""
        name = (await self._library.open(run)).run
        if sum(not one.over and one.run == name for one in self._jobs.values()) >= _WAITING:
            raise Trouble("busy", f"{_WAITING} aggregations are waiting already; try again when one is done.")
        job = Job(name, wanted)
        self._jobs[job.id] = job
        for old in [one for one in self._jobs.values() if one.over][:-_KEPT]:
            del self._jobs[old.id]
        job.task = asyncio.create_task(self._run(job))
        return job

    async def _run(self, job: Job) -> None:
        try:
            async with self._turns.setdefault(job.run, asyncio.Lock()):
                await self._work(job)
        except Trouble as trouble:
            job.error = str(trouble)
            job.say("failed", what="failed")
        except asyncio.CancelledError:
            job.say("cancelled", what="cancelled")
        except Exception as error:
            job.error = f"The aggregation ended unexpectedly ({type(error).__name__})."
            job.say("failed", what="failed")
            raise

    async def _work(self, job: Job) -> None:
        opened = await self._library.open(job.run)
        target = cache.database(opened.stamp)
        job.say("running", 0.0, "starting")
        child = await Child.start(str(opened.path))
        wanted = job.wanted
        args = {"target": str(target), "start": wanted.start, "stop": wanted.stop, "key": wanted.key}
        try:
            found, _ = await child.do("aggregate", args, lambda share, what: job.say(None, share, what))
        finally:
            await asyncio.shield(child.stop())
        job.aggregation = found["aggregation"]
        cache.used(target)
        self._library.renew(opened)
        job.say("done", 1.0, "done")

    def cancel(self, id: str) -> Job:
        """End a job; one that is over stays as it is. Raises Trouble."""
        job = self.find(id)
        if not job.over and job.task is not None:
            job.task.cancel()
            if job.state == "waiting":
                job.say("cancelled", what="cancelled")
        return job

    async def watch(self, id: str) -> AsyncIterator[Job]:
        """The job now and whenever it changes, until it is over; now and then without a change, to keep the line."""
        job = self.find(id)
        while True:
            yield job
            if job.over:
                return
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(job.changed.wait(), 15)

    async def close(self) -> None:
        tasks = [job.task for job in self._jobs.values() if job.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
