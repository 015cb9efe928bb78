# SPDX-License-Identifier: Apache-2.0
"""What is in use at a moment of the curve, of `traces`: on the GPU 2048 bytes of linear from 145 us, 1024 of relu from
315 to 410, 1024 of before the recording; 8 KiB are reserved."""

from __future__ import annotations

from tests.server.browser.conftest import Open, Page
from tests.server.conftest import Asking

US = 1000  # ns
REST = "no allocation recorded"


def sizes(page: Page, key: str = "operator") -> dict[str, int]:
    names, values = page.column("alive", key), page.column("alive", "bytes")
    return {name: int(value.replace(",", "")) for name, value in zip(names, values)}


def figures(page: Page) -> str:
    return " ".join(page.find("[data-figures]").inner_text().split())


def test_what_is_in_use_at_a_moment_by_group(opened: Open, traces: Asking):
    page = opened(traces)
    page.go("memory", run="alpha")
    title, cursor = page.find("[data-panel=alive] h2"), page.find("[data-panel=curve] [role=slider]")
    assert title.inner_text() == "In use at 315 µs, the peak"
    assert sizes(page) == {"linear": 2048, "relu": 1024, REST: 1024}
    assert page.find("[data-table=alive] tfoot [data-total=bytes]").inner_text() == "4.000"  # KiB, as its column
    assert figures(page) == (
        "4.00 KiB allocated, 8.00 KiB reserved: 4.00 KiB (50.0 %) is cached for reuse or lost to fragmentation."
    )
    assert page.find("[data-cursor]").inner_text() == "315 µs: 4.00 KiB allocated, 8.00 KiB reserved"
    assert "at=" not in page.parameters()
    # The arrows go to the events beside it, each is in the address.
    cursor.focus()
    page.tab.keyboard.press("ArrowRight")
    page.settled()
    assert f"at={410 * US}" in page.parameters()
    assert title.inner_text() == "In use at 410 µs"
    assert sizes(page) == {"linear": 2048, REST: 1024}
    assert cursor.get_attribute("aria-valuetext") == "410 µs: 3.00 KiB allocated, 8.00 KiB reserved"
    page.find("[data-panel=alive] button:text-is('Peak')").click()
    page.settled()
    assert title.inner_text() == "In use at 315 µs, the peak"
    # So does a click; where the mouse is, the curve is read.
    svg = page.find("[data-panel=curve] svg")
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    svg.hover(position={"x": box["width"] - 5, "y": 60})
    page.find("[data-cursor]:has-text(': 1.00 KiB allocated')").wait_for()
    svg.click(position={"x": box["width"] - 5, "y": 60})
    page.settled()
    assert sizes(page) == {REST: 1024}
    assert "time=" not in page.parameters()
    page = opened(traces)
    page.go("memory", run="alpha")
    select = page.find("[data-table=alive] select[data-option=by]")
    keys = {"module": "module", "line": "line", "shape": "shapes", "phase": "until", "allocation": "operator"}
    assert select.locator("option").all_inner_texts() == ["operator", *keys]
    for group, key in keys.items():
        select.select_option(group)
        page.settled()
        assert sum(sizes(page, key).values()) == 4096, group
        assert f"alive.o.by={group}" in page.parameters()
    page.find("[data-panel=alive] label:has-text('Never released') input").check()
    page.settled()
    assert sizes(page) == {}  # each is released
