# SPDX-License-Identifier: Apache-2.0
"""Ranks aligned in a browser: everything is where its rank's shift puts it, and is said with its own time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pyprof import session
from tests.viewer import planted_ranks as planted
from tests.viewer.browser.conftest import Open, Page, axe, read
from tests.viewer.browser.test_timeline import column, drawn, row, start, surface, view_menu, window
from tests.viewer.conftest import Asking, serving
from tests.viewer.planted_ranks import ARRIVAL, CLOCK, DELAY, END, FIRST, RANKS, STEPS, median, members

MIDDLE = median(list(CLOCK))  # when the axis of collective 1 has the beginning of the first step
LOW, HIGH = MIDDLE - 50_000, MIDDLE + END + 50_000  # on that axis


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    with serving(planted.write(tmp_path_factory.mktemp("planted") / "run")) as asking:
        read(asking)
        yield asking


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
def test_a_rank_without_the_collective_stays_and_is_marked(page: Page, ranks: Asking):
    middle = median([CLOCK[rank] for rank in members(1)])
    low = STEPS[1] + CLOCK[3]
    start(
        page, **{"from": str(low), "to": str(low + 200_000), "hide": others(ranks), "align": "collective:2"}
    )
    pixel = 200_000 / surface(page)["width"]
    first, _ = busy(page, below(page, streams(ranks)[3]))
    assert abs(first - (low + 100_000 + DELAY[3])) <= pixel  # by its own clock
    mark = page.find("[data-late='3']")
    assert mark.inner_text() == "no all_reduce 2 of 2"
    assert "missing" in mark.get_attribute("class")
    assert page.find(".missing").count() == 1
    # The others are where they are together.
    page.tab.goto("about:blank")
    low = STEPS[1] + middle
    start(page, **{"from": str(low), "to": str(low + END), "hide": others(ranks), "align": "collective:2"})
    for rank in members(1):
        first, last = busy(page, below(page, streams(ranks)[rank]))
        assert abs(first - (low + 100_000 + DELAY[rank])) <= END / surface(page)["width"]
        assert last == low + END


@pytest.mark.statement("WY06")
def test_steps_begin_at_once(page: Page, ranks: Asking):
    """And the marks on the axis are one, where they were four."""
    start(page, align=f"step:{FIRST}")
    begun = [CLOCK[rank] + DELAY[rank] for rank in range(RANKS)]
    low = median(begun)
    assert {text: len(marks(page, text)) for text in (f"step {FIRST}",)} == {f"step {FIRST}": RANKS}
    assert max(marks(page, f"step {FIRST}")) - min(marks(page, f"step {FIRST}")) < 0.5
    assert abs(marks(page, f"step {FIRST}")[0] - column(page, low)) < 1
    tips = [page.find(f"[data-late='{rank}']").get_attribute("data-tip") for rank in range(RANKS)]
    for rank, tip in enumerate(tips):
        assert tip.startswith(
            f"{begun[rank] - low:,} ns against the median rank, with the difference of their hosts'"
        )


def marks(page: Page, text: str) -> list[float]:
    boxes = [one.bounding_box() for one in page.find(".axis .step").all() if one.inner_text() == text]
    return [box["x"] for box in boxes]


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


@pytest.mark.statement("WY06")
def test_curves_and_the_minimap_move_too(page: Page, ranks: Asking):
    hide = others(ranks, "stream", "idle")
    start(
        page, **{"from": str(LOW), "to": str(HIGH), "hide": hide, "align": "collective:1", "counters": "on"}
    )
    pixel = (HIGH - LOW) / surface(page)["width"]
    for rank in range(2):  # those in sight
        curve = page.find("[data-curve]").nth(rank).bounding_box()
        _, last = busy(page, curve["y"] + curve["height"] - 2)
        assert abs(last - (MIDDLE + END)) <= pixel
        page.tab.mouse.move(column(page, MIDDLE + END - 10 * pixel), curve["y"] + 10)
        page.find("[data-busy-tip] strong:text-is('100.0 % busy')").wait_for()
        page.tab.mouse.move(column(page, MIDDLE + END + 10 * pixel), curve["y"] + 10)
        page.find("[data-busy-tip] strong:text-is('0.0 % busy')").wait_for()
        counter = page.find("[data-counter='tensor']").nth(rank).bounding_box()
        time = MIDDLE + END - 20_000
        page.tab.mouse.move(column(page, time), counter["y"] + 10)
        page.find("[data-counter-tip]").wait_for()
        said = page.find("[data-counter-tip] .num").inner_text().replace(",", "").split()
        assert int(said[0]) - pixel <= time - MIDDLE + CLOCK[rank] <= int(said[2]) + pixel
        page.tab.mouse.move(0, 0)
    # The minimap has all of the axis.
    extent = page.tab.evaluate("window.timeline.picture.timeline.tracks")
    shifts = [MIDDLE - clock for clock in CLOCK]
    low = min(one["start"] + shifts[one["worker"]] for one in extent)
    high = max(one["end"] + shifts[one["worker"]] for one in extent)
    margin = round(0.01 * (high - low))
    whole = high - low + 2 * margin
    first, last = painted(page, MAP, 0)
    ends = [STEPS[1] + END] + [STEPS[1] + 120_000 + delay for delay in DELAY]
    for share, time in ((first, 100_000 + min(DELAY)), (last, max(ends))):
        assert abs(low - margin + share * whole - (MIDDLE + time)) <= 2 * whole / surface(page)["width"]


@pytest.mark.statement("WY06")
def test_up_and_down_stay_at_the_time_of_the_axis(page: Page, ranks: Asking):
    hide = others(ranks, "stream")
    start(page, **{"from": str(LOW), "to": str(HIGH), "hide": hide, "align": "collective:1"})
    page.tab.mouse.click(column(page, MIDDLE + END - 1000), row(page, streams(ranks)[0]))
    for rank in range(1, RANKS):
        page.tab.keyboard.press("ArrowDown")
        drawn(page)
        hit = page.tab.evaluate("window.timeline.picture.selected")
        assert (hit["track"]["worker"], hit["start"]) == (rank, CLOCK[rank] + ARRIVAL[rank])
        assert window(page) == (LOW, HIGH)  # it is in view
    page.tab.keyboard.press("Home")
    drawn(page)
    hit = page.tab.evaluate("window.timeline.picture.selected")
    assert (hit["track"]["worker"], hit["start"]) == (
        RANKS - 1,
        CLOCK[RANKS - 1] + 100_000 + DELAY[RANKS - 1],
    )


@pytest.mark.statement("WY06")
def test_sums_and_ticks_are_of_what_is_seen(page: Page, ranks: Asking):
    last, end = MIDDLE + max(ARRIVAL), MIDDLE + END
    area = f"{last}_{end}"
    where = {"from": str(LOW), "to": str(HIGH), "hide": others(ranks), "align": "collective:1"}
    start(page, **where, area=area, find="allreduce stream:7")
    page.find(f"[data-selection='{last}-{end}']").wait_for()
    shown = page.tab.eval_on_selector_all(
        "[data-selection] [data-busy]", "all => all.map(one => one.dataset.busy)"
    )
    assert shown == [str(end - last)] * RANKS
    ratio = page.tab.evaluate("document.querySelector('.canvases canvas').width") / surface(page)["width"]
    ticks = {track: x / ratio for track, x in page.tab.evaluate("window.timeline.scene.ticks")}
    for rank, track in streams(ranks).items():
        bucket = surface(page)["width"] / 1024
        assert abs(ticks[track] - (column(page, MIDDLE + ARRIVAL[rank]) - surface(page)["x"])) <= bucket + 1
    # So are the hits in a track of their own, if it is asked for.
    page.find("[data-pin-hits]").click()
    drawn(page)
    track = page.find("[data-hits-track]").bounding_box()
    pixel = (HIGH - LOW) / surface(page)["width"]
    for shown_at, time in zip(busy(page, track["y"] + 14), (min(ARRIVAL), END)):
        assert abs(shown_at - (MIDDLE + time)) <= pixel
    # From a hit to the next on the axis, whichever rank.
    page.find("[data-surface]").focus()
    seen = sorted(range(RANKS), key=lambda rank: ARRIVAL[rank])
    for rank in seen:
        page.tab.keyboard.press(".")
        page.find(f"[data-hits]:has-text('{seen.index(rank) + 1} of')").wait_for()
        drawn(page)
        assert page.tab.evaluate("window.timeline.picture.selected.track.worker") == rank


@pytest.mark.statement("WY06")
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


@pytest.mark.statement("WY06")
def test_an_alignment_that_there_is_not(page: Page):
    page.tab.goto(f"{page.url}/?test=1#/timeline?align=step:99")
    page.find("text=There is no step 99 on any rank").first.wait_for()
    page.settled()
    with view_menu(page) as menu:
        menu.locator("[data-align]").select_option("clock")
    drawn(page)
    assert "align=" not in page.parameters()
    page.wrong = [text for text in page.wrong if "404" not in text]  # the browser's own lines


@pytest.mark.statement("WY06")
def test_what_there_is_not_is_not_chosen(opened: Open, tmp_path: Path):
    session.load(planted.write(tmp_path / "run")).save(tmp_path / "run_dldb.sqlite")
    with closing(sqlite3.connect(tmp_path / "run_dldb.sqlite")) as database:
        database.execute("delete from collective")
        database.commit()
    with serving(tmp_path / "run_dldb.sqlite") as asking:
        page = opened(asking)
        start(page)
        with view_menu(page) as menu:
            menu.locator("[data-align]").select_option("collective")
        page.find("text=No collective could be matched").wait_for()
        drawn(page)
        with view_menu(page) as menu:
            assert menu.locator("[data-align]").input_value() == "clock"
        assert "align=" not in page.parameters()
        page.find("[data-surface]").focus()
        page.tab.keyboard.press("r")
        page.find("[data-aligned]").wait_for()
        drawn(page)
        assert page.find("text=No collective could be matched").count() == 0
        page.tab.keyboard.press("r")  # from the step by the clock again
        page.wait("!location.hash.includes('align=')")
        drawn(page)
        page.wrong = [text for text in page.wrong if "404" not in text]  # the browser's own lines


@pytest.mark.statement("WY06")
def test_one_rank_has_nothing_to_be_aligned_with(opened: Open, client: Asking):
    page = opened(client)
    start(page)
    with view_menu(page) as menu:
        assert menu.locator("[data-align]").count() == 0
    page.find("[data-surface]").focus()
    page.tab.keyboard.press("r")
    drawn(page)
    assert "align=" not in page.parameters()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_is_accessible(opened: Open, ranks: Asking, theme: str):
    page = opened(ranks, theme=theme)
    start(page, align="collective:2")
    page.tab.evaluate(axe())
    result: dict[str, Any] = page.tab.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in result["violations"]] == []
