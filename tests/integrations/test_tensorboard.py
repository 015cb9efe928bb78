# SPDX-License-Identifier: Apache-2.0
"""The plugin of TensorBoard without a browser: what it opens and when, and what it answers."""

from __future__ import annotations

import asyncio
import builtins
import gzip
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from tensorboard.plugins import base_plugin

from pyprof.integrations import tensorboard
from pyprof.integrations.tensorboard import Plugin
from pyprof.parse.name_search import search
from pyprof.server.listed_library import ListedLibrary
from tests.server.test_library import write_unrelated
from tests.waiting import HANG, until

GPU = Path(__file__).resolve().parents[1] / "traces/gpu"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def ask(plugin: Plugin, path: str, method: str = "GET", body: bytes = b"", **headers: str) -> Answer:
    """Ask as TensorBoard's server does."""
    apps = plugin.get_plugin_apps()
    app = apps.get(path) or next(
        app for route, app in apps.items() if route.endswith("/*") and path.startswith(route[:-1])
    )
    began: list[Any] = []
    path, _, query = path.partition("?")
    environ = {
        "REQUEST_METHOD": method, "PATH_INFO": f"/data/plugin/pyprof{path}", "QUERY_STRING": query, "SCRIPT_NAME": "",
        "SERVER_NAME": "tb", "SERVER_PORT": "6006", "SERVER_PROTOCOL": "HTTP/1.1", "HTTP_HOST": "tb:6006",
        "wsgi.input": io.BytesIO(body), "wsgi.url_scheme": "http", "CONTENT_LENGTH": str(len(body)), **headers,
    }  # fmt: skip
    parts = app(environ, lambda status, headers, exc_info=None: began.extend([status, headers]))
    return Answer(
        body=b"".join(parts),
        status=int(began[0].split()[0]),
        headers={name.lower(): text for name, text in began[1]},
    )


Make = Callable[[Path], Plugin]


@pytest.fixture
def make() -> Iterator[Make]:
    """Make plugins of log directories."""
    plugins: list[Plugin] = []

    def plugin_of(logdir: Path) -> Plugin:
        plugins.append(Plugin(base_plugin.TBContext(logdir=str(logdir))))
        return plugins[-1]

    yield plugin_of
    for plugin in plugins:
        plugin.close()


def settled(plugin: Plugin, path: str) -> Any:
    """The answer, once a recording has been read."""
    while (answer := ask(plugin, path)).status == 503:
        time.sleep(0.05)
    assert answer.status == 200, answer
    return json.loads(answer.body)


def test_a_tab_is_active_where_there_is_a_profile(tmp_path: Path, make: Make) -> None:
    assert not make(tmp_path / "none").is_active()
    assert not make(tmp_path).is_active()
    (tmp_path / "events.out.tfevents.1").write_bytes(b"")
    assert not make(tmp_path).is_active()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "w.1.pt.trace.json").write_text("{}")
    plugin = make(tmp_path)
    assert plugin.is_active()
    metadata = plugin.frontend_metadata()
    assert ask(plugin, metadata.es_module_path).headers["content-type"] == "text/javascript"


def test_a_log_directory_of_ten_thousand_files_is_listed_and_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Make
) -> None:
    for number in range(100):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        for file in range(100):
            (folder / f"worker{file}.{number}.pt.trace.json").touch()
    plugin = make(tmp_path)
    settled_page = ask(plugin, "/page/index.html")
    assert settled_page.status == 200
    opened: list[Any] = []
    real: Callable[..., Any] = builtins.open

    def counting(file: Any, *arguments: Any, **options: Any) -> Any:
        opened.append(file)
        return real(file, *arguments, **options)

    monkeypatch.setattr("builtins.open", counting)
    monkeypatch.setattr("io.open", counting)
    assert plugin.is_active()
    assert len(search(tmp_path).runs) == 100
    assert len(ListedLibrary(str(tmp_path)).states()) == 100
    assert not [file for file in opened if str(tmp_path) in str(file)]


def test_a_folder_of_several_runs_is_separated_when_it_is_opened(tmp_path: Path, make: Make) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    write_unrelated(folder)
    for file in folder.iterdir():
        file.rename(file.with_name(file.name.replace(".json", ".1.pt.trace.json")))
    plugin = make(tmp_path)
    assert list(ListedLibrary(str(tmp_path)).runs()) == ["run"]
    names = [run["name"] for run in settled(plugin, "/page/api/profile?run=run")["runs"]]
    assert names == ["run/a.rank0.1.pt.trace.json and 1 more", "run/b.rank0.1.pt.trace.json"]
    profile = settled(plugin, f"/page/api/profile?run={quote(names[0])}")
    assert [worker["name"] for worker in profile["workers"]] == ["rank0", "rank1"]


