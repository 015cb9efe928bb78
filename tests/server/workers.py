# SPDX-License-Identifier: Apache-2.0
"""The server's child processes as forks of one that has imported what they need, which takes each a second and more.

They run the same code, get the same environment, and end in the same ways. Only `pyprof view` itself, in a process of
its own, starts its children as users have them.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from pyprof.server import engine

_MOST = 1 << 17  # bytes of an order: an environment
_SERVER = """
import gc, importlib, json, os, pkgutil, signal, socket, sys
gc.disable()
orders = socket.socket(fileno=int(sys.argv[1]))
import pyprof.parse.loader, pyprof.server.tasks
for package in ("server", "views", "reports", "rules", "facts", "store", "timeline", "export", "overview"):
    for module in pkgutil.walk_packages(importlib.import_module(f"pyprof.{package}").__path__, f"pyprof.{package}."):
        try:
            importlib.import_module(module.name)
        except ImportError:
            pass
def reap(*_):
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
signal.signal(signal.SIGCHLD, reap)
gc.freeze()
while True:
    order, files, _, _ = socket.recv_fds(orders, int(sys.argv[2]), 2)
    if not order:
        break
    if os.fork():
        for file in files:
            os.close(file)
        continue
    orders.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    order = json.loads(order)
    for number, file in ((0, files[0]), (1, files[0]), (2, files[1])):
        os.dup2(file, number)
    for file in files:
        os.close(file)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    sys.argv = ["-c", *order["arguments"]]
    os.write(1, b"%d\\n" % os.getpid())
    exec(order["code"], {"__name__": "__main__"})
    break
"""


class _Process:
    """What `engine.Child` needs of a process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pid: int):
        self.stdout, self.stdin, self._transport = reader, writer, writer.transport
        self._handle: int | None = None
        with suppress(ProcessLookupError):  # it has ended
            self._handle = os.pidfd_open(pid)

    @property
    def returncode(self) -> int | None:
        if self._handle is not None:
            if not select.select([self._handle], [], [], 0)[0]:
                return None
            os.close(self._handle)
            self._handle = None
        return -signal.SIGKILL

    def kill(self) -> None:
        if self._handle is not None:
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    async def wait(self) -> None:
        if self.returncode is None:
            assert self._handle is not None
            ended, loop = asyncio.Event(), asyncio.get_running_loop()
            loop.add_reader(self._handle, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(self._handle)
            assert self.returncode is not None


class Workers:
    """The process that forks."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            self.server = subprocess.Popen(
                [sys.executable, "-c", _SERVER, str(theirs.fileno()), str(_MOST)], stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()], env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            )  # fmt: skip

    async def start(self, path: str) -> engine.Child:
        """Start a child, in place of `engine.Child.start`."""
        ours, theirs = socket.socketpair()
        order = {
            "code": engine._START,
            "arguments": [path, "\n".join(sys.path)],
            "environment": engine._MALLOC | os.environ,
            "folder": os.getcwd(),
        }
        with theirs, self._lock:
            socket.send_fds(self._orders, [json.dumps(order).encode()], [theirs.fileno(), 2])
        reader, writer = await asyncio.open_connection(sock=ours, limit=engine._LINE)
        process: Any = _Process(reader, writer, int(await reader.readline()))
        return engine.Child(process)

    def children(self) -> set[int]:
        """Return the numbers of the processes that servers have started."""
        own, out = str(self.server.pid), set()
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and (entry / "stat").read_text().rpartition(")")[2].split()[1] == own:
                    out.add(int(entry.name))
        return out

    def close(self) -> None:
        self._orders.close()
        self.server.wait()


@contextmanager
def forked() -> Iterator[Workers]:
    """Fork all children of servers in this process."""
    workers = Workers()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.Child, "start", staticmethod(workers.start))
        yield workers
    workers.close()
