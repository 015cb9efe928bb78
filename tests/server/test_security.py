# SPDX-License-Identifier: Apache-2.0
"""Who may ask what: every row of the table of risks, and every cell of DLProf's table of how to launch the viewer."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from urllib.parse import quote, urlsplit

import httpx
import pytest

from pyprof.core.errors import FormatError
from pyprof.server.guarded_store import Deadline, Guarded, Pool
from pyprof.server.security import Guard
from pyprof.views.problems import Trouble
from tests.hostile import journal
from tests.server.conftest import serving

TOKEN = "t" * 43
MACHINE = socket.gethostname().lower()
ADDRESS = "203.0.113.7"  # any address: nobody can make one point elsewhere


@pytest.fixture(scope="module")
def static(tmp_path_factory):
    """A page."""
    folder = tmp_path_factory.mktemp("page") / "static"
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html><p>the page")
    return folder


@pytest.fixture(scope="module")
def locked(made, static):
    """A server on loopback with a token, as `pyprof view` starts it."""
    with serving(made, token=TOKEN, static=static) as asking:
        yield asking


@pytest.fixture(scope="module")
def wide(made):
    """A server that listens on every address."""
    with serving(made, bind="0.0.0.0", token=TOKEN) as asking:
        yield asking


def ask(asking, path="/api/profile", host=None, token=TOKEN, method="GET", **headers):
    """A request with exactly these headers, without a cookie."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if host is not None:
        named["host"] = host
    if token:
        named["authorization"] = f"Bearer {token}"
    return httpx.request(method, f"{asking.url}{path}", headers=named, trust_env=False)


# --- which names are answered


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8000", "127.0.0.1:8000", "[::1]:8000", "127.8.8.8", "LOCALHOST"]
)
def test_on_loopback_its_own_names(locked, host):
    assert ask(locked, host=host).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "evil.example:8000", f"{ADDRESS}:8000",
     "0.0.0.0:8000", "localhost:8000:1", "a@localhost", "", "[::1", "localhost.", "2130706433", "0x7f.1",
     MACHINE + ".evil.example"],
)  # fmt: skip
def test_on_loopback_no_other(locked, host):
    found = ask(locked, host=host)
    assert found.status_code == 400
    if found.headers["content-type"].startswith("application/problem"):  # an empty host is refused before us
        assert found.json()["type"] == "host"


# --- DLProf's table 2.7: where the server is, and where the browser


def test_in_docker_browser_on_the_same_machine(made):
    """dlprofviewer -b `hostname -i`, then http://localhost:PORT: the port is passed on, the name is not ours."""
    with serving(made, bind="172.17.0.2", token=TOKEN) as asking:
        assert ask(asking, host="localhost:8000").status_code == 200
        assert ask(asking, host="172.17.0.2:8000").status_code == 200
        assert ask(asking, host="evil.example:8000").status_code == 400


def test_in_docker_browser_elsewhere(wide):
    """dlprofviewer -b 0.0.0.0, then http://IP OF THE DOCKER HOST:PORT, which the container does not know."""
    assert ask(wide, host=f"{ADDRESS}:8000").status_code == 200
    assert ask(wide, host="[2001:db8::7]:8000").status_code == 200


def test_outside_docker_browser_on_the_same_machine(locked):
    """No -b, then http://localhost:PORT."""
    assert ask(locked, host="localhost:8000").status_code == 200


def test_outside_docker_browser_elsewhere(wide):
    """dlprofviewer -b 0.0.0.0, then http://IP OF THE SERVER:PORT, or its name."""
    assert ask(wide, host=f"{ADDRESS}:8000").status_code == 200
    assert ask(wide, host=f"{MACHINE}:8000").status_code == 200
    assert ask(wide, host="localhost:8000").status_code == 200
    for host in ("evil.example", f"{MACHINE}.evil.example", f"{ADDRESS}.nip.io"):
        assert ask(wide, host=host).status_code == 400


# --- the token


def test_without_a_token_nothing_is_told(locked):
    found = ask(locked, token=None)
    assert found.status_code == 401
    assert found.json()["type"] == "token"
    for path in ("/", "/ops", "/assets/app.js", "/index.html"):
        page = ask(locked, path, token=None)
        assert page.status_code == 401
        assert "A token is needed" in page.text
        assert "the page" not in page.text.replace("Open the page", "")
    assert "not the token" not in page.text


