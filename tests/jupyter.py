# SPDX-License-Identifier: Apache-2.0
"""A real Jupyter server with jupyter-server-proxy, which finds PyProf by its entry point."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from pyprof import profiles
from tests.build import write_capture
from tests.server.conftest import steps
from tests.waiting import HANG, until

TOKEN = "j" * 40
BASE = "/user/anna/"  # as behind a hub


class Jupyter:
    """A running server: `url` ends with a slash, `http` is a client of its user."""

    def __init__(self, process: subprocess.Popen[bytes], url: str):
        self.process, self.url = process, url
        self.http = httpx.Client(
            base_url=url, headers={"authorization": f"token {TOKEN}"}, timeout=HANG, trust_env=False
        )

    @property
    def viewer(self) -> psutil.Process:
        """The viewer that it has started."""
        (viewer,) = (child for child in psutil.Process(self.process.pid).children() if "--jupyter" in child.cmdline())
        return viewer

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Stop it with a signal, and wait."""
        self.process.send_signal(number)
        self.process.wait(HANG)


def write_profile(path: Path, count: int = 6) -> Path:
    """Write a profile database of some steps, as a whole."""
    recording = write_capture(path.with_suffix(".part"), steps(count))
    profiles.load(recording).save(path)
    recording.unlink()
    return path


@contextmanager
def jupyter(folder: Path, own: Path, program: str = "jupyter_server") -> Iterator[Jupyter]:
    """A server of a folder of notebooks; `own`: a folder for what is the server's, not the user's."""
    pytest.importorskip("jupyter_server_proxy", reason="jupyter-server-proxy is not installed")
    places = {
        "JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime",
        "HOME": "home", "XDG_CACHE_HOME": "cache",
    }  # fmt: skip
    for name in places.values():
        (own / name).mkdir(parents=True)
    words = [
        "--no-browser", "--ServerApp.port=0", "--allow-root", f"--ServerApp.root_dir={folder}",
        f"--ServerApp.base_url={BASE}", f"--IdentityProvider.token={TOKEN}",
        "--ServerApp.jpserver_extensions", "jupyter_server_proxy=True",
    ]  # fmt: skip
    (own / "random.py").write_text("raise SystemExit('a module of the user')")
    environment = os.environ | {name: str(own / place) for name, place in places.items()}
    short = tempfile.TemporaryDirectory()  # paths of sockets have an end
    with (own / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", program, *words], stdin=subprocess.DEVNULL, cwd=own,
            env=environment | {"TMPDIR": short.name}, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        description = own / "runtime" / f"jpserver-{process.pid}.json"
        until(lambda: description.is_file() or process.poll() is not None)
        assert process.poll() is None, (own / "log").read_text()
        until(lambda: description.read_text().endswith("}"))
        port = json.loads(description.read_text())["port"]
        running = Jupyter(process, f"http://localhost:{port}{BASE}")
        with running.http:
            yield running
    finally:
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for child in children:
            if child.is_running():
                child.kill()
        short.cleanup()