def test_answers_are_for_frames_of_the_same_origin_alone(tmp_path: Path, make: Make) -> None:
    (tmp_path / "net.sqlite").write_bytes(gzip.decompress((GPU / "products.sqlite.gz").read_bytes()))
    plugin = make(tmp_path)
    page = ask(plugin, "/page/index.html")
    assert page.headers["x-frame-options"] == "SAMEORIGIN"
    assert "frame-ancestors 'self'" in page.headers["content-security-policy"]
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    body = json.dumps({"start": 0, "stop": 0, "key": None}).encode()
    kind = {"CONTENT_TYPE": "application/json"}
    assert ask(plugin, "/page/api/aggregations", "POST", body, **kind).status == 403  # a form could send that
    foreign = {"HTTP_X_PYPROF": "1", "HTTP_ORIGIN": "http://evil.example", **kind}
    assert ask(plugin, "/page/api/aggregations", "POST", body, **foreign).status == 403
    assert ask(plugin, "/page/api/jobs/1/events").status == 404  # it would hold a thread
    for path in ("/page/../../secret", "/page/%2e%2e/secret", "/page/assets/../../app.py"):
        assert b"import" not in ask(plugin, path).body


def test_what_is_missing_is_said_in_the_tab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Make) -> None:
    """TensorBoard loads the plugin of every installed package: without the extra it must not fail."""
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None if name == "a2wsgi" else object())
    answer = ask(make(tmp_path), "/page/index.html")
    assert answer.status == 503
    assert b"needs a2wsgi: pip install '.[tensorboard]'" in answer.body
    code = """
import sys
for name in ("a2wsgi", "fastapi", "starlette", "pydantic", "pandas", "torch"):
    sys.modules[name] = None
import pyprof.integrations.tensorboard
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_numpy_that_is_too_old_is_said_in_the_tab(tmp_path: Path) -> None:
    """pip installs a pyarrow that needs numpy 2 beside the numpy 1.26 of an older TensorBoard."""
    code = f"""if True:
        import sys
        from tensorboard.plugins.base_plugin import TBContext
        class Old:
            def find_spec(self, name, *more):
                if name == "pyarrow":
                    raise ImportError("pyarrow requires NumPy 2.0 or newer, found 1.26.4")
        sys.meta_path.insert(0, Old())
        from pyprof.integrations.tensorboard import Plugin
        plugin = Plugin(TBContext(logdir={str(tmp_path)!r}))
        app = plugin.get_plugin_apps()["/page/*"]
        print(plugin.is_active(), *app({{"PATH_INFO": "/page/index.html"}}, lambda status, headers: print(status)))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG)
    assert "503 Service Unavailable\n" in done.stdout, done.stderr
    assert 'True b"pyarrow requires NumPy 2.0 or newer, found 1.26.4. Install a newer numpy' in done.stdout


def test_a_request_whose_browser_leaves_is_ended(tmp_path: Path, make: Make) -> None:
    (tmp_path / "net.sqlite").write_bytes(gzip.decompress((GPU / "products.sqlite.gz").read_bytes()))
    plugin = make(tmp_path)
    ask(plugin, "/page/index.html")
    page = plugin._page
    assert page is not None

    async def requests() -> list[asyncio.Task[Any]]:
        return [
            task
            for task in asyncio.all_tasks()
            if "app_of_frame" in task.get_coro().__qualname__  # type: ignore
        ]

    def pending() -> int:
        return len(asyncio.run_coroutine_threadsafe(requests(), page._loop).result())

    environ = {
        "REQUEST_METHOD": "GET", "PATH_INFO": "/index.html", "QUERY_STRING": "", "SCRIPT_NAME": "", "SERVER_NAME": "tb",
        "SERVER_PORT": "6006", "SERVER_PROTOCOL": "HTTP/1.1", "HTTP_HOST": "tb", "wsgi.input": io.BytesIO(),
    }  # fmt: skip
    answer = page(environ, lambda *more: None)
    next(answer)  # the answer has begun
    assert pending() == 1
    answer.close()  # as TensorBoard's server does when it cannot write
    until(lambda: pending() == 0)


def test_tensorboard_finds_the_plugin() -> None:
    (point,) = (one for one in entry_points(group="tensorboard_plugins") if one.name == "pyprof")
    assert point.load() is Plugin