@pytest.mark.parametrize("wrong", ["x", TOKEN[:-1], TOKEN + "x", "", "ü"])
def test_a_wrong_token(locked, wrong):
    assert "not the token" in httpx.get(f"{locked.url}/", params={"token": wrong}, trust_env=False).text
    assert ask(locked, token=wrong.encode() if wrong else None).status_code == 401
    assert ask(locked, token=None, cookie=f"{locked.guard.cookie}={wrong}".encode()).status_code == 401


def test_the_first_visit_sets_a_cookie(locked):
    with httpx.Client(base_url=locked.url, trust_env=False) as browser:
        first = browser.get("/ops", params={"token": TOKEN, "sort": "-gpu"})
        assert first.status_code == 303
        assert first.headers["location"] == "./ops?sort=-gpu"
        cookie = first.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "Path=/" in cookie
        assert browser.get("/ops?sort=-gpu").status_code == 200
        assert browser.get("/api/profile").status_code == 200


def test_a_link_from_another_site_still_gets_its_cookie(locked):
    found = httpx.get(f"{locked.url}/?token={TOKEN}", headers={"sec-fetch-site": "cross-site"}, trust_env=False)
    assert found.status_code == 200
    assert 'content="0;url=./"' in found.text
    assert "set-cookie" in found.headers
    assert TOKEN not in found.text


def test_where_it_leads_is_ours(locked):
    for path in ("//evil.example/", "/%2F/evil.example"):
        found = httpx.get(f"{locked.url}{path}?token={TOKEN}", trust_env=False)
        assert found.headers["location"] in ("./", "./evil.example")


def test_the_token_opens_no_api_by_its_url(locked):
    assert ask(locked, f"/api/profile?token={TOKEN}", token=None).status_code == 401


def test_a_token_for_one_visit(locked):
    code = locked.guard.single()
    assert httpx.get(f"{locked.url}/?token={code}", trust_env=False).status_code == 303
    assert httpx.get(f"{locked.url}/?token={code}", trust_env=False).status_code == 401
    assert ask(locked, token=code).status_code == 401


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_token_for_one_visit_is_for_our_user(locked):
    """Who reads it on the browser's command line is faster than the browser."""
    code = locked.guard.single()
    ask_as_another = (
        "import encodings.idna, http.client, os, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "asked = http.client.HTTPConnection(sys.argv[1]); asked.request('GET', sys.argv[2])\n"
        "print(asked.getresponse().status)"
    )
    words = [sys.executable, "-c", ask_as_another, urlsplit(locked.url).netloc, f"/?token={code}"]
    assert subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout == b"401\n"
    assert httpx.get(f"{locked.url}/?token={code}", trust_env=False).status_code == 303


def test_a_token_for_one_visit_ends_after_a_minute(locked, monkeypatch):
    code, now = locked.guard.single(), time.monotonic()
    monkeypatch.setattr("pyprof.server.security.time.monotonic", lambda: now + 61)
    assert not locked.guard.visits(code)


def test_more_parameters_than_any_url_of_ours(locked):
    found = ask(locked, "/?" + "&" * 1200, token=None)
    assert (found.status_code, found.json()["status"]) == (400, 400)
    assert "more than 1000 parameters" in found.json()["detail"]


def test_cookies_of_two_servers_differ():
    assert Guard("localhost", "a").cookie != Guard("localhost", "b").cookie


# --- other sites


