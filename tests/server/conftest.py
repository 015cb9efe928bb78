# SPDX-License-Identifier: Apache-2.0
"""A server that tests ask over a real connection, and recordings that it serves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("fastapi", reason="the extra viewer is not installed")

import uvicorn

from pyprof import profiles
from pyprof.server.app import create
from pyprof.server.connections import LimitedServer
from pyprof.server.library import Library
from pyprof.server.request_context import Server
from pyprof.server.security import Guard
from pyprof.server.serve import listening
from tests.build import Recording, call, recording, write_capture
from tests.server.workers import Workers, forked
from tests.waiting import HANG

HOSTILE = "<img src=x onerror=alert(1)>"
MM = call("torch.mm", (64, 32), (32, 16), module="net.first", trace=("net.py:1", "run.py:9"))
RELU = call("torch.relu", (64, 16), module="net.first.act", trace=("net.py:2", "run.py:9"))
ODD = call("torch.tanh", (64, 16), module=HOSTILE, trace=("net.py:3",))
STEPS = 6


def steps(count: int = STEPS) -> Recording:
    """Steps of two operators and one of a hostile name; step i's second kernel takes 30 + i ns."""
    text = "".join(
        f"""
{MM}
    > 70 grid=40,1,1 block=128,1,1 volta_h884gemm_64x64_ldg8_nn
    > {30 + number} stream=8 volta_sgemm_128x64_nn
{RELU}
    > 12 grid=200,1,1 block=256,1,1 void at::native::vectorized_elementwise_kernel<4, f, N>(int)
{ODD}
    > {8 + number} =cmd|' /C calc'!A0
> 25 size=4096 copy_kind=1 c
api 40 cudaStreamSynchronize_v3020
"""
        for number in range(count)
    )
    out = recording(text)
    starts = [r.start for r in out.ranges if r.text == MM]
    ends = [*starts[1:], max(k.end for k in out.kernels)]
    out.steps = [(number, start, end) for number, (start, end) in enumerate(zip(starts, ends))]
    return out


class Asking:
    """A client of a server."""

    def __init__(self, url: str, server: Server, guard: Guard):
        self.url, self.server, self.guard = url, server, guard
        self.http = httpx.Client(base_url=url, headers={"X-PyProf": "1"}, timeout=HANG, trust_env=False)

    def json(self, path: str, status: int = 200, **parameters: Any) -> Any:
        """The JSON of a GET; lists are parameters that repeat."""
        found = self.http.get(path, params=parameters)
        assert found.status_code == status, found.text
        return found.json()

    def table(self, path: str, **parameters: Any) -> list[dict[str, Any]]:
        """Rows of a table by key."""
        found = self.json(path, **parameters)
        keys = [column["key"] for column in found["columns"]]
        return [dict(zip(keys, row)) for row in found["rows"]]

    def job(self, **wanted: Any) -> dict[str, Any]:
        """Start an aggregation."""
        found = self.http.post("/api/aggregations", json=wanted)
        assert found.status_code == 202, found.text
        return dict(found.json())

    def done(self, job: dict[str, Any]) -> dict[str, Any]:
        """Wait for a job by its events; the last."""
        last: dict[str, Any] = {}
        with self.http.stream("GET", f"/api/jobs/{job['id']}/events") as lines:
            for line in lines.iter_lines():
                if line.startswith("data: "):
                    import json

                    last = json.loads(line[6:])
        return last


@contextmanager
def serving(
    path: Path | str,
    bind: str = "127.0.0.1",
    token: str | None = None,
    source_root: str | None = None,
    static: Path | None = None,
    keep_alive: int = 600,  # of a busy machine: a connection that is just closed would be used again
    **proxy: Any,
) -> Iterator[Asking]:
    """A server in a thread; `proxy`: what Guard is told of one."""
    server, guard = Server(Library(str(path)), source_root), Guard(bind, token, **proxy)
    more = {"static": static} if static else {}
    config = uvicorn.Config(
        create(server, guard, **more),
        log_level="error",
        server_header=False,
        access_log=False,
        ws="none",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=keep_alive,
    )
    running = LimitedServer(config)
    sockets = listening("127.0.0.1", 0)
    thread = threading.Thread(target=running.run, kwargs={"sockets": sockets})
    thread.start()
    asking = Asking(f"http://localhost:{sockets[0].getsockname()[1]}", server, guard)
    try:
        yield asking
    finally:
        asking.http.close()
        running.should_exit = True
        thread.join()


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Databases that servers make are not the user's."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def workers() -> Iterator[Workers]:
    """Children of servers are forks."""
    with forked() as running:
        yield running


@pytest.fixture(scope="session")
def children(workers: Workers) -> Callable[[], set[int]]:
    """The processes that servers have started."""
    return workers.children


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile database of `steps`."""
    folder = tmp_path_factory.mktemp("viewer")
    prof = profiles.load(write_capture(folder / "net.sqlite", steps()))
    prof.save(folder / "net_dldb.sqlite")
    return folder / "net_dldb.sqlite"


@pytest.fixture(scope="session")
def prof(made: Path) -> profiles.Profile:
    """What the server serves, as Python sees it."""
    return profiles.load(made)


@pytest.fixture(scope="session")
def client(made: Path) -> Iterator[Asking]:
    """A server of `made` without a token."""
    with serving(made) as asking:
        yield asking


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Callable[[], Path]:
    """A copy of the database that a test may damage."""

    def copy(name: str = "copy_dldb.sqlite") -> Path:
        target = tmp_path / name
        target.write_bytes(made.read_bytes())
        return target

    return copy
