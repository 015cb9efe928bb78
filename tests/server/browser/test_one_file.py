# SPDX-License-Identifier: Apache-2.0
"""A page in one file, opened from the disk with the network off: every view, its tables, the timeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyprof.profiles import Profile
from pyprof.server import static_files
from tests.server.browser.conftest import Open, Page, axe
from tests.server.conftest import HOSTILE, Asking
from tests.server.in_process import in_process

ABSENT = "Not in this file: open the recording with pyprof view."
VIEWS = (
    "overview", "timeline", "operators", "lines", "iterations", "kernels", "memory", "gpus", "workers", "summaries",
    "reports", "help",
)  # fmt: skip
TABS: tuple[tuple[str, dict[str, str]], ...] = (
    *(("operators", {"by": by}) for by in ("name", "type", "group", "module", "place", "kernel", "tensor")),
    *(("iterations", {"tab": tab}) for tab in ("kernels", "ops")),
    ("kernels", {"tab": "launches"}),
    *(("memory", {"tab": tab}) for tab in ("events", "copies")),
    *(("workers", {"tab": tab}) for tab in ("communication", "stragglers", "devices")),
    ("summaries", {"tab": "tensorboard"}),
    *(("help", {"tab": tab}) for tab in ("figures", "keys")),
    ("timeline", {"counters": "on"}),
)


@pytest.fixture(scope="module")
def file(prof: Profile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of what the server of `client` serves."""
    if not (static_files.STATIC / "report" / "report.js").is_file():
        pytest.skip("the page is not built: make page")
    path = tmp_path_factory.mktemp("page") / "net.html"
    with in_process():
        prof.page(path)
    return path


@pytest.fixture
def offline(chromium: Any, file: Path) -> Iterator[Callable[..., Page]]:
    """Opens the file in contexts without a network. Any request but for the file itself is an error."""
    contexts, pages = [], []

    def open_(theme: str = "light", path: Path = file) -> Page:
        context = chromium.new_context(
            viewport={"width": 1280, "height": 720}, color_scheme=theme, reduced_motion="reduce"
        )
        context.set_default_timeout(60_000)
        context.set_offline(True)
        contexts.append(context)
        page = Page(context.new_page(), path.as_uri())
        page.url = path.as_uri()  # `go` adds the place

        def route(one: Any) -> None:
            if one.request.url.split("#")[0] != path.as_uri():
                page.wrong.append(f"request: {one.request.url[:200]}")
            one.continue_()

        context.route("**/*", route)
        pages.append(page)
        return page

    yield open_
    wrong = [line for page in pages for line in page.wrong]
    for context in contexts:
        context.close()
    assert not wrong


def go(page: Page, view: str = "overview", **parameters: str) -> None:
    query = "&".join(f"{key}={value}" for key, value in parameters.items())
    page.tab.goto(f"{page.url}#/{view}{'?' if query else ''}{query}")
    page.settled()


def absent(page: Page) -> str:
    return str(page.find(".app").get_attribute("data-absent"))


def test_every_view_opens_and_asks_for_nothing_that_is_not_there(
    offline: Callable[..., Page], client: Asking, file: Path
):
    page = offline()
    for view, parameters in [*((view, {}) for view in VIEWS), *TABS]:
        go(page, view, **parameters)
        assert not page.find('[data-note="error"], [data-trouble], [data-note="busy"]').count(), (
            view,
            parameters,
        )
        assert absent(page) == "", (view, parameters)
    assert page.find("nav [data-view]").count() == len(VIEWS) - 1  # help is in a menu; there is no comparison
    assert not page.find("nav [data-view=compare]").count()
    go(page, "overview")
    # The policy allows no other script: the browser's own evaluation is not bound by it.
    page.tab.evaluate(axe())
    page.find("[data-embedded] summary").click()
    result: dict[str, Any] = page.tab.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    assert [(one["id"], one["nodes"][0]["html"]) for one in result["violations"]] == []
    page.find("[data-embedded] summary").click()
    go(page, "operators", by="module")
    assert HOSTILE in page.find("main").inner_text()
    assert not page.find("main img").count()
    assert client.url not in file.read_text(encoding="utf-8")


