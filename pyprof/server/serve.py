# SPDX-License-Identifier: Apache-2.0
"""Serve a profile until ctrl-C, for `pyprof view` and `dlprofviewer`.

Everything that can be wrong (the file, the port, a missing extra) is reported in one sentence before serving starts.
The URL goes to stdout, everything else to stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import gc
import getpass
import os
import socket
import sys
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyprof.core.errors import WHERE, PyProfError, UsageError, install

if TYPE_CHECKING:
    from pyprof.server.connections import LimitedServer
    from pyprof.server.library import Library
    from pyprof.server.security import Guard

_NEEDS = ("fastapi", "uvicorn", "xlsxwriter", "fpdf")
_QUIET = 1.0  # seconds before progress is shown
_BACKLOG = 2048  # connections that the system queues until they are accepted


def serve(name: str, arguments: argparse.Namespace) -> None:
    """Serve the profile of a command line, typed as `name`, until ctrl-C. Raises PyProfError."""
    # Modules stay in memory: scanning their objects repeatedly during imports would take a quarter of the start time.
    gc.disable()
    try:
        with suppress(KeyboardInterrupt):
            if arguments.jupyter is None:
                asyncio.run(_serve(name, arguments))
            else:
                _serve_jupyter(arguments)
    finally:
        gc.enable()


def _serve_jupyter(arguments: argparse.Namespace) -> None:
    """Serve a folder on a Unix socket, or else answer with the reason why not. Raises PyProfError."""
    from pyprof.server import unix_socket

    with unix_socket.listening(arguments.jupyter) as listener:
        unix_socket.end_with_parent()
        try:
            asyncio.run(_serve_folder(arguments, listener))
        except PyProfError as error:
            unix_socket.answer_with(f"PyProf: {error} Then restart Jupyter.", listener)


async def _serve_folder(arguments: argparse.Namespace, listener: socket.socket) -> None:
    """Serve a folder, whose runs are opened on request. Raises PyProfError."""
    _check_installed("jupyter")
    from pyprof.server import cache
    from pyprof.server.listed_library import ListedLibrary
    from pyprof.server.security import Guard

    library = ListedLibrary(arguments.file[0], warm=True)
    try:
        library.check()
        asyncio.get_running_loop().run_in_executor(None, cache.prune)
        guard = Guard("localhost", None, any_host=True)
        await _server(library, guard, arguments.source_root).serve(sockets=[listener])
    finally:
        await library.close()


async def _serve(name: str, arguments: argparse.Namespace) -> None:
    """Open, listen, print the URL, serve. Raises PyProfError."""
    _check_installed("viewer")
    from pyprof.server import cache
    from pyprof.server.library import Library
    from pyprof.server.security import Guard
    from pyprof.server.tokens import token_of

    root = arguments.source_root
    if root is not None and not Path(root).is_dir():
        raise UsageError(f"--source-root {root}: not a folder.")
    library = Library(*arguments.file, warm=True)
    sockets = listening(arguments.bind, arguments.port)
    try:
        await _open(name, library)
        asyncio.get_running_loop().run_in_executor(None, cache.prune)
        token = token_of(arguments.file) if arguments.token else None
        guard = Guard(arguments.bind, token, arguments.allow_host, arguments.public_origin, arguments.root_path)
        server = _server(library, guard, root)
        _announce(name, arguments, guard, sockets[0].getsockname()[1])
        await server.serve(sockets=sockets)
    finally:
        await library.close()
        for listener in sockets:
            listener.close()


def _check_installed(extra: str) -> None:
    from importlib.util import find_spec

    missing = [module for module in _NEEDS if find_spec(module) is None]
    if missing:
        raise PyProfError(f"the page needs {', '.join(missing)}: {install(extra)} {WHERE} installs them.")


def listening(bind: str, port: int) -> list[socket.socket]:
    """Return sockets for an address; `localhost` gets both kinds of loopback if available. Raises PyProfError."""
    try:
        infos = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"cannot bind to {bind}: not an address of this machine.") from error
    infos.sort(key=lambda item: item[0] != socket.AF_INET)
    out: list[socket.socket] = []
    for family, kind, protocol, _, address in infos:
        try:
            out.append(_listen(family, kind, protocol, (address[0], port, *address[2:])))
        except OSError as error:
            # Without IPv6 the first socket suffices. If its port is taken it does not: a browser that asks the other
            # kind first would give the token to whoever listens there.
            if out and family == socket.AF_INET6 and error.errno != errno.EADDRINUSE:
                continue
            for item in out:
                item.close()
            raise _bind_error(bind, port, error) from error
        port = out[0].getsockname()[1]
    return out


def _listen(family: int, kind: int, protocol: int, address: Any) -> socket.socket:
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _bind_error(bind: str, port: int, error: OSError) -> PyProfError:
    if error.errno == errno.EADDRINUSE:
        return PyProfError(f"port {port} is in use; choose another one with -p {port + 1 if port < 65535 else 0}.")
    if error.errno == errno.EACCES:
        return PyProfError(f"port {port} needs special permission; choose one above 1023 with -p.")
    if error.errno == errno.EADDRNOTAVAIL:
        return UsageError(f"cannot bind to {bind}: not an address of this machine.")
    return PyProfError(f"cannot listen on {bind}, port {port} ({os.strerror(error.errno or 0)}).")


async def _open(name: str, library: Library) -> None:
    """Open the input before anything is printed; runs of a folder with several are opened on request."""
    runs = library.runs()
    if len(runs) > 1:
        library.check()
        if library.reason:
            print(f"{name}: {library.path}: {library.reason}", file=sys.stderr)
        return
    progress = _Progress(name)
    try:
        await library.wait(next(iter(runs)), progress.update)
    finally:
        progress.done()


class _Progress:
    """Line on a terminal while a recording is read for the first time."""

    def __init__(self, name: str):
        import time

        self._name, self._clock = name, time.monotonic
        self._start, self._visible = time.monotonic(), False

    def update(self, share: float, step: str) -> None:
        if self._clock() - self._start < _QUIET:
            return
        if sys.stderr.isatty():
            print(f"\r{self._name}: {step} {100 * share:3.0f} %\x1b[K", end="", file=sys.stderr, flush=True)
        elif not self._visible:
            print(f"{self._name}: reading the recording for the first time ...", file=sys.stderr, flush=True)
        self._visible = True

    def done(self) -> None:
        if self._visible and sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _announce(name: str, arguments: argparse.Namespace, guard: Guard, port: int) -> None:
    """Print the URL, and open it in a browser if there is one."""
    view = "#/compare" if len(arguments.file) > 1 else ""
    for line in announcement(arguments.bind, port, guard, view):
        print(line, flush=True)
    for line in warnings(port, guard):
        print(f"{name}: {line}", file=sys.stderr)
    if not arguments.no_browser and has_browser():
        code, url = guard.single(), address(arguments.bind, port, guard)
        asyncio.get_running_loop().run_in_executor(None, _browse, url + (f"?token={code}" if code else "") + view)
    elif guard.origin is None:
        for line in tunnel(port):
            print(line, flush=True)


def _server(library: Library, guard: Guard, root: str | None) -> LimitedServer:
    """Return the server of a library."""
    import uvicorn

    from pyprof.server.app import create
    from pyprof.server.connections import LimitedServer
    from pyprof.server.request_context import Server

    config = uvicorn.Config(  # invalid HTTP requests cause warnings: anyone could flood the terminal
        create(Server(library, root), guard), log_level="error", access_log=False, server_header=False,
        proxy_headers=False, ws="none", lifespan="on", timeout_graceful_shutdown=2,
    )  # fmt: skip
    gc.freeze()
    gc.enable()
    return LimitedServer(config)


def announcement(bind: str, port: int, guard: Guard, view: str = "") -> list[str]:
    """Return the lines that tell the page's URL; `view`: its fragment."""
    return [address(bind, port, guard) + (f"?token={guard.token}" if guard.token else "") + view]


