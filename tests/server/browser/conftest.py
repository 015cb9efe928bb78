# SPDX-License-Identifier: Apache-2.0
"""The page in Chromium. Whatever goes wrong in it fails the test that was looking: errors of the console and of
scripts, reports of the content security policy, requests to anything but our server."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from pyprof import profiles
from pyprof.server import demo
from tests.build import call, recording, write_capture
from tests.reports.ranks import K
from tests.reports.ranks import run as run_of
from tests.server import planted_ranks as planted
from tests.server.browser import traces as two_runs
from tests.server.conftest import Asking, serving
from tests.server.in_process import in_process

# The headless shell first: it draws the same, and a tab of it takes a third of the processor time of a whole browser's.
_BROWSERS = "chromium-headless-shell", "chromium", "google-chrome"
CHROMIUM = os.environ.get("PYPROF_CHROMIUM") or next(filter(None, map(shutil.which, _BROWSERS)), None)
# One process draws all pages, next to the browser's own: starting one for each took as long as what a test did in it.
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--in-process-gpu", "--process-per-site",
    "--renderer-process-limit=1",
]  # fmt: skip
MM = call("torch.mm", (64, 32), (32, 16), module="net.first", trace=("net.py:1", "run.py:9"))
CPU = "".join(f"op seq={n} {MM}\n    op seq={n} aten::mm\n        wait {50 + n}\n" for n in range(3))


# The exact value is in the tip, where what is shown is rounded.
EXACT = """cell => {
    const tip = cell.dataset.tip ?? cell.querySelector("[data-tip]")?.dataset.tip ?? "";
    const name = cell.querySelector(".template")?.textContent; // its parts are boxes
    return name ?? tip.match(/^(-?[\\d,.]+)( [a-zA-Z%\\/]+)?(\\n|$)/)?.[1] ?? cell.innerText.trim();
}"""

# Events that have happened are handled before a timer that is set after them.
SETTLED = """async (most) => {
    const pause = (ms) => new Promise((done) => setTimeout(done, ms));
    const begin = performance.now();
    await pause(60);
    for (;;) {
        const app = document.querySelector(".app");
        if (CONDITION) return "";
        if (performance.now() - begin > most)
            return `${location.href}, asked at (ms): ${app?.dataset.questions || "nothing"}; now ${performance.now()}`;
        await pause(10);
    }
}"""


class Page:
    """A tab on a server. `go` waits until everything that the page asked for is there."""

    def __init__(self, tab: Any, url: str):
        self.tab, self.url = tab, url
        self.wrong: list[str] = []
        self.open: dict[Any, tuple[str, float]] = {}  # requests without an answer, and since when
        tab.on(
            "console",
            lambda m: self.wrong.append(f"console: {m.text}") if m.type in ("error", "warning") else None,
        )
        tab.on("pageerror", lambda error: self.wrong.append(f"script: {error}"))
        tab.on("request", self._request)
        tab.on("requestfinished", lambda request: self.open.pop(request, None))
        tab.on("requestfailed", lambda request: self.open.pop(request, None))

    def _request(self, request: Any) -> None:
        self.open[request] = request.url, time.monotonic()
        if urlsplit(request.url).netloc != urlsplit(self.url).netloc:
            self.wrong.append(f"foreign request: {request.url}")

    def go(self, view: str = "overview", **parameters: str) -> None:
        query = "&".join(f"{key}={quote(str(value))}" for key, value in parameters.items())
        self.tab.goto(f"{self.url}/#/{view}{'?' if query else ''}{query}")
        self.settled()

    def settled(self) -> None:
        self.wait('document.querySelector("main h1, main [data-trouble]") && app?.dataset.waiting === "0"')

    def wait(self, condition: str) -> None:
        """Wait until a condition holds, by the page's own clock: on a busy machine it goes as slowly as all that the
        page has yet to do. If it never does, say what the page waits for."""
        while True:
            try:
                wrong = self.tab.evaluate(SETTLED.replace("CONDITION", condition), 60_000)
            except Exception as error:  # a link or a reload has put another page there
                if "context was destroyed" not in str(error):
                    raise
            else:
                break
        open_ = [f"{time.monotonic() - since:.1f} s {url}" for url, since in self.open.values()]
        assert not wrong, f"{condition} is not so at {wrong}\n\nwithout an answer: {open_}\n\nwrong: {self.wrong}"

    def find(self, selector: str) -> Any:
        return self.tab.locator(selector)

    def until(self, selector: str, count: int) -> None:
        """Wait until there are so many; a script that waits is what the page's policy forbids."""
        from playwright.sync_api import expect

        expect(self.find(selector)).to_have_count(count, timeout=60_000)
        self.settled()

    def rows(self, table: str) -> list[list[str]]:
        """Texts of the cells of a table's body, of times and sizes the exact value in ns and B."""
        return self.tab.eval_on_selector_all(
            f'[data-table="{table}"] tbody tr', f"rows => rows.map(r => [...r.cells].map({EXACT}))"
        )

    def column(self, table: str, key: str) -> list[str]:
        return self.tab.eval_on_selector_all(
            f'[data-table="{table}"] tbody td[data-key="{key}"]', f"cells => cells.map({EXACT})"
        )

    def headings(self, table: str) -> list[str]:
        """Headings of a table, with the units of the server's values."""
        texts = self.find(f'[data-table="{table}"] th').all_inner_texts()
        plain = [text.strip("▲▼ ").replace("\n", " ") for text in texts]
        return [
            re.sub(r"\([KMG]iB\)$", "(B)", re.sub(r"\((µ|m)?s\)$", "(ns)", re.sub(r"\([MGT]F", "(F", text)))
            for text in plain
        ]

    def showing(self, table: str) -> str:
        return str(self.find(f'[data-table="{table}"] [data-showing]').inner_text())

    def parameters(self) -> str:
        return str(self.tab.evaluate("location.hash"))


