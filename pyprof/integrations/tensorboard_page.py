# SPDX-License-Identifier: Apache-2.0
"""The server of the page inside TensorBoard.

It is an ASGI application; a2wsgi runs it on a thread of its own beside TensorBoard's WSGI server. TensorBoard decides
who may connect; what the page may do, and who may change something, is decided as by `pyprof view`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

from a2wsgi import ASGIMiddleware
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pyprof.server.app import create
from pyprof.server.listed_library import ListedLibrary
from pyprof.server.problems import body, status
from pyprof.server.request_context import Server
from pyprof.server.security import Guard
from pyprof.views.problems import Trouble

# The frame of a tab is a page of TensorBoard's own origin.
_FRAMED = {b"x-frame-options": b"SAMEORIGIN"}
_ANCESTORS = (b"frame-ancestors 'none'", b"frame-ancestors 'self'")
_STREAMS = "/api/jobs/"
_REQUEST = "pyprof.request"  # the task of a request, in its environment


class Page:
    """The server of the page for a log directory, as a WSGI application, with its thread. `close` ends both."""

    def __init__(self, logdir: str):
        self._server = Server(ListedLibrary(logdir), None)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pyprof", daemon=True)
        self._thread.start()
        app = _framed(create(self._server, Guard("localhost", None, any_host=True)))
        self._app = ASGIMiddleware(app, loop=self._loop)  # type: ignore[arg-type]

    def __call__(self, environ: Any, start_response: Any) -> Iterator[bytes]:
        try:
            yield from self._app(environ, start_response)
        finally:  # a browser that has left is no longer waited for: a2wsgi would keep the request forever
            request = environ.pop(_REQUEST, None)
            if request is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(request.cancel)

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
        scope["wsgi_environ"][_REQUEST] = asyncio.current_task()

        async def send_framed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    (name, _FRAMED.get(name, value).replace(*_ANCESTORS)) for name, value in message["headers"]
                ]
            await send(message)

        target: ASGIApp | Response = app
        if scope["type"] == "http" and scope["path"].startswith(_STREAMS) and scope["path"].endswith("/events"):
            trouble = Trouble("missing", "There are no streams of events in TensorBoard.")
            target = JSONResponse(body(trouble), status(trouble), media_type="application/problem+json")
        await target(scope, receive, send_framed)

    return app_of_frame
