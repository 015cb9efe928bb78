# SPDX-License-Identifier: Apache-2.0
"""The server's side of its child processes: tasks, cached answers, cancellation.

An answer is computed once, for all requests that need it, and cached while there is room. A task that no request
waits for any more is ended. Idle children end after a while, because they hold columns of millions of events.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa

from pyprof.views.problems import Trouble

Progress = Callable[[float, str], None]
Answer = tuple[Any, pa.Table | None]
_START = (  # no garbage collection during imports, see serve.py
    "import gc, sys; gc.disable(); sys.path[:] = sys.argv.pop().split(chr(10)); "
    "from pyprof.server.child import main; main()"
)
_LINE = 1 << 26  # longest line of an answer
_CHILDREN = 3  # per database
_LARGE = 1 << 30  # bytes of a database with one child: the columns of a report may take more than a GB
# glibc maps new memory for each array of more than 32 MB, and the system fills it with zeros: half of the time of a
# report on 10 M events. With these it uses memory that is there; `child` gives it back at the end of a task.
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TOP_PAD_": str(1 << 26)}
EXPORTS = 2  # concurrent exports per database
_IDLE = 60.0  # seconds that a child waits for another task
_GRACE = 1.0  # seconds that a task may still take when nobody waits for it
_ROOM = 96 << 20  # bytes of cached answers


class Child:
    """Process that runs one task after the other."""

    def __init__(self, process: asyncio.subprocess.Process):
        self.process, self.spent = process, False

    @staticmethod
    async def start(path: str) -> Child:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _START, path, "\n".join(sys.path), stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, limit=_LINE, start_new_session=True, env=_MALLOC | os.environ,
        )  # fmt: skip
        return Child(process)

    async def do(
        self,
        task: str,
        args: dict[str, Any],
        progress: Progress = lambda share, step: None,
        payload: bytes = b"",
    ) -> Answer:
        """Run a task on a table (`payload`: an Arrow stream). Raises Trouble. If cancelled, the process cannot be used
        any more."""
        reader, writer = self.process.stdout, self.process.stdin
        assert reader is not None
        assert writer is not None
        try:
            writer.write(json.dumps({"task": task, "args": args, "size": len(payload)}).encode() + b"\n")
            writer.write(payload)
            await writer.drain()
            while True:
                line = await reader.readline()
                if not line:
                    raise Trouble("internal", "The worker process was ended; try again.")
                message = json.loads(line)
                if "progress" in message:
                    progress(message["progress"], message["what"])
                elif "trouble" in message:
                    body = message["trouble"]
                    raise Trouble(body["type"], body["detail"], body["parameter"])
                else:
                    data = await reader.readexactly(message["size"])
                    self.spent = bool(message["large"])
                    return message["result"], pa.ipc.open_stream(data).read_all() if data else None
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            raise Trouble("internal", "The worker process was ended; try again.") from error

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    async def stop(self) -> None:
        """End the process, whatever it does."""
        if self.alive:
            with suppress(ProcessLookupError):
                self.process.kill()
        await self.process.wait()
        transport = getattr(self.process, "_transport", None)
        if transport is not None:
            transport.close()


class Engine:
    """Child processes of one database, at most `children` at once, and cached answers."""

    def __init__(self, path: str, children: int = _CHILDREN):
        self.path = path
        with suppress(OSError):
            children = 1 if os.stat(path).st_size > _LARGE else children
        self._idle: list[tuple[Child, asyncio.TimerHandle]] = []
        self._free = asyncio.Semaphore(children)
        self._background = asyncio.Semaphore(1)
        self._answers: OrderedDict[str, _Answer] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def ask(
        self,
        task: str,
        shape: Callable[[Answer], Any],
        background: bool = False,
        variant: str = "",
        **args: Any,
    ) -> Any:
        """Return the answer to a task as converted by `shape`, from the cache if possible; `variant` distinguishes
        shapes of one task. `background`: only one such task runs at a time, so that they leave room for others.
        """
        key = json.dumps([task, variant, args], sort_keys=True)
        answer = self._answers.get(key)
        if answer is None or answer.failed:
            if answer is not None:
                self._later(answer.ended())  # its process may still be ending
            answer = self._answers[key] = _Answer(self._work(task, args, shape, background))
        self._answers.move_to_end(key)
        try:
            return await answer.wait()
        except BaseException:
            if answer.failed and self._answers.get(key) is answer:
                del self._answers[key]
            raise
        finally:
            self._forget()

    async def once(self, task: str, make_body: Callable[[], bytes] = bytes, **args: Any) -> Any:
        """Return the answer to a task without caching it. `make_body` builds the task's table, in a thread, when the
        task's turn comes."""
        return (await self._do(task, args, make_body))[0]

    async def _work(self, task: str, args: dict[str, Any], shape: Callable[[Answer], Any], background: bool) -> Any:
        if background:
            async with self._background:
                answer = await self._do(task, args)
        else:
            answer = await self._do(task, args)
        return await asyncio.to_thread(shape, answer)

    async def _do(self, task: str, args: dict[str, Any], make_body: Callable[[], bytes] = bytes) -> Answer:
        async with self._free:
            body = b"" if make_body is bytes else await asyncio.to_thread(make_body)
            child = await self._child()
            try:
                answer = await child.do(task, args, payload=body)
            except Trouble:
                self._rest(child)
                raise
            except BaseException:
                await asyncio.shield(child.stop())
                raise
            self._rest(child)
            return answer

    async def _child(self) -> Child:
        while self._idle:
            child, timer = self._idle.pop()
            timer.cancel()
            if child.alive:
                return child
            await child.stop()
        return await Child.start(self.path)

    def _rest(self, child: Child) -> None:
        """Return a child to the pool; it ends if no task follows."""
        if self._closed or child.spent or not child.alive:
            self._later(child.stop())
            return
        timer = asyncio.get_running_loop().call_later(_IDLE, self._retire, child)
        self._idle.append((child, timer))

    def _retire(self, child: Child) -> None:
        self._idle = [pair for pair in self._idle if pair[0] is not child]
        self._later(child.stop())

    def _later(self, work: Awaitable[None]) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def warm(self) -> None:
        """Start a child before the first request."""
        self._later(self._start())

    async def _start(self) -> None:
        with suppress(OSError):
            self._rest(await Child.start(self.path))

    def _forget(self) -> None:
        """Drop the least recently used answers while there are too many."""
        total = sum(answer.size for answer in self._answers.values())
        for key in list(self._answers)[:-1]:
            if total <= _ROOM:
                break
            if self._answers[key].done:
                total -= self._answers.pop(key).size

    async def close(self) -> None:
        """End everything."""
        self._closed = True
        for answer in self._answers.values():
            answer.cancel()
        idle, self._idle = self._idle, []
        for child, timer in idle:
            timer.cancel()
            await child.stop()
        for answer in self._answers.values():
            await answer.ended()
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)


