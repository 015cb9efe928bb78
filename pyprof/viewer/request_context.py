# SPDX-License-Identifier: Apache-2.0
"""What every request has: a database, an aggregation, a worker, a deadline, and somebody who may leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fastapi import Request

from pyprof.analysis.aggregation import Aggregation, aggregations
from pyprof.analysis.source import Source
from pyprof.viewer.guarded_store import SECONDS, Deadline, Guarded
from pyprof.viewer.jobs import Jobs
from pyprof.viewer.library import Library, Opened
from pyprof.viewer.problems import Trouble

_Value = TypeVar("_Value")
HOUR = 3600.0  # seconds for a file of everything
PATIENCE = 120.0  # seconds for what a child process works out


async def known_parameters(request: Request) -> None:
    """Raises Trouble for a parameter in the URL that the route does not have: a page that is newer or older than the
    server, or a name that is mistyped, is told, never passed over."""
    route = request.scope["route"]
    extra = [one["name"] for one in (route.openapi_extra or {}).get("parameters", ())]
    known = {*extra, *(field.alias for field in route.dependant.query_params)}
    for name in request.query_params:
        if name not in known:
            raise Trouble(
                "parameter", f"{name}: this has no such parameter; it has {_some(sorted(known))}.", name
            )


class GoneError(Exception):
    """The client has left; nobody reads the answer."""


class Server:
    """What is served: kept in the application's state."""

    def __init__(self, library: Library, source_root: str | None):
        self.library, self.source_root = library, source_root
        self.jobs = Jobs(library)


def server(request: Request) -> Server:
    found: Server = request.app.state.server
    return found


class Asked:
    """A request about an aggregation of a database."""

    def __init__(self, request: Request, opened: Opened, aggregation: Aggregation, worker: int | None):
        self.request, self.opened, self.aggregation, self.worker = request, opened, aggregation, worker

    async def read(self, work: Callable[[Source], _Value]) -> _Value:
        """What statements of ours say, in a thread. Raises Trouble when time is up."""
        return await reading(
            self.request,
            self.opened,
            lambda store: work(Source(store, self.aggregation, self.worker)),
        )

    async def ask(
        self, task: str, shape: Callable[[Any], Any], background: bool = False, shown: str = "", **args: Any
    ) -> Any:
        """What a child process works out; see Engine.ask."""
        return await patiently(self.request, self.opened.engine.ask(task, shape, background, shown, **args))

    @property
    def which(self) -> dict[str, Any]:
        """Arguments of tasks."""
        return {"aggregation": self.aggregation.id, "worker": self.worker}


async def asked(request: Request, run: str | None, aggregation: int | None, worker: int | None) -> Asked:
    """Raises Trouble for what does not exist."""
    opened = await server(request).library.open(run)
    chosen = await chosen_aggregation(request, opened, aggregation)
    if worker is not None:
        if "workers" not in opened.known:
            opened.known["workers"] = await reading(
                request,
                opened,
                lambda store: [row[0] for row in store.rows("select id from worker order by id")],
            )
        workers: list[int] = opened.known["workers"]
        if worker not in workers:
            raise Trouble(
                "parameter", f"There is no worker {worker}; choose from {_some(workers)}.", "worker"
            )
    return Asked(request, opened, chosen, worker)


async def chosen_aggregation(request: Request, opened: Opened, number: int | None) -> Aggregation:
    """Raises Trouble for one that does not exist."""
    found = opened.known.get("aggregations")
    if found is None:
        found = opened.known["aggregations"] = await reading(request, opened, aggregations)
    if number is None and found:
        first: Aggregation = found[0]
        return first
    for one in found:
        if one.id == number:
            chosen: Aggregation = one
            return chosen
    known = _some([one.id for one in found])
    raise Trouble("parameter", f"There is no aggregation {number}; choose from {known}.", "aggregation")


def _some(values: Any) -> str:
    texts = [str(value) for value in values]
    return ", ".join(texts[:20]) + (" and others" if len(texts) > 20 else "")


async def reading(request: Request, opened: Opened, work: Callable[[Guarded], _Value]) -> _Value:
    """Work on a connection in a thread; its statements end when time is up or the client leaves."""
    deadline = Deadline(SECONDS)

    def run() -> _Value:
        with opened.pool.store(deadline) as store:
            return work(store)

    task = asyncio.ensure_future(asyncio.to_thread(run))
    try:
        return await _while_there(request, task, SECONDS + 5)
    finally:
        if not task.done():
            deadline.cancel()
            task.add_done_callback(lambda done: done.cancelled() or done.exception())


async def patiently(request: Request, work: Awaitable[_Value], seconds: float | None = None) -> _Value:
    """The answer of a child process; it stops waiting when time is up or the client leaves."""
    task = asyncio.ensure_future(work)
    try:
        return await _while_there(request, task, seconds or PATIENCE)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})  # its process writes nothing any more


async def _while_there(request: Request, task: asyncio.Future[_Value], seconds: float) -> _Value:
    left: asyncio.Future[Any] = asyncio.ensure_future(_left(request))
    try:
        both: set[asyncio.Future[Any]] = {task, left}
        await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        left.cancel()
    if task.done():
        return task.result()
    if left.done() and not left.cancelled():
        raise GoneError
    raise Trouble(
        "slow", "This took too long and was ended. Narrow it down: an iteration, an operator, a worker."
    )


async def _left(request: Request) -> None:
    """Returns when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
