# SPDX-License-Identifier: Apache-2.0
"""The heat map of ranks in a browser: dark cells where ranks are late, by mouse and by keys, and the way to the
timeline."""

from __future__ import annotations

import pytest

from tests.server import planted_ranks as planted
from tests.server.browser.conftest import Open, Page, axe
from tests.server.conftest import Asking
from tests.server.planted_ranks import CLOCK, DELAY, FIRST, median

LIGHTNESS = """([row, column, rows, columns]) => {
    const canvas = document.querySelector("[data-panel=heat] canvas");
    const at = [((column + 0.5) * canvas.width) / columns, ((row + 0.5) * canvas.height) / rows].map(Math.floor);
    const copy = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, -at[0], -at[1]);
    const [red, green, blue] = copy.getImageData(0, 0, 1, 1).data;
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}"""
LATE = [max(one - median([300_001, 250_000, 420_007, 260_013]), 0) for one in planted.ARRIVAL]  # to the first


@pytest.fixture
def page(opened: Open, planted_ranks: Asking) -> Page:
    page = opened(planted_ranks)
    page.go("workers", tab="ranks", figure="late_ns")
    return page


def said(page: Page) -> str:
    return str(page.find("[data-said]").inner_text())


def point(page: Page, row: int, column: int) -> tuple[float, float]:
    box = page.find("[data-heat]").bounding_box()
    return (column + 0.5) * box["width"] / 2, (row + 0.5) * box["height"] / planted.RANKS


def test_the_later_the_farther_from_the_background(page: Page):
    order = sorted(range(planted.RANKS), key=lambda row: LATE[row])
    assert LATE[order[-1]] > LATE[order[-2]] > LATE[order[0]] == 0
    light = [page.tab.evaluate(LIGHTNESS, [row, 0, planted.RANKS, 2]) for row in range(planted.RANKS)]
    assert light[order[-1]] < light[order[-2]] < light[order[0]]
    rows = page.tab.eval_on_selector_all(
        "[data-panel=heat] .hidden tbody tr",
        "rows => rows.map(row => [...row.cells].map(cell => cell.innerText))",
    )
    assert rows[0][:2] == ["rank2", str(FIRST)]
    assert len(rows) == 2 * planted.RANKS - 1
    page.tab.evaluate(axe())
    assert page.tab.evaluate("axe.run('[data-panel=heat]').then(found => found.violations.map(one => one.id))") == []


def test_a_cell_says_what_it_has_and_leads_to_the_timeline(page: Page):
    page.find("[data-heat]").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown"):
        page.tab.keyboard.press(key)
    assert said(page).startswith(f"rank2, step {FIRST}: Late 160 µs")
    x, y = point(page, 2, 0)
    page.find("[data-heat]").hover(position={"x": x, "y": y})
    assert said(page).startswith(f"rank2, step {FIRST}: Late 160 µs")
    x, y = point(page, 3, 1)  # rank 3 has no second step
    page.find("[data-heat]").hover(position={"x": x, "y": y})
    assert said(page).startswith(f"rank3, step {FIRST + 1}: Late unknown")
    assert page.find("[data-panel=heat] .unknown").count() == 1
    assert page.find("[data-scale=high]").inner_text() == "160 µs"
    x, y = point(page, 2, 1)
    page.find("[data-heat]").click(position={"x": x, "y": y})
    page.until("[data-surface]", 1)
    start = 1_000_000 + CLOCK[2] + DELAY[2]  # of the step, by the rank's own clock
    address = page.tab.url
    assert "worker=2" in address
    low, high = (int(address.split(f"{name}=")[1].split("&")[0]) for name in ("from", "to"))
    assert low < start < start + 700_000 < high
    assert high - low < 2_000_000
