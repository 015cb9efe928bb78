# SPDX-License-Identifier: Apache-2.0
"""The tile of JupyterLab's launcher: the viewer behind jupyter-server-proxy, and what it answers to whom."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import psutil
import pytest

from pyprof.core.errors import PyProfError, UsageError
from pyprof.server import unix_socket
from tests import cli
from tests.jupyter import TOKEN, Jupyter, jupyter, write_profile
from tests.waiting import HANG, until

OTHER = "https://evil.example"
VIEW = [sys.executable, "-m", "pyprof", "view", "--jupyter"]


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a notebook, with a recording; the braces are not those of a template."""
    folder = tmp_path_factory.mktemp("notebooks {port}")
    write_profile(folder / "net_dldb.sqlite")
    return folder


@pytest.fixture(scope="module")
def server(notebooks: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jupyter]:
    """A Jupyter server of that folder."""
    with jupyter(notebooks, tmp_path_factory.mktemp("jupyter")) as running:
        yield running


@pytest.mark.long
def test_the_launcher_has_a_tile(server: Jupyter) -> None:
    entries = server.http.get("server-proxy/servers-info").json()["server_processes"]
    (entry,) = (one for one in entries if one["name"] == "pyprof")
    tile = entry["launcher_entry"]
    assert (tile["title"], tile["enabled"], entry["new_browser_tab"]) == ("PyProf", True, True)
    icon = server.http.get(urljoin(server.url, tile["icon_url"]))
    assert (icon.status_code, icon.headers["content-type"]) == (200, "image/svg+xml")
    page = server.http.get(tile["path_info"])
    assert page.headers["location"] == "./#/overview?run=net_dldb.sqlite"


@pytest.mark.long
def test_the_viewer_serves_the_folder_of_the_notebooks(server: Jupyter, notebooks: Path) -> None:
    assert server.http.get("pyprof").headers["location"].endswith("/pyprof/")
    profile = server.http.get("pyprof/api/profile").json()
    assert (profile["path"], profile["run"]) == (str(notebooks / "net_dldb.sqlite"), "net_dldb.sqlite")
    assert server.http.get("pyprof/api/iterations").json()["total"] == 6
    export = server.http.get("pyprof/api/reports/detail/export?format=csv")
    assert export.headers["content-disposition"].startswith("attachment")


@pytest.mark.long
def test_only_its_user_reaches_the_viewer(server: Jupyter) -> None:
    assert server.http.get("pyprof/api/profile").status_code == 200
    for path in ("pyprof/", "pyprof/newest", "pyprof/api/profile", "pyprof/api/jobs"):
        for headers in ({}, {"authorization": "token x"}, {"authorization": f"Bearer {TOKEN[1:]}"}):
            answer = httpx.get(f"{server.url}{path}", headers=headers, trust_env=False)
            assert answer.status_code in (302, 403)
            assert "net_dldb" not in answer.text
    listening = [one for one in server.viewer.net_connections("inet") if one.status == psutil.CONN_LISTEN]
    assert listening == []  # on no port
    path = Path(server.viewer.cmdline()[server.viewer.cmdline().index("--jupyter") + 1])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.long