def test_what_is_shown_is_what_the_server_has(offline: Callable[..., Page], opened: Open):
    server, page = opened(), offline()
    for view, parameters in (
        ("operators", {"by": "kernel"}), ("lines", {}), ("iterations", {"tab": "kernels"}),
    ):  # fmt: skip
        server.go(view, **parameters)
        go(page, view, **parameters)
        tables = [one.get_attribute("data-table") for one in server.find("[data-table]").all()]
        assert tables
        for name in tables:
            assert name is not None
            assert page.headings(name) == server.headings(name)
            assert page.rows(name) == server.rows(name)
            assert page.showing(name) == server.showing(name)
    server.go()
    go(page)
    for selector in ("main h1 + p", "#findings", "[data-panel=top-ops]"):
        assert page.find(selector).all_inner_texts() == server.find(selector).all_inner_texts()
    assert page.find("#findings").inner_text()
    for query in (
        {"report": "detail", "report.q": "relu"}, {"report": "detail", "report.s": "name"},
        {"report": "detail", "report.f.gpu": ">100ns"}, {"report": "detail", "report.f.name": "<img"},
    ):  # fmt: skip
        server.go("reports", **query)
        go(page, "reports", **query)
        name = str(page.find("[data-table]").first.get_attribute("data-table"))
        assert page.rows(name) == server.rows(name)
        assert page.showing(name) == server.showing(name)
    go(page, "operators", by="place")
    page.find('input[type="search"]').first.fill("relu")
    page.tab.keyboard.press("Tab")
    page.until('[data-table="ops"] tbody tr', 1)
    page.find('[data-table="ops"] [data-sort="gpu"]').click()
    page.settled()
    assert "ops.s=" in page.parameters()


def test_the_timeline_draws_and_an_event_can_be_selected(offline: Callable[..., Page]):
    from playwright.sync_api import expect

    page = offline()
    go(page, "timeline")
    page.wait('document.querySelector("[data-strip]").innerText.includes(" of ")')
    drawn = page.tab.evaluate(
        """() => { const canvas = document.querySelector("canvas:not([data-ticks])");
                   const all = [...document.querySelectorAll("canvas")].map(one => {
                     const data = one.getContext("2d")?.getImageData(0, 0, one.width, one.height).data ?? [];
                     return new Set(new Uint32Array(data.buffer ?? [])).size; });
                   return Math.max(...all); }"""
    )
    assert drawn > 5  # colors
    page.find("[data-surface]").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "w", "w"):
        page.tab.keyboard.press(key)
    expect(page.find(".selection").first).to_contain_text(ABSENT)  # sums of another time
    page.settled()
    assert "from=" in page.parameters()


def test_what_is_not_in_the_file_is_a_sentence_and_in_no_menu(offline: Callable[..., Page]):
    page = offline()
    go(page, "overview", d="launch:3")
    assert ABSENT in page.find("aside").inner_text()
    assert not page.find(".spin").count()
    go(page, "iterations", tab="kernels", **{"iterations.sel": "2"})
    assert not page.find(".spin").count()
    go(page, "operators", by="kernel")
    page.find(
        "[data-table] button",
    ).get_by_text("Export").first.click()
    texts = page.find(".item").all_inner_texts()
    assert "Copy table" in texts
    assert not {"CSV", "Excel", "Parquet"} & set(texts)
    go(page, "iterations")
    assert not page.find("main").get_by_text("Reaggregate", exact=True).count()
    go(page, "timeline")
    assert not page.find(".find input").count()
    page.find(".toolbar").get_by_text("View").first.click()
    offered = {one.get_attribute("data-show") for one in page.find("[data-view-menu] [data-show]").all()}
    assert "sums" in offered
    assert not offered & {"durations", "hits"}
    page.find("[data-embedded] summary").click()
    assert "pyprof view" in page.find("[data-embedded]").inner_text()
