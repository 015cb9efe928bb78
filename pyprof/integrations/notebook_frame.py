# SPDX-License-Identifier: Apache-2.0
"""The page of a profile in a frame of a notebook: `prof.show()`.

A process per file serves it, as `pyprof view` does: on a free port of this machine, with a token that nothing else
knows. It has a pipe of the kernel as its stdin, and ends when that does, also if the kernel is killed. The browser has
to reach the port: a notebook of another machine needs a tunnel to it, or `pyprof view` behind the proxy of its hub.
"""

from __future__ import annotations

import atexit
import os
import secrets
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path
from typing import IO, NamedTuple

from pyprof.errors import PyProfError, UsageError
from pyprof.integrations.notebook_progress import in_notebook

_servers: dict[Path, _Server] = {}


class _Server(NamedTuple):
    """A process that serves a file, and the address of its page."""

    process: subprocess.Popen[str]
    url: str


class Frame:
    """The page in a frame, and a link to it for where the frame cannot be."""

    def __init__(self, url: str, height: int):
        self.url, self.height = url, height

    def __repr__(self) -> str:
        return self.url

    def _repr_html_(self) -> str:
        url = escape(self.url)
        return (
            f'<iframe src="{url}" title="PyProf" width="100%" height="{self.height}" style="border:1px solid #8885">'
            "</iframe>"
            f'<div><a href="{url}" target="_blank" rel="noopener">Open in a tab</a></div>'
        )


def show(path: str, height: int) -> Frame:
    """Return the page of a file as a frame. Raises PyProfError outside of a notebook, or if the server cannot start."""
    if not in_notebook():
        raise UsageError(f"show() is for notebooks; in a terminal run: pyprof view {path}")
    if height < 1:
        raise UsageError(f"show(height={height}): expected a number of pixels.")
    file = Path(path).resolve()
    server = _servers.get(file)
    if server is None or server.process.poll() is not None:
        server = _servers[file] = _start(file)
    return Frame(server.url, height)


def _start(file: Path) -> _Server:
    """Start a server and wait for its address."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "pyprof", "view", "--notebook", "--no-browser", "-p", "0", str(file)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            env={**os.environ, "PYPROF_VIEW_TOKEN": secrets.token_urlsafe(32)},
            start_new_session=True,  # an interrupt of the kernel is not for it
        )  # fmt: skip
        try:
            url = _first_line(process.stdout)
        except BaseException:  # the kernel was interrupted
            process.kill()
            process.communicate()
            raise
        if not url:
            process.communicate()
            errors.seek(0)
            reason = errors.read().strip().rpartition("\n")[2].removeprefix("pyprof view: ")
            raise PyProfError(f"the page could not be served: {reason or 'its server has ended.'}")
    atexit.register(process.terminate)
    return _Server(process, url)


def _first_line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline().strip()
