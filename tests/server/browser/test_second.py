# SPDX-License-Identifier: Apache-2.0
"""Two recordings on one axis in a browser: where each lies, what differs, and that a link shows the same again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.build import Recording, recording
from tests.server.browser.conftest import Open, Page, axe
from tests.server.browser.test_timeline import column, drawn, row, start, surface
from tests.server.conftest import MM, Asking, serving
from tests.server.test_step_difference import kernel, marked, plain, save

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
