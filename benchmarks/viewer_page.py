# SPDX-License-Identifier: Apache-2.0
"""What the viewer's page costs in a browser: until it is painted, and from a click or a key until the frame that shows
what it asked for. Part of server.py.

Times are taken in the page: a loop of animation frames looks whether the table has changed and waits for nothing any
more, and the clock is read in the task behind that frame, when it has been handed to the compositor. So a frame of 16.7
ms is in every figure.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psutil

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
# When the first figure of a panel was painted, in ms from the navigation.
_PAINT = """
(() => {
  const look = () => {
    if (document.querySelector("main [data-figure], main tbody td, main canvas")) {
      const channel = new MessageChannel();
      channel.port1.onmessage = () => { document.documentElement.dataset.painted = String(performance.now()); };
      channel.port2.postMessage(0);
    } else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})()
"""
# Do something to the first element of a selector, with a text if one is given, and wait until what `seen` finds is
# another text and nothing is busy.
_ACT = """
async ([selector, text, act, value, seen, busy]) => {
  const state = () => [...document.querySelectorAll(seen)].map((one) => one.textContent).join("\\u0001");
  const element = [...document.querySelectorAll(selector)]
    .find((one) => !one.disabled && one.textContent.includes(text));
  if (!element) return null;
  const before = state();
  const begin = performance.now();
  if (act === "type") {
    element.focus();
    element.value = value;
    element.dispatchEvent(new InputEvent("input", { bubbles: true }));
  } else if (act === "choose") {
    element.value = value;
    element.dispatchEvent(new Event("change", { bubbles: true }));
  } else element.click();
  let word = 0;
  return await new Promise((done) => {
    const look = () => {
      const now = performance.now() - begin;
      if (!word && document.querySelector("[data-wait]")) word = now;
      if (now > 10000) return done(null);
      if (state() === before || (busy && document.querySelector(busy))) return requestAnimationFrame(look);
      const channel = new MessageChannel();
      channel.port1.onmessage = () => done([performance.now() - begin, word]);
      channel.port2.postMessage(0);
    };
    requestAnimationFrame(look);
  });
}
"""
Times = dict[str, list[float]]


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        yield one
        one.close()


def first_view(one: Any, url: str) -> tuple[float, int]:
    """Milliseconds from the navigation to the first figures, and bytes over the wire until nothing is asked for any
    more, in a browser that knows nothing of the page."""
    context = one.new_context(viewport={"width": 1280, "height": 720})
    tab = context.new_page()
    received = 0

    def loaded(event: dict[str, Any]) -> None:
        nonlocal received
        received += int(event["encodedDataLength"])

    session = context.new_cdp_session(tab)
    session.send("Network.enable")
    session.on("Network.loadingFinished", loaded)
    tab.add_init_script(_PAINT)
    tab.goto(url)
    painted = float(tab.wait_for_selector("[data-painted]", timeout=120_000).get_attribute("data-painted"))
    settled(tab)
    context.close()
    return painted, received


EVERY_VIEW = (
    "overview", "timeline", "operators?by=name", "operators?by=type", "operators?by=module", "operators?by=group",
    "operators?by=place", "operators?by=kernel", "operators?by=tensor", "iterations", "iterations?tab=kernels",
    "iterations?tab=ops", "kernels?tab=names", "kernels?tab=operators", "kernels?tab=properties",
    "kernels?tab=launches", "gpus", "workers?tab=steps", "workers?tab=overlap", "workers?tab=communication",
    "workers?tab=stragglers",
    "workers?tab=devices", "summaries?tab=dlprof", "summaries?tab=tensorboard", "reports",
)  # fmt: skip


class View(NamedTuple):
    """What a view costs when it is opened: seconds until something is drawn and until all is there, CPU-seconds of the
    server and its children, the largest sum of their resident sets in bytes, and requests that were sent twice.
    """

    drawn: float
    there: float
    cpu: float
    peak: int
    requests: int
    twice: list[str]


def opened(one: Any, url: str, server: int, view: str) -> View:
    """Open a view in a browser that knows nothing of the page, of a server that has answered nothing."""
    context = one.new_context(viewport={"width": 1280, "height": 720})
    tab = context.new_page()
    asked: Counter[str] = Counter()
    tab.on(
        "request",
        lambda request: asked.update([urlsplit(request.url)._replace(scheme="", netloc="").geturl()]),
    )
    tab.add_init_script(_PAINT)
    with Peak(server) as peak:
        before, begin = everywhere(server), time.perf_counter()
        tab.goto(f"{url}#/{view}")
        settled(tab)
        there, cpu = time.perf_counter() - begin, everywhere(server) - before
        drawn = float(tab.locator("html").get_attribute("data-painted") or 1000 * there) / 1000  # a view without rows
    context.close()
    questions = {path: count for path, count in asked.items() if path.startswith("/api/")}
    return View(
        drawn,
        there,
        cpu,
        peak.bytes,
        sum(questions.values()),
        [p for p, count in questions.items() if count > 1],
    )


def everywhere(server: int) -> float:
    """The CPU-seconds of a process and its children, those that ended too."""
    process = psutil.Process(server)
    own = process.cpu_times()
    total = own.user + own.system + own.children_user + own.children_system
    for child in process.children():
        with suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            total += times.user + times.system
    return total


class Peak:
    """The largest sum of the resident sets of a process and its children, looked at 50 times a second."""

    def __init__(self, server: int):
        self._process, self._over, self.bytes = psutil.Process(server), threading.Event(), 0
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            total = 0
            for process in (self._process, *self._process.children()):
                with suppress(psutil.NoSuchProcess):
                    total += process.memory_info().rss
            self.bytes = max(self.bytes, total)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def settled(tab: Any) -> None:
    tab.wait_for_selector("main h1")
    tab.wait_for_timeout(100)
    tab.wait_for_selector('.app[data-waiting="0"]', timeout=600_000)


class Tables:
    """A tab, and the times of what is done to its tables by kind."""

    def __init__(self, one: Any, url: str):
        self.url, self.times, self.words = url, Times(), Times()
        self.missed: list[str] = []
        self.tab = one.new_page(viewport={"width": 1280, "height": 720})

    def go(self, view: str) -> None:
        """A view, with all that it asks for."""
        self.tab.goto(f"{self.url}#/{view}")
        settled(self.tab)

    def do(
        self,
        kind: str,
        table: str,
        selector: str,
        act: str = "click",
        value: str = "",
        seen: str = "",
        text: str = "",
    ) -> None:
        """One thing, timed. One that changed nothing that is seen, or found nothing to do it to, is told."""
        body = f"[data-table={table}] tbody, [data-table={table}] [data-showing]"
        found = self.tab.evaluate(_ACT, [selector, text, act, value, seen or body, 'main [data-ready="false"]'])
        if found is None:
            self.missed.append(f"{kind}: {selector} {value}")
            return
        self.times.setdefault(kind, []).append(found[0])
        self.words.setdefault(kind, []).append(found[1])

    def table(
        self,
        name: str,
        sorts: tuple[str, ...],
        search: str,
        filter: tuple[str, str] | None = None,
        paged: bool = False,
    ) -> None:
        """Everything that a table can do; `paged`: it has more rows than a page."""
        here = f"[data-table={name}]"
        for key in sorts:
            for _ in range(3):  # down, up, down
                self.do("sort", name, f"{here} [data-sort={key}]")
        for text in (search, ""):
            self.do("search", name, f"{here} input[type=search]", "type", text)
        if filter:
            for text in (filter[1], ""):
                field = f'[data-table={name}] .filters input[aria-label="Filter {filter[0]}"]'
                self.do("filter", name, field, "type", text)
        if paged:
            self.do("page", name, f"{here} nav button:nth-last-of-type(1)")
            self.do("page", name, f"{here} nav button:nth-of-type(1)")
            for size in ("100", "25"):
                self.do("rows of a page", name, f"{here} .pager select", "choose", size)
        self.do(
            "column chooser", name, f"{here} .tools .menu > button", seen=f"{here} .tools .menu", text="Columns"
        )  # fmt: skip
        for _ in range(2):
            self.do("column chooser", name, f"{here} .menu input[type=checkbox]", seen=f"{here} thead")
        self.tab.keyboard.press("Escape")

    def drawer(self, name: str) -> None:
        """Details of some rows."""
        for row in (1, 2, 3):
            self.do(
                "drawer",
                "",
                f"[data-table={name}] tbody tr:nth-child({row})",
                seen="aside .content h2, aside .content dl",
            )
        self.tab.keyboard.press("Escape")
        settled(self.tab)


VIEWS = (
    "operators?by=type", "operators?by=place", "operators?by=kernel", "operators?by=tensor", "kernels",
    "kernels?tab=properties", "iterations?tab=kernels",
)  # fmt: skip


def materialised(page: Tables, rounds: int) -> None:
    """Every interaction on tables in memory, which they are once they have been looked at."""
    for view in VIEWS:
        page.go(view)
    for _ in range(rounds):
        page.go("operators?by=type")
        page.table("types", ("cpu", "calls"), "li")
        page.go("operators?by=place")
        page.table("ops", ("cpu", "name"), "mul", ("CPU Time", "1ms..2s"), paged=True)
        for tab in ("kernel", "tensor", "place"):
            page.do("tabs", "", f"[data-tab={tab}]", seen="main [data-table] tbody")
        page.go("operators?by=kernel")
        page.table("kernels", ("calls", "kernel"), "gemm", ("Kernel Name", "void"), paged=True)
        page.drawer("kernels")
        page.go("kernels")
        page.table("kernels", ("mean_ns", "name"), "vec")
        page.drawer("kernels")
        for tab in ("properties", "names"):
            page.do("tabs", "", f"[data-tab={tab}]", seen="main [data-table] tbody")
        for view in ("operators", "iterations", "kernels"):
            page.do("views", "", f"nav a[data-view={view}]", seen="main h1")
            settled(page.tab)
        page.go("iterations?tab=kernels&iterations.sel=5")
        page.table("iterations", ("duration", "start"), "917", ("Iteration", ">50"), paged=True)
        page.table("launched", ("dur", "name"), "ge", ("GPU Time", "10us..20us"), paged=True)
        page.drawer("launched")


def trees(page: Tables, rounds: int) -> None:
    """The tree of groups and operators, whatever is open."""
    for _ in range(rounds):
        page.go("operators?by=group")
        here = "[data-table=groups]"
        for row in (2, 3, 4):
            page.do("tree: unfold", "groups", f"{here} tr:nth-child({row}) .fold[aria-label^=Expand]")
        page.do("tree: unfold", "groups", f"{here} button.fold[aria-label^=Collapse]")
        page.do("tree: unfold", "groups", f"{here} .tools > button:nth-of-type(1)")
        for key in ("cpu", "name"):
            for _ in range(2):
                page.do("tree: sort", "groups", f"{here} [data-sort={key}]")
        page.do("tree: page", "groups", f"{here} nav button:nth-last-of-type(1)")
        for text in ("l", "linear", ""):
            page.do("tree: search", "groups", f"{here} input[type=search]", "type", text)
        page.do("tree: unfold", "groups", f"{here} .tools > button:nth-of-type(2)")


def launches(page: Tables) -> None:
    """Free filters, searches and sorting over all launches."""
    page.go("kernels?tab=launches")
    here = "[data-table=launches]"
    for key in ("dur", "dur", "dur"):
        page.do("all launches: sort", "launches", f"{here} [data-sort={key}]")
        page.do("all launches: page", "launches", f"{here} nav button:nth-last-of-type(1)")
    for text in ("softmax", "gemm", "no such text", ""):
        page.do("all launches: search", "launches", f"{here} input[type=search]", "type", text)
    field = f'{here} .filters input[aria-label="Filter GPU Time"]'
    for text in (">50us", ">1s", "10..11us", ""):
        page.do("all launches: filter", "launches", field, "type", text)
