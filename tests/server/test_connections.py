# SPDX-License-Identifier: Apache-2.0
"""Who cannot see the profile cannot keep the owner from it: requests that never end, connections without end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import subprocess
import sys
import threading
from urllib.parse import urlsplit

import httpx
import pytest

from pyprof.server import connections
from tests.server.conftest import serving
from tests.waiting import HANG, until

TOKEN = "t" * 43
HALF = b"GET / HTTP/1.1\r\nHost: l"
WHOLE = b"GET /api/profile HTTP/1.1\r\nHost: localhost\r\n\r\n"
OWNER = WHOLE[:-2] + f"Authorization: Bearer {TOKEN}\r\n\r\n".encode()
BODY = (
    "POST /api/aggregations HTTP/1.1\r\nHost: localhost\r\nX-PyProf: 1\r\nContent-Type: application/json\r\n"
    f"Authorization: Bearer {TOKEN}\r\nContent-Length: 9\r\n\r\n"
).encode()


def connected(url: str, sent: bytes = b"") -> socket.socket:
    """A connection on which something was sent."""
    made = socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), HANG)
    made.sendall(sent)
    return made


def heard(one: socket.socket) -> bytes:
    """What the server says until it closes the connection."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := one.recv(65536):
            found += piece
    return found


class Attacker:
    """Connections that begin a request and never end it, each opened anew when it is closed."""

    def __init__(self, url: str, count: int):
        self.url, self.count, self.opened = url, count, 0
        self._held: list[socket.socket] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Attacker:
        self._thread.start()
        until(lambda: self.opened >= self.count)
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        for one in self._held:
            one.close()

    def _run(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(OSError):
                self._held.append(connected(self.url, HALF))
                self.opened += 1
            if len(self._held) > self.count:
                self._held.pop(0).close()


@pytest.mark.parametrize(
    "descriptors", [64, *(pytest.param(number, marks=pytest.mark.long) for number in (256, 20_000))]
)
def test_the_owner_is_answered_while_others_hold_connections(made, tmp_path, descriptors):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < descriptors:
        pytest.skip(f"this machine allows {hard} descriptors")
    errors = tmp_path / "stderr"
    with errors.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "pyprof", "view", str(made), "-p", "0", "--no-browser"],
            stdout=subprocess.PIPE, stderr=said, text=True, env=os.environ,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard)),
        )  # fmt: skip
    try:
        url = process.stdout.readline().strip()
        base, _, token = url.partition("?token=")
        asks = {"headers": {"authorization": f"Bearer {token}"}, "timeout": HANG, "trust_env": False}
        with Attacker(base, min(descriptors * 2, 1000)):
            for path in ("profile", "overview", "reports/detail", "iterations", "profile"):
                assert httpx.get(f"{base}api/{path}", **asks).status_code == 200
            with httpx.Client(base_url=base, **asks) as browser:
                assert [browser.get("api/profile").status_code for _ in range(20)] == [200] * 20
            held = len(os.listdir(f"/proc/{process.pid}/fd"))
            assert held < descriptors
            assert held < connections._MOST + 64
    finally:
        process.terminate()
        process.communicate()
    assert errors.read_text() == ""


@pytest.mark.parametrize("sent", [b"", HALF, BODY, BODY + b"{", WHOLE])
def test_a_request_that_does_not_end_is_closed(made, monkeypatch, sent):
    monkeypatch.setattr(connections, "_REQUEST", 0.2)
    with serving(made, token=TOKEN, keep_alive=0) as asking, connected(asking.url, sent) as one:
        found = heard(one)
    assert found.count(b"HTTP/1.1") == (1 if sent == WHOLE else 0)


def test_what_is_being_answered_is_not_closed(made, monkeypatch):
    """A request that takes longer than one may take to arrive, while there are more connections than there may be."""
    from pyprof.views import overview

    begun, goes_on = threading.Event(), threading.Event()
    work = overview.overview

    def slow(source):
        begun.set()
        assert goes_on.wait(HANG)
        return work(source)

    monkeypatch.setattr(overview, "overview", slow)
    monkeypatch.setattr(connections, "_REQUEST", 0.1)
    monkeypatch.setattr(connections, "_MOST", 4)
    ask = OWNER.replace(b"profile", b"overview")
    with serving(made, token=TOKEN, keep_alive=0) as asking, connected(asking.url, ask) as owner:
        until(begun.is_set)
        for one in [connected(asking.url, HALF) for _ in range(12)]:
            assert heard(one) == b""
            one.close()
        goes_on.set()
        assert heard(owner).startswith(b"HTTP/1.1 200 ")


def test_the_one_that_waited_longest_makes_room(made, monkeypatch):
    monkeypatch.setattr(connections, "_MOST", 4)
    with serving(made, token=TOKEN) as asking:
        held = [connected(asking.url, HALF) for _ in range(4)]
        more = [connected(asking.url, HALF) for _ in range(2)]
        assert [heard(one) for one in held[:2]] == [b"", b""]
        for one in held[2:] + more:
            one.sendall(b"ocalhost\r\n\r\n")
            assert heard(one).startswith(b"HTTP/1.1 401 ")
        for one in held + more:
            one.close()


def test_a_stranger_gets_one_answer_of_a_connection(made):
    """Answers that nobody reads would keep a connection from being closed."""
    with serving(made, token=TOKEN) as asking, connected(asking.url, WHOLE * 1000) as one:
        found = heard(one)
    assert found.count(b"HTTP/1.1") == 1
    assert b"connection: close" in found.lower()


def test_without_descriptors_little_is_said(made, monkeypatch, caplog):
    with serving(made, token=TOKEN) as asking:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        accept, tried = asyncio.SelectorEventLoop.sock_accept, []

        async def counted(loop, listener):
            tried.append(listener)
            return await accept(loop, listener)

        monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_accept", counted)
        held = [socket.socket() for _ in range(20)]
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, limit[1]))  # fewer than there are
            for one in held:
                one.connect(("127.0.0.1", urlsplit(asking.url).port))  # a name would take a descriptor
            until(lambda: len(tried) > 20)
            assert "cannot accept a connection" in caplog.text
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
            for one in held:
                one.close()
        assert asking.http.get("/").status_code == 401
    assert caplog.text.count("cannot accept a connection") == 1


def test_how_many_connections_there_may_be(monkeypatch):
    for limit, there in ((20, 10), (256, 128), (20_000, 512), (resource.RLIM_INFINITY, 512)):
        monkeypatch.setattr(resource, "getrlimit", lambda which, limit=limit: (limit, limit))
        assert connections.most() == there
    monkeypatch.setitem(sys.modules, "resource", None)
    assert connections.most() == 512
