# SPDX-License-Identifier: Apache-2.0
"""Annotations of the timeline in a browser: they are put, moved, compared and kept, with and without a mouse."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyprof import session
from pyprof.timeline import stored as tiles
from pyprof.viewer import notes
from tests.viewer.browser.conftest import Open, Page, axe
from tests.viewer.browser.test_timeline import column, drawn, events, start, surface, window
from tests.viewer.conftest import HOSTILE, Asking, serving

URL = "/api/annotations"
FOREIGN = (
    ("{", "not JSON"),
    ("[]", "no annotations"),
    ('{"pyprof_notes": 9, "annotations": []}', "newer"),
    ('{"pyprof_notes": 1, "annotations": [{"id": "a", "start": "1"}]}', "Annotation 1"),
)


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


def extent(prof: session.Profile) -> tuple[int, int]:
    low, high = prof.database.rows("select start_ns, end_ns from worker")[0]
    return int(low), int(high)


def flag(page: Page, id_: str) -> Any:
    return page.find(f"[data-flag='{id_}']")


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.tab.keyboard.press(key)
        drawn(page)


def edges(prof: session.Profile) -> set[int]:
    """Where anything that the lanes show begins or ends."""
    out: set[int] = set()
    low, high = extent(prof)
    for track in tiles.places(prof.database, None):
        for records in tiles.events(prof.database, track, low - 1, high + 1):
            out |= set(records.start.tolist()) | set(records.end.tolist())
    return out


@pytest.mark.statement("WA01")
def test_a_time_and_a_stretch(page: Page, served: Asking, prof: session.Profile):
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


@pytest.mark.statement("WA01")
def test_m_at_the_end_of_a_drag_makes_a_stretch(page: Page, served: Asking, prof: session.Profile):
    """However soon: before the browser has said that the address is another one."""
    low, high = extent(prof)
    start(page, **{"from": str(low), "to": str(high)})
    box = surface(page)
    y = box["y"] + box["height"] - 5
    page.find("[data-surface]").focus()
    page.tab.mouse.move(box["x"] + 300, y)
    page.tab.mouse.down()
    page.tab.mouse.move(box["x"] + 400, y, steps=3)
    page.tab.evaluate(
        """() => window.addEventListener("pointerup", () => document.querySelector("[data-surface]")
            .dispatchEvent(new KeyboardEvent("keydown", { key: "m", bubbles: true })), { once: true })"""
    )
    page.tab.mouse.up()
    drawn(page)
    (stretch,) = stored(served)
    pixel = (high - low) / box["width"]
    assert abs(stretch["start"] - (low + 300 * pixel)) <= pixel + 1
    assert stretch["end"] is not None
    assert abs(stretch["end"] - (low + 400 * pixel)) <= pixel + 1


@pytest.mark.statement("WA02")
def test_annotations_snap(page: Page, served: Asking, prof: session.Profile):
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


@pytest.mark.statement("WA02")
def test_the_ends_of_a_stretch(page: Page, served: Asking, prof: session.Profile):
    """Each is dragged alone, the flag moves both, Shift with an arrow key moves the end."""
    low, high = extent(prof)
    first, last = low + (high - low) // 4, low + (high - low) // 2
    write(served, {"id": "a", "start": first, "end": last})
    start(page, notes="on", **{"from": str(low), "to": str(high)})
    box = surface(page)
    pixel = (high - low) / box["width"]

    def drag(x: float, y: float, by: float) -> tuple[int, int]:
        page.tab.keyboard.down("Alt")
        page.tab.mouse.move(x, y)
        page.tab.mouse.down()
        page.tab.mouse.move(x + by, y, steps=6)
        page.tab.mouse.up()
        page.tab.keyboard.up("Alt")
        drawn(page)
        (one,) = stored(served)
        return one["start"], one["end"]

    def near(found: tuple[int, int], expected: tuple[float, float]) -> bool:
        return all(abs(a - b) <= pixel + 1 for a, b in zip(found, expected))

    y = box["y"] + 10
    ends = drag(column(page, last), y, 100)
    assert near(ends, (first, last + 100 * pixel))
    ends = drag(column(page, first), y, -50)
    assert near(ends, (first - 50 * pixel, last + 100 * pixel))
    handle = flag(page, "a").bounding_box()
    moved = drag(handle["x"] + 5, handle["y"] + 5, 30)
    assert moved[1] - moved[0] == ends[1] - ends[0]
    assert near(moved, (ends[0] + 30 * pixel, ends[1] + 30 * pixel))
    turned = drag(column(page, moved[1]), y, (moved[0] - moved[1]) / pixel - 40)  # the end before the start
    assert near(turned, (moved[0] - 40 * pixel, moved[0]))
    flag(page, "a").focus()
    press(page, "Alt+Shift+ArrowRight")
    (one,) = stored(served)
    assert one["start"] == turned[0]
    assert 0 < one["end"] - turned[1] <= pixel + 1
    for expected in (turned, moved, ends):
        page.find("[data-undo]").click()
        drawn(page)
        (one,) = stored(served)
        assert (one["start"], one["end"]) == expected


@pytest.mark.statement("WA03", "WA04")
def test_annotations_diff(page: Page, served: Asking, prof: session.Profile):
    """The difference of two, and the sums between them, as the API has them; a checkbox zooms to it."""
    low, high = extent(prof)
    first, last = low + (high - low) // 4, low + (high - low) // 2
    write(served, {"id": "a", "name": "before", "start": first}, {"id": "b", "name": "after", "start": last})
    start(page, note="b", notes="on", **{"from": str(low), "to": str(high)})
    page.find("[data-versus]").select_option("a")
    page.find("[data-sums]").wait_for()
    assert page.find("[data-annotation='b'] [data-difference]").get_attribute("data-difference") == str(
        last - first
    )
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


def test_annotations_two_tabs(opened: Open, served: Asking):
    """Both write without seeing each other: all of it is there, in both, and of one text both versions."""
    write(served, {"id": "a", "start": 10}, {"id": "b", "start": 20}, {"id": "c", "start": 30})
    one, two = opened(served, width=1400, height=900), opened(served, width=1400, height=900)
    for page in (one, two):
        start(page, notes="on")
    typed(one, "a", "Name", "first")
    drawn(one)
    typed(two, "a", "Text", "second")  # another field of the same one
    typed(two, "b", "Name", "third")
    drawn(two)
    names = {entry["id"]: (entry["name"], entry["text"]) for entry in stored(served)}
    assert names == {"a": ("first", "second"), "b": ("third", ""), "c": ("", "")}
    assert two.find("[data-annotation='a'] input").first.input_value() == "first"
    # What one takes back is its own change alone.
    reread(one)
    one.find("[data-undo]").click()
    drawn(one)
    entry = next(entry for entry in stored(served) if entry["id"] == "a")
    assert (entry["name"], entry["text"]) == ("", "second")
    typed(one, "a", "Name", "first")
    drawn(one)
    # One deletes what the other writes on: it stays. Both write one name: both are kept, and the page says so.
    for page in (one, two):
        reread(page)
    one.find("[data-annotation='c'] [data-delete]").click()
    typed(one, "b", "Name", "of one")
    drawn(one)
    typed(two, "c", "Text", "why?")
    typed(two, "b", "Name", "of two")
    drawn(two)
    entries = stored(served)
    assert sorted(entry["name"] for entry in entries) == ["", "first", "of one", "of two"]
    assert next(entry for entry in entries if entry["id"] == "b")["name"] == "of one"
    assert next(entry for entry in entries if entry["id"] == "c")["text"] == "why?"
    assert "both are kept" in two.find("[data-annotations] [data-note=error]").inner_text()
    reread(one)
    one.until("[data-annotation]", len(entries))
    for page in (one, two):
        refused = [line for line in page.wrong if "412" in line]
        assert refused == page.wrong
        page.wrong.clear()
    assert len(refused) == 2


@pytest.mark.statement("WA05")
def test_annotations_survive_a_restart(opened: Open, copied: Callable[[], Path], prof: session.Profile):
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
        assert (
            str(database.with_name(f"{database.name}.notes.json"))
            in other.find("[data-annotations]").inner_text()
        )
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
def test_a_file_of_annotations(page: Page, served: Asking, tmp_path: Path):
    """What is downloaded can be loaded again; what is there already is not there twice; another file is a sentence."""
    start(page, notes="on")
    write(served, {"id": "a", "name": "one", "start": 10}, {"id": "b", "start": 20, "end": 30})
    reread(page)
    with page.tab.expect_download() as download:
        page.find(
            "[data-annotations] button",
        ).get_by_text("Download").click()
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    assert file.name == "copy.notes.json"
    content = json.loads(file.read_bytes())
    assert content["annotations"] == stored(served)
    assert content["profile"] == served.json(URL)["profile"]
    page.find("[data-annotation='b'] [data-delete]").click()
    typed(page, "a", "Name", "changed")
    drawn(page)
    load = page.find("[data-annotations] input[type=file]")
    load.set_input_files(file)
    page.until("[data-annotation]", 3)
    drawn(page)
    assert sorted(one["name"] for one in stored(served)) == ["", "changed", "one"]
    content["profile"]["events"] += 1
    other = tmp_path / "other.json"
    other.write_text(json.dumps(content), encoding="utf-8")
    load.set_input_files(other)
    note = page.find("[data-annotations] [data-note=error]")
    note.wait_for()
    assert "another recording" in note.inner_text()
    before = stored(served)
    for text, sentence in FOREIGN:
        other.write_text(text, encoding="utf-8")
        load.set_input_files(other)
        page.wait(
            f"document.querySelector('[data-annotations] [data-note=error]')?.innerText.includes('{sentence}')"
        )
    drawn(page)
    assert stored(served) == before


@pytest.mark.statement("WA05")
def test_annotations_by_keyboard_alone(page: Page, served: Asking, prof: session.Profile):
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


def test_a_server_that_does_not_save(
    page: Page, served: Asking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A damaged file is said; what cannot be saved stays in the page, which says so and saves it later."""
    file = tmp_path / "copy_dldb.sqlite.notes.json"
    file.write_bytes(b"{")
    start(page, notes="on")
    assert "not JSON" in page.find("[data-annotations] [data-note=empty]").inner_text()

    def refuse(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(notes, "_write", refuse)
        page.find("[data-surface]").focus()
        press(page, "m")
        note = page.find("[data-annotations] [data-note=error]")
        note.wait_for()
        assert "Not saved" in note.inner_text()
        assert "No space left" in note.inner_text()
        assert file.read_bytes() == b"{"
        address = page.parameters()
        page.tab.evaluate("location.hash = '#/help'")  # it stays in the page, whatever is shown
        page.settled()
        page.tab.evaluate("hash => { location.hash = hash; }", address)
        page.until("[data-annotation]", 1)
        drawn(page)
        page.wrong = [line for line in page.wrong if "403" not in line]
    assert page.find("[data-annotation]").count() == 1
    reread(page)
    page.until("[data-annotations] [data-note=error]", 0)
    drawn(page)
    assert len(stored(served)) == 1
    assert file.with_name(f"{file.name}.damaged").read_bytes() == b"{"


def test_a_picture_has_the_annotations(page: Page, served: Asking, prof: session.Profile):
    """The line has its color where the time is, in the lanes and in files, which have the names too."""
    low, high = extent(prof)
    time = low + (high - low) // 3
    write(served, {"id": "a", "name": HOSTILE, "start": time, "color": 1})
    start(page, **{"from": str(low), "to": str(high)})
    expected, found = page.tab.evaluate(
        """x => {
            const hex = getComputedStyle(document.documentElement).getPropertyValue("--bad").trim();
            const canvas = document.querySelectorAll(".canvases canvas")[1];
            const ratio = canvas.width / canvas.clientWidth;
            const one = canvas.getContext("2d").getImageData(Math.round(x * ratio), 3, 1, 1).data;
            return [[1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)), [...one.slice(0, 3)]];
        }""",
        column(page, time) - surface(page)["x"],
    )
    assert found == expected
    with page.tab.expect_download() as download:
        page.find(".page").get_by_text("Export").click()
        page.find(".page").get_by_text("Picture as SVG").click()
    assert HOSTILE.replace("<", "&lt;").replace(">", "&gt;") in Path(download.value.path()).read_text(
        encoding="utf-8"
    )


@pytest.mark.statement("WY11")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_annotations_are_accessible(opened: Open, served: Asking, prof: session.Profile, theme: str):
    low, high = extent(prof)
    middle = (low + high) // 2
    anchor = {"event": f"launch:{events(prof, 8)[0][0]}", "edge": "start"}
    colors = [{"id": f"n{color}", "start": low + color * 10, "color": color} for color in range(8)]
    write(served, *colors, {"id": "a", "name": "one", "start": middle, "anchor": anchor})
    page = opened(served, theme=theme, width=1400, height=900)
    start(page, note="a", vs="n0", notes="on")
    page.find("[data-sums]").wait_for()
    page.tab.evaluate(axe())
    found = page.tab.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found["violations"]] == []
    page.find("[data-anchor]").click()
    page.find(f"aside[data-drawer='{anchor['event']}']").wait_for()
