# SPDX-License-Identifier: Apache-2.0
"""The heat map of ranks in a browser: dark cells where ranks are late, by mouse and by keys, and the way to the
timeline."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.viewer import planted_ranks as planted
from tests.viewer.browser.conftest import Open, Page, axe, read
from tests.viewer.conftest import Asking, serving
from tests.viewer.planted_ranks import CLOCK, DELAY, FIRST, median

LIGHTNESS = """([row, column, rows, columns]) => {
    const canvas = document.querySelector("[data-panel=heat] canvas");
    const at = [((column + 0.5) * canvas.width) / columns, ((row + 0.5) * canvas.height) / rows].map(Math.floor);
    const copy = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, -at[0], -at[1]);
    const [red, green, blue] = copy.getImageData(0, 0, 1, 1).data;
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}"""
LATE = [max(one - median([300_001, 250_000, 420_007, 260_013]), 0) for one in planted.ARRIVAL]  # to the first


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    with serving(planted.write(tmp_path_factory.mktemp("planted") / "run")) as asking:
        read(asking)
        yield asking


@pytest.fixture
def page(opened: Open, ranks: Asking) -> Page:
    page = opened(ranks)
    page.go("workers", tab="ranks", figure="late_ns")
    return page


def said(page: Page) -> str:
    return str(page.find("[data-said]").inner_text())


def point(page: Page, row: int, column: int) -> tuple[float, float]:
    box = page.find("[data-heat]").bounding_box()
    return (column + 0.5) * box["width"] / 2, (row + 0.5) * box["height"] / planted.RANKS


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_later_the_farther_from_the_background(opened: Open, ranks: Asking, theme: str):
    page = opened(ranks, theme=theme)
    page.go("workers", tab="ranks", figure="late_ns")
    light = [page.tab.evaluate(LIGHTNESS, [row, 0, planted.RANKS, 2]) for row in range(planted.RANKS)]
    order = sorted(range(planted.RANKS), key=lambda row: LATE[row])
    away = [abs(light[row] - light[order[0]]) for row in order]
    assert LATE[order[-1]] > LATE[order[-2]] > LATE[order[0]] == 0
    assert away[-1] > away[-2] > away[0] == 0
    assert (light[order[-1]] < light[order[0]]) == (theme == "light")


def test_a_cell_says_what_it_has(page: Page):
    x, y = point(page, 2, 0)
    page.find("[data-heat]").hover(position={"x": x, "y": y})
    assert said(page).startswith(f"rank2, step {FIRST}: Late 160 µs")
    x, y = point(page, 3, 1)  # rank 3 has no second step
    page.find("[data-heat]").hover(position={"x": x, "y": y})
    assert said(page).startswith(f"rank3, step {FIRST + 1}: Late unknown")
    assert page.find("[data-panel=heat] .unknown").count() == 1
    assert page.find("[data-scale=high]").inner_text() == "160 µs"


def test_a_click_leads_to_the_rank_and_step_on_the_timeline(page: Page):
    x, y = point(page, 2, 1)
    page.find("[data-heat]").click(position={"x": x, "y": y})
    page.until("[data-surface]", 1)
    start = 1_000_000 + median([CLOCK[rank] + DELAY[rank] for rank in range(3)])  # of the step, on the axis
    address = page.tab.url
    assert f"align=step%3A{FIRST + 1}" in address
    assert "worker=2" in address
    low, high = (int(address.split(f"{name}=")[1].split("&")[0]) for name in ("from", "to"))
    assert low < start < start + 700_000 < high
    assert high - low < 2_000_000


def test_it_can_be_read_by_keys(page: Page):
    page.find("[data-heat]").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown"):
        page.tab.keyboard.press(key)
    assert said(page).startswith(f"rank2, step {FIRST}: Late 160 µs")
    page.tab.keyboard.press("End")
    assert said(page).startswith(f"rank2, step {FIRST + 1}")
    page.tab.keyboard.press("Enter")
    page.until("[data-surface]", 1)
    assert "worker=2" in page.tab.url


def test_the_table_has_the_same_and_nothing_is_hidden_from_who_cannot_see_it(page: Page):
    rows = page.tab.eval_on_selector_all(
        "[data-panel=heat] .hidden tbody tr",
        "rows => rows.map(row => [...row.cells].map(cell => cell.innerText))",
    )
    assert rows[0][:2] == ["rank2", str(FIRST)]
    assert len(rows) == 2 * planted.RANKS - 1
    page.tab.evaluate(axe())
    assert (
        page.tab.evaluate("axe.run('[data-panel=heat]').then(found => found.violations.map(one => one.id))")
        == []
    )
