# SPDX-License-Identifier: Apache-2.0
"""Layouts of the timeline: presets, and those that a browser keeps under a name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.browser.conftest import Open, Page, axe
from tests.server.browser.test_timeline import drawn, start, view_menu
from tests.server.conftest import Asking

HOSTILE = "<img src=x onerror=alert(1)>"


def opened_menu(page: Page) -> None:
    if not page.find(".layouts").count():
        page.find("button:has-text('Layout')").click()
    page.find(".layouts").wait_for()


def kept(page: Page) -> list[dict[str, Any]]:
    return list(page.tab.evaluate("JSON.parse(localStorage.getItem('pyprof-timeline-layouts') ?? '[]')"))


def says(page: Page, text: str) -> None:
    page.wait(f"document.querySelector('.layouts')?.innerText.includes({json.dumps(text)})")


def save(page: Page, name: str) -> None:
    opened_menu(page)
    page.find(".layouts [data-name]").fill(name)
    page.tab.keyboard.press("Enter")
    says(page, f"{name} is saved.")


def kinds(page: Page) -> set[str]:
    return set(page.tab.evaluate("window.timeline.picture.layout.tracks.map(({ track }) => track.kind)"))


@pytest.mark.statement("WL02")
def test_presets(page: Page):
    start(page)
    everything = kinds(page)
    assert everything > {"stream", "idle", "module", "range"}
    for name, shown, words in (
        ("Simple", {"stream", "idle", "module"}, set()),
        ("Analyze", everything, {"counters=on", "sum=operator", "work=on"}),
        ("Code", {"range", "stream"}, {"by=module", "sum=module"}),
    ):
        opened_menu(page)
        page.find(f".layouts [data-layout='{name}']").click()
        drawn(page)
        assert kinds(page) == shown, name
        assert bool(page.find("[data-curve]").count()) == ("idle" in shown)
        assert words == {
            word
            for word in page.parameters().partition("?")[2].split("&")
            if word.partition("=")[0] in ("by", "arrows", "counters", "sum", "work")
        }
        opened_menu(page)
        pressed = page.find(".layouts [aria-pressed=true]")
        assert pressed.get_attribute("data-layout") == name
    page.tab.go_back()
    drawn(page)
    assert "counters=on" in page.parameters()


@pytest.mark.statement("WL02")
def test_a_layout_is_for_any_profile(page: Page, opened: Open, on_cpu: Asking):
    """It is of kinds of tracks, is there after a restart, and is replaced by saving it again."""
    start(page, arrows="off", sum="kernel")
    ids = page.tab.evaluate(
        "window.timeline.picture.timeline.tracks.filter(({ kind }) => kind === 'api').map(({ id }) => id)"
    )
    start(page, arrows="off", sum="kernel", hide=",".join(map(str, ids)))
    save(page, HOSTILE)
    (layout,) = kept(page)
    panels = layout.pop("panels")
    assert panels["below"]["groups"] == [{"tabs": ["sums"], "active": "sums", "share": 1}]
    assert layout == {
        "name": HOSTILE, "by": "type", "arrows": False, "counters": False, "sum": "kernel", "work": False,
        "hidden": ["api"], "pinned": [],
    }  # fmt: skip
    start(page)
    page.tab.reload()
    drawn(page)
    assert "api" in kinds(page)
    opened_menu(page)
    page.find(".layouts [data-layout]").get_by_text(HOSTILE).click()
    drawn(page)
    assert "api" not in kinds(page)
    with view_menu(page) as menu:
        assert not menu.locator("[data-switch=arrows]").is_checked()
    page.find("[data-by]").select_option("tc")
    save(page, HOSTILE)
    assert [one["by"] for one in kept(page)] == ["tc"]
    text = json.dumps(kept(page))
    other = opened(on_cpu)
    start(other)
    other.tab.evaluate("text => localStorage.setItem('pyprof-timeline-layouts', text)", text)
    other.tab.reload()
    drawn(other)
    opened_menu(other)
    other.find(".layouts [data-layout]").get_by_text(HOSTILE).click()
    drawn(other)
    assert "by=tc" in other.parameters()


@pytest.mark.statement("WL02")
def test_layouts_by_keyboard_alone(page: Page):
    """Saved, renamed, deleted and brought back; a name that is taken is a sentence, and nothing is lost."""
    start(page)
    page.find("button:has-text('Layout')").focus()
    page.tab.keyboard.press("Enter")
    save(page, "one")
    save(page, "two")
    press = page.tab.keyboard.press
    page.find("[data-rename='two']").focus()
    press("Enter")
    page.find("[data-rename-field]:focus").wait_for()
    page.tab.keyboard.type("one")
    press("Enter")
    says(page, "There is a layout one already.")
    page.tab.evaluate(axe())
    result = page.tab.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    assert [(one["id"], one["nodes"][0]["html"]) for one in result["violations"]] == []
    page.find("[data-rename-field]:focus").wait_for()
    page.tab.keyboard.press("Control+a")
    page.tab.keyboard.type("three")
    press("Enter")
    says(page, "two is now three.")
    assert [one["name"] for one in kept(page)] == ["one", "three"]
    page.find("[data-delete='one']").focus()
    press("Enter")
    says(page, "one is deleted.")
    assert [one["name"] for one in kept(page)] == ["three"]
    page.find("[data-undo]:focus").wait_for()
    press("Enter")
    says(page, "one is back.")
    assert [one["name"] for one in kept(page)] == ["three", "one"]
    press("Escape")
    page.until(".layouts", 0)
    assert page.find("button:has-text('Layout'):focus").count() == 1