def plain(text: str) -> str:
    """A sentence of the page as the server wrote it: its numbers stay with their units by blanks that do not break."""
    return text.replace("\u00a0", " ")


@pytest.fixture(scope="session")
def launched() -> Iterator[tuple[Any, asyncio.AbstractEventLoop]]:
    """The browser, one per process of tests, with Playwright's event loop. Skips where there is none, or no page."""
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium-headless-shell, or PYPROF_CHROMIUM=PATH")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    from pyprof.server import static_files as built

    if not (built.STATIC / "index.html").is_file():
        pytest.skip("the page is not built: make page")
    with api.sync_playwright() as playwright:
        loop = asyncio.get_running_loop()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        asyncio._set_running_loop(None)
        yield browser, loop
        asyncio._set_running_loop(loop)
        browser.close()


@pytest.fixture
def chromium(launched: tuple[Any, asyncio.AbstractEventLoop]) -> Iterator[Any]:
    """The browser, for one test: between its tests this thread has no event loop, and others can have their own."""
    browser, loop = launched
    asyncio._set_running_loop(loop)
    yield browser
    asyncio._set_running_loop(None)


@pytest.fixture(scope="session")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    """A server of a recording without a GPU."""
    folder = tmp_path_factory.mktemp("cpu")
    profiles.load(write_capture(folder / "cpu.sqlite", recording(CPU))).save(folder / "cpu_dldb.sqlite")
    with serving(folder / "cpu_dldb.sqlite") as asking:
        yield asking


@pytest.fixture(scope="session")
def example() -> Iterator[Asking]:
    """A server of the example that PyProf contains."""
    with serving(demo.RECORDING) as asking:
        read(asking)
        yield asking


@pytest.fixture(scope="session")
def planted_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    """A server of the ranks of that module, whose clocks and delays are planted."""
    with serving(planted.write(tmp_path_factory.mktemp("planted") / "run")) as asking:
        read(asking)
        yield asking


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    """A server of a run of three ranks: in each of two steps the last to come to the collective is rank 2."""
    folder = tmp_path_factory.mktemp("ranks")
    all_reduce = {"group": "0", "elements": (1000, 1000), "size": 3}
    kernels = [
        [
            one
            for step in (0, 1)
            for one in (
                K("volta_sgemm_128x64_nn", 1000 * step + 100, 100 * (rank + 1)),
                K(
                    "all_reduce",
                    1000 * step + 200 + 100 * (rank + 1),
                    500 - 100 * (rank + 1),
                    seq=step,
                    **all_reduce,
                ),
            )
        ]
        for rank in range(3)
    ]
    run_of(folder / "run", kernels, steps=[(0, 1000), (1000, 2000)])
    with serving(folder / "run") as asking:
        read(asking)
        yield asking


@pytest.fixture(autouse=True)
def _tasks_are_threads() -> Iterator[None]:
    with in_process():
        yield


def read(asking: Asking, **run: str) -> None:
    """Wait until a run has been read."""
    with in_process():
        while asking.http.get("/api/profile", params=run).status_code == 503:
            time.sleep(0.1)


@pytest.fixture(scope="session")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    """A server of the runs of `traces`, with the sources that their call stacks name."""
    folder = tmp_path_factory.mktemp("traces")
    for name in ("train.py", "net.py"):
        (folder / name).write_text("".join(f"line {n} of {name}\n" for n in range(1, 9)), encoding="utf-8")
    with serving(two_runs.write(folder / "runs"), source_root=str(folder)) as asking:
        for run in ("alpha", "beta"):
            read(asking, run=run)
        yield asking


Open = Callable[..., Page]


@pytest.fixture(scope="session")
def contexts(launched: tuple[Any, asyncio.AbstractEventLoop]) -> Callable[..., Any]:
    """Contexts of the browser by theme and size: shared by all tests, as a page that is in the cache is there in half
    the time."""

    @functools.cache
    def context(theme: str, width: int, height: int, url: str) -> Any:
        made = launched[0].new_context(
            viewport={"width": width, "height": height},
            color_scheme=theme,
            reduced_motion="reduce",
            accept_downloads=True,
        )
        made.set_default_timeout(60_000)  # on a busy machine a page takes its time
        made.new_page().goto(f"{url}/icon.svg")  # the process that draws stays while there is a tab
        return made

    return context


@pytest.fixture
def opened(chromium: Any, contexts: Callable[..., Any], client: Asking) -> Iterator[Open]:
    """Opens tabs that remember nothing of the tests before; by default on the server of `client`."""
    pages: list[Page] = []

    def open_(server: Asking | None = None, theme: str = "light", width: int = 1280, height: int = 720) -> Page:
        tab = contexts(theme, width, height, client.url).new_page()
        pages.append(Page(tab, (server or client).url))
        return pages[-1]

    yield open_
    wrong = [line for page in pages for line in page.wrong]
    for page in pages:
        if page.tab.url.startswith("http"):
            page.tab.evaluate("localStorage.clear(), sessionStorage.clear()")
        page.tab.close()
    assert not wrong


@pytest.fixture
def page(opened: Open) -> Page:
    """A tab on the server of `client`."""
    return opened()


def axe() -> str:
    """The source of axe-core, from npm."""
    file = Path(__file__).parents[3] / "frontend/node_modules/axe-core/axe.min.js"
    if not file.is_file():
        pytest.skip("axe-core is not installed: make page")
    return file.read_text(encoding="utf-8")
