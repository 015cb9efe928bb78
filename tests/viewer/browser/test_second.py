# SPDX-License-Identifier: Apache-2.0
"""Two recordings on one axis in a browser: where each lies, what differs, and that a link shows the same again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.build import Recording, recording
from tests.viewer.browser.conftest import Open, Page, axe
from tests.viewer.browser.test_timeline import column, drawn, row, start, surface, view_menu
from tests.viewer.conftest import MM, Asking, serving
from tests.viewer.test_step_difference import kernel, marked, plain, save

WORKERS, TRACKS = 1 << 21, 1 << 30  # beyond those of the first recording
BASE, NEW, BARE = "base_dldb.sqlite", "new_dldb.sqlite", "bare_dldb.sqlite"
LONGER = 500  # ns of relu in the compared step of the new one
PAIR = {"run": BASE, "other": NEW, "align": "step:1"}


def bare() -> Recording:
    return recording(kernel(MM, 40) + "\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recordings of three steps, the new one counts from 30; and one without steps."""
    folder = tmp_path_factory.mktemp("second") / "runs"
    save(folder / BASE, marked(plain() + "wait 60\n", plain(), plain()))
    save(folder / NEW, marked(plain(20), plain(12 + LONGER), plain(), first=30))
    save(folder / BARE, bare())
    return folder


@pytest.fixture(scope="module")
def runs(folder: Path) -> Iterator[Asking]:
    with serving(folder) as asking:
        yield asking


@pytest.fixture
def page(opened: Open, runs: Asking) -> Page:
    return opened(runs, height=1000)


def stream(runs: Asking, run: str) -> int:
    tracks = runs.json("/api/timeline", run=run)["tracks"]
    return next(int(one["id"]) for one in tracks if one["kind"] == "stream")


def step(runs: Asking, run: str, number: int) -> tuple[int, int]:
    steps = runs.json("/api/timeline", run=run)["steps"]
    return next((one["start"], one["end"]) for one in steps if one["number"] == number)


def mark(runs: Asking, run: str, number: int) -> int:
    """When the program began a step, at which recordings are aligned; its work may begin later."""
    (rank,) = runs.json("/api/timeline/alignment", run=run, to=f"step:{number}")["ranks"]
    return int(rank["time"])


def difference(runs: Asking, run: str = BASE, other: str = NEW, numbers: tuple[int, int] = (1, 31)) -> Any:
    return runs.json(
        "/api/timeline/step_difference", run=run, other=other, number=numbers[0], other_number=numbers[1]
    )


def picture(page: Page, what: str) -> Any:
    return page.tab.evaluate(f"window.timeline.picture.{what}")


def pixel(page: Page, time: float, track: int) -> list[int]:
    """The color of a track at a time of the axis, at the top of its lane."""
    box = surface(page)
    found = page.tab.evaluate(
        """([x, y]) => {
            const canvas = document.querySelector(".canvases canvas");
            const ratio = canvas.width / canvas.clientWidth;
            const one = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
            one.drawImage(canvas, Math.floor(x * ratio), Math.floor(y * ratio), 1, 1, 0, 0, 1, 1);
            return [...one.getImageData(0, 0, 1, 1).data];
        }""",
        [column(page, time) - box["x"], row(page, track) - 6 - box["y"]],
    )
    return list(found)


def lane(answer: Any, key: str) -> Any:
    return next(one for one in answer["lanes"] if one["key"] == key)


def place(answer: Any, key: str, name: str) -> int:
    """The place of the only piece of an operator."""
    one = lane(answer, key)
    table = answer["modules" if key == "module" else "operators"]
    return next(at for at, number in enumerate(one["row"]) if table[number]["name"] == name)


def event(runs: Asking, run: str) -> int:
    """The kernel of relu in the compared step."""
    numbers = (1, 31) if run == BASE else (31, 1)
    answer = difference(runs, run, NEW if run == BASE else BASE, numbers)
    return int(lane(answer, "operator")["base_event"][place(answer, "operator", "relu")])


def relu(runs: Asking, run: str) -> float:
    """The middle of it, on the clock of its recording."""
    details = runs.json(f"/api/details/launch/{event(runs, run)}", run=run)
    return float(details["start"] + details["end"]) / 2