def test_no_cors(locked):
    for method in ("GET", "OPTIONS"):
        found = ask(locked, method=method, origin="http://evil.example", access_control_request_method="GET")
        assert not [name for name in found.headers if name.startswith("access-control")]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_may_not_ask_the_api(locked, site):
    assert ask(locked, sec_fetch_site=site).status_code == 403
    assert ask(locked, sec_fetch_site="same-origin").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"content_type": "application/json"},  # no header of ours
        {"content_type": "application/json", "x_pyprof": "0"},
        {"content_type": "text/plain", "x_pyprof": "1"},
        {"content_type": "application/x-www-form-urlencoded", "x_pyprof": "1"},
        {"content_type": "application/json", "x_pyprof": "1", "origin": "http://evil.example"},
        {"content_type": "application/json", "x_pyprof": "1", "origin": "null"},
        {"content_type": "application/json", "x_pyprof": "1", "sec_fetch_site": "cross-site"},
    ],
)
def test_changes_need_more(locked, headers):
    assert ask(locked, "/api/aggregations", method="POST", **headers).status_code == 403
    deleted = ask(locked, "/api/jobs/x", method="DELETE", **headers)
    assert deleted.status_code == (
        404 if headers.get("x_pyprof") == "1" and set(headers) == {"content_type", "x_pyprof"} else 403
    )


def test_a_large_body(locked):
    found = httpx.post(
        f"{locked.url}/api/aggregations", content=b"{" + b" " * 70000 + b"}", trust_env=False,
        headers={"authorization": f"Bearer {TOKEN}", "x-pyprof": "1", "content-type": "application/json"},
    )  # fmt: skip
    assert found.status_code == 422


def test_a_long_url(locked):
    assert ask(locked, "/api/reports/detail?search=" + "x" * 20000).status_code in (414, 422, 400)


