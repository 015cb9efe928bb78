# SPDX-License-Identifier: Apache-2.0
"""A scheduler of Dask with two workers, and a server of S3, on this machine's loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

distributed = pytest.importorskip("distributed")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORKER = "from distributed.cli.dask_worker import main; main()"
SCHEDULER = "from distributed.cli.dask_scheduler import main; main()"
NAMES = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


def free_port() -> int:
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Cluster:
    """Processes: a scheduler, and workers that a test may kill."""

    def __init__(self, environment: dict[str, str], count: int = 2):
        self._environment = {**os.environ, **environment, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"}
        self.address = f"tcp://127.0.0.1:{free_port()}"
        port = self.address.rpartition(":")[2]
        self.scheduler = self._start(SCHEDULER, "--host", "127.0.0.1", "--port", port, "--no-dashboard")
        self.workers = [self.add() for _ in range(count)]

    def add(self) -> subprocess.Popen[bytes]:
        """Start a worker without a nanny, which would replace one that dies."""
        return self._start(WORKER, self.address, "--no-nanny", "--nthreads", "1", "--no-dashboard")

    def _start(self, code: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.Popen(command, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def client(self, workers: int = 2) -> Any:
        client = distributed.Client(self.address, timeout=60)
        client.wait_for_workers(workers, timeout=60)
        return client

    def end(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The address of a server of S3 with a bucket `fleet`, for this process and what it starts."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", free_port())
    server.start()
    before = {name: os.environ.get(name) for name in (*NAMES, "AWS_ENDPOINT_URL")}
    address = "http://{}:{}".format(*server.get_host_and_port())
    os.environ.update(NAMES, AWS_ENDPOINT_URL=address)
    try:
        import s3fs

        s3fs.S3FileSystem(skip_instance_cache=True).mkdir("fleet")
        yield address
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        server.stop()


@pytest.fixture(scope="session")
def cluster(s3: str) -> Iterator[Cluster]:
    """Two workers for all tests that kill none."""
    one = Cluster({})
    try:
        yield one
    finally:
        one.end()


@pytest.fixture(scope="session")
def client(cluster: Cluster) -> Iterator[Any]:
    with cluster.client() as one:
        yield one


def until(condition: Any) -> None:
    """Wait until something is so."""
    while not condition():
        time.sleep(0.01)
