# SPDX-License-Identifier: Apache-2.0
"""The server behind one of the same user, which starts it: that of JupyterLab, by jupyter-server-proxy.

It listens on a Unix socket in a folder that nobody else may enter, which is checked first. So other users cannot
connect, and browsers reach it only by the other server, which knows its user: there is no token.
"""

from __future__ import annotations

import os
import signal
import socket
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from pyprof.core.errors import PyProfError, UsageError

_BACKLOG = 2048  # connections that the system queues until they are accepted
_LOOK = 1.0  # seconds between two looks for the other server
_FOREIGN = 0o077  # permissions of others


@contextmanager
def listening(path: str) -> Iterator[socket.socket]:
    """Yield a socket that listens at a path, and remove it afterwards. Raises PyProfError."""
    if not hasattr(socket, "AF_UNIX"):
        raise UsageError("this system has no Unix sockets; use pyprof view with a port.")
    _check_folder(Path(path).parent)
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            _remove_unused(path)
            mask = os.umask(_FOREIGN | stat.S_IXUSR)
            try:
                listener.bind(path)
            finally:
                os.umask(mask)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
        except OSError as error:  # strerror is missing for a path that is too long
            reason = error.strerror or f"{error}; set TMPDIR to a folder with a shorter one"
            raise PyProfError(f"{path} cannot be listened on ({reason}).") from error
        try:
            yield listener
        finally:
            with suppress(OSError):
                os.unlink(path)


def _check_folder(folder: Path) -> None:
    """Raise UsageError for a folder that others may enter."""
    try:
        status = folder.stat()
    except OSError as error:
        raise UsageError(f"{folder} cannot be read ({error.strerror}).") from error
    if status.st_uid != os.geteuid() or status.st_mode & _FOREIGN:
        raise UsageError(f"{folder}: other users may enter this folder; the socket needs one of mode 700.")


def _remove_unused(path: str) -> None:
    """Remove the socket of a server that was killed. Raises OSError for anything else at this path."""
    with suppress(FileNotFoundError), socket.socket(socket.AF_UNIX) as probe:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)


def end_with_parent() -> None:
    """Interrupt this process when the one that started it ends, however it does; and leave its terminal: that process
    gets a Ctrl-C there, and passes it on."""
    with suppress(OSError):  # a leader of a group already has one of its own
        os.setsid()
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os.kill(os.getpid(), signal.SIGINT)


def answer_with(sentence: str, listener: socket.socket) -> None:
    """Answer every request with a sentence, until interrupted: the other server passes on answers, and not what is
    printed."""
    from socketserver import UnixStreamServer

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f"{sentence}\n".encode()
            self.send_response(503)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cache-Control", "no-store")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = UnixStreamServer(listener.getsockname(), Handler, bind_and_activate=False)
    server.socket.close()
    listener.setblocking(True)
    server.socket = listener
    server.serve_forever()
