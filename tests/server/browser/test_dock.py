# SPDX-License-Identifier: Apache-2.0
"""Panels of the timeline: shown, closed, moved, tabbed and resized, by mouse and by keyboard; kept, and in layouts."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.server.browser.conftest import Open, Page, axe
from tests.server.browser.test_layouts import opened_menu
from tests.server.browser.test_timeline import drawn, start, view_menu, window


def places(page: Page) -> dict[str, list[str]]:
    """Titles of the tabs of each group, by side."""
    out: dict[str, list[str]] = {}
    for side, tabs in page.tab.eval_on_selector_all(
        "[data-panel]",
        """all => all.map(one => [one.dataset.side,
            [...one.querySelectorAll("[role=tab]")].map(tab => tab.dataset.tab).join("+")])""",
    ):
        out.setdefault(side, []).append(tabs)
    return out


def box(page: Page, selector: str) -> dict[str, float]:
    return dict(page.find(selector).first.bounding_box())


def drag(page: Page, widget: str, x: float, y: float, let_go: bool = True) -> None:
    tab = box(page, f"[data-tab={widget}]")
    mouse = page.tab.mouse
    mouse.move(tab["x"] + tab["width"] / 2, tab["y"] + tab["height"] / 2)
    mouse.down()
    mouse.move(x, y, steps=3)
    page.find("[data-target]").wait_for()
    if let_go:
        mouse.up()
        drawn(page)


def analyze(page: Page) -> None:
    opened_menu(page)
    page.find(".layouts [data-layout='Analyze']").click()
    page.until("[data-panel]", 2)
    drawn(page)


def focused(page: Page) -> str | None:
    return page.tab.evaluate("document.activeElement.dataset.tab ?? null")


def without_blur(page: Page) -> None:
    """The canvas has a pixel for each of the screen, over all of the lanes."""
    drawn(page)
    sizes = page.tab.eval_on_selector_all(
        ".canvases canvas",
        "all => all.map(one => [one.width, one.height, one.clientWidth * devicePixelRatio,"
        " one.clientHeight * devicePixelRatio])",
    )
    lanes, panel = box(page, "[data-lanes]"), box(page, ".canvases")
    for across, down, width, height in sizes:
        assert (across, down) == (round(width), round(height))
    assert panel["x"] + panel["width"] <= lanes["x"] + lanes["width"]
    assert panel["width"] > 0.5 * lanes["width"]


@pytest.mark.statement("WL01")
def test_a_panel_is_dragged(page: Page):
    """To a side, into the tabs of another, and out of them; the lanes have what it leaves. Esc gives it up."""
    start(page)
    analyze(page)
    assert places(page) == {"below": ["sums", "operators"]}
    before = window(page)
    lanes = box(page, "[data-lanes]")
    drag(page, "operators", lanes["x"] + lanes["width"] - 20, lanes["y"] + 60)
    assert places(page) == {"right": ["operators"], "below": ["sums"]}
    assert "to the right of the lanes, 1 of 1" in page.find("[data-dock-said]").inner_text()
    panel, now = box(page, "[data-panel=operators]"), box(page, "[data-lanes]")
    assert now["x"] + now["width"] <= panel["x"]
    assert now["width"] < 0.75 * lanes["width"]
    assert window(page) == before
    without_blur(page)
    sums = box(page, "[data-panel=sums]")
    drag(page, "operators", sums["x"] + sums["width"] / 2, sums["y"] + sums["height"] / 2, let_go=False)
    page.tab.keyboard.press("Escape")
    page.until("[data-target]", 0)
    page.tab.mouse.up()
    assert places(page) == {"right": ["operators"], "below": ["sums"]}
    drag(page, "operators", sums["x"] + sums["width"] / 2, sums["y"] + sums["height"] / 2)
    assert places(page) == {"below": ["sums+operators"]}
    assert page.find("[data-operators]").count() == 1
    page.find("[data-tab=sums]").click()
    page.find(".selection").wait_for()
    assert page.find("[data-operators]").count() == 0
    drag(page, "sums", sums["x"] + 20, sums["y"] + sums["height"] / 2)
    assert places(page) == {"below": ["sums", "operators"]}
    without_blur(page)


@pytest.mark.statement("WL01")
def test_a_panel_is_moved_by_keys(page: Page):
    """Keys at its tab and its menu; the focus goes with it, and a screen reader is told where it is."""
    start(page)
    analyze(page)
    press = page.tab.keyboard.press
    page.find("[data-tab=operators]").focus()
    for key, expected in (
        ("ArrowLeft", {"below": ["operators", "sums"]}),
        ("ArrowLeft", {"left": ["operators"], "below": ["sums"]}),
        ("ArrowUp", {"above": ["operators"], "below": ["sums"]}),
        ("ArrowRight", {"right": ["operators"], "below": ["sums"]}),
    ):
        press(f"Shift+{key}")
        drawn(page)
        assert places(page) == expected
        assert focused(page) == "operators"
    assert page.find("[data-dock-said]").inner_text() == "Operators is to the right of the lanes, 1 of 1."
    press("Shift+F10")
    menu = page.find("[role=menu]")
    assert menu.locator("[role=menuitem]").count() == 6
    menu.locator("[role=menuitem]:has-text('Tab with Sums')").focus()
    press("Enter")
    drawn(page)
    assert places(page) == {"below": ["sums+operators"]}
    assert focused(page) == "operators"
    press("ArrowLeft")
    page.find(".selection").wait_for()
    assert focused(page) == "sums"
    page.find("[data-move=sums]").focus()
    press("Enter")
    menu.locator("[role=menuitem]:has-text('Move down')").wait_for()
    press("Escape")
    assert focused(page) == "sums"
    press("Delete")
    page.find("[data-operators]").wait_for()
    assert places(page) == {"below": ["operators"]}
    assert focused(page) == "operators"
    press("Delete")
    page.until("[data-panel]", 0)
    assert page.tab.evaluate("document.activeElement.matches('[data-surface]')")


@pytest.mark.statement("WL01")
def test_panels_are_resized(page: Page):
    """By mouse and by keys, within limits; the lanes are never without their part, and are drawn sharp."""
    start(page)
    analyze(page)
    edge = page.find("[data-edge=below]")
    assert [edge.get_attribute(f"aria-{name}") for name in ("valuenow", "valuemin", "valuemax", "orientation")] == [
        "36", "10", "60", "horizontal",
    ]  # fmt: skip
    high = box(page, "[data-panel=sums]")["height"]
    edge.focus()
    page.tab.keyboard.press("ArrowUp")
    assert edge.get_attribute("aria-valuenow") == "38"
    assert box(page, "[data-panel=sums]")["height"] > high
    page.tab.keyboard.press("End")
    assert edge.get_attribute("aria-valuenow") == "60"
    assert box(page, "[data-lanes]")["height"] >= 0.3 * box(page, "[data-dock]")["height"]
    without_blur(page)
    wide = box(page, "[data-panel=sums]")["width"]
    between = box(page, "[data-edge='sums operators']")
    page.tab.mouse.move(between["x"] + 3, between["y"] + 20)
    page.tab.mouse.down()
    page.tab.mouse.move(between["x"] + 3 + 100, between["y"] + 20, steps=4)
    page.tab.mouse.up()
    page.tab.mouse.move(between["x"] - 300, between["y"] + 20)  # it was let go
    assert abs(box(page, "[data-panel=sums]")["width"] - wide - 100) <= 3
    page.find("[data-edge='sums operators']").focus()
    page.tab.keyboard.press("Home")
    assert page.find("[data-edge='sums operators']").get_attribute("aria-valuenow") == "10"
    without_blur(page)


@pytest.mark.statement("WL01")
def test_panels_are_closed_and_added(page: Page):
    """In the menu View; lists that come and go keep their place, and the layout's panels come back."""
    start(page)
    page.find("[data-close=sums]").click()
    page.until("[data-panel]", 0)
    assert abs(box(page, "[data-lanes]")["height"] - box(page, "[data-dock]")["height"]) < 1
    with view_menu(page) as menu:
        for widget in ("operators", "source", "annotations", "list"):
            menu.locator(f"[data-show={widget}]").check()
        assert menu.locator("[data-show=hits]").count() == 0  # nothing to show
    page.find("[data-panel=source]").wait_for()
    assert places(page) == {"right": ["source"], "below": ["operators+list+annotations"]}
    assert "notes=on" in page.parameters()
    page.find("[data-tab=list]").focus()
    page.tab.keyboard.press("Shift+ArrowRight")
    page.tab.keyboard.press("Shift+ArrowRight")
    drawn(page)
    assert "list" in places(page)["right"]
    page.find("[data-surface]").focus()
    page.tab.keyboard.press("l")
    page.until("[data-tab=list]", 0)
    page.tab.keyboard.press("l")
    page.find("[data-tab=list]").wait_for()
    assert "list" in places(page)["right"]
    page.find("[data-close=list]").click()
    with view_menu(page) as menu:
        assert not menu.locator("[data-show=list]").is_checked()
        menu.locator("[data-show=annotations]").uncheck()
        menu.locator("[data-reset]").click()
    assert places(page) == {"below": ["sums"]}
    assert "notes" not in page.parameters()


