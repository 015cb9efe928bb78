#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the viewer's owner notices of an attacker, and what is left of many requests.

    python benchmarks/soak.py --requests 30000 --cancelled 1000 --held 5000 --rate 500

A recording is generated and made a database in a temporary folder. The server is a process of its own with a token, as
`pyprof view` starts it. An attacker without the token, a process as well, opens `--rate` connections a second, begins a
request on each and ends none, and holds the last `--held` of them. Meanwhile the owner asks from `--clients`
connections at once; of the requests `--cancelled`, a tenth of them exports as PDF, are dropped after some milliseconds.
A connection that was closed while it was idle is opened anew, as browsers do, within the time that is measured.

Before, at the end, and `--idle` seconds later, when processes that have nothing to do have ended: descriptors,
processes and resident memory of the server and of its processes together. Last: a dashboard alone, then after 40
exports as PDF that were dropped. `--descriptors` limits those of the server.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from viewer import MEBI, make

PATHS = (
    "profile", "overview", "insights", "step_time", "ledger", "roofline", "iterations", "key_operators",
    "reports/detail?sort=-gpu", "reports/kernel?search=gemm", "reports/op_type", "reports/iteration?offset=50",
    "launches?sort=-dur", "launches?filter=kernel:gemm", "trees/groups", "memory",
)  # fmt: skip
PDF = "reports/kernel/export?format=pdf"
Address = tuple[str, int]


def attack(address: Address, held: int, rate: int) -> None:
    """Open connections until this process is ended."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (held + 100,) * 2)
    kept: deque[socket.socket] = deque()
    while True:
        for _ in range(max(rate // 20, 1)):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(address)
            kept.append(one)
            if len(kept) > held:
                kept.popleft().close()
        time.sleep(0.05)
        for one in list(kept)[-rate // 20 :]:
            try:
                one.send(b"GET / HTTP/1.1\r\nHost: l")
            except OSError:
                continue


class Owner:
    """Requests with the token."""

    def __init__(self, url: str, token: str, clients: int):
        self.url, self.token, self.clients = url, token, clients
        self.times: list[float] = []
        self.again = 0
        self.wrong: list[str] = []

    def client(self) -> httpx.Client:
        """A connection that is kept."""
        headers = {"authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=f"{self.url}api/", headers=headers, trust_env=False, timeout=60)

    def ask(self, client: httpx.Client, path: str) -> float:
        """Seconds until the answer is there."""
        begin = time.perf_counter()
        for _ in range(5):
            try:
                found = client.get(path)
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                self.again += 1
                continue
            if found.status_code != 200:
                self.wrong.append(f"{path}: {found.status_code}")
            return time.perf_counter() - begin
        self.wrong.append(f"{path}: no connection")
        return time.perf_counter() - begin

    def drop(self, path: str, seconds: float) -> None:
        """Ask, and leave."""
        ask = f"GET /api/{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n\r\n"
        with socket.create_connection((urlsplit(self.url).hostname or "", urlsplit(self.url).port or 0)) as one:
            one.sendall(ask.encode())
            time.sleep(seconds)

    def work(self, numbers: list[int], cancelled: set[int]) -> None:
        """Ask one path after the other, from several threads."""
        lock = threading.Lock()

        def run() -> None:
            chance = random.Random(len(numbers))
            with self.client() as client:
                while True:
                    with lock:
                        if not numbers:
                            return
                        number = numbers.pop()
                    path = PATHS[number % len(PATHS)]
                    if number in cancelled:
                        self.drop(PDF if number % 10 == 0 else path, chance.uniform(0.001, 0.05))
                    else:
                        self.times.append(self.ask(client, path))

        threads = [threading.Thread(target=run) for _ in range(self.clients)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()


def state(process: int) -> str:
    """Descriptors, processes and memory of a process and its children."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True)
    everyone = [process, *map(int, found.stdout.split())]
    descriptors = len(os.listdir(f"/proc/{process}/fd"))
    memory = [
        int(Path(f"/proc/{one}/statm").read_text().split()[1]) * resource.getpagesize() // MEBI for one in everyone
    ]
    return f"{descriptors} descriptors, {len(everyone) - 1} processes, {memory[0]} MiB and {sum(memory[1:])} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=30_000, help="default: %(default)s")
    parser.add_argument("--cancelled", type=int, default=1_000, help="of them; default: %(default)s")
    parser.add_argument("--held", type=int, default=5_000, help="connections; default: %(default)s")
    parser.add_argument("--rate", type=int, default=500, help="connections a second; default: %(default)s")
    parser.add_argument("--clients", type=int, default=4, help="of the owner; default: %(default)s")
    parser.add_argument("--kernels", type=int, default=20_000, help="of the recording; default: %(default)s")
    parser.add_argument("--descriptors", type=int, help="limit of the server; default: as it is")
    parser.add_argument(
        "--idle",
        type=float,
        default=65,
        help="seconds until processes without work have ended; default: %(default)s",
    )
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.attack:
        attack(("127.0.0.1", int(given.attack)), given.held, given.rate)
    with tempfile.TemporaryDirectory() as folder:
        soak(Path(folder), given)


