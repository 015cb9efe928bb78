# SPDX-License-Identifier: Apache-2.0
"""The timeline in a browser: what is drawn is what the API has, and every gesture and key does what it says."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import pytest

from pyprof import profiles
from tests.server.browser.conftest import Open, Page, axe
from tests.server.conftest import STEPS, Asking, serving

TRACES = Path(__file__).resolve().parents[2] / "traces"


def start(page: Page, **parameters: str) -> Page:
    query = "&".join(f"{key}={value}" for key, value in parameters.items())
    page.tab.goto(f"{page.url}/?test=1#/timeline?{query}")
    drawn(page)
    return page


def drawn(page: Page) -> None:
    """Wait until nothing is under way and the last picture is complete."""
    page.wait('app?.dataset.waiting === "0" && window.timeline?.picture && !window.timeline.underway')


@contextmanager
def view_menu(page: Page) -> Iterator[Any]:
    """The menu View, while it is open."""
    page.find(".toolbar button:has-text('View')").click()
    yield page.find("[data-view-menu]")
    page.tab.keyboard.press("Escape")
    page.until("[data-view-menu]", 0)


def window(page: Page) -> tuple[int, int]:
    one = page.tab.evaluate("window.timeline.picture.window")
    return one["from"], one["to"]


def surface(page: Page) -> dict[str, float]:
    return dict(page.find("[data-surface]").bounding_box())


def row(page: Page, track: int, lane: int = 0) -> float:
    """The middle of a lane, in px of the page."""
    top = page.tab.evaluate(
        """([track, lane]) => {
            const { layout, scroll } = window.timeline.picture;
            const one = layout.tracks.find((placed) => placed.track.id === track);
            return one.top + (lane - one.first + 0.5) * 16 - scroll;
        }""",
        [track, lane],
    )
    return float(surface(page)["y"] + top)


def column(page: Page, time: float) -> float:
    low, high = window(page)
    box = surface(page)
    return float(box["x"] + (time - low) / (high - low) * box["width"])


def tracks(client: Asking) -> list[dict[str, Any]]:
    return list(client.json("/api/timeline")["tracks"])


def stream(client: Asking, number: int) -> int:
    return next(int(one["id"]) for one in tracks(client) if one["stream"] == number)


def events(prof: profiles.Profile, number: int) -> list[tuple[int, int, int]]:
    return prof.database.rows(
        "select id, start_ns, start_ns + duration_ns from event where stream = ? order by start_ns", (number,)
    )


@pytest.mark.statement("PT01", "PMO06", "WT01", "WX03", "WP01")
def test_the_rows_are_the_tracks_and_steps_are_marked(page: Page, client: Asking):
    start(page)
    shown = page.tab.eval_on_selector_all("[data-track]", "rows => rows.map(row => Number(row.dataset.track))")
    assert sorted(shown) == [one["id"] for one in tracks(client)]
    kinds = [next(one["kind"] for one in tracks(client) if one["id"] == id_) for id_ in shown]
    assert kinds.index("stream") < kinds.index("idle") < kinds.index("range") < kinds.index("api")
    page.find("[data-track] [aria-label^='Hide']").first.dispatch_event("click")
    drawn(page)
    assert f"hide={shown[0]}" in page.parameters()
    assert page.find(f"[data-track='{shown[0]}']").count() == 0
    last = shown[-1]
    page.find(f"[data-track='{last}'] [aria-label^='Pin']").dispatch_event("click")
    drawn(page)
    assert f"pin={last}" in page.parameters()
    assert page.find("[data-track]").first.get_attribute("data-track") == str(last)
    with view_menu(page) as menu:
        menu.locator("[aria-label='Filter tracks']").fill("stream 8")
    drawn(page)
    assert page.find(".toolbar button:has-text('View, filtered')").count() == 1
    assert page.find("[data-track]").count() == 1
    start(page)
    assert "launch-bound" in " ".join(page.find("[aria-label=Colors] li").all_inner_texts()).partition("Idle:")[2]
    assert page.find("[data-axis] .step").count() == STEPS


@pytest.mark.statement("WT06", "WT07", "PT04", "WX01")
def test_keys_and_gestures_move_the_window(page: Page):
    start(page)
    whole, of = page.find("[data-strip]").inner_text().partition(". Drag")[0].split(" of ")
    assert whole == of  # the margin beside the events does not count
    start(page, **{"from": "100", "to": "1100"})
    assert window(page) == (100, 1100)
    page.find("[data-surface]").focus()
    for key, expected in (
        ("d", (350, 1350)),
        ("a", (100, 1100)),
        ("ArrowRight", (200, 1200)),
        ("ArrowLeft", (100, 1100)),
    ):
        page.tab.keyboard.press(key)
        assert window(page) == expected, key
    page.tab.keyboard.press("w")
    assert window(page) == (250, 950)  # 0.7 of it, around its middle
    page.tab.keyboard.press("s")
    assert window(page) == (100, 1100)
    box = surface(page)
    x = box["x"] + box["width"] / 4
    page.tab.mouse.move(x, box["y"] + 20)
    page.tab.keyboard.down("Control")
    page.tab.mouse.wheel(0, -120)
    page.tab.keyboard.up("Control")
    page.wait("window.timeline.picture.window.from !== 100")  # a wheel's event comes later
    drawn(page)
    low, high = window(page)
    assert high - low < 800
    assert abs((low + (high - low) / 4) - 350) <= 1  # the point under the pointer stays
    page.tab.keyboard.press("0")
    whole = window(page)
    page.tab.keyboard.press("z")
    assert window(page) == (low, high)
    page.tab.keyboard.press("0")
    assert window(page) == whole
    # The axis is dragged, and so is the window of the minimap.
    axis = page.find("[data-axis]").bounding_box()
    page.tab.mouse.move(axis["x"] + 300, axis["y"] + 10)
    page.tab.mouse.down()
    page.tab.mouse.move(axis["x"] + 200, axis["y"] + 10, steps=4)
    page.tab.mouse.up()
    moved = window(page)
    assert abs((moved[0] - whole[0]) / (whole[1] - whole[0]) - 100 / axis["width"]) < 0.01
    drawn(page)
    assert f"from={moved[0]}&to={moved[1]}" in page.parameters()


@pytest.mark.statement("WT04", "WT05")
def test_a_pixel_has_the_color_of_its_event(opened: Open, client: Asking, prof: profiles.Profile):
    """Found by the API, not by what draws; in the middle of every event that is wide enough, at two zooms."""
    page = opened(width=1400, height=900)
    colors = client.json("/api/timeline/colors", by="kernel")
    names = dict(prof.database.rows("select id, name from event"))
    low, high = prof.database.rows("select start_ns, end_ns from worker")[0]
    number, checked = stream(client, 8), 0
    for begin, end in ((low, high), (low, (low + high) // 6)):
        start(page, **{"from": str(begin), "to": str(end), "by": "kernel"})
        for id_, first, last in events(prof, 8):
            x, y = column(page, (first + last) / 2), row(page, number)
            if not begin < first < last < end or column(page, last) - column(page, first) < 5:
                continue
            group = colors["group"][names[id_]]
            expected = page.tab.evaluate(
                "group => { const style = getComputedStyle(document.documentElement);"
                " const hex = style.getPropertyValue(`--r-${group}`).trim();"
                " return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)); }",
                group,
            )
            box = surface(page)
            pixel = page.tab.evaluate(
                """([x, y]) => {
                    const canvas = document.querySelector(".canvases canvas");
                    const ratio = canvas.width / canvas.clientWidth;
                    const one = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
                    one.drawImage(canvas, Math.floor(x * ratio), Math.floor(y * ratio), 1, 1, 0, 0, 1, 1);
                    return [...one.getImageData(0, 0, 1, 1).data];
                }""",
                [x - box["x"], y + 6 - box["y"]],
            )
            assert pixel[:3] == expected, id_
            checked += 1
    assert checked >= 3


@pytest.mark.statement("WT02", "WT03", "WT08", "WE01", "PT03", "WX05")
def test_an_event_is_hovered_selected_and_has_its_arrow(page: Page, client: Asking, prof: profiles.Profile):
    number = stream(client, 8)
    id_, begin, end = events(prof, 8)[2]
    start(page, **{"from": str(begin - 50), "to": str(end + 50)})
    page.tab.mouse.move(column(page, (begin + end) / 2), row(page, number))
    tip = page.find(".page [role=tooltip]")
    tip.wait_for()
    assert f"{end - begin} ns" in tip.inner_text()
    assert f"{begin:,} to {end:,} ns" in tip.inner_text()
    page.tab.mouse.click(column(page, (begin + end) / 2), row(page, number))
    drawn(page)
    assert f"d=launch%3A{id_}" in page.parameters()
    aside = page.find(f"aside[data-drawer='launch:{id_}']")
    aside.wait_for()
    title = aside.locator("h2").inner_text()
    assert title in page.find("[data-strip]").inner_text()
    id_, begin, end = events(prof, 8)[0]
    low, high = prof.database.rows("select start_ns, end_ns from worker")[0]
    start(page, **{"from": str(low), "to": str(low + (high - low) // 4)})
    page.tab.mouse.click(column(page, (begin + end) / 2), row(page, stream(client, 8)))
    drawn(page)
    (flow,) = client.json("/api/timeline/flows", of=f"launch:{id_}")["flows"]
    ((x0, y0, x1, y1),) = page.tab.evaluate("window.timeline.scene.ends")
    ratio = page.tab.evaluate("document.querySelector('.canvases canvas').width") / surface(page)["width"]
    box = surface(page)
    for x, y, time, track in (
        (x0, y0, flow["source"]["start"], flow["source"]["track"]),
        (x1, y1, flow["target"]["start"], flow["target"]["track"]),
    ):
        assert abs(x / ratio - (column(page, time) - box["x"])) < 1.5
        assert abs(y / ratio - (row(page, track) - box["y"])) < 1
    with view_menu(page) as menu:
        menu.locator("[data-switch=arrows]").uncheck()
    drawn(page)
    assert page.tab.evaluate("window.timeline.scene.ends") == []


@pytest.mark.statement("WX02", "WU02", "WX07", "WX09", "WY05", "WX10")
def test_an_area_is_added_up_and_is_a_flame_graph(page: Page, client: Asking, prof: profiles.Profile):
    low, high = prof.database.rows("select start_ns, end_ns from worker")[0]
    start(page, **{"from": str(low), "to": str(high)})
    box = surface(page)
    y = box["y"] + box["height"] - 8
    page.tab.mouse.move(box["x"] + 100, y)
    page.tab.mouse.down()
    page.tab.mouse.move(box["x"] + 400, y, steps=5)
    page.tab.mouse.up()
    drawn(page)
    area = page.parameters().partition("area=")[2].partition("&")[0]
    first, last = (int(text) for text in area.split("_"))
    assert abs((last - first) / (high - low) - 300 / box["width"]) < 0.01
    page.find(f"[data-selection='{first}-{last}']").wait_for()
    (device,) = client.json("/api/timeline/selection", start=first, end=last)["devices"]
    shown = page.find("[data-selection] [data-busy]").first
    assert shown.get_attribute("data-busy") == str(device["busy"])
    assert page.find("[data-selection] [data-idle]").first.get_attribute("data-idle") == str(device["idle"])
    page.find("[data-surface]").focus()
    page.tab.keyboard.press("f")
    drawn(page)
    assert window(page) == (first, last)
    page.tab.keyboard.press("Escape")
    drawn(page)
    assert "area=" not in page.parameters()
    low, high = prof.database.rows("select start_ns, end_ns from worker")[0]
    first, last = low + (high - low) // 4, high - (high - low) // 4
    start(page, area=f"{first}_{last}")
    page.find("[data-sum]").select_option("flame")
    page.find("[data-flames] [data-flame]").first.wait_for()
    answer = client.json("/api/timeline/flame", start=first, end=last)
    assert page.find("[data-flames]").get_attribute("data-flames") == str(answer["total"])
    widest = next(row for row in answer["rows"] if row["depth"] == 1)
    page.find(f"[data-flames] [data-flame='{widest['module']}']").click()
    drawn(page)
    shown = page.find(f"[data-flames] [data-flame='{widest['module']}']").get_attribute("style") or ""
    assert "width: 100%" in shown


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    """A recording whose kernels have FLOPs, some unknown, on a GPU with a known peak."""
    path = tmp_path_factory.mktemp("work") / "net_dldb.sqlite"
    profiles.load(TRACES / "gpu/operators.pt.trace.json.gz").save(path)
    with serving(path) as server:
        yield server


def whole(server: Asking) -> dict[str, int]:
    run = server.json("/api/timeline")
    return {"start": run["start"], "end": run["end"]}


@pytest.mark.statement("WO01", "WO02")
def test_an_area_as_a_tree_of_operators_and_kernels(opened: Open, worked: Asking):
    """Rows unfold, are sorted among siblings, what is unknown last, and filtered with those around them."""
    page = opened(worked)
    start(page)
    page.find("[data-sum]").select_option("tree")
    page.find("[data-tree] [data-node]").first.wait_for()
    rows = worked.json("/api/timeline/flame", **whole(worked), work=True)["rows"]
    roots = [row for row in rows if not row["depth"]]

    def shown() -> list[str]:
        return [line.get_attribute("data-node") for line in page.find("[data-tree] [data-node]").all()]

    assert shown() == [row["module"] for row in roots]
    first = next(at for at, row in enumerate(rows) if row["kernel"])
    around = next(row for row in reversed(rows[:first]) if not row["kernel"] and not row["depth"])
    line = page.find(f"[data-tree] [data-node={json.dumps(around['module'])}]").first
    line.focus()
    page.tab.keyboard.press("ArrowRight")
    assert line.get_attribute("aria-expanded") == "true"
    inside = [row for row in rows if row["depth"] == 1 and row["module"].split("/")[0] == around["module"]]
    assert page.find("[data-tree] [aria-level='2']").count() == len(inside)
    page.tab.keyboard.press("ArrowLeft")
    assert page.find("[data-tree] [aria-level='2']").count() == 0
    page.find("[data-tree] [data-sort='hfu']").click()
    known = [row["work"]["hfu"] for row in roots if row["work"]["hfu"] is not None]
    cells = [cell.get_attribute("data-value") for cell in page.find("[data-tree] [data-work='hfu']").all()]
    assert [float(text) for text in cells if text] == sorted(known, reverse=True)
    page.find("[data-tree] [data-sort='hfu']").click()
    cells = [cell.get_attribute("data-value") for cell in page.find("[data-tree] [data-work='hfu']").all()]
    assert [float(text) for text in cells[: len(known)] if text] == sorted(known)
    kernel = rows[first]["kernel"]
    page.find(".tree [type='search']").fill(kernel)
    names = [row for row in rows if kernel.lower() in (row["kernel"] or row["module"]).lower()]
    assert page.find("[data-tree] [data-kernel]").count() == sum(row["kernel"] is not None for row in names)
    assert set(shown()) >= {row["module"] for row in names}


@pytest.mark.statement("WY11", "WX04", "WX06")
def test_the_keyboard_alone_leads_to_an_event_and_its_durations(page: Page, client: Asking, prof: profiles.Profile):
    """From the lanes to a kernel's details, and what a screen reader is told on the way."""
    first, second, *_ = events(prof, 8)
    start(page, **{"from": str(first[1] - 200), "to": str(second[2] + 200)})
    page.find("[data-surface]").focus()
    lanes = page.tab.evaluate(
        "window.timeline.picture.layout.tracks.flatMap((one) => Array(one.lanes).fill(one.track.id))"
    )
    for _ in range(lanes.index(stream(client, 8)) + 1):
        page.tab.keyboard.press("ArrowDown")
        drawn(page)
    page.tab.keyboard.press("Home")
    drawn(page)
    for id_, begin, _ in (first, second):
        if f"launch%3A{id_}" not in page.parameters():
            page.tab.keyboard.press("ArrowRight")
            drawn(page)
        assert f"d=launch%3A{id_}" in page.parameters()
        said = page.find("[role=status]").last.inner_text()
        assert "GPU 0 stream 8" in said
        assert f"starts at {begin:,} ns" in said or "starts at" in said
    page.tab.keyboard.press("l")
    drawn(page)
    rows = page.find("[aria-label='Events of a lane'] tbody tr")
    names = {name for (name,) in prof.database.rows("select coalesce(short_name, name) from kernel_name")}
    assert rows.count() >= 2
    assert {text.split("\t")[0] for text in rows.all_inner_texts()} <= names
    low, high = prof.database.rows("select start_ns, end_ns from worker")[0]
    ((id_, name),) = prof.database.rows("select id, name from event where stream = 7 order by start_ns limit 1")
    start(page, d=f"launch:{id_}", **{"from": str(low), "to": str(high)})
    page.find("[data-median]").first.wait_for()
    lengths = sorted(
        length for (length,) in prof.database.rows("select duration_ns from event where name = ?", (name,))
    )
    assert page.find("[data-durations]").first.get_attribute("data-durations") == str(len(lengths))
    assert page.find("[data-median]").first.get_attribute("data-median") == str(lengths[(len(lengths) - 1) // 2])
    bar = page.find("[data-bar]:not(:disabled)").first
    bar.click()
    page.find("[data-hits]").first.wait_for()
    drawn(page)
    assert page.find("[data-hits]").first.inner_text().endswith(f" of {lengths.count(lengths[0])}")


@pytest.mark.statement("WY04")
def test_a_click_where_nothing_ran_says_why(page: Page, client: Asking, prof: profiles.Profile):
    """On a stream, and on the curve of its device; the address leads to the same gap."""
    idle = next(one for one in tracks(client) if one["kind"] == "idle")
    gaps = [client.json(f"/api/details/gap/0.0.{number}") for number in range(idle["events"])]
    gap = max(gaps[:-1], key=lambda one: one["end"] - one["start"])
    start(page, **{"from": str(gap["start"] - 100), "to": str(gap["end"] + 100)})
    x = column(page, (gap["start"] + gap["end"]) / 2)
    curve = page.tab.evaluate("window.timeline.picture.layout.busy[0].top - window.timeline.picture.scroll + 5")
    for y in (row(page, stream(client, 8)), surface(page)["y"] + curve):
        page.tab.mouse.click(x, y)
        drawn(page)
        assert f"d=gap%3A{gap['id']}" in page.parameters()
        aside = page.find(f"aside[data-drawer='gap:{gap['id']}']")
        aside.wait_for()
        text = aside.inner_text()
        assert gap["title"] in text
        for one in gap["texts"]:
            assert one["value"] in text
        assert (
            aside.locator("[data-figure=duration]")
            .get_attribute("data-tip")
            .startswith(f"{gap['end'] - gap['start']:,} ns")
        )
        page.find("[data-surface]").focus()
        page.tab.keyboard.press("Escape")
        drawn(page)
        assert "d=" not in page.parameters()
    page.tab.goto(f"{page.url}/?test=1#/timeline?d=gap:{gap['id']}")
    drawn(page)
    assert gap["title"] in page.find("[data-strip]").inner_text()
    # Where another stream runs there is no gap.
    on_8 = events(prof, 8)
    time, end = next(
        (max([begin, *(b for _, a, b in on_8 if a <= begin)]), end)
        for _, begin, end in events(prof, 7)
        if not any(begin < b and a < end and a > begin for _, a, b in on_8)
    )
    start(page, **{"from": str(time), "to": str(end)})
    page.tab.mouse.click(column(page, (time + end) / 2), row(page, stream(client, 8)))
    drawn(page)
    assert "d=" not in page.parameters()


# Whether each pixel of a column of a counter's curve is drawn, from its bottom.
COLUMN = """([key, x]) => {
    const { picture } = window.timeline;
    const one = picture.layout.counters.find(({ counter }) => counter.key === key);
    const canvas = document.querySelector(".canvases canvas");
    const ratio = canvas.width / canvas.clientWidth;
    const top = Math.round((one.top - picture.scroll) * ratio);
    const height = Math.round(34 * ratio);
    const copy = new OffscreenCanvas(1, height).getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, Math.floor(x * ratio), top, 1, height, 0, 0, 1, height);
    const { data } = copy.getImageData(0, 0, 1, height);
    const panel = getComputedStyle(document.documentElement).getPropertyValue("--panel").trim();
    const hex = panel.length === 4 ? panel.slice(1).replace(/./g, "$&$&") : panel.slice(1);
    const plain = [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)).join();
    return Array.from({ length: height }, (_, y) => data.slice(4 * y, 4 * y + 3).join() !== plain).reverse();
}"""


@pytest.mark.statement("PT02", "WY02")
def test_counters_are_curves(page: Page, client: Asking, prof: profiles.Profile):
    """As high as the API's values, in a column of each bucket; the tip says the value."""
    low, high = prof.database.rows("select start_ns, end_ns from worker")[0]
    start(page, **{"from": str(low), "to": str(high)})
    assert page.find("[data-counter]").count() == 0
    with view_menu(page) as menu:
        menu.locator("[data-switch=counters]").check()
    drawn(page)
    assert "counters=on" in page.parameters()
    shown = page.tab.eval_on_selector_all("[data-counter]", "all => all.map(one => one.dataset.counter)")
    assert shown == [one["key"] for one in client.json("/api/timeline")["counters"]]
    width = int(surface(page)["width"])
    answer = client.json("/api/timeline/counters", worker=0, device=0, start=low, end=high, points=min(width, 2000))
    for one in answer["counters"]:
        most = 100 if one["key"] != "copies" else max(one["values"])
        heights = set()
        for number in range(5, len(one["values"]) - 5, 37):
            time = answer["start"] + (number + 0.5) * answer["width"]
            pixels = page.tab.evaluate(COLUMN, [one["key"], column(page, time) - surface(page)["x"]])
            expected = len(pixels) * min(one["values"][number] / most, 1)
            assert abs(sum(pixels) - expected) <= 1, (one["key"], number)
            assert pixels == sorted(pixels, reverse=True)  # from the bottom
            heights.add(sum(pixels))
        assert len(heights) > 1
    top = page.find("[data-counter=sm]").bounding_box()
    page.tab.mouse.move(column(page, answer["start"] + 200.5 * answer["width"]), top["y"] + 10)
    value = answer["counters"][shown.index("sm")]["values"][200]
    assert f"SM efficiency {value:.1f} %" in page.find("[data-counter-tip]").inner_text()
    page.find("[data-surface]").focus()
    page.tab.keyboard.press("c")
    drawn(page)
    assert page.find("[data-counter]").count() == 0


def downloaded(page: Page, item: str) -> Any:
    page.find("button:has-text('Export')").click()
    with page.tab.expect_download() as download:
        page.find(f".item:has-text('{item}')").click()
    return download.value


@pytest.mark.statement("WY10")
def test_what_is_unknown_and_pauses_are_hatched(opened: Open, copied: Callable[[], Path], prof: profiles.Profile):
    """Pauses in every track of the process; the line below says how long they are of what is visible."""
    path = copied()
    low, high = prof.database.rows("select start_ns, end_ns from worker")[0]
    begin, end = low + (high - low) // 4, low + (high - low) // 2
    with closing(sqlite3.connect(path)) as connection, connection:
        last_known = "select max(id) from event where tc is not null and kind = 0"  # else there is no counter of it
        connection.execute(f"update event set tc = null where id <> ({last_known})")
        connection.execute("insert into pause values (0, ?, ?, 1), (0, ?, ?, 0)", (begin, end, low, begin))
    first, last = prof.database.rows(
        "select start_ns, start_ns + duration_ns from event where stream = 8 order by start_ns limit 1"
    )[0]
    with serving(path) as server:
        page = opened(server, height=1400)
        start(page, **{"from": str(low), "to": str(high)})
        space = "{http://www.w3.org/2000/svg}"
        inside = ElementTree.fromstring(downloaded(page, "SVG").path().read_text("utf-8")).find(f"{space}svg")
        hatched = [one for one in inside.findall(f"{space}rect") if one.get("fill") == "url(#hatch)"]
        tracks = page.tab.evaluate("window.timeline.picture.layout.tracks.map(({ lanes }) => lanes * 16)")
        assert sorted(float(one.get("height")) for one in hatched) == sorted(tracks)
        box = surface(page)
        places = {(float(one.get("x")), float(one.get("x")) + float(one.get("width"))) for one in hatched}
        ((left, right),) = places
        assert left == pytest.approx(column(page, begin) - box["x"], abs=1)
        assert right == pytest.approx(column(page, end) - box["x"], abs=1)
        half = (begin + end) // 2
        start(page, **{"from": str(half), "to": str(high)})
        assert f"hatched: {end - half} ns in which PyProf read the recording" in page.find("[data-strip]").inner_text()
        start(page, **{"from": str(first), "to": str(last), "counters": "on"})
        pixels = [page.tab.evaluate(COLUMN, ["tensor", 100 + x]) for x in range(12)]
        drawn_share = sum(map(sum, pixels)) / sum(map(len, pixels))
        assert 0.15 < drawn_share < 0.6
        assert pixels[0] != pixels[1]  # slanted
        counter = page.find("[data-counter=tensor]").bounding_box()
        page.tab.mouse.move(surface(page)["x"] + 100, counter["y"] + 9)
        said = page.find("[data-counter-tip]").inner_text()
        assert said.startswith("tensor cores na\nunknown in 100.0 % of the time")


def color_of(page: Page, group: int) -> tuple[int, int, int]:
    text = page.tab.evaluate(
        "group => getComputedStyle(document.documentElement).getPropertyValue(`--r-${group}`).trim()", group
    )
    red, green, blue = (int(text[at : at + 2], 16) for at in (1, 3, 5))
    return red, green, blue


# Pixels of a PNG at points in px of the page, from the upper left of the picture.
PIXELS = """async ([bytes, points, width]) => {
    const image = await createImageBitmap(new Blob([Uint8Array.from(bytes)]));
    const ratio = image.width / width;
    const pen = new OffscreenCanvas(image.width, image.height).getContext("2d", { willReadFrequently: true });
    pen.drawImage(image, 0, 0);
    const pixel = (x, y) => pen.getImageData(Math.floor(x * ratio), Math.floor(y * ratio), 1, 1).data;
    return points.map(([x, y]) => [...pixel(x, y)].slice(0, 3));
}"""


@pytest.mark.statement("WX11")
def test_pictures_have_the_events_that_are_shown(opened: Open, client: Asking, prof: profiles.Profile):
    """As PNG and as SVG: at the place of every event that is wide enough its color, and the names of all tracks."""
    page = opened(width=1400, height=900)
    low, high = prof.database.rows("select start_ns, end_ns from worker")[0]
    start(page, **{"from": str(low), "to": str(low + (high - low) // 3), "by": "kernel"})
    groups = client.json("/api/timeline/colors", by="kernel")["group"]
    names = dict(prof.database.rows("select id, name from event"))
    box, y = surface(page), row(page, stream(client, 8))
    wide = [
        # Not in the middle: there a line of the axis may be.
        (column(page, a + (b - a) / 4) - box["x"], color_of(page, groups[names[id_]]))
        for id_, a, b in events(prof, 8)
        if b < low + (high - low) // 3 and column(page, b) - column(page, a) > 5
    ]
    assert len(wide) >= 2
    side, top = 224, 52
    file = downloaded(page, "PNG")
    assert file.suggested_filename == "net_timeline.png"
    points = [[side + x, top + y - 5 - box["y"]] for x, _ in wide]
    pixels = page.tab.evaluate(PIXELS, [list(file.path().read_bytes()), points, side + box["width"]])
    assert [tuple(pixel) for pixel in pixels] == [color for _, color in wide]

    file = downloaded(page, "SVG")
    assert file.suggested_filename == "net_timeline.svg"
    root = ElementTree.fromstring(file.path().read_text(encoding="utf-8"))
    space = "{http://www.w3.org/2000/svg}"
    inside = root.find(f"{space}svg")
    rects = [
        (*(float(one.get(key)) for key in ("x", "y", "width", "height")), one.get("fill"))
        for one in inside.findall(f"{space}rect")
    ]
    for x, color in wide:
        at = y - box["y"]
        last = [fill for left, up, w, h, fill in rects if left <= x < left + w and up <= at < up + h][-1]
        assert last == f"rgb({color[0]} {color[1]} {color[2]})"
    texts = [one.text for one in root.iter(f"{space}text")]
    sight = page.tab.evaluate("window.timeline.picture.layout.tracks.map(({ track }) => track.name)")
    assert all(any(text.startswith(name) for text in texts) for name in sight)
    tags = {one.tag.removeprefix(space) for one in root.iter()}
    assert tags <= {"svg", "title", "defs", "pattern", "path", "rect", "text", "image"}
    assert all(one.get("href").startswith("data:image/png;base64,") for one in root.iter(f"{space}image"))


@pytest.mark.statement("WE03", "WS01")
def test_hits_of_a_search_are_walked(page: Page, client: Asking):
    """With Enter in the field and with keys in the lanes; the view follows, and Details are of the hit."""
    hits = client.json("/api/timeline/hits", find="sgemm", limit=200)["hits"]
    begin, end = hits[1]["start"], hits[1]["end"]
    start(page, **{"from": str(begin - 50), "to": str(end + 50), "hide": str(hits[0]["track"])})
    page.find("[data-find]").fill("sgemm")
    page.until("[data-hits]:has-text('events')", 1)
    assert page.find("[data-hits]").inner_text().partition(",")[0] == f"{len(hits)} events"
    assert "find=sgemm" in page.parameters()
    for key, number in (
        ("Enter", 1),  # the first that begins in the view
        ("Enter", 2),
        ("Shift+Enter", 1),
        ("Shift+Enter", 0),
        ("Shift+Enter", len(hits) - 1),
        ("Enter", 0),
    ):
        page.find("[data-find]").press(key)
        at_hit(page, hits, number)
    page.find("[data-surface]").focus()
    for key, number in ((".", 1), (".", 2), (",", 1)):
        page.tab.keyboard.press(key)
        at_hit(page, hits, number)
    assert "hide=" not in page.parameters()  # the track of a hit is shown
    page.find("button:has-text('List')").click()
    drawn(page)
    rows = page.find("[data-hit]")
    assert rows.count() == len(hits)
    assert "volta_sgemm" in rows.first.inner_text()
    assert "GPU 0 stream 8" in rows.first.inner_text()
    page.find("[data-hit='3'] button").click()
    at_hit(page, hits, 3)


def at_hit(page: Page, hits: list[dict[str, Any]], number: int) -> None:
    page.find(f"[data-hits]:has-text('{number + 1} of {len(hits)}')").wait_for()
    drawn(page)
    one = hits[number]
    assert f"d=launch%3A{one['id']}" in page.parameters()
    page.find(f"aside[data-drawer='launch:{one['id']}']").wait_for()
    low, high = window(page)
    assert low <= one["end"]
    assert one["start"] <= high


def test_it_is_accessible(page: Page):
    start(page, counters="on", find="gemm", sum="tree")
    page.find("[data-tree] [data-node]").first.wait_for()
    page.find("button:has-text('List')").click()
    page.find("[data-hit]").first.wait_for()
    drawn(page)
    page.tab.evaluate(axe())
    named = "rules: { 'label-content-name-mismatch': { enabled: true } }"
    for theme, which in (("light", named), ("dark", "runOnly: ['color-contrast']")):
        page.tab.emulate_media(color_scheme=theme)
        page.tab.wait_for_selector(f'html[data-theme="{theme}"]')
        found = page.tab.evaluate(f"axe.run(document, {{ resultTypes: ['violations'], {which} }})")
        assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == [], theme


def test_the_lanes_have_most_of_the_screen(opened: Open, ranks: Asking):
    """The controls are one line, on a phone two, however many of them there are."""
    page = opened(ranks)
    start(page, find="sgemm", hits="on")
    for width, height, lines in ((1280, 800, 1), (390, 844, 2)):
        page.tab.set_viewport_size({"width": width, "height": height})
        drawn(page)
        shown = page.find(".toolbar button:visible, .toolbar input:visible").all()
        middles = [box["y"] + box["height"] / 2 for box in (one.bounding_box() for one in shown)]
        assert len({round(y / 4) for y in middles}) == lines, middles
        assert max(box["x"] + box["width"] for box in (one.bounding_box() for one in shown)) <= width
        assert page.tab.evaluate("document.documentElement.scrollWidth") <= width
        # On a phone, whose panels are below the lanes, they are no higher than their tracks.
        least = height * (0.4 if lines == 1 else 0.45)
        assert surface(page)["height"] > min(least, page.tab.evaluate("window.timeline.picture.layout.height") - 2)


@pytest.mark.statement("WX02", "WX08")
def test_a_step_is_selected(opened: Open, page: Page, client: Asking):
    """By a click and by keys alone; the address has it, and shows the same picture elsewhere."""
    first, second, third = client.json("/api/timeline")["steps"][:3]
    start(page)
    page.find(f"[data-step='{first['number']}']").click()
    drawn(page)
    assert f"area={first['start']}_{first['end']}" in page.parameters()
    page.find(f"[data-selection='{first['start']}-{first['end']}']").wait_for()
    for key in ("Home", "ArrowRight", "Enter"):
        page.find("[data-axis] [tabindex='0']").press(key)
    drawn(page)
    assert f"area={second['start']}_{second['end']}" in page.parameters()
    assert page.find("[data-step][aria-pressed=true]").count() == 1
    picture = "[...document.querySelectorAll('.canvases canvas')].map((one) => one.toDataURL())"
    other = opened()
    other.tab.goto(f"{other.url}/?test=1{page.parameters()}")
    drawn(other)
    assert other.tab.evaluate(picture) == page.tab.evaluate(picture)
    # A drag that begins at a step moves the axis.
    box = page.find(f"[data-step='{third['number']}']").bounding_box()
    before = window(page)
    page.tab.mouse.move(box["x"] + 5, box["y"] + 5)
    page.tab.mouse.down()
    page.tab.mouse.move(box["x"] - 60, box["y"] + 5, steps=4)
    page.tab.mouse.up()
    drawn(page)
    assert window(page)[0] > before[0]
    assert f"area={second['start']}_{second['end']}" in page.parameters()


def entry(page: Page, text: str) -> Any:
    return page.find("[data-context] [role=menuitem]").get_by_text(text)


@pytest.mark.statement("WE01", "WY08", "WY11")
def test_the_menu_of_an_event(page: Page, client: Asking, prof: profiles.Profile):
    """By a right click and by keys: it leads to the event, to all of its name, to its step and to its row."""
    low, high = prof.database.rows("select start_ns, end_ns from worker")[0]
    id_, begin, end = events(prof, 8)[2]
    page.tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    start(page, **{"from": str(low), "to": str(high)})

    def right_click() -> None:
        page.tab.mouse.click(column(page, (begin + end) / 2), row(page, stream(client, 8)), button="right")
        page.find("[data-context] [role=menuitem]:focus").wait_for()

    right_click()
    first = page.find("[data-context] [role=menuitem]").first.inner_text()
    assert first.startswith("Annotate here")
    page.tab.keyboard.press("Escape")
    page.until("[data-context]", 0)
    assert page.find("[data-surface]:focus").count() == 1
    right_click()
    entry(page, "Copy link").click()
    page.find("[role=status]:has-text('Copied.')").wait_for(state="attached")
    assert f"d=launch%3A{id_}" in page.tab.evaluate("navigator.clipboard.readText()")
    start(page, **{"from": str(low), "to": str(high)})
    right_click()
    entry(page, "Zoom to this event").click()
    drawn(page)
    assert window(page)[0] <= begin < end <= window(page)[1]
    assert window(page)[1] - window(page)[0] < (high - low) / 2
    right_click()
    (own,) = [one for one in client.json("/api/timeline")["steps"] if one["start"] <= begin < one["end"]]
    entry(page, f"Select step {own['number']}").click()
    drawn(page)
    assert f"area={own['start']}_{own['end']}" in page.parameters()
    right_click()
    entry(page, "Copy name").click()
    page.find("[role=status]:has-text('Copied.')").wait_for(state="attached")
    copied = page.tab.evaluate("navigator.clipboard.readText()")
    assert "sgemm" in copied
    right_click()
    entry(page, "Find all of this name").click()
    page.until("[data-hits]:has-text('events')", 1)
    drawn(page)
    assert f"find={quote('=' + copied, safe='').replace('%20', '+')}" in page.parameters()
    page.tab.mouse.click(column(page, (begin + end) / 2), row(page, stream(client, 8)))
    drawn(page)
    page.find("[data-surface]").focus()
    page.tab.keyboard.press("Shift+F10")
    page.find("[data-context] [role=menuitem]:focus").wait_for()
    texts = page.find("[data-context] [role=menuitem]").all_inner_texts()
    for _ in range(next(at for at, text in enumerate(texts) if text.startswith("Copy link"))):
        page.tab.keyboard.press("ArrowDown")
    page.tab.keyboard.press("Enter")
    page.until("[data-context]", 0)
    drawn(page)
    link = page.tab.evaluate("navigator.clipboard.readText()")
    assert link.endswith(page.parameters())
    assert f"d=launch%3A{id_}" in link
    page.tab.keyboard.press("ContextMenu")
    page.find("[data-context] [role=menuitem]:focus").wait_for()
    entry(page, "Show in table").click()
    page.settled()
    assert page.column("launches", "kernel") == [copied]
    assert f"launches.f.id=%3D{id_}" in page.parameters()
    assert page.find(f"aside[data-drawer='launch:{id_}']").count() == 1


@pytest.mark.statement("WC01", "WC02", "WC03")
def test_source_and_timeline_lead_to_each_other(opened: Open, tmp_path: Path):
    """A line has its time, a click on it marks what ran because of it; the source follows the selection."""
    path = tmp_path / "net.sqlite"
    path.write_bytes(gzip.decompress((TRACES / "gpu/transformer_bf16.sqlite.gz").read_bytes()))
    prof = profiles.load(path)
    prof.save(tmp_path / "net_dldb.sqlite")
    lines = prof.report("source_line").set_index("line")
    with serving(tmp_path / "net_dldb.sqlite") as server:
        page = opened(server)
        start(page, d="op:LINEAR_3")
        page.find("aside .frame").last.click()
        page.settled()
        (here,) = page.find("aside .here").all_inner_texts()
        name = page.find("aside .frame").last.inner_text()
        assert f"\t{here}".replace("\t", "").startswith(name.rpartition(":")[2])
        cell = page.find("aside .here [data-line-time]")
        time, total = int(lines.loc[name, "device_self_ns"]), lines["device_self_ns"].sum()
        assert cell.get_attribute("data-line-time") == str(time)
        tip = cell.locator("a").get_attribute("data-tip")
        assert tip is not None
        assert f"{time:,} ns, {100 * time / total:.1f} %" in tip
        cell.locator("a").click()
        page.settled()
        assert f"find=line%3A%3D{quote(name, safe='')}" in page.parameters()
        hits = page.find("[data-hits]").inner_text()
        kernels = prof.database.rows(
            """select sum(e.duration_ns) from event e join operator o on o.id = e.operator
               join stack s on s.id = o.stack where char(10) || s.frames || char(10) like ? and e.kind < 3""",
            (f"%\n{name}\n%",),
        )[0][0]
        assert f"{kernels / 1e6:.3g} ms on devices" in hits
        # The next hit shows its own line.
        page.find("[aria-label='Next hit']").click()
        page.settled()
        assert page.find("aside .here").count() == 1