@pytest.mark.parametrize("path", ["/", "/api/profile", "/api/nothing", "/assets/none.js"])
def test_headers(locked, path):
    for token in (TOKEN, None):
        found = ask(locked, path, token=token)
        policy = dict(part.strip().partition(" ")[::2] for part in found.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert "unsafe" not in found.headers["content-security-policy"]
        assert found.headers["x-content-type-options"] == "nosniff"
        assert found.headers["referrer-policy"] == "no-referrer"
        assert found.headers["x-frame-options"] == "DENY"
        assert "server" not in found.headers


# --- the database


@pytest.mark.parametrize(
    "statement",
    [
        "insert into meta values ('a', 'b')", "delete from event", "drop table event", "attach ':memory:' as other",
        "create temp table x (a)", "pragma writable_schema = on", "select load_extension('x')", "vacuum into '/tmp/x'",
        "begin", "reindex", "detach main", "update meta set value = ''",
    ],
)  # fmt: skip
def test_statements_that_are_refused(made, statement):
    store = Guarded(made)
    with pytest.raises(sqlite3.DatabaseError, match=r"not authorized|readonly|prohibited|denied"):
        store.connection.execute(statement).fetchall()
    store.close()


@pytest.mark.parametrize(
    "code",
    [
        "create view evil as select 1",
        "create trigger evil after insert on meta begin delete from event; end",
        "create virtual table evil using fts5 (a)",
    ],
)
def test_a_database_with_code_is_refused(copied, code):
    path = copied()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(code)
    connection.close()
    with pytest.raises(FormatError, match=r"holds code \(evil\)"):
        Guarded(path)
    with serving(path) as client:
        assert client.json("/api/profile", 409)["type"] == "damaged"


def test_a_table_that_is_a_view(copied):
    """It would be asked in place of the table, without the authorizer where columns are read at once."""
    path = copied()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("alter table iteration rename to real")
        connection.execute("create view iteration as select * from real")
    connection.close()
    with pytest.raises(FormatError, match="holds code"):
        Guarded(path)


def test_a_journal_that_names_another_file(copied, tmp_path):
    """SQLite would delete that file when it puts back what the journal holds."""
    victim = tmp_path / "key"
    victim.write_text("secret")
    path = copied()
    beside = path.with_name(path.name + "-journal")
    beside.write_bytes(journal(path.read_bytes(), bytes(victim)))
    before = path.read_bytes(), beside.read_bytes()
    with serving(path) as client:
        assert "journal" in client.json("/api/profile", 409)["detail"]
    with serving(path.parent) as client:
        assert "journal" in client.json("/api/profile", 409)["detail"]
    assert victim.exists()
    assert (path.read_bytes(), beside.read_bytes()) == before


def test_a_statement_ends_when_time_is_up(made):
    forever = "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n"
    pool = Pool(made)
    with pool.store(Deadline(0.1)) as store, pytest.raises(Trouble) as caught:
        store.rows(forever)
    assert caught.value.type == "slow"
    with pool.store(Deadline()) as again:  # the connection is as good as before
        assert again.rows("select 1") == [(1,)]
    cancelled = Deadline(60)
    cancelled.cancel()
    with pool.store(cancelled) as store, pytest.raises(Trouble):
        store.rows("select 1")
    pool.close()


def test_browsing_changes_nothing(client, made):
    before = made.read_bytes()
    for path in ("/api/overview", "/api/insights", "/api/reports/detail", "/api/launches", "/api/iterations"):
        client.json(path)
    assert made.read_bytes() == before


# --- hostile names and parameters


def test_hostile_names_are_json(client):
    found = client.http.get("/api/reports/detail", params={"search": "onerror"})
    assert found.headers["content-type"] == "application/json"
    assert any("<img src=x onerror=alert(1)>" in str(cell) for row in found.json()["rows"] for cell in row)


@pytest.mark.parametrize("text", ["' or 1=1 --", "%", "_", "\\", "\0", "<script>", '"', "{0}", "a" * 900, "=", "é"])
def test_hostile_parameters_are_inert(client, text):
    assert client.http.get("/api/reports/detail", params={"search": text}).status_code == 200
    assert client.http.get("/api/launches", params={"search": text}).status_code == 200
    assert client.http.get("/api/launches", params={"filter": f"kernel:{text}"}).status_code == 200
    for kind in ("op", "kernel", "launch", "iteration", "finding"):
        found = client.http.get(f"/api/details/{kind}/{quote(text, safe='', errors='replace')}")
        assert found.status_code in (200, 404, 422), found.text
    assert client.http.get("/api/source", params={"file": text, "line": 1}).status_code == 404
    assert client.http.get("/api/profile", params={"run": text}).status_code == 404


UP = "/".join([".."] * 12)


@pytest.mark.parametrize(
    "path",
    [f"/{UP}/etc/passwd", f"/{UP}/etc/passwd".replace("..", "%2e%2e"), f"/{UP}/etc/passwd".replace("../", "..%2f"),
     "/../secret.txt", "/..%2fsecret.txt", "/%2e%2e/secret.txt", "//etc/passwd", "/%2fetc/passwd"],
)  # fmt: skip
def test_static_files_stay_inside(locked, static, path):
    (static.parent / "secret.txt").write_text("root: a secret")
    with httpx.Client(trust_env=False) as client:
        request = client.build_request("GET", locked.url, headers={"authorization": f"Bearer {TOKEN}"})
        request.url = httpx.URL(locked.url).copy_with(raw_path=path.encode())
        found = client.send(request)
    assert "root:" not in found.text


def test_static_files(locked, static):
    (static / "assets").mkdir(exist_ok=True)
    (static / "assets" / "app-1a2b.js").write_text("let a")
    found = ask(locked, "/assets/app-1a2b.js")
    assert found.text == "let a"
    assert found.headers["content-type"].startswith(("text/javascript", "application/javascript"))
    assert "immutable" in found.headers["cache-control"]
    for path in ("/", "/ops", "/kernels/all?x=1", "/favicon"):
        page = ask(locked, path)
        assert (page.status_code, page.text) == (200, "<!doctype html><p>the page")
        assert page.headers["cache-control"] == "no-cache"
    assert ask(locked, "/assets/old-9f.js").status_code == 404
    assert ask(locked, "/api/nothing").json()["type"] == "missing"
    assert ask(locked, "/apix").status_code == 200


def test_without_the_page_it_says_how_to_build_it(made, tmp_path):
    with serving(made, static=tmp_path) as client:
        found = client.http.get("/")
        assert found.status_code == 503
        assert "npm" in found.text


@pytest.mark.parametrize(
    ("origin", "is_own"),
    [
        ("http://localhost:8765", True),
        ("https://localhost:8765", True),  # behind a proxy with TLS
        ("ftp://localhost:8765", False),
        ("file://localhost:8765", False),
        ("://localhost:8765", False),
        ("localhost:8765", False),
        ("http://localhost:8766", False),
        ("null", False),
    ],
)
def test_the_scheme_of_an_origin_counts(origin: str, is_own: bool) -> None:
    assert Guard("localhost", "token").own(origin, "localhost:8765") == is_own