def soak(folder: Path, given: argparse.Namespace) -> None:
    """Run all of it and print the figures."""
    database = make(folder, given.kernels)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    limit = (given.descriptors, hard) if given.descriptors else None
    with (folder / "stderr").open("wb") as said:
        server = subprocess.Popen(
            [sys.executable, "-m", "pyprof", "view", "-p", "0", "--no-browser", str(database)], text=True, stderr=said,
            stdout=subprocess.PIPE, env=os.environ | {"XDG_CACHE_HOME": str(folder / "cache")},
            preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit)) if limit else None,
        )  # fmt: skip
    assert server.stdout is not None
    url, _, token = server.stdout.readline().strip().partition("?token=")
    owner = Owner(url, token, given.clients)
    try:
        with owner.client() as client:
            for path in PATHS * 2:
                owner.ask(client, path)
            alone = [owner.ask(client, PATHS[number % len(PATHS)]) for number in range(160)]
        print(f"alone: {figures(alone)}\nbefore: {state(server.pid)}", flush=True)
        words = ["--held", str(given.held), "--rate", str(given.rate), "--attack", str(urlsplit(url).port)]
        attacker = subprocess.Popen([sys.executable, __file__, *words])
        begin = time.perf_counter()
        numbers = list(range(given.requests))
        random.Random(0).shuffle(numbers)
        owner.work(numbers, set(random.Random(1).sample(range(given.requests), given.cancelled)))
        print(f"{given.requests} requests, {time.perf_counter() - begin:.0f} s: {figures(owner.times)}")
        print(f"opened anew: {owner.again}; wrong: {len(owner.wrong)} {owner.wrong[:5]}")
        print(f"at the end: {state(server.pid)}", flush=True)
        attacker.kill()
        attacker.wait()
        time.sleep(given.idle)
        print(f"after {given.idle:.0f} s: {state(server.pid)}")
        with owner.client() as client:
            one = statistics.median(owner.ask(client, "overview") for _ in range(5))
        asks = [threading.Thread(target=owner.drop, args=(PDF, 0.3)) for _ in range(40)]
        for thread in asks:
            thread.start()
        for thread in asks:
            thread.join()
        with owner.client() as client:
            print(
                f"dashboard: {one * 1e3:.0f} ms; after 40 dropped exports {owner.ask(client, 'overview') * 1e3:.0f} ms"
            )
    finally:
        server.terminate()
        server.wait()
    print(f"stderr of the server: {(folder / 'stderr').stat().st_size} bytes")


def figures(times: list[float]) -> str:
    """Median, 95th percentile and largest."""
    cuts = statistics.quantiles(times, n=20)
    return f"p50 {cuts[9] * 1e3:.0f} ms, p95 {cuts[18] * 1e3:.0f} ms, largest {max(times) * 1e3:.0f} ms"


if __name__ == "__main__":
    main()