@pytest.mark.statement("WY07")
def test_the_steps_of_both_begin_at_one_place(page: Page, runs: Asking):
    """The new one counts from 30: what is compared is the step at the same time since the start."""
    base, other = step(runs, BASE, 1), step(runs, NEW, 31)
    shift = mark(runs, BASE, 1) - mark(runs, NEW, 31)
    assert shift == 60  # its first step is longer
    start(page, **PAIR, **{"from": str(base[0] - 20), "to": str(base[1] + LONGER)})
    assert page.find("[data-other-aligned]").inner_text() == "new: step 31"
    assert dict(picture(page, "shifts && [...window.timeline.picture.shifts]"))[WORKERS] == shift
    names = page.find(".worker").all_inner_texts()
    assert [name.lstrip("▾ ") for name in names][:2] == ["base: base", "new: new"]
    # The same operator of both is where it ran, less that the new one is moved; one name, one color.
    colors = []
    for number, own, middle in (
        (stream(runs, BASE), base, relu(runs, BASE)),
        (stream(runs, NEW) + TRACKS, other, relu(runs, NEW) + shift),
    ):
        assert own[0] < middle - (shift if number > TRACKS else 0) < own[1] + LONGER
        colors.append(pixel(page, middle, number))
        hit = page.tab.evaluate(
            """([x, y]) => {
                const { scene, picture } = window.timeline;
                const one = scene.at(picture, x, y);
                return one && [one.track.id, one.id];
            }""",
            [column(page, middle) - surface(page)["x"], row(page, number) - surface(page)["y"]],
        )
        assert hit == [number, event(runs, NEW if number > TRACKS else BASE)]
    assert colors[0] == colors[1]
    # The keys walk through the steps of both.
    page.find("[data-surface]").focus()
    page.tab.keyboard.press("Shift+>")
    drawn(page)
    assert page.find("[data-aligned]").inner_text() == "step 2"
    assert page.find("[data-other-aligned]").inner_text() == "new: step 32"
    assert "other_step=32" in page.parameters()
    page.find("[aria-label='step before, of new']").click()
    drawn(page)
    assert page.find("[data-other-aligned]").inner_text() == "new: step 31"
    assert page.find("[data-aligned]").inner_text() == "step 2"


@pytest.mark.statement("WY07")
def test_the_table_adds_up_to_the_difference_of_the_step(page: Page, runs: Asking):
    start(page, **PAIR)
    answer = difference(runs)
    assert page.find("[data-difference-table]").get_attribute("data-difference-table") == str(LONGER)
    changes = page.tab.eval_on_selector_all(
        "[data-differs]",
        "rows => rows.map(row => [row.dataset.differs, Number(row.querySelector('[data-change]').dataset.change)])",
    )
    assert [tuple(one) for one in changes] == [
        (one["name"], (one["other"] or 0) - (one["base"] or 0)) for one in answer["operators"]
    ]
    assert [name for name, change in changes if change] == ["relu"]
    assert page.find("[data-differs-all] [data-change]").get_attribute("data-change") == str(LONGER)
    headline = page.find("[data-difference-headline]").inner_text()
    assert headline.startswith("Step 1 of base, step 31 of new, device time: new takes 500 ns longer (")
    lengths = [end - begin for begin, end in (step(runs, BASE, 1), step(runs, NEW, 31))]
    assert headline.endswith(
        f": worse. From start to end the step lasts {lengths[0]} ns in base, {lengths[1]} ns in new."
    )
    page.find("[data-differ]").select_option("module")
    drawn(page)
    assert "differ=module" in page.parameters()
    assert page.find("[data-differs]").first.get_attribute("data-differs") == "net.first.act fprop"
    assert page.find("[data-differs-all] [data-change]").get_attribute("data-change") == str(LONGER)


@pytest.mark.statement("WY07")
def test_a_click_on_a_difference_selects_both(page: Page, runs: Asking):
    base = step(runs, BASE, 1)
    start(page, **PAIR, **{"from": str(base[0]), "to": str(base[1])})
    answer = difference(runs)
    lanes = [one for one in answer["lanes"] if one["row"]]
    number, pieces = place(answer, "operator", "relu"), lane(answer, "operator")
    box = page.find("[data-difference-surface]").bounding_box()
    y = box["y"] + (lanes.index(pieces) + 0.3) * box["height"] / len(lanes)
    x = column(page, (pieces["start"][number] + pieces["end"][number]) / 2)
    page.tab.mouse.move(x, y)
    tip = page.find("[data-difference-tip]")
    tip.wait_for()
    assert "new takes 500 ns longer (12 ns in base, 512 ns in new): worse" in tip.inner_text()
    page.tab.mouse.click(x, y)
    drawn(page)
    events = [pieces["base_event"][number], pieces["other_event"][number]]
    assert [picture(page, "selected.id"), picture(page, "partner.id")] == events
    assert picture(page, "partner.track.id") == stream(runs, NEW) + TRACKS
    assert f"piece=operator.{number}" in page.parameters()
    page.find(f"aside[data-drawer='launch:{events[0]}']").wait_for()
    # A link shows the same.
    page.tab.goto("about:blank")
    start(
        page,
        **PAIR,
        **{"from": str(base[0]), "to": str(base[1])},
        piece=f"operator.{number}",
        d=f"launch:{events[0]}",
    )
    assert [picture(page, "selected.id"), picture(page, "partner.id")] == events


