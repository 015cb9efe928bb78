# SPDX-License-Identifier: Apache-2.0
"""Access control, and limits on what a browser may do with the answer. One ASGI layer around everything.

host      a page of another site that lets its name point to us (DNS rebinding) sends its own name: only names in the
          allow-list are answered. On loopback these are localhost and loopback addresses; bound to the network, any
          address, since an address cannot be redirected, and the machine's own names. Behind a proxy also the names of
          --allow-host and that of --public-origin. In another server (TensorBoard, JupyterLab) any: browsers reach
          only that server, which has rules of its own for names
token     256 bits, in the printed URL; the first visit turns it into a cookie (HttpOnly, SameSite=Strict). Programs
          send it as `Authorization: Bearer TOKEN`
changes   POST, PUT and DELETE need the header X-PyProf: 1, which no form can send, and, if there is one, our own
          Origin: the Host of the request, or --public-origin
prefix    paths below --root-path are accepted with and without it: some proxies remove it
headers   no CORS; a content security policy without inline scripts; no framing, no sniffing, no referrer
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import html
import ipaddress
import os
import secrets
import socket
import time
from collections.abc import Sequence
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, quote, unquote, urlencode

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pyprof.server.problems import body, status
from pyprof.views.problems import Trouble

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
_CHANGES = ("POST", "PUT", "PATCH", "DELETE")
_LONGEST = 16_384  # bytes of a URL
_BODY = 65_536  # bytes of a request body
_BODIES = {"/api/annotations": 1 << 20}  # all that users wrote


def loopback(address: str) -> bool:
    """Return whether an address or name is this machine's own.

    >>> loopback("127.0.0.1"), loopback("::1"), loopback("localhost"), loopback("0.0.0.0"), loopback("10.0.0.7")
    (True, True, True, False, False)
    """
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address.lower() == "localhost"


def host_of(header: str) -> str:
    """Return the name in a Host header.

    >>> host_of("localhost:8000"), host_of("[::1]:8000"), host_of("Box"), host_of("a:b:c"), host_of("a@b")
    ('localhost', '::1', 'box', '', '')
    """
    name, colon, port = header.rpartition(":")
    if header.endswith("]") or not colon:
        name, port = header, "0"
    if not (port.isascii() and port.isdigit()):
        return ""
    if name.startswith("[") and name.endswith("]"):
        return name[1:-1].lower()
    return "" if ":" in name or not name or not set(name) <= _LETTERS else name.lower()


_VISIT_SECONDS = 60.0  # time limit for the visit of the browser that is opened
_FIELDS = 1000
_LETTERS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_")


class Guard:
    """Access rules. `bind`: the listening address. Behind a proxy: the `names` that it requests, the `origin` that
    browsers see (https://host:port), and the prefix of its paths (`root`: /prefix). `any_host`: for a server that
    browsers reach only by one that checks names."""

    def __init__(
        self,
        bind: str,
        token: str | None,
        names: Sequence[str] = (),
        origin: str | None = None,
        root: str = "",
        any_host: bool = False,
    ):
        self.token, self.origin, self.root = token, origin, root
        self._any_host = any_host
        self._single: dict[str, float] = {}  # expiry of each
        self.local = loopback(bind)
        self._names = {"localhost"}
        if not self.local:
            self._names |= {name.lower() for name in _machine_names()} | {bind.lower()}
        self._names |= {name.lower() for name in names}
        if origin is not None:
            self._names.add(host_of(origin.partition("://")[2]))

    def host(self, header: str) -> bool:
        """Return whether a Host header names this server."""
        name = host_of(header)
        if name in self._names or (self._any_host and name):
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return not self.local or address.is_loopback

    def own(self, origin: str, host: str) -> bool:
        """Return whether an Origin header is that of our page; `host`: the Host header."""
        scheme, _, name = origin.partition("://")
        return origin == self.origin or (scheme in ("http", "https") and name == host)

    @property
    def secure(self) -> bool:
        """Flag for browsers that connect by HTTPS."""
        return self.origin is not None and self.origin.startswith("https://")

    @property
    def cookie(self) -> str:
        """Name of the cookie: servers on other ports of this host have others."""
        return f"pyprof_{hashlib.sha256((self.token or '').encode()).hexdigest()[:12]}"

    def matches(self, token: str) -> bool:
        """Return whether this is the token."""
        return self.token is not None and hmac.compare_digest(token.encode(), self.token.encode())

    def single(self) -> str | None:
        """Return a token for one visit: for the browser to be opened, because every user of the machine can see its
        command line."""
        if self.token is None:
            return None
        code = new_token()
        self._single[code] = time.monotonic() + _VISIT_SECONDS
        return code

    def visits(self, token: str, ports: tuple[int, int] | None = None) -> bool:
        """Return whether this is the token, or one for a single visit, which is used up. Another user, who may have
        read it on the browser's command line, is refused. `ports`: of the client and the server."""
        if ports and token in self._single and _foreign(*ports):
            return False
        ends = self._single.pop(token, None)
        return self.matches(token) if ends is None else time.monotonic() < ends


def _foreign(client: int, server: int) -> bool:
    """Return whether a connection over loopback is another user's, as far as the system (Linux) says. Root's may be
    that of a relay, into a container for example."""
    users = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/net/{name}", encoding="ascii") as rows:
            for _, own, other, *more in map(str.split, rows):
                if own.endswith(f":{client:04X}") and other.endswith(f":{server:04X}"):
                    users.add(int(more[4]))
    return any(user not in (0, os.geteuid()) for user in users)


def _machine_names() -> set[str]:
    names = {socket.gethostname()}
    names |= {name.partition(".")[0] for name in names}
    with contextlib.suppress(OSError):
        names.add(socket.getfqdn())
    return {name for name in names if name}


def new_token() -> str:
    """Return 256 random bits."""
    return secrets.token_urlsafe(32)


class Security:
    """ASGI layer."""

    def __init__(self, app: ASGIApp, guard: Guard):
        self._app, self._guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no web sockets
            return
        scope = self._below(scope)
        answer = self._refused(scope)
        if answer is not None:
            await _skip_body(receive)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                message["headers"] = list(message["headers"]) + [
                    (name.encode(), value.encode()) for name, value in _HEADERS.items() if name.encode() not in present
                ]
                if scope["path"].startswith("/api") and b"cache-control" not in present:
                    message["headers"].append((b"cache-control", b"no-store"))
                if answer is not None:  # rejected clients get one answer per connection
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        await (answer or self._app)(scope, receive, send_with_headers)

    def _below(self, scope: Scope) -> Scope:
        """Return the request without the prefix, if it has it."""
        root = unquote(self._guard.root)
        path: str = scope["path"]
        return {**scope, "path": path[len(root) :]} if path.startswith(f"{root}/") else scope

    def _refused(self, scope: Scope) -> Response | None:
        """Return the answer to a rejected request; None for an accepted one."""
        headers = Headers(scope=scope)
        if not self._guard.host(headers.get("host", "")):
            return _problem(
                Trouble(
                    "host",
                    "Unknown host name; use the URL that the server printed when it started.",
                )
            )
        if len(scope.get("raw_path", b"")) + len(scope["query_string"]) > _LONGEST:
            return _problem(Trouble("parameter", f"The URL is longer than {_LONGEST} characters."))
        if self._guard.root and scope["path"] == unquote(self._guard.root):  # links of the page are relative
            query = scope["query_string"].decode("latin-1")
            return RedirectResponse(_relative_link(f"{self._guard.root}/", query), 303)
        api = scope["path"].startswith("/api/") or scope["path"] == "/api"
        foreign = _check_origin(scope, headers, api, self._guard)
        if foreign is not None:
            return _problem(foreign)
        return self._tokenless(scope, headers, api) if self._guard.token is not None else None

    def _tokenless(self, scope: Scope, headers: Headers, api: bool) -> Response | None:
        """Return the token form, or a cookie for a token in the URL; None for a request with a valid token."""
        guard = self._guard
        try:
            query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=_FIELDS)
        except ValueError:
            return _problem(Trouble("parameter", f"The URL has more than {_FIELDS} parameters."), 400)
        tokens = [value for name, value in query if name == "token"]
        if tokens and not api and scope["method"] == "GET" and guard.visits(tokens[-1], _ports(scope)):
            remaining = urlencode([pair for pair in query if pair[0] != "token"])
            return self._welcome(_relative_link(f"/{quote(scope['path'].rpartition('/')[2])}", remaining), headers)
        bearer = headers.get("authorization", "")
        if bearer[:7].lower() == "bearer " and guard.matches(bearer[7:].strip()):
            return None
        if any(guard.matches(value) for value in _cookies(headers, guard.cookie)):
            return None
        if api:
            return _problem(
                Trouble("token", "Open the page with the URL that the server printed; it contains the token.")
            )
        return plain_page("A token is needed", _token_form(bool(tokens)), 401)

    def _welcome(self, location: str, headers: Headers) -> Response:
        """Set the cookie and redirect to the URL without the token."""
        answer: Response
        if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
            answer = RedirectResponse(location, 303)  # keeps the fragment
        else:  # a link from elsewhere: the browser would follow without the strict cookie
            target = html.escape(location, quote=True)
            answer = HTMLResponse(
                f'<!doctype html><title>PyProf</title><meta http-equiv="refresh" content="0;url={target}">'
                f'<p><a href="{target}">Open the profile</a>'
            )
        answer.set_cookie(
            self._guard.cookie,
            self._guard.token or "",
            httponly=True,
            samesite="strict",
            path=f"{self._guard.root}/",
            secure=self._guard.secure,
            max_age=30 * 86400,
        )
        answer.headers["cache-control"] = "no-store"
        return answer


