# SPDX-License-Identifier: Apache-2.0
"""Ranks aligned in a browser: everything is where its rank's shift puts it, and is said with its own time."""

from __future__ import annotations

import pytest

from tests.server.browser.conftest import Open, Page
from tests.server.browser.test_timeline import column, drawn, row, start, surface, view_menu, window
from tests.server.conftest import Asking
from tests.server.planted_ranks import ARRIVAL, CLOCK, DELAY, END, FIRST, STEPS, median

MIDDLE = median(list(CLOCK))  # when the axis of collective 1 has the beginning of the first step
LOW, HIGH = MIDDLE - 50_000, MIDDLE + END + 50_000  # on that axis


@pytest.fixture
def ranks(planted_ranks: Asking) -> Asking:
    return planted_ranks


@pytest.fixture
def page(opened: Open, ranks: Asking) -> Page:
    return opened(ranks)


def streams(client: Asking) -> dict[int, int]:
    """The track of each rank's stream."""
    return {
        one["worker"]: one["id"] for one in client.json("/api/timeline")["tracks"] if one["kind"] == "stream"
    }


def others(client: Asking, *kinds: str) -> str:
    """Tracks of other kinds, to be hidden."""
    tracks = client.json("/api/timeline")["tracks"]
    return ",".join(str(one["id"]) for one in tracks if one["kind"] not in (kinds or ("stream", "api")))


def painted(page: Page, canvas: str, y: float) -> tuple[float, float]:
    """Where the first thing in a row of a canvas begins and the last ends, in its width; the grid is too pale."""
    width, found = page.tab.evaluate(
        """([selector, y]) => {
            const canvas = document.querySelector(selector);
            const copy = new OffscreenCanvas(canvas.width, 1).getContext("2d", { willReadFrequently: true });
            copy.drawImage(canvas, 0, -Math.floor((y * canvas.height) / canvas.clientHeight));
            const data = copy.getImageData(0, 0, canvas.width, 1).data;
            const text = getComputedStyle(document.documentElement).getPropertyValue("--panel").trim().slice(1);
            const panel = parseInt(text.length === 3 ? text.replace(/./g, "$&$&") : text, 16);
            const found = [];
            for (let x = 0; x < canvas.width; x++)
                if (data[4 * x + 3] > 127 && ((data[4 * x] << 16) | (data[4 * x + 1] << 8) | data[4 * x + 2]) !== panel)
                    found.push(x);
            return [canvas.width, found];
        }""",
        [canvas, y],
    )
    return found[0] / width, (found[-1] + 1) / width


LANES, MARKS, MAP = ".canvases canvas", ".canvases canvas + canvas", "[data-minimap] canvas"


def busy(page: Page, y: float) -> tuple[float, float]:
    """The same of the lanes, as times of the axis. `y`: px of the page."""
    low, high = window(page)
    first, last = painted(page, LANES, y - surface(page)["y"])
    return low + first * (high - low), low + last * (high - low)


def below(page: Page, track: int) -> float:
    """A height in a lane, below the names in it."""
    return row(page, track) + 6


@pytest.mark.statement("WY06")
def test_a_collective_ends_on_all_ranks_at_once(page: Page, ranks: Asking):
    """Each rank came as late as its heading says, and its first kernel is as much later as its clock does not say."""
    start(page, **{"from": str(LOW), "to": str(HIGH), "hide": others(ranks), "align": "collective:1"})
    pixel = (HIGH - LOW) / surface(page)["width"]
    arrived = median(list(ARRIVAL))
    for rank, track in streams(ranks).items():
        first, last = busy(page, below(page, track))
        assert abs(first - (MIDDLE + 100_000 + DELAY[rank])) <= pixel
        assert abs(last - (MIDDLE + END)) <= pixel
        late = page.find(f"[data-late='{rank}']")
        by = ARRIVAL[rank] - arrived
        assert f"{by:,} ns against the median rank" in late.get_attribute("data-tip")
        assert f"moved by {MIDDLE - CLOCK[rank]:,} ns" in late.get_attribute("data-tip")
        assert late.inner_text().endswith("late" if by > 0 else "early" if by < 0 else "as the median")
    assert page.find("[data-aligned]").inner_text() == "all_reduce 1 of 2"


