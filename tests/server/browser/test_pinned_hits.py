# SPDX-License-Identifier: Apache-2.0
"""Hits of a search as a track of their own: each where it is, in the color of its track; a click leads to the event."""

from __future__ import annotations

from typing import Any

import pytest

from pyprof import profiles
from tests.server.browser.conftest import Page
from tests.server.browser.test_timeline import column, drawn, row, start, surface, window
from tests.server.conftest import Asking


def hits_of(client: Asking, find: str) -> list[dict[str, Any]]:
    return list(client.json("/api/timeline/hits", find=find, limit=200)["hits"])


def middle(page: Page) -> float:
    """The middle of the track of hits, in px of the page."""
    box = page.find("[data-hits-track]").bounding_box()
    return float(box["y"] + box["height"] / 2)


def pixel(page: Page, x: float, y: float) -> list[int]:
    box = surface(page)
    return list(
        page.tab.evaluate(
            """([x, y]) => {
                const canvas = document.querySelector(".canvases canvas");
                const ratio = canvas.width / canvas.clientWidth;
                const one = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
                one.drawImage(canvas, Math.floor(x * ratio), Math.floor(y * ratio), 1, 1, 0, 0, 1, 1);
                return [...one.getImageData(0, 0, 1, 1).data].slice(0, 3);
            }""",
            [x - box["x"], y - box["y"]],
        )
    )


@pytest.mark.statement("WS02")
def test_hits_are_pinned_where_they_are(page: Page, client: Asking, prof: profiles.Profile):
    """Above all other tracks, in the address, with the colors of the events; it goes as it came."""
    low, high = prof.database.rows("select start_ns, end_ns from worker")[0]
    end = low + (high - low) // 3
    start(page, **{"from": str(low), "to": str(end), "find": "gemm"})
    assert page.find("[data-hits-track]").count() == 0
    page.find("[data-pin-hits]").click()
    drawn(page)
    assert "hits=on" in page.parameters()
    seen = [one for one in hits_of(client, "gemm") if one["start"] < end]
    assert page.find("[data-hits-track]").get_attribute("data-hits-track") == str(len(seen))
    tracks = page.tab.eval_on_selector_all(".track", "all => all.map(one => one.getBoundingClientRect().top)")
    assert tracks[0] == min(tracks)
    checked = 0
    panel = pixel(page, surface(page)["x"] + 1, middle(page) + 5)
    for one, after in zip(seen, [*seen[1:], None]):
        a, b = column(page, one["start"]), column(page, one["end"])
        if b - a < 6 or (after and after["start"] < one["end"]):
            continue
        at = a + (b - a) / 4
        color = pixel(page, at, row(page, one["track"], one["lane"]) + 6)
        assert pixel(page, at, middle(page) + 6) == color != panel
        checked += 1
    assert checked >= 2
    busy = [(column(page, one["start"]) - 1, column(page, one["end"]) + 1) for one in seen]
    free = next(x for x in range(int(surface(page)["x"]) + 2, 1200) if all(x < a or x > b for a, b in busy))
    assert pixel(page, free, middle(page) + 6) == panel
    page.find("[data-hits-track] button").click()
    drawn(page)
    assert "hits=" not in page.parameters()
    assert page.find("[data-hits-track]").count() == 0
    first, second = hits_of(client, "sgemm")[:2]
    around = {"from": str(first["start"] - 50), "to": str(second["end"] + 50), "find": "sgemm", "hits": "on"}
    start(page, **around)
    for one in (second, first):
        x = column(page, (one["start"] + one["end"]) / 2)
        page.tab.mouse.move(x, middle(page))
        page.find(".page [role=tooltip]").wait_for()
        assert f"{one['start']:,} to {one['end']:,} ns" in page.find(".page [role=tooltip]").inner_text()
        page.tab.mouse.click(x, middle(page))
        drawn(page)
        assert f"d=launch%3A{one['id']}" in page.parameters()
    # Beside them nothing is selected, and no gap of a device.
    page.tab.keyboard.press("Escape")
    page.tab.mouse.click(column(page, first["start"] - 25), middle(page))
    drawn(page)
    assert page.tab.evaluate("window.timeline.picture.selected") is None
    start(page, hits="on")
    assert page.find("[data-hits-track]").count() == 0
    whole = window(page)
    page.find("[data-find]").fill("gemm")
    page.until("[data-hits-track]", 1)
    drawn(page)
    assert window(page) == whole