@pytest.mark.statement("WL01")
def test_a_narrow_window_has_the_panels_below_each_other(page: Page, opened: Open):
    """Every tab is there, nothing is dragged, nothing is wider than the window; wider, all is where it was."""
    start(page)
    analyze(page)
    page.find("[data-tab=operators]").focus()
    page.tab.keyboard.press("Shift+ArrowRight")
    page.find("[data-surface]").focus()
    page.tab.keyboard.press("l")
    page.find("[data-tab=list]").wait_for()
    drawn(page)
    docked = places(page)
    for width, height in ((1099, 800), (390, 844)):
        page.tab.set_viewport_size({"width": width, "height": height})
        page.find("[data-dock=narrow]").wait_for()
        drawn(page)
        panels = ["[data-lanes]", *(f"[data-panel={one}]" for one in ("operators", "sums", "list"))]
        boxes = [box(page, one) for one in panels]
        assert all(one["height"] > 60 for one in boxes)
        assert all(one["x"] + one["width"] <= width for one in boxes)
        assert all(a["y"] + a["height"] <= b["y"] for a, b in pairwise(boxes))
        assert page.find("[data-edge], [data-move]").count() == 0
        page.find("[data-panel=list]").scroll_into_view_if_needed()
        without_blur(page)
    page.tab.evaluate(axe())
    result = page.tab.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    assert [(one["id"], one["nodes"][0]["html"]) for one in result["violations"]] == []
    page.find("[data-close=operators]").click()
    page.until("[data-panel=operators]", 0)
    page.tab.set_viewport_size({"width": 1280, "height": 720})
    page.find("[data-dock=wide]").wait_for()
    assert places(page) == {"below": docked["below"]}