def _ports(scope: Scope) -> tuple[int, int] | None:
    """Return the ports of the client and the server; None for a Unix socket."""
    client, server = scope.get("client"), scope.get("server")
    return (client[1], server[1]) if client and server and server[1] is not None else None


async def _skip_body(receive: Receive) -> None:
    """Read the body of a rejected request, if it has the length of one: a proxy that is still writing it when the
    connection is closed passes on an error of its own in place of the answer."""
    size, more = 0, True
    while more and size <= _BODY:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)


def _relative_link(path: str, query: str) -> str:
    """Return a path as a link relative to its siblings: proxies may or may not prefix an absolute one.

    >>> _relative_link("/ops", "sort=-gpu"), _relative_link("/", ""), _relative_link("/a/b/", "")
    ('./ops?sort=-gpu', './', './b/')
    """
    parts = path.split("/")
    last = parts[-1] or (f"{parts[-2]}/" if parts[-2] else "")
    return f"./{last}" + (f"?{query}" if query else "")


def _check_origin(scope: Scope, headers: Headers, api: bool, guard: Guard) -> Trouble | None:
    """Return the problem with a request that another site's page could send; None for others."""
    refused = Trouble("forbidden", "Requests from other sites are not allowed.")
    if api and headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return refused
    if scope["method"] not in _CHANGES:
        return None
    origin = headers.get("origin")
    if origin is not None and not guard.own(origin, headers.get("host", "")):
        return refused
    if headers.get("x-pyprof") != "1":
        return Trouble("forbidden", "A request that changes something needs the header X-PyProf: 1.")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if scope["method"] != "DELETE" and kind != "application/json":
        return Trouble("forbidden", "A request that changes something must be JSON (Content-Type: application/json).")
    length, most = headers.get("content-length", "0"), _BODIES.get(scope["path"], _BODY)
    if not length.isdecimal() or int(length) > most or "transfer-encoding" in headers:
        return Trouble("parameter", f"The body is longer than {most} bytes, or its length is not given.")
    return None


