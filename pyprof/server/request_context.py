# SPDX-License-Identifier: Apache-2.0
"""Per-request context: database, aggregation, worker, deadline, client disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from pyprof.facts.steps.aggregation import Aggregation, aggregations
from pyprof.facts.steps.source import Source
from pyprof.server.guarded_store import SECONDS, Deadline, Guarded
from pyprof.server.jobs import Jobs
from pyprof.server.library import Library, Opened
from pyprof.server.parameters import AggregationId, Run, WorkerId
from pyprof.views.problems import Trouble

_Value = TypeVar("_Value")
HOUR = 3600.0  # seconds for a file with all rows
PATIENCE = 120.0  # seconds for the answer of a child process
_RUNS = {"run", "base", "other"}  # parameters that name a run
# Routes that the summary of a fleet can answer; reports say themselves whether they can.
_OF_SUMMARY = {"/api/profile", "/api/fleet", "/api/reports/{name}", "/api/reports/{name}/export"}
NO_EVENTS = "The summary of a fleet has no single events; open a rank at Run."


async def known_parameters(request: Request) -> None:
    """Raise Trouble for a URL parameter that the route does not have, so that a page of another version or a misspelled
    name is reported and not ignored; and for the summary of a fleet, if the route needs single events."""
    route = request.scope["route"]
    extra = [parameter["name"] for parameter in (route.openapi_extra or {}).get("parameters", ())]
    names = {*extra, *_query_names(route.dependant)}
    for name in request.query_params:
        if name not in names:
            raise Trouble("parameter", f"unknown parameter {name}; choose from {_examples(sorted(names))}.", name)
    library = server(request).library
    for name in names & _RUNS:
        if route.path not in _OF_SUMMARY and library.is_summary(request.query_params.get(name)):
            raise Trouble("missing", NO_EVENTS)


def _query_names(dependant: Any) -> set[str]:
    """Return the names of a route's URL parameters, with those of what it depends on."""
    return {field.alias for field in dependant.query_params}.union(*map(_query_names, dependant.dependencies))


class DisconnectedError(Exception):
    """Error: the client has disconnected."""


class Server:
    """State of the application: library, source root, jobs."""

    def __init__(self, library: Library, source_root: str | None):
        self.library, self.source_root = library, source_root
        self.jobs = Jobs(library)


def server(request: Request) -> Server:
    state: Server = request.app.state.server
    return state


class Context:
    """Request for an aggregation of a database."""

    def __init__(self, request: Request, opened: Opened, aggregation: Aggregation, worker: int | None):
        self.request, self.opened, self.aggregation, self.worker = request, opened, aggregation, worker

    async def read(self, work: Callable[[Source], _Value]) -> _Value:
        """Run database statements in a thread. Raises Trouble when time is up."""
        return await run_read(
            self.request,
            self.opened,
            lambda store: work(Source(store, self.aggregation, self.worker)),
        )

    async def ask(
        self, task: str, shape: Callable[[Any], Any], background: bool = False, variant: str = "", **args: Any
    ) -> Any:
        """Return the answer of a child process; see Engine.ask."""
        return await wait_for_child(self.request, self.opened.engine.ask(task, shape, background, variant, **args))

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of tasks."""
        return {"aggregation": self.aggregation.id, "worker": self.worker}


async def context_of(
    request: Request, run: Run = None, aggregation: AggregationId = None, worker: WorkerId = None
) -> Context:
    """Return the context of a request. Raises Trouble for an unknown run, aggregation or worker."""
    opened = await server(request).library.open(run)
    selection = await find_aggregation(request, opened, aggregation)
    if worker is not None:
        if "workers" not in opened.memo:
            opened.memo["workers"] = await run_read(
                request,
                opened,
                lambda store: [row[0] for row in store.rows("select id from worker order by id")],
            )
        workers: list[int] = opened.memo["workers"]
        if worker not in workers:
            raise Trouble("parameter", f"No worker {worker}; choose from {_examples(workers)}.", "worker")
    return Context(request, opened, selection, worker)


Selected = Annotated[Context, Depends(context_of)]


async def find_aggregation(request: Request, opened: Opened, number: int | None) -> Aggregation:
    """Return an aggregation by its number, by default the first. Raises Trouble for an unknown one."""
    available = opened.memo.get("aggregations")
    if available is None:
        available = opened.memo["aggregations"] = await run_read(request, opened, aggregations)
    if number is None and available:
        first: Aggregation = available[0]
        return first
    for aggregation in available:
        if aggregation.id == number:
            match: Aggregation = aggregation
            return match
    choices = _examples([aggregation.id for aggregation in available])
    raise Trouble("parameter", f"No aggregation {number}; choose from {choices}.", "aggregation")


def _examples(values: Any) -> str:
    texts = [str(value) for value in values]
    return ", ".join(texts[:20]) + (" and others" if len(texts) > 20 else "")


async def run_read(request: Request, opened: Opened, work: Callable[[Guarded], _Value]) -> _Value:
    """Run work on a connection in a thread; its statements end when time is up or the client disconnects."""
    deadline = Deadline(SECONDS)

    def run() -> _Value:
        with opened.pool.store(deadline) as store:
            return work(store)

    task = asyncio.ensure_future(asyncio.to_thread(run))
    try:
        return await _while_connected(request, task, SECONDS + 5)
    finally:
        if not task.done():
            deadline.cancel()
            task.add_done_callback(lambda done: done.cancelled() or done.exception())


async def wait_for_child(request: Request, work: Awaitable[_Value], seconds: float | None = None) -> _Value:
    """Wait for the answer of a child process, until time is up or the client disconnects."""
    task = asyncio.ensure_future(work)
    try:
        return await _while_connected(request, task, seconds or PATIENCE)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})  # its process writes nothing afterwards


async def _while_connected(request: Request, task: asyncio.Future[_Value], seconds: float) -> _Value:
    disconnect: asyncio.Future[Any] = asyncio.ensure_future(_disconnect(request))
    try:
        both: set[asyncio.Future[Any]] = {task, disconnect}
        await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        disconnect.cancel()
    if task.done():
        return task.result()
    if disconnect.done() and not disconnect.cancelled():
        raise DisconnectedError
    raise Trouble(
        "slow", "This took too long and was stopped. Narrow it down to an iteration, an operator or a worker."
    )


async def _disconnect(request: Request) -> None:
    """Return when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
