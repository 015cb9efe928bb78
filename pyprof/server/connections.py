# SPDX-License-Identifier: Apache-2.0
"""Connection limits: number of connections, and time to send a request.

uvicorn has no time limit for the head or body of a request, and accepts as many connections as there are
descriptors. Anyone able to connect, even without a token, could block everyone else with requests that never end.
Therefore:

- at most `most()` connections are open, below the limit of descriptors, which databases and processes need, too
- a connection that has not sent a complete request within `_REQUEST` seconds, after the allowed idle time, is closed
- when the limit is reached, the connection that has waited longest for a request is closed for the next one; one whose
  request is being answered is never closed. If all are, the next one waits
- connections are accepted one by one, so that received data is read before more of them are accepted
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

_LOG = logging.getLogger("pyprof.server")
_MOST = 512
_REQUEST = 10.0  # seconds for a request
_PAUSE = 0.05  # seconds until the next attempt, when no connection can be accepted
_QUIET = 60.0  # seconds between two messages with the reason


def most() -> int:
    """Return the maximum number of connections: half of this process's descriptor limit, at most `_MOST`."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return _MOST
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if limit == resource.RLIM_INFINITY else max(min(_MOST, limit // 2), 1)


class _Connection(H11Protocol):
    """Connection that records when it waits for a request: `waiting` contains the waiting connections and their start
    times, longest wait first."""

    def __init__(self, waiting: dict[_Connection, float], **options: Any):
        super().__init__(**options)
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
    """uvicorn server with connection limits."""

    def __init__(self, config: uvicorn.Config):
        super().__init__(config)
        self._most = most()
        self._waiting: dict[_Connection, float] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._last_message = float("-inf")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])  # without sockets of its own
        for listener in sockets or ():
            self._tasks.append(asyncio.create_task(self._accept(listener)))
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
                client, _ = await loop.sock_accept(listener)
            except ConnectionError:  # closed again
                continue
            except OSError as error:  # out of descriptors or memory
                self._log_error(error)
                await self._make_room()
                continue
            while len(self.server_state.connections) >= self._most:
                await self._make_room()
            with suppress(OSError):
                await loop.connect_accepted_socket(self._protocol, client)

    def _protocol(self) -> _Connection:
        return _Connection(
            self._waiting, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    async def _make_room(self) -> None:
        """Close the connection that has waited longest; if none is waiting, sleep."""
        oldest = next(iter(self._waiting), None)
        if oldest is None:
            await asyncio.sleep(_PAUSE)
            return
        self._end(oldest)
        await asyncio.sleep(0)  # let it close

    def _log_error(self, error: OSError) -> None:
        if time.monotonic() - self._last_message > _QUIET:
            self._last_message = time.monotonic()
            _LOG.error("cannot accept a connection (%s); trying again", error.strerror)

    async def _sweep(self) -> None:
        """Close connections that have not sent a request in time."""
        limit = self.config.timeout_keep_alive + _REQUEST
        while True:
            for connection in list(self._late(time.monotonic() - limit)):
                self._end(connection)
            await asyncio.sleep(min(1.0, limit / 4))

    def _late(self, before: float) -> Iterator[_Connection]:
        for connection, since in self._waiting.items():
            if since > before:
                return
            yield connection

    def _end(self, connection: _Connection) -> None:
        self._waiting.pop(connection, None)
        connection.transport.abort()