def _cookies(headers: Headers, name: str) -> list[str]:
    values = []
    for header in headers.getlist("cookie"):
        try:
            cookie = SimpleCookie(header)
        except CookieError:
            continue
        if name in cookie:
            values.append(cookie[name].value)
    return values


def _problem(trouble: Trouble, code: int | None = None) -> Response:
    code = code or status(trouble)
    return JSONResponse(body(trouble) | {"status": code}, code, media_type="application/problem+json")


_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }
body { margin: 0; display: grid; min-height: 100vh; place-items: center }
main { max-width: 34rem; padding: 1.5rem } h1 { font-size: 1.4rem }
input, button { font: inherit; padding: .4rem .6rem }
input { width: 100%; box-sizing: border-box; margin: .3rem 0 .6rem }
code { overflow-wrap: anywhere }
"""


def plain_page(title: str, text: str, status: int) -> Response:
    """Return a page of the server itself, without scripts; its HTML never comes from a recording."""
    nonce = secrets.token_urlsafe(16)
    return HTMLResponse(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>PyProf: {title}</title><style nonce={nonce}>{_STYLE}</style>"
        f"<main><h1>{title}</h1>{text}</main></html>",
        status,
        {
            "cache-control": "no-store",
            "content-security-policy": _POLICY.replace("style-src 'self'", f"style-src 'nonce-{nonce}'"),
        },
    )


def _token_form(wrong: bool) -> str:
    """Return the form for the token."""
    message = "<p role=alert><b>That is not the token of this server.</b></p>" if wrong else ""
    return (
        "<p>This profile requires a token. Open the URL that <code>pyprof view</code> or <code>dlprofviewer</code> "
        f"printed in the terminal, or enter the token here.</p>{message}"
        "<form method=get><label>Token <input name=token type=password autocomplete=off required></label>"
        "<button>Open</button></form>"
    )