def address(bind: str, port: int, guard: Guard) -> str:
    """Return the URL of the page, without a token."""
    local = f"http://{'localhost' if guard.local else _host(bind)}:{port}"
    return f"{guard.origin or local}{guard.root}/"


def warnings(port: int, guard: Guard) -> list[str]:
    """Return warnings about who else can see the profile."""
    if guard.local:
        return []
    secret = "the profile travels" if guard.token is None else "the token and the profile travel"
    lines = [f"{secret} unencrypted to port {port}; omit -b and use ssh -L, or a proxy with TLS and --public-origin."]
    if guard.token is None:
        lines.append(f"anyone who can reach port {port} of this machine can see the profile.")
    return lines


def _host(bind: str) -> str:
    """Return a name for the listening address, as reached by others."""
    if bind in ("0.0.0.0", "::", ""):
        return _address()
    return f"[{bind}]" if ":" in bind else bind


def _address() -> str:
    """Return this machine's network address, without sending anything."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "localhost"


def tunnel(port: int) -> list[str]:
    """Return the command for reaching the page from another machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "USER"
    return [f"From another machine: ssh -L {port}:localhost:{port} {user}@{socket.gethostname()}"]


def has_browser() -> bool:
    """Return whether a browser can be opened on the user's own display."""
    if os.environ.get("SSH_CONNECTION") or os.environ.get("SSH_TTY"):
        return False
    if sys.platform not in ("darwin", "win32") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def _browse(url: str) -> None:
    with suppress(webbrowser.Error, OSError):
        webbrowser.open(url)
