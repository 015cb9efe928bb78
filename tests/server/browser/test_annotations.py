# SPDX-License-Identifier: Apache-2.0
"""Annotations of the timeline in a browser: they are put, moved, compared and kept, with and without a mouse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyprof import profiles
from pyprof.timeline import stored as tiles
from tests.server.browser.conftest import Open, Page, axe
from tests.server.browser.test_timeline import column, drawn, events, start, surface, window
from tests.server.conftest import HOSTILE, Asking, serving

URL = "/api/annotations"


@pytest.fixture
def served(copied: Callable[[], Path]) -> Iterator[Asking]:
    """A server of a profile without annotations."""
    with serving(copied()) as asking:
        yield asking


@pytest.fixture
def page(opened: Open, served: Asking) -> Page:
    return opened(served, width=1400, height=900)


def stored(served: Asking) -> list[dict[str, Any]]:
    return list(served.json(URL)["annotations"])


def write(served: Asking, *annotations: dict[str, Any]) -> None:
    """Put annotations there, as another user does."""
    version = served.json(URL)["version"]
    answer = served.http.put(URL, json={"annotations": annotations}, headers={"If-Match": version})
    assert answer.status_code == 200, answer.text


def reread(page: Page) -> None:
    """Come back to the tab."""
    page.tab.evaluate("window.dispatchEvent(new Event('focus'))")
    drawn(page)


def extent(prof: profiles.Profile) -> tuple[int, int]:
    low, high = prof.database.rows("select start_ns, end_ns from worker")[0]
    return int(low), int(high)


def flag(page: Page, id_: str) -> Any:
    return page.find(f"[data-flag='{id_}']")


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.tab.keyboard.press(key)
        drawn(page)


def edges(prof: profiles.Profile) -> set[int]:
    """Where anything that the lanes show begins or ends."""
    out: set[int] = set()
    low, high = extent(prof)
    for track in tiles.places(prof.database, None):
        for records in tiles.events(prof.database, track, low - 1, high + 1):
            out |= set(records.start.tolist()) | set(records.end.tolist())
    return out


@pytest.mark.statement("WA01")
def test_a_time_and_a_stretch(page: Page, served: Asking, prof: profiles.Profile):
    """M at the pointer or the menu of a right click makes a line, and with selected time a stretch."""
    low, high = extent(prof)
    start(page, **{"from": str(low), "to": str(high)})
    box = surface(page)
    page.tab.mouse.move(box["x"] + 300, box["y"] + box["height"] - 5)
    page.find("[data-surface]").focus()
    press(page, "m")
    (line,) = stored(served)
    pixel = (high - low) / box["width"]
    assert abs(line["start"] - (low + 300 * pixel)) <= 6 * pixel + 1
    assert line["end"] is None
    assert f"note={line['id']}" in page.parameters()
    assert flag(page, line["id"]).count() == 1
    assert page.find(f"[data-pin='{line['id']}']").count() == 1
    box = surface(page)  # the table has taken some of its height
    page.tab.mouse.click(box["x"] + 700, box["y"] + box["height"] - 5, button="right")
    page.find("[data-context] [role=menuitem]:has-text('Annotate here')").click()
    drawn(page)
    second = next(one for one in stored(served) if one["id"] != line["id"])
    assert abs(second["start"] - (low + 700 * pixel)) <= 6 * pixel + 1
    press(page, "Escape")
    assert "note=" not in page.parameters()
    area = (low + (high - low) // 4, low + (high - low) // 2)
    start(page, area=f"{area[0]}_{area[1]}", **{"from": str(low), "to": str(high)})
    page.find("[data-surface]").focus()
    press(page, "m")
    stretch = next(one for one in stored(served) if one["end"] is not None)
    assert (stretch["start"], stretch["end"]) == area
    assert "area=" not in page.parameters()
    assert "from" in page.find("[data-annotation-status]").inner_text()


@pytest.mark.statement("WA02")
def test_annotations_snap(page: Page, served: Asking, prof: profiles.Profile):
    """Within 6 px to the nearest edge of an event, by mouse and by arrow keys; Alt switches that off."""
    _, begin, end = events(prof, 8)[1]
    low, high = begin - 200, end + 200
    every = edges(prof)
    write(served, {"id": "a", "start": low + 10})
    start(page, note="a", notes="on", **{"from": str(low), "to": str(high)})
    box = surface(page)
    pixel = (high - low) / box["width"]
    y = box["y"] + 10

    def dragged(time: float, *held: str) -> int:
        page.tab.mouse.move(column(page, stored(served)[0]["start"]), y)
        page.tab.mouse.down()
        for key in held:
            page.tab.keyboard.down(key)
        page.tab.mouse.move(column(page, time), y, steps=6)
        page.tab.mouse.up()
        for key in held:
            page.tab.keyboard.up(key)
        drawn(page)
        return int(stored(served)[0]["start"])

    def nearest(time: float) -> tuple[float, int]:
        return min((abs(edge - time), edge) for edge in every)

    near = next(time for time in (end + 4 * pixel, end - 4 * pixel) if nearest(time)[1] == end)
    assert dragged(near) == end
    assert stored(served)[0]["anchor"]["edge"] == "end"
    assert abs(dragged(near, "Alt") - near) <= pixel + 1
    assert stored(served)[0]["anchor"] is None
    away = max(range(low, high), key=lambda time: nearest(time)[0])
    assert nearest(away)[0] > 7 * pixel
    assert abs(dragged(away) - away) <= pixel + 1
    # By keys: to the next edge within ten pixels, or by ten; with Alt by one.
    flag(page, "a").focus()
    for key, step in (("Alt+ArrowRight", 1), ("Alt+ArrowLeft", -1), ("ArrowLeft", -10), ("ArrowRight", 10)):
        before = stored(served)[0]["start"]
        press(page, key)
        after = stored(served)[0]["start"]
        if abs(step) == 1 or nearest(before + step * pixel)[0] > 6 * pixel:
            assert abs(after - before - max(abs(step) * pixel, 1) * step / abs(step)) <= 1, key
        else:
            assert after in every
        assert flag(page, "a").evaluate("one => one === document.activeElement")
    dragged(end)
    for _ in range(40):  # it does not stay on the edge that it is on
        press(page, "ArrowRight")
        moved = stored(served)[0]["start"]
        if moved in every and moved != end:
            break
    assert moved in every
    assert moved > end
    assert "at the" in page.find("[data-annotation-status]").inner_text()


@pytest.mark.statement("WA03", "WA04")
def test_annotations_diff(page: Page, served: Asking, prof: profiles.Profile):
    """The difference of two, and the sums between them, as the API has them; a checkbox zooms to it."""
    low, high = extent(prof)
    first, last = low + (high - low) // 4, low + (high - low) // 2
    write(served, {"id": "a", "name": "before", "start": first}, {"id": "b", "name": "after", "start": last})
    start(page, note="b", notes="on", **{"from": str(low), "to": str(high)})
    page.find("[data-versus]").select_option("a")
    page.find("[data-sums]").wait_for()
    assert page.find("[data-annotation='b'] [data-difference]").get_attribute("data-difference") == str(last - first)
    assert page.find("[data-span]").get_attribute("data-span") == f"{first} {last}"
    assert "Between after and before" in page.find("[data-span]").inner_text()
    (device,) = served.json("/api/timeline/selection", start=first, end=last, work=True)["devices"]
    shown = page.find("[data-sums] tbody tr")
    for key in ("busy", "idle"):
        assert shown.locator(f"[data-{key}]").get_attribute(f"data-{key}") == str(device[key])
    for key in ("kernels", "flops", "bytes"):
        value = float(shown.locator(f"[data-{key}]").get_attribute(f"data-{key}"))
        assert value == pytest.approx(device["work"][key]), key
    kernels, unknown = device["work"]["kernels"], device["work"]["hfu_unknown"]
    assert kernels == unknown > 0  # the peak of this device is not known
    texts = shown.locator("td").all_inner_texts()
    assert texts[0] == str(kernels)
    assert texts[3] == f"na ({unknown} kernels unknown)"
    page.find("[data-between]").check()
    drawn(page)
    assert window(page) == (first, last)
    assert "between=on" in page.parameters()
    page.find("[data-between]").uncheck()
    drawn(page)
    assert window(page) == (low, high)
    # Without another one, the sums are those of a stretch.
    page.find("[data-versus]").select_option("")
    drawn(page)
    assert page.find("[data-span]").count() == 0
    write(served, {"id": "a", "start": first, "end": last, "name": "<b>both</b>"})
    start(page, note="a", notes="on")
    reread(page)
    page.find("[data-sums]").wait_for()
    assert page.find("[data-sums] [data-busy]").get_attribute("data-busy") == str(device["busy"])
    assert "In <b>both</b>" in page.find("[data-span]").inner_text()


def typed(page: Page, id_: str, what: str, text: str) -> None:
    page.find(f"[data-annotation='{id_}'] input[aria-label^={what}]").fill(text)


@pytest.mark.statement("WA05")
def test_annotations_survive_a_restart(opened: Open, copied: Callable[[], Path], prof: profiles.Profile):
    """For whoever opens the profile; the address names the selected one."""
    low, high = extent(prof)
    database = copied()
    with serving(database) as first:
        page = opened(first, width=1400, height=900)
        start(page, **{"from": str(low), "to": str(high)})
        page.find("[data-surface]").focus()
        press(page, "m")
        (one,) = stored(first)
        typed(page, one["id"], "Name", HOSTILE)
        page.find(f"[data-annotation='{one['id']}'] select").select_option("3")
        drawn(page)
        address = page.parameters()
        typed(page, one["id"], "Text", "\u202ereason")
        page.tab.evaluate("location.hash = '#/help'")  # at once: it is saved all the same
        page.settled()
        (one,) = stored(first)
        page.tab.goto("about:blank")
    assert (one["name"], one["text"], one["color"]) == (HOSTILE, "\u202ereason", 3)
    with serving(database) as second:
        other = opened(second, width=1400, height=900)
        other.tab.goto(f"{other.url}/?test=1{address}")
        drawn(other)
        selected = other.find("[data-annotations] tr.current")
        assert selected.get_attribute("data-annotation") == one["id"]
        assert selected.locator("input").first.input_value() == HOSTILE
        assert flag(other, one["id"]).inner_text() == HOSTILE
        assert str(database.with_name(f"{database.name}.notes.json")) in other.find("[data-annotations]").inner_text()
        # Far from what is shown by default, the link alone leads there.
        write(second, one, {"id": "far", "start": high})
        other.tab.goto("about:blank")
        start(other, note="far", **{"from": str(low), "to": str(low + (high - low) // 8)})
        other.tab.keyboard.press("Escape")
        other.find("[data-surface]").focus()
        press(other, "Escape", "[")
        begin, end = window(other)
        assert begin <= high <= end
        other.tab.goto("about:blank")


@pytest.mark.statement("WA05")
def test_annotations_by_keyboard_alone(page: Page, served: Asking, prof: profiles.Profile):
    """Made, named, walked, deleted and brought back, and what a screen reader is told on the way."""
    low, high = extent(prof)
    said = page.find("[data-annotation-status]")
    start(page, **{"from": str(low), "to": str(high)})
    page.find("[data-surface]").focus()
    press(page, "m", "w", "a", "m")
    ids = [one["id"] for one in stored(served)]
    assert len(ids) == 2
    assert "1 of 2" in said.inner_text()
    for key, at in (("]", 1), ("]", 0), ("[", 1), ("[", 0)):
        press(page, key)
        assert f"note={ids[at]}" in page.parameters(), key
        assert f"{at + 1} of 2" in said.inner_text()
        assert flag(page, ids[at]).evaluate("one => one === document.activeElement")
    low, high = window(page)
    press(page, "w")  # a key of the lanes
    assert window(page)[1] - window(page)[0] < high - low
    press(page, "]", "Enter")
    page.wait("document.activeElement.getAttribute('aria-label')?.startsWith('Name of')")
    page.tab.keyboard.type("m [x]")  # keys of the lanes are letters in it
    press(page, "Enter")
    assert flag(page, ids[1]).evaluate("one => one === document.activeElement")
    assert [one["name"] for one in stored(served)] == ["", "m [x]"]
    press(page, "Delete")
    assert [one["id"] for one in stored(served)] == ids[:1]
    assert said.inner_text() == "Deleted: m [x]."
    page.wait("document.activeElement === document.querySelector('[data-surface]')")
    press(page, "Control+z")
    assert [one["name"] for one in stored(served)] == ["", "m [x]"]
    assert "delete m [x]" in said.inner_text()
    press(page, "Control+z")
    assert [one["name"] for one in stored(served)] == [
        "",
        "",
    ]  # a name is one change, whatever its letters are


@pytest.mark.statement("WY11")
def test_annotations_are_accessible(opened: Open, served: Asking, prof: profiles.Profile):
    low, high = extent(prof)
    middle = (low + high) // 2
    anchor = {"event": f"launch:{events(prof, 8)[0][0]}", "edge": "start"}
    colors = [{"id": f"n{color}", "start": low + color * 10, "color": color} for color in range(8)]
    write(served, *colors, {"id": "a", "name": "one", "start": middle, "anchor": anchor})
    page = opened(served, theme="dark", width=1400, height=900)
    start(page, note="a", vs="n0", notes="on")
    page.find("[data-sums]").wait_for()
    page.tab.evaluate(axe())
    found = page.tab.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found["violations"]] == []
    page.find("[data-anchor]").click()
    page.find(f"aside[data-drawer='{anchor['event']}']").wait_for()
