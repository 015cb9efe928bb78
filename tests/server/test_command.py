# SPDX-License-Identifier: Apache-2.0
"""The commands: what they print, and what they say instead of serving."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from functools import partial

import httpx
import pytest

from pyprof import __version__
from pyprof.commands.view import dlprofviewer
from pyprof.core.errors import PyProfError
from pyprof.server import serve
from pyprof.server.security import Guard
from pyprof.server.serve import announcement, has_browser, listening, tunnel
from tests import cli
from tests.build import write_capture
from tests.server.conftest import STEPS, steps
from tests.server.test_library import write_unrelated
from tests.waiting import HANG, until

URL = re.compile(r"http://\S+")


@pytest.fixture
def started(tmp_path):
    """A viewer as a process of its own: starts it and waits for its URL."""
    running = []

    without = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY")}

    def start(*words, program=("-m", "pyprof", "view"), **environment):
        process = subprocess.Popen(
            [sys.executable, *program, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=without | environment,
        )  # fmt: skip
        running.append(process)
        line = process.stdout.readline()
        return process, line.strip()

    yield start
    for process in running:
        process.kill()
        process.communicate()


def test_it_serves_until_it_is_interrupted(started, made):
    process, url = started(made, "-p", 0)
    assert re.fullmatch(r"http://localhost:\d+/\?token=[\w-]{43}", url)
    with httpx.Client(trust_env=False, follow_redirects=True) as browser:
        assert browser.get(url).status_code in (200, 503)  # 503: the page is not built
        base = url.partition("?")[0]
        assert browser.get(f"{base}api/iterations").json()["total"] == STEPS
    assert httpx.get(f"{base}api/profile", trust_env=False).status_code == 401
    assert "ssh -L" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(HANG) == 0
    assert process.stderr.read() == ""


def test_several_files_are_compared(started, tmp_path):
    files = []
    for name, count in (("before", 2), ("after", 3)):
        (tmp_path / name).mkdir()
        files.append(write_capture(tmp_path / name / "net.sqlite", steps(count)))
    _, url = started(*files, "-p", 0, "--no-token")
    assert url.endswith("/#/compare")
    base = url.partition("#")[0]

    def compared():
        return httpx.get(
            f"{base}api/compare", params={"base": "before/net.sqlite", "other": "after/net.sqlite"},
            trust_env=False, timeout=HANG,
        )  # fmt: skip

    until(lambda: compared().status_code == 200)
    assert compared().json()["steps"][0]["name"] == "step"
    runs = httpx.get(f"{base}api/profile", trust_env=False).json()["runs"]
    assert [run["name"] for run in runs] == ["before/net.sqlite", "after/net.sqlite"]
    assert [run["modified"] for run in runs] == [None, None]  # the page compares them in the order given


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [(["{0}", "{0}"], 2, "given twice"), (["{0}", "{0}.none"], 1, "no such file")],
)
def test_several_files_that_cannot_be_compared(made, capsys, words, code, message):
    paths = [word.format(made) for word in words]
    assert cli.main(["view", *paths, "-p", "0", "--no-browser"]) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert not captured.out


def test_a_server_that_is_killed_leaves_no_process(started, made):
    process, url = started(made, "-p", 0, "--no-token")
    httpx.get(f"{url}api/reports/detail", trust_env=False, timeout=HANG)
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True)
    children = [int(word) for word in found.stdout.split()]
    assert children
    process.kill()
    process.wait()
    until(lambda: not any(_alive(one) for one in children))


def _alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_old_name(started, made):
    code = "from pyprof.commands.view import dlprofviewer; raise SystemExit(dlprofviewer())"
    _, url = started("-b", "127.0.0.1", "-p", "0", made, program=("-c", code))
    assert url.startswith("http://localhost:")


def test_a_recording_is_imported_before_it_is_served(started, tmp_path):
    path = write_capture(tmp_path / "net.sqlite", steps(3))
    _, url = started(path, "-p", 0, "--no-token")
    assert httpx.get(f"{url}api/iterations", trust_env=False).json()["total"] == 3


view = partial(cli.start, "view")


def said(capsys, words, code=1, run=view):
    """The one sentence of a command that does not serve."""
    assert run([str(word) for word in words]) == code
    found = capsys.readouterr()
    assert found.out == ""
    lines = found.err.strip().splitlines()
    assert len(lines) == 1, found.err
    return lines[0]


def test_a_port_in_use(capsys, made):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        text = said(capsys, [made, "-p", port])
    assert text == f"pyprof view: port {port} is in use; choose another one with -p {port + 1}."


def test_files_that_cannot_be_shown(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(serve, "_QUIET", 3600)  # no word of progress on a slow machine
    (tmp_path / "text.txt").write_text("hello")
    (tmp_path / "empty.sqlite").write_bytes(b"")
    assert "no such file" in said(capsys, [tmp_path / "nothing.sqlite", "-p", 0])
    assert "text.txt" in said(capsys, [tmp_path / "text.txt", "-p", 0])
    assert "empty.sqlite" in said(capsys, [tmp_path / "empty.sqlite", "-p", 0], run=dlprofviewer)
    assert (
        "contains no recording" in said(capsys, [tmp_path / "sub", "-p", 0])
        if (tmp_path / "sub").mkdir() is None
        else ""
    )


def test_why_files_are_several_runs(started, tmp_path):
    write_unrelated(tmp_path)
    process, url = started(tmp_path, "-p", 0)
    assert url.startswith("http://localhost:")
    process.send_signal(signal.SIGINT)
    told = process.communicate(timeout=HANG)[1]
    assert told.startswith(f"pyprof view: {tmp_path}: 3 files are 2 runs: rank 0 is in 2 of them.\n")


def test_other_words(capsys, made, tmp_path):
    assert "not a folder" in said(capsys, [made, "-p", 0, "--source-root", tmp_path / "x"], 2)
    assert "not an address" in said(capsys, [made, "-p", 0, "-b", "203.0.113.7"], 2)
    assert "not an address" in said(capsys, [made, "-p", 0, "-b", "no such host"], 2)
    for words in ([], [made, "-p", "x"], [made, "-p", "70000"], [made, "more"]):
        with pytest.raises(SystemExit) as caught:
            dlprofviewer([str(word) for word in words])
        assert caught.value.code == 2
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        dlprofviewer(["--version"])
    assert caught.value.code == 0
    assert __version__ in capsys.readouterr().out
    for run in (view, dlprofviewer):
        with pytest.raises(SystemExit) as caught:
            run(["-h"])
        assert caught.value.code == 0
        assert "8000" in capsys.readouterr().out


def test_an_extra_that_is_missing(capsys, made, monkeypatch):
    monkeypatch.setattr(serve, "_NEEDS", ("fastapi", "no_such_module"))
    text = said(capsys, [made])
    assert "no_such_module" in text
    assert ".[viewer]" in text


def test_the_command_needs_the_extra_only_to_serve():
    code = "import sys; sys.modules['fastapi'] = None; import pyprof.commands.view"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_where_the_page_is(monkeypatch):
    guard = Guard("localhost", "t")
    assert announcement("localhost", 8000, guard) == ["http://localhost:8000/?token=t"]
    assert announcement("localhost", 8000, Guard("localhost", None)) == ["http://localhost:8000/"]
    assert announcement("192.0.2.3", 1, Guard("192.0.2.3", None)) == ["http://192.0.2.3:1/"]
    assert announcement("2001:db8::1", 1, Guard("2001:db8::1", None)) == ["http://[2001:db8::1]:1/"]
    monkeypatch.setattr(serve, "_address", lambda: "192.0.2.9")
    assert announcement("0.0.0.0", 1, Guard("0.0.0.0", "t")) == ["http://192.0.2.9:1/?token=t"]
    assert re.search(r"ssh -L 8000:localhost:8000 \S+@\S+$", tunnel(8000)[0])


@pytest.mark.parametrize(
    "words",
    [
        ["--public-origin", "hub.example.com"], ["--public-origin", "https://hub.example.com/user"],
        ["--public-origin", "ftp://hub.example.com"], ["--public-origin", "https://"],
        ["--public-origin", "https://a@hub.example.com"], ["--public-origin", "https://hub.example.com:x"],
        ["--root-path", "proxy/8000"], ["--root-path", "/a b"], ["--root-path", "//evil"], ["--root-path", "/a;b"],
        ["--root-path", "/a?b"], ["--allow-host", "https://box"], ["--allow-host", "box:8000"], ["--allow-host", "*"],
        ["--allow-host", ""],
    ],
    ids=" ".join,
)  # fmt: skip
def test_words_of_a_proxy_that_are_wrong(made, words, capsys):
    with pytest.raises(SystemExit) as caught:
        view([str(made), "-p", "0", *words])
    assert caught.value.code == 2
    assert "expected" in capsys.readouterr().err


def test_words_of_a_proxy(started, made):
    words = ("--public-origin", "https://Hub.example.com/", "--root-path", "/user/a/", "--allow-host", "box")
    _, url = started(made, "-p", 0, *words, "--allow-host", "::1")
    assert re.fullmatch(r"https://hub\.example\.com/user/a/\?token=[\w-]{43}", url)


@pytest.mark.long
def test_what_travels_unencrypted_is_said(started, made):
    process, _ = started(made, "-p", 0, "-b", "0.0.0.0")
    line = process.stderr.readline()
    assert line.startswith("pyprof view: the token and the profile travel unencrypted to port ")
    assert "ssh -L" in line
    assert "--public-origin" in line
    process, _ = started(made, "-p", 0, "-b", "0.0.0.0", "--no-token")
    assert "the profile travels unencrypted" in process.stderr.readline()
    assert "anyone who can reach port" in process.stderr.readline()


@pytest.mark.parametrize(
    ("environment", "there"),
    [
        ({}, False),
        ({"DISPLAY": ":0"}, True),
        ({"WAYLAND_DISPLAY": "x"}, True),
        ({"DISPLAY": ":0", "SSH_CONNECTION": "x"}, False),
    ],
)
def test_a_browser_only_where_there_is_one(monkeypatch, environment, there):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "SSH_TTY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(serve.sys, "platform", "linux")
    monkeypatch.setattr(serve.webbrowser, "get", lambda: None)
    assert has_browser() is there


def test_both_kinds_of_loopback():
    found = listening("localhost", 0)
    try:
        assert len({one.getsockname()[1] for one in found}) == 1
        assert all(one.getsockname()[0] in ("127.0.0.1", "::1") for one in found)
    finally:
        for one in found:
            one.close()


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_a_port_that_another_has_on_one_kind_of_loopback_is_in_use(monkeypatch):
    """Its owner would be given the token by a browser that asks ::1 first."""
    with socket.socket(socket.AF_INET6) as other:
        try:
            other.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no ::1")
        other.listen()
        both = [(family, socket.SOCK_STREAM, 6, "", (name, 0)) for family, name in
                ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))]  # fmt: skip
        monkeypatch.setattr(serve.socket, "getaddrinfo", lambda *_, **__: both)
        with pytest.raises(PyProfError, match=f"port {other.getsockname()[1]} is in use"):
            listening("localhost", other.getsockname()[1])


def reached(bind):
    """Whether a server is reached by the machine's address in the network."""
    found = listening(bind, 0)
    try:
        with socket.socket() as other:
            other.settimeout(5)
            return other.connect_ex((serve._address(), found[0].getsockname()[1])) == 0
    finally:
        for one in found:
            one.close()


@pytest.mark.skipif(serve._address() in ("localhost", "127.0.0.1"), reason="this machine has no network")
def test_others_reach_it_only_if_they_are_meant_to():
    assert not reached("localhost")
    assert reached("0.0.0.0")
