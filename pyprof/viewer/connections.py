# SPDX-License-Identifier: Apache-2.0
"""Connections: how many there are, and how long one may take to send a request.

uvicorn has no time limit for the head or the body of a request, and takes as many connections as there are
descriptors. Whoever can connect, without a token, could keep everybody else out with requests that never end. So:

- at most `most()` connections are open, below the limit of descriptors, which databases and processes need, too
- a connection that has not sent a whole request within `_REQUEST` seconds, after the time it may be idle, is closed
- where there are as many connections as there may be, the one that has waited longest for a request is closed for the
  next one; one whose request is being answered is never closed. If all are, the next one waits
- connections are taken one by one, so that what has arrived is read before more of them are taken
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

_LOG = logging.getLogger("pyprof.viewer")
_MOST = 512
_REQUEST = 10.0  # seconds for a request
_PAUSE = 0.05  # seconds until the next look, when no connection can be taken
_QUIET = 60.0  # seconds between two lines that say why


def most() -> int:
    """Connections at once: half of the descriptors that this process may have, but no more than `_MOST`."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return _MOST
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if limit == resource.RLIM_INFINITY else max(min(_MOST, limit // 2), 1)


class _Connection(H11Protocol):
    """A connection that says when it begins and ends to wait for a request: `waiting` has those that do, with the time
    since when, the first one first."""

    def __init__(self, waiting: dict[_Connection, float], **more: Any):
        super().__init__(**more)
        self._waiting = waiting

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._waiting.pop(self, None)

    def _look(self) -> None:
        answered = self.cycle is not None and not self.cycle.response_complete
        if answered and not self.cycle.more_body:
            self._waiting.pop(self, None)
        else:
            self._waiting.setdefault(self, time.monotonic())


class LimitedServer(uvicorn.Server):
    """uvicorn's server with limits for connections."""

    def __init__(self, config: uvicorn.Config):
        super().__init__(config)
        self._most = most()
        self._waiting: dict[_Connection, float] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._told = float("-inf")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])  # it listens nowhere
        for one in sockets or ():
            self._tasks.append(asyncio.create_task(self._accept(one)))
        self._tasks.append(asyncio.create_task(self._sweep()))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await super().shutdown(sockets)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                made, _ = await loop.sock_accept(listener)
            except ConnectionError:  # it has gone again
                continue
            except OSError as error:  # out of descriptors or memory
                self._say(error)
                await self._less()
                continue
            while len(self.server_state.connections) >= self._most:
                await self._less()
            with suppress(OSError):
                await loop.connect_accepted_socket(self._made, made)

    def _made(self) -> _Connection:
        return _Connection(
            self._waiting, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    async def _less(self) -> None:
        """Close the connection that has waited longest; if none waits, let time pass."""
        first = next(iter(self._waiting), None)
        if first is None:
            await asyncio.sleep(_PAUSE)
            return
        self._end(first)
        await asyncio.sleep(0)  # in which it is closed

    def _say(self, error: OSError) -> None:
        if time.monotonic() - self._told > _QUIET:
            self._told = time.monotonic()
            _LOG.error("cannot accept a connection (%s); it is tried again", error.strerror)

    async def _sweep(self) -> None:
        """Close connections that have not sent a request in time."""
        limit = self.config.timeout_keep_alive + _REQUEST
        while True:
            for one in list(self._late(time.monotonic() - limit)):
                self._end(one)
            await asyncio.sleep(min(1.0, limit / 4))

    def _late(self, before: float) -> Iterator[_Connection]:
        for one, since in self._waiting.items():
            if since > before:
                return
            yield one

    def _end(self, one: _Connection) -> None:
        self._waiting.pop(one, None)
        one.transport.abort()