class _Answer:
    """Answer that is being computed, or is complete."""

    def __init__(self, work: Awaitable[Any]):
        self._task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._task.add_done_callback(
            lambda task: task.cancelled() or task.exception()
        )  # mark as retrieved if nobody waits
        self._waiting = 0
        self._abandoned = False

    async def wait(self) -> Any:
        """Wait for the answer. When the last waiter leaves, the work is ended unless it completes soon."""
        self._waiting += 1
        try:
            return await asyncio.shield(self._task)
        finally:
            self._waiting -= 1
            if not self._waiting and not self._task.done():
                asyncio.get_running_loop().call_later(_GRACE, self._abandon)

    def _abandon(self) -> None:
        if not self._waiting:
            self.cancel()

    def cancel(self) -> None:
        """Give up. The task ends some time later, with its process: new requests must not wait for this one."""
        self._abandoned = True
        self._task.cancel()

    async def ended(self) -> None:
        with suppress(BaseException):
            await self._task

    @property
    def done(self) -> bool:
        return self._task.done()

    @property
    def failed(self) -> bool:
        if self._abandoned:
            return True
        return self._task.done() and (self._task.cancelled() or self._task.exception() is not None)

    @property
    def size(self) -> int:
        if not self.done or self.failed:
            return 0
        return int(getattr(self._task.result(), "nbytes", 1000))


class FrameCache:
    """Cache of tables that the server has read itself; the least recently used are dropped if there are too many."""

    def __init__(self, room: int = _ROOM):
        self._room = room
        self._values: OrderedDict[Any, Any] = OrderedDict()

    async def get(self, key: Any, make: Callable[[], Awaitable[Any]]) -> Any:
        """Return the value of a key, computed if it is missing."""
        if key not in self._values:
            self._values[key] = await make()
        self._values.move_to_end(key)
        value = self._values[key]
        total = sum(table.nbytes for table in self._values.values())
        while total > self._room and len(self._values) > 1:
            total -= self._values.popitem(last=False)[1].nbytes
        return value
