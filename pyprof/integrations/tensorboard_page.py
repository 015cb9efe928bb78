# SPDX-License-Identifier: Apache-2.0
"""The server of the page inside TensorBoard.

It is an ASGI application; a2wsgi runs it on a thread of its own beside TensorBoard's WSGI server. TensorBoard decides
who may connect; what the page may do, and who may change something, is decided as by `pyprof view`.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from a2wsgi import ASGIMiddleware
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pyprof.integrations.log_directory import TRACES, recordings
from pyprof.parse import folder as folders
from pyprof.parse.folder import Source
from pyprof.viewer.app import create
from pyprof.viewer.library import Library, Opened
from pyprof.viewer.problems import Trouble
from pyprof.viewer.request_context import Server
from pyprof.viewer.security import Guard

# The frame of a tab is a page of TensorBoard's own origin.
_FRAMED = {b"x-frame-options": b"SAMEORIGIN"}
_ANCESTORS = (b"frame-ancestors 'none'", b"frame-ancestors 'self'")
_STREAMS = "/api/jobs/"


class LogLibrary(Library):
    """The runs of a log directory. A folder is looked into when somebody opens it: its traces may be several runs."""

    def __init__(self, logdir: str):
        super().__init__(logdir)
        self._parts: dict[str, dict[str, Source]] = {}

    def _look(self) -> dict[str, Source]:
        out: dict[str, Source] = {}
        for path in recordings(self.path):
            name = path.relative_to(self.path).as_posix()
            out |= self._parts.get(name, {name: Source(path)})
        if not out:
            raise Trouble(
                "unreadable",
                f"{self.path} holds no profile; expected NAME.sqlite or *.pt.trace.json in a folder.",
            )
        return out

    async def open(self, run: str | None) -> Opened:
        """Return the database of a run, as in the library of a folder. Raises Trouble."""
        runs = self.runs()
        name = next(iter(runs)) if run is None else run
        source = runs.get(name)
        if source is not None and source.files is None and source.path.is_dir() and name not in self._parts:
            self._parts[name] = await asyncio.to_thread(_parts, name, source.path)
            self._looked = float("-inf")
        return await super().open(next(iter(self._parts[name])) if name in self._parts else run)


def _parts(name: str, path: Path) -> dict[str, Source]:
    """Return the runs of which the traces of a folder are."""
    runs = folders.groups([one for one in folders.inputs(path)[0] if one.path.name.endswith(TRACES)]).runs
    if len(runs) < 2:
        return {name: Source(path)}
    out = {}
    for run in runs:
        files = tuple(recording.path.name for recording in run)
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        out[f"{name}/{files[0]}{more}"] = Source(path, files)
    return out


class _Guard(Guard):
    """Access rules of `pyprof view`, but for the name of the host: TensorBoard answers what is asked of it."""

    def host(self, header: str) -> bool:
        return True


class Page:
    """The server of the page for a log directory, as a WSGI application, with its thread. `close` ends both."""

    def __init__(self, logdir: str):
        self._server = Server(LogLibrary(logdir), None)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pyprof", daemon=True)
        self._thread.start()
        app = _framed(create(self._server, _Guard("localhost", None)))
        self._app = ASGIMiddleware(app, loop=self._loop)  # type: ignore[arg-type]

    def __call__(self, environ: Any, start_response: Any) -> Any:
        return self._app(environ, start_response)

    async def _end(self) -> None:
        await self._server.jobs.close()
        await self._server.library.close()
        await self._loop.shutdown_default_executor()
        for _ in range(3):  # pipes of ended processes close in the next rounds of the loop
            await asyncio.sleep(0)

    def close(self) -> None:
        """Close databases and end child processes."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _framed(app: ASGIApp) -> ASGIApp:
    """Let a page of the same origin frame the answers. Streams of events would each hold a thread of TensorBoard: the
    page asks again instead."""

    async def app_of_frame(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_framed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    (name, _FRAMED.get(name, value).replace(*_ANCESTORS))
                    for name, value in message["headers"]
                ]
            await send(message)

        target: ASGIApp | Response = app
        if (
            scope["type"] == "http"
            and scope["path"].startswith(_STREAMS)
            and scope["path"].endswith("/events")
        ):
            trouble = Trouble("missing", "There are no streams of events in TensorBoard.")
            target = JSONResponse(trouble.body, trouble.status, media_type="application/problem+json")
        await target(scope, receive, send_framed)

    return app_of_frame
