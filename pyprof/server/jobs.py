# SPDX-License-Identifier: Apache-2.0
"""Re-aggregations: each in a separate process, one at a time per run; the others wait.

A job that fails, is cancelled, or whose process or server is killed leaves the database unchanged: additions are one
transaction, and a copy gets its name only when it is complete.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress

from pyprof.server import cache
from pyprof.server.engine import Child
from pyprof.server.library import Library
from pyprof.views import models
from pyprof.views.problems import Trouble

_MAX_ENDED = 50  # ended jobs that are kept
_WAITING = 8  # per run
_OVER = ("done", "failed", "cancelled")


class Job:
    """Job and its watchers."""

    def __init__(self, run: str, request: models.Reaggregate):
        self.id, self.run, self.request = secrets.token_hex(8), run, request
        self.state, self.progress, self.what = "waiting", 0.0, "waiting for another aggregation"
        self.aggregation: int | None = None
        self.error: str | None = None
        self.changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        return self.state in _OVER

    def update(self, state: str | None = None, progress: float | None = None, what: str | None = None) -> None:
        """Change the state, and wake up watchers."""
        self.state = self.state if state is None else state
        self.progress = self.progress if progress is None else progress
        self.what = self.what if what is None else what
        event, self.changed = self.changed, asyncio.Event()
        event.set()

    @property
    def model(self) -> models.Job:
        request = self.request
        return models.Job.model_validate({
            "id": self.id, "run": self.run, "state": self.state, "progress": self.progress, "what": self.what,
            "start": request.start, "stop": request.stop, "key": request.key, "aggregation": self.aggregation,
            "error": self.error,
        })  # fmt: skip


class Jobs:
    """All jobs since the start."""

    def __init__(self, library: Library):
        self._library = library
        self._jobs: dict[str, Job] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    def every(self) -> list[Job]:
        """Return all jobs, latest first."""
        return list(reversed(self._jobs.values()))

    def find(self, id: str) -> Job:
        """Return a job by its id. Raises Trouble."""
        if id not in self._jobs:
            raise Trouble("missing", f"No job {id}; the server was restarted, or the job ended long ago.")
        return self._jobs[id]

    async def start(self, run: str | None, request: models.Reaggregate) -> Job:
        """Start a job, or queue it behind the running one. Raises Trouble."""
        name = (await self._library.open(run)).run
        if sum(not other.over and other.run == name for other in self._jobs.values()) >= _WAITING:
            raise Trouble("busy", f"{_WAITING} aggregations are already waiting; try again when one is done.")
        job = Job(name, request)
        self._jobs[job.id] = job
        for old in [other for other in self._jobs.values() if other.over][:-_MAX_ENDED]:
            del self._jobs[old.id]
        job.task = asyncio.create_task(self._run(job))
        return job

    async def _run(self, job: Job) -> None:
        try:
            async with self._turns.setdefault(job.run, asyncio.Lock()):
                await self._work(job)
        except Trouble as trouble:
            job.error = str(trouble)
            job.update("failed", what="failed")
        except asyncio.CancelledError:
            job.update("cancelled", what="cancelled")
        except Exception as error:
            job.error = f"The aggregation ended unexpectedly ({type(error).__name__})."
            job.update("failed", what="failed")
            raise

    async def _work(self, job: Job) -> None:
        opened = await self._library.open(job.run)
        target = cache.database(opened.stamp)
        job.update("running", 0.0, "starting")
        child = await Child.start(str(opened.path))
        request = job.request
        args = {"target": str(target), "start": request.start, "stop": request.stop, "key": request.key}
        try:
            result, _ = await child.do("aggregate", args, lambda share, what: job.update(None, share, what))
        finally:
            await asyncio.shield(child.stop())
        job.aggregation = result["aggregation"]
        cache.touch(target)
        self._library.renew(opened)
        job.update("done", 1.0, "done")

    def cancel(self, id: str) -> Job:
        """End a job; one that has ended stays as it is. Raises Trouble."""
        job = self.find(id)
        if not job.over and job.task is not None:
            job.task.cancel()
            if job.state == "waiting":
                job.update("cancelled", what="cancelled")
        return job

    async def watch(self, id: str) -> AsyncIterator[Job]:
        """Yield the job now and at every change, until it ends; occasionally without a change, to keep the connection
        alive."""
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