@pytest.mark.statement("WY07")
def test_an_event_of_the_other_recording(page: Page, runs: Asking):
    """Its name, Details and sums are those of its recording, and links lead there."""
    base = step(runs, BASE, 1)
    start(page, **PAIR, **{"from": str(base[0]), "to": str(base[1] + 2 * LONGER)})
    number = stream(runs, NEW) + TRACKS
    shift = mark(runs, BASE, 1) - mark(runs, NEW, 31)
    page.tab.mouse.click(column(page, relu(runs, NEW) + shift), row(page, number))
    drawn(page)
    launch = event(runs, NEW)
    assert picture(page, "selected.id") == launch
    drawer = page.find(f"aside[data-drawer='other/launch:{launch}']")
    drawer.wait_for()
    assert drawer.locator("header").inner_text().startswith("Launch in new")
    details = runs.json(f"/api/details/launch/{launch}", run=NEW)
    assert drawer.locator("h2").inner_text() == details["title"]
    assert page.find("[data-strip]").inner_text().count(" of new, starts at") == 1
    page.find("[data-tab=sums]").click()
    sums = page.find("[data-selection]")
    page.until("[data-selection]", 2)
    low, high = (int(text) for text in sums.nth(1).get_attribute("data-selection").split("-"))
    expected = runs.json("/api/timeline/selection", run=NEW, start=low, end=high)
    assert low == base[0] - shift
    device = sums.nth(1).locator("[data-busy]").get_attribute("data-busy")
    assert device == str(expected["devices"][0]["busy"])
    # Its partners are events of its recording, and tables those of its pages.
    drawer.locator(".partners a").first.click()
    page.settled()
    assert "d=other%2F" in page.parameters()
    page.tab.goto("about:blank")
    operator = next(one["id"] for one in details["partners"] if one["kind"] == "op")
    start(page, **PAIR, d=f"other/op:{operator}")
    link = page.find("aside .partners a:text-is('Kernels')")
    link.wait_for()
    assert f"run={NEW}" in link.get_attribute("href")


@pytest.mark.statement("WY07")
def test_a_recording_beside_itself_does_not_differ(page: Page):
    start(page, run=BASE)
    with view_menu(page):
        page.find("[data-other]").select_option(BASE)
    page.until("[data-difference-table='0']", 1)
    drawn(page)
    assert "align=step" in page.parameters()  # chosen with it
    changes = page.tab.eval_on_selector_all(
        "[data-change]", "cells => cells.map(cell => cell.dataset.change)"
    )
    assert set(changes) == {"0"}
    assert page.find("[data-difference-headline]").inner_text().split(": ")[1].startswith("as long in both")


@pytest.mark.statement("WY07")
def test_one_without_steps_lies_at_its_start(page: Page, runs: Asking):
    start(page, run=BASE, other=BARE, align="step:1")
    (said,) = page.find("[role=alert], .note").all_inner_texts()[:1]
    assert said.startswith("bare lies at its start. No step was recorded")
    assert page.find(f"[data-track='{stream(runs, BARE) + TRACKS}']").count() == 1
    assert page.find("[data-difference-surface]").count() == 0
    page.wrong[:] = [line for line in page.wrong if "404" not in line]


@pytest.mark.statement("WY07", "WY11")
def test_differences_by_keyboard(page: Page, runs: Asking):
    base = step(runs, BASE, 1)
    start(page, **PAIR, **{"from": str(base[0]), "to": str(base[1])})
    page.find("[data-difference-surface]").focus()
    page.tab.keyboard.press("ArrowDown")
    page.tab.keyboard.press("Home")
    said = page.find("[data-said]")
    page.tab.wait_for_timeout(200)
    assert said.inner_text().startswith("relu in net.first.act fprop: new takes 500 ns longer")
    assert said.inner_text().endswith("1 of 1 differences by operator")
    page.tab.keyboard.press("Enter")
    drawn(page)
    number = place(difference(runs), "operator", "relu")
    assert f"piece=operator.{number}" in page.parameters()
    page.tab.keyboard.press("Escape")
    drawn(page)
    assert "piece=" not in page.parameters()
    before = picture(page, "window")
    page.tab.keyboard.press("w")  # as in the lanes above
    drawn(page)
    assert picture(page, "window.to - window.timeline.picture.window.from") < before["to"] - before["from"]
    page.tab.evaluate(axe())
    found = page.tab.evaluate("axe.run('main', { resultTypes: ['violations'] })")
    assert [one["id"] for one in found["violations"]] == []


@pytest.mark.statement("WY07")
def test_the_second_goes_while_it_is_open(opened: Open, folder: Path, tmp_path: Path):
    """A sentence, and the first stays."""
    target = tmp_path / "runs"
    target.mkdir()
    for name in (BASE, NEW):
        (target / name).write_bytes((folder / name).read_bytes())
    with serving(target) as asking:
        page = opened(asking)
        start(page, **PAIR)
        assert page.find("[data-track]").count() > 0
        (target / NEW).unlink()
        page.tab.goto("about:blank")
        start(page, **PAIR)
        (said,) = page.find(".note").all_inner_texts()
        assert NEW in said
        assert page.find(f"[data-track='{stream(asking, BASE)}']").count() == 1
        page.wrong[:] = [line for line in page.wrong if "404" not in line and "410" not in line]