def test_pages_of_other_sites_change_nothing_and_read_nothing(server: Jupyter) -> None:
    """jupyter-server-proxy leaves the protection against them to what it proxies."""
    own = server.url.partition("/user/")[0]
    ask: dict[str, Any] = {"json": {"start": 0, "stop": 1}}

    def change(**headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return server.http.post("pyprof/api/aggregations", headers=named, **ask).status_code

    assert change(origin=own) == 403  # a form could send that
    for origin in (OTHER, "null", f"{own}0", "http://localhost"):
        assert change(origin=origin, x_pyprof="1") == 403, origin
    assert change(origin=own, x_pyprof="1", sec_fetch_site="same-site") == 403
    site = {"sec-fetch-site": "cross-site"}
    assert server.http.get("pyprof/api/profile", headers=site).status_code == 403
    assert server.http.get("pyprof/api/profile", headers={"host": "evil.example"}).status_code == 403
    page = server.http.get("pyprof/")
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert "access-control-allow-origin" not in page.headers


@pytest.mark.long
def test_changes_and_events_pass(server: Jupyter) -> None:
    headers = {"x-pyprof": "1", "origin": server.url.partition("/user/")[0]}
    job = server.http.post("pyprof/api/aggregations", json={"start": 0, "stop": 1}, headers=headers)
    assert job.status_code == 202, job.text
    wanted = {"accept": "text/event-stream"}
    with server.http.stream("GET", f"pyprof/api/jobs/{job.json()['id']}/events", headers=wanted) as events:
        assert '"state":"done"' in [line for line in events.iter_lines() if line][-1]


@pytest.mark.long
def test_the_viewer_ends_with_jupyter(server: Jupyter) -> None:
    """The last that needs the server."""
    server.http.get("pyprof/")
    viewer = server.viewer
    server.stop()
    until(lambda: not is_running(viewer))


def is_running(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


# --- without Jupyter


class Viewer:
    """A process as jupyter-server-proxy starts it."""

    def __init__(self, folder: Path, code: str = ""):
        self.path = str(folder / "socket")
        words = VIEW if not code else [sys.executable, "-c", code, "view", "--jupyter"]
        self.process = subprocess.Popen(
            [*words, self.path, "--", str(folder / "notebooks")], stderr=subprocess.PIPE, text=True,
            env=os.environ | {"XDG_CACHE_HOME": str(folder)},
        )  # fmt: skip
        self.http = httpx.Client(
            transport=httpx.HTTPTransport(uds=self.path), base_url="http://localhost", timeout=HANG
        )


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of this user with a short path, as sockets need it, and in it one for notebooks."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "notebooks").mkdir()
        yield folder


def listens(path: str) -> bool:
    """Whether somebody can connect."""
    with socket.socket(socket.AF_UNIX) as client, suppress(FileNotFoundError, ConnectionRefusedError):
        client.connect(path)
        return True
    return False


@pytest.fixture
def start(folder: Path) -> Iterator[Any]:
    """Start viewers, and wait until they listen."""
    running: list[Viewer] = []

    def viewer(code: str = "") -> Viewer:
        running.append(Viewer(folder, code))
        until(lambda: listens(running[-1].path) or running[-1].process.poll() is not None)
        return running[-1]

    yield viewer
    for one in running:
        one.http.close()
        one.process.send_signal(signal.SIGINT)
        one.process.communicate(timeout=HANG)


def test_the_name_is_that_of_the_hub_whatever_it_is(start: Any) -> None:
    """Which names are answered is Jupyter's decision; the Origin must be the same."""
    viewer = start()

    def job(host: str, origin: str) -> str:
        headers = {"host": host, "origin": origin, "x-pyprof": "1"}
        answer = viewer.http.post("/api/aggregations", json={"start": 0}, headers=headers)
        return str(answer.json()["type"])

    assert job("hub.example.com", "https://hub.example.com") == "empty"
    assert job("hub.example.com:8443", "https://hub.example.com:8443") == "empty"
    assert job("hub.example.com", "https://evil.example") == "forbidden"
    assert job("hub.example.com", "https://hub.example.com:8443") == "forbidden"
    assert job("user@hub.example.com", "https://hub.example.com") == "host"
    assert job("", "https://") == "host"


OFTEN = """
import sys
from pyprof.server import listed_library
listed_library.LOOK = listed_library._SHARE = 0
from pyprof.commands.main import main
sys.exit(main())
"""


def test_recordings_that_come_later_are_shown(start: Any, folder: Path) -> None:
    viewer = start(OFTEN)
    empty = viewer.http.get("/api/profile")
    assert (empty.status_code, empty.json()["type"]) == (404, "empty")
    assert str(folder / "notebooks") in empty.json()["detail"]
    assert viewer.http.get("/newest").headers["location"] == "./"
    target = folder / "notebooks" / "runs" / "net_dldb.sqlite"
    target.parent.mkdir()
    write_profile(target)
    until(lambda: viewer.http.get("/api/profile").status_code == 200)
    other = write_profile(folder / "notebooks" / "z #1_dldb.sqlite")
    os.utime(other, (1, 1))
    until(lambda: len(viewer.http.get("/api/profile").json()["runs"]) == 2)
    assert viewer.http.get("/newest").headers["location"] == "./#/overview?run=runs%2Fnet_dldb.sqlite"
    os.utime(target, (0, 0))
    assert viewer.http.get("/newest").headers["location"] == "./#/overview?run=z+%231_dldb.sqlite"
    target.unlink()
    other.unlink()
    until(lambda: viewer.http.get("/api/profile").status_code == 404)
    viewer.process.send_signal(signal.SIGINT)
    assert viewer.process.wait(HANG) == 0
    assert viewer.process.stderr.read() == ""
    assert not os.path.exists(viewer.path)


@pytest.mark.long
def test_the_viewer_ends_with_a_server_that_is_killed(folder: Path) -> None:
    code = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    words = [*VIEW, str(folder / "socket"), str(folder / "notebooks")]
    with subprocess.Popen([sys.executable, "-c", code, *words]) as parent:
        until(lambda: (folder / "socket").exists())
        (viewer,) = psutil.Process(parent.pid).children()
        until(lambda: os.getsid(viewer.pid) == viewer.pid)  # a Ctrl-C in the terminal reaches it by the parent
        parent.kill()
    until(lambda: not is_running(viewer))


def test_what_is_missing_is_said_on_the_page(start: Any) -> None:
    """The user of JupyterLab does not see what a server prints."""
    code = """
import sys
from pyprof.server import serve
serve._NEEDS = ("no_such_module",)
from pyprof.commands.main import main
sys.exit(main())
"""
    answer = start(code).http.get("/newest")
    assert answer.status_code == 503
    assert answer.text == (
        "PyProf: the page needs no_such_module: pip install '.[jupyter]' in a clone of PyProf's repository installs "
        "them. Then restart Jupyter.\n"
    )


def test_the_entry_point_needs_nothing(tmp_path: Path) -> None:
    code = """
import sys
for name in ("fastapi", "starlette", "uvicorn", "pandas", "torch", "jupyter_server_proxy", "jupyter_server"):
    sys.modules[name] = None
from pyprof.integrations.jupyter import server
assert server()["launcher_entry"]["title"] == "PyProf"
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_socket_that_others_reach_is_refused(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    words = ["view", "--jupyter", str(folder / "socket"), str(folder / "notebooks")]
    for mode in (0o755, 0o710, 0o701):
        folder.chmod(mode)
        with pytest.raises(UsageError), unix_socket.listening(words[2]):
            pass
        assert cli.main(words) == 2
        assert "other users may enter this folder" in capsys.readouterr().err
    folder.chmod(0o700)
    (folder / "socket").write_text("a file")
    assert cli.main(words) == 1
    assert "cannot be listened on (Address already in use)" in capsys.readouterr().err
    assert (folder / "socket").read_text() == "a file"
    assert cli.main([*words[:2], str(folder / ("s" * 200)), words[-1]]) == 1
    assert "cannot be listened on (AF_UNIX path too long;" in capsys.readouterr().err
    assert cli.main([*words, str(folder)]) == 2
    assert "takes one folder" in capsys.readouterr().err


def test_the_socket_of_a_server_that_was_killed_is_replaced(folder: Path) -> None:
    path = str(folder / "socket")
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(path)
    with unix_socket.listening(path) as listener, socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        with pytest.raises(PyProfError, match="Address already in use"), unix_socket.listening(path):
            pass
        assert listener.getsockname() == path
    assert not os.path.exists(path)
