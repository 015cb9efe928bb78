# SPDX-License-Identifier: Apache-2.0
"""The viewer behind a proxy with a name, a prefix and TLS of its own: the examples of docs/viewer.md."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from pyprof.server.security import Guard
from pyprof.server.serve import announcement, listening
from tests.server.conftest import serving
from tests.waiting import HANG

TOKEN = "t" * 43
PUBLIC = "https://hub.example.com"
USER = "/user/anna%40x.org/proxy/8000"
OTHER = "https://evil.example"


class Proxy(NamedTuple):
    """What a proxy does with a request: below which path it has the viewer, whether it passes that path on, the name by
    which the browser asks for it on, and the origin of the page."""

    prefix: str = ""
    path: bool = False
    host: bool = True
    origin: bool = True


JUPYTER = Proxy(USER)
ABSOLUTE = Proxy("/user/anna/proxy/absolute/8000", path=True)
CADDY = Proxy()
NGINX = Proxy("/pyprof", host=False)
TUNNEL = Proxy(host=False, origin=False)
EXAMPLES = pytest.mark.parametrize(
    "proxy",
    [JUPYTER, ABSOLUTE, CADDY, NGINX, TUNNEL],
    ids=["jupyter", "absolute", "caddy", "nginx", "tunnel"],
)


class Routed(httpx.HTTPTransport):
    """What a browser asks of the public name goes to a port of this machine, as the proxy's TLS is left out."""

    def __init__(self, port: int):
        super().__init__()
        self._port = port

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url.copy_with(scheme="http", host="127.0.0.1", port=self._port)
        return super().handle_request(
            httpx.Request(request.method, url, headers=request.headers, stream=request.stream)
        )


@contextmanager
def behind(proxy: Proxy, upstream: str) -> Iterator[httpx.Client]:
    """A browser that comes by a proxy."""
    own = urlsplit(upstream).netloc

    async def app(scope, receive, send):
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        path = scope["raw_path"].decode()
        if not path.startswith(f"{proxy.prefix}/"):
            await Response("nothing of the proxy", 404)(scope, receive, send)
            return
        headers = dict(request.headers)
        if not proxy.host:
            headers["host"] = own
        if not proxy.origin and headers.get("origin") == PUBLIC:
            headers["origin"] = upstream
        target = path if proxy.path else path[len(proxy.prefix) :]
        query = f"?{request.url.query}" if request.url.query else ""
        async with httpx.AsyncClient(timeout=HANG, trust_env=False) as client:
            asked = client.build_request(
                request.method, f"{upstream}{target}{query}", headers=headers, content=await request.body()
            )
            found = await client.send(asked, stream=True)
            answer = StreamingResponse(found.aiter_raw(), found.status_code)
            answer.raw_headers = [pair for pair in found.headers.raw if pair[0].lower() != b"connection"]
            await answer(scope, receive, send)

    sockets = listening("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": sockets})
    thread.start()
    try:
        transport = Routed(sockets[0].getsockname()[1])
        with httpx.Client(base_url=PUBLIC, transport=transport, timeout=HANG) as browser:
            yield browser
    finally:
        server.should_exit = True
        thread.join()


@EXAMPLES
def test_what_is_printed_leads_to_the_page(made, tmp_path, proxy):
    (tmp_path / "index.html").write_text("the page")
    with (
        serving(made, token=TOKEN, static=tmp_path, origin=PUBLIC, root=proxy.prefix) as asking,
        behind(proxy, asking.url) as browser,
    ):
        (printed,) = announcement("localhost", 8000, asking.guard)
        assert printed == f"{PUBLIC}{proxy.prefix}/?token={TOKEN}"
        assert browser.get(f"{proxy.prefix}/api/profile").status_code == 401
        first = browser.get(printed)
        assert first.headers["location"] == "./"
        assert first.next_request.url == f"{PUBLIC}{proxy.prefix}/"
        cookie = first.headers["set-cookie"].split("; ")
        assert {"HttpOnly", "SameSite=strict", "Secure", f"Path={proxy.prefix}/"} <= set(cookie)
        assert browser.send(first.next_request).text == "the page"
        assert browser.get(f"{proxy.prefix}/api/profile").json()["name"] == "net"


@EXAMPLES
def test_changes_and_events_pass(copied, proxy):
    path = copied()
    with (
        serving(path, token=TOKEN, origin=PUBLIC, root=proxy.prefix) as asking,
        behind(proxy, asking.url) as browser,
    ):
        browser.get(f"{proxy.prefix}/?token={TOKEN}")
        ask = {"json": {"start": 0, "stop": 1}, "headers": {"x-pyprof": "1", "origin": PUBLIC}}
        job = browser.post(f"{proxy.prefix}/api/aggregations", **ask)
        assert job.status_code == 202, job.text
        with browser.stream("GET", f"{proxy.prefix}/api/jobs/{job.json()['id']}/events") as events:
            assert '"state":"done"' in list(events.iter_lines())[-2]
        for other in (OTHER, "null", "http://hub.example.com", f"{PUBLIC}.evil.example", f"{PUBLIC}:444"):
            if other == "http://hub.example.com" and proxy.host:
                continue  # by the Host header it is ours
            ask["headers"]["origin"] = other
            assert browser.post(f"{proxy.prefix}/api/aggregations", **ask).status_code == 403, other


@pytest.mark.parametrize("proxy", [JUPYTER, CADDY])
def test_a_proxy_that_nobody_said_anything_of(made, proxy):
    with serving(made, token=TOKEN) as asking, behind(proxy, asking.url) as browser:
        found = browser.get(f"{proxy.prefix}/api/profile", headers={"authorization": f"Bearer {TOKEN}"})
        assert (found.status_code, found.json()["type"]) == (400, "host")


def test_other_names(made):
    names = ["box.example.com", "Other", "2001:db8::1"]
    with serving(made, token=TOKEN, names=names) as asking:
        for host, status in (
            ("box.example.com", 200), ("BOX.example.com:8000", 200), ("other:1", 200), ("[2001:db8::1]:8000", 200),
            ("example.com", 400), ("x.box.example.com", 400), ("", 400),
        ):  # fmt: skip
            ask = {"host": host, "authorization": f"Bearer {TOKEN}"}
            found = httpx.get(f"{asking.url}/api/profile", headers=ask, trust_env=False)
            assert found.status_code == status, host


def test_the_prefix_alone_leads_to_what_is_below(made):
    """What the page asks for is relative to its address."""
    with serving(made, token=TOKEN, origin=PUBLIC, root="/a/b") as asking:
        found = httpx.get(f"{asking.url}/a/b?x=1", trust_env=False)
        assert (found.status_code, found.headers["location"]) == (303, "./b/?x=1")
        for path in ("/a/bc/api/profile", "/a/b/x/../api/profile", "/a/b/api"):
            assert httpx.get(f"{asking.url}{path}", trust_env=False).status_code == 401


def test_a_cookie_without_tls(made):
    with serving(made, token=TOKEN) as asking:
        found = httpx.get(f"{asking.url}/?token={TOKEN}", trust_env=False)
        assert "Secure" not in found.headers["set-cookie"]
        assert "Path=/;" in found.headers["set-cookie"]


def test_where_the_page_is_below_a_prefix():
    assert announcement("localhost", 80, Guard("localhost", "t", root="/a")) == ["http://localhost:80/a/?token=t"]