@pytest.mark.statement("WY06")
def test_an_event_of_a_rank_that_moved(page: Page, ranks: Asking):
    """Hover, click, arrows, the keys and the Details go to the event that is seen, and say its own time."""
    rank = 0
    begin, end = CLOCK[rank] + ARRIVAL[rank], CLOCK[rank] + END
    shift = MIDDLE - CLOCK[rank]
    track = streams(ranks)[rank]
    start(page, **{"from": str(LOW), "to": str(HIGH), "hide": others(ranks), "align": "collective:1"})
    page.tab.mouse.move(column(page, end + shift - 1000), row(page, track))
    tip = page.find(".page [role=tooltip]")
    tip.wait_for()
    assert f"{begin:,} to {end:,} ns" in tip.inner_text()
    page.tab.mouse.click(column(page, begin + shift + 1000), row(page, track))
    drawn(page)
    hit = page.tab.evaluate("window.timeline.picture.selected")
    assert (hit["start"], hit["end"], hit["track"]["id"]) == (begin, end, track)
    page.find(f"aside[data-drawer='launch:{hit['id']}']").wait_for()
    assert f"{begin:,} ns" in page.find("aside [data-figure='start']").get_attribute("data-tip")
    # Its frame is around it.
    page.tab.mouse.move(0, 0)
    frame = painted(page, MARKS, row(page, track) - surface(page)["y"] + 8)
    for share, time in zip(frame, (begin, end)):
        assert abs(share * surface(page)["width"] - (column(page, time + shift) - surface(page)["x"])) <= 6
    # The arrow ends where the event is seen.
    (flow,) = ranks.json("/api/timeline/flows", of=f"launch:{hit['id']}")["flows"]
    ((x0, _, x1, _),) = page.tab.evaluate("window.timeline.scene.ends")
    ratio = page.tab.evaluate("document.querySelector('.canvases canvas').width") / surface(page)["width"]
    for x, time in ((x0, flow["source"]["start"]), (x1, begin)):
        assert abs(x / ratio - (column(page, time + shift) - surface(page)["x"])) < 1.5
    # The event before in the lane, then its time is fitted; another rank's lane at the same time of the axis.
    page.find("[data-surface]").focus()
    page.tab.keyboard.press("ArrowLeft")
    drawn(page)
    first = page.tab.evaluate("window.timeline.picture.selected")
    assert (first["start"], first["end"]) == (
        CLOCK[rank] + 100_000 + DELAY[rank],
        CLOCK[rank] + 120_000 + DELAY[rank],
    )
    page.tab.keyboard.press("f")
    low, high = window(page)
    assert (low, high) == (
        first["start"] + shift - 5000,
        first["end"] + shift + 5000,
    )  # a quarter on each side
    page.tab.keyboard.press("z")
    page.tab.keyboard.press("l")
    page.until(".list tbody tr", 2)
    starts = page.tab.eval_on_selector_all(
        ".list tbody tr", "rows => rows.map(row => row.cells[1].innerText)"
    )
    assert starts == [f"{first['start']:,}", f"{begin:,}"]
    page.tab.keyboard.press("l")
    drawn(page)
    page.tab.mouse.dblclick(column(page, end + shift - 1000), row(page, track))
    low, high = window(page)
    assert (low + high) // 2 == (begin + end) // 2 + shift
    drawn(page)


@pytest.mark.statement("WY06", "WX08")
def test_it_is_chosen_by_mouse_and_by_keys_and_is_in_the_address(opened: Open, page: Page, ranks: Asking):
    start(page, **{"from": str(MIDDLE + END + 1000), "to": str(MIDDLE + STEPS[1])})
    assert page.find(".late").count() == 0
    with view_menu(page) as menu:
        menu.locator("[data-align]").select_option("collective")
    page.until("[data-aligned='2']", 1)  # the first that ends in view
    drawn(page)
    assert "align=collective%3A2" in page.parameters()
    page.find("button[aria-label='collective before']").click()
    page.until("[data-aligned='1']", 1)
    drawn(page)
    page.find("[data-surface]").focus()
    page.tab.keyboard.press(">")
    page.until("[data-aligned='2']", 1)
    drawn(page)
    page.tab.keyboard.press("<")
    page.until("[data-aligned='1']", 1)
    drawn(page)
    picture = page.tab.evaluate("document.querySelector('.canvases canvas').toDataURL()")
    other = opened(ranks)
    other.tab.goto(f"{other.url}/?test=1{page.parameters()}")
    drawn(other)
    assert other.tab.evaluate("document.querySelector('.canvases canvas').toDataURL()") == picture
    page.tab.keyboard.press("r")
    page.until("[data-aligned]", 0)
    drawn(page)
    assert "align=" not in page.parameters()
    assert page.tab.evaluate("document.querySelector('.canvases canvas').toDataURL()") != picture
    page.tab.keyboard.press("r")
    page.until(f"[data-aligned='{FIRST}']", 1)
    drawn(page)
    assert f"align=step%3A{FIRST}" in page.parameters()
    # The collective of the selected kernel, wherever the view is.
    hit = ranks.json("/api/timeline/hits", find="stream:7 allreduce", limit=10)["hits"]
    last = max(hit, key=lambda one: one["start"] if one["track"] == streams(ranks)[1] else -1)
    page.tab.goto("about:blank")
    start(page, **{"from": str(last["start"]), "to": str(last["end"]), "d": f"launch:{last['id']}"})
    with view_menu(page) as menu:
        menu.locator("[data-align]").select_option("collective")
    page.until("[data-aligned='2']", 1)
    drawn(page)
