# SPDX-License-Identifier: Apache-2.0
"""Iterations: bars, zoom, borders, the drill-downs, and adding up others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyprof import profiles
from tests.server.browser.conftest import Open, Page
from tests.server.conftest import STEPS, Asking, serving

CHART = "[data-panel=iterations] svg"
PARTS = {
    "Using Tensor Cores": "tc", "Not Using Tensor Cores": "kernel", "Memory": "memory", "CPU (DLProf)": "cpu",
    "DataLoader": "dataloader", "Other (DLProf)": "other",
}  # fmt: skip


@pytest.mark.statement("IT01", "IT02", "IT03", "IT11", "IT06", "IT07", "IT09", "IT10")
def test_bars_are_the_iterations_and_are_zoomed(page: Page, prof: profiles.Profile):
    page.go("iterations")
    bars = page.find(f"{CHART} [data-bar]").all()
    assert [bar.get_attribute("data-bar") for bar in bars] == [str(n) for n in range(STEPS)]
    badges = {name: page.find(f"[data-badge={name}]").inner_text() for name in ("total", "profiled", "start", "stop")}
    assert badges == {"total": "6", "profiled": "6", "start": "0", "stop": "5"}
    for bar, (_, row) in zip(bars, prof.steps.iterrows()):
        lines = bar.get_attribute("data-tip").split("\n")
        assert lines[0] == f"Iteration {row['step']}: {row['duration_ns']} ns"
        amounts = {line.split(": ")[0]: int(line.split(": ")[1].split(" ")[0]) for line in lines[1:]}
        assert sum(amounts.values()) == row["duration_ns"]
        for label, key in PARTS.items():
            assert amounts.get(label, 0) == row[f"{key}_ns"], label
        heights = bar.locator("rect[data-part]").evaluate_all("rects => rects.map(r => +r.getAttribute('height'))")
        assert sum(heights) > 0
    legend = page.find("[data-panel=iterations] [data-legend]").all_inner_texts()
    assert legend == [
        "Using Tensor Cores",
        "Not Using Tensor Cores",
        "Memory",
        "CPU (DLProf)",
        "Other (DLProf)",  # none waits for a DataLoader, so the legend has no color of it
    ]
    page.go("iterations")
    chart = page.find(CHART).bounding_box()
    page.tab.mouse.move(chart["x"] + chart["width"] / 2, chart["y"] + 100)
    assert page.find("[data-zoom]").inner_text() == "1.0×"
    page.tab.mouse.wheel(0, -100)
    page.find("[data-zoom]:not(:has-text('1.0×'))").wait_for()
    first = page.parameters()
    assert "zoom=" in first
    page.tab.mouse.down()
    page.tab.mouse.move(chart["x"] + chart["width"] / 2 + 80, chart["y"] + 100, steps=4)
    page.tab.mouse.up()
    page.settled()
    assert page.parameters() != first
    page.find("button:has-text('Reset Zoom')").click()
    page.find("[data-zoom]:has-text('1.0×')").wait_for()
    assert page.find(f"{CHART} [data-bar]").first.get_attribute("data-tip")
    page.find("button:has-text('Tooltips on')").click()
    assert page.find("button:has-text('Tooltips off')").get_attribute("aria-pressed") == "false"
    assert not page.find(f"{CHART} [data-bar]").first.get_attribute("data-tip")
    assert page.find("button:has-text('All Iterations')").get_attribute("aria-pressed") == "true"


@pytest.mark.long
@pytest.mark.statement("IT24")
def test_10_000_iterations_are_as_many_bars_as_there_is_room_for(page: Page):
    many, parts = 10_000, ("tc", "kernel", "memory", "cpu", "io", "dataloader", "other")
    numbers, asked = list(range(many)), []

    def bars(route):
        asked.append(route.request.url)
        route.fulfill(
            json={
                "number": numbers, "until": numbers, "count": [1] * many, "outside": [False] * many, "total": many,
                "duration": [1000 * n for n in numbers], "parts": dict.fromkeys(parts, [0] * many) | {
                    "kernel": [1000 * n for n in numbers]}, "headings": {part: part for part in parts}, "first": 0,
                "last": many - 1,
            }
        )  # fmt: skip

    page.tab.route("**/api/iterations/bars*", bars)
    page.go("iterations")
    drawn = page.find(f"{CHART} [data-bar]")
    room = page.find(CHART).bounding_box()["width"] / 3
    assert room / 2 < drawn.count() <= room
    each = -(-many // drawn.count())  # neighbours share a bar
    firsts = drawn.evaluate_all("bars => bars.map(bar => +bar.dataset.bar)")
    assert firsts == list(range(0, many, each))
    # The mean of 0, 1000, ... ns.
    mean = 1000 * (each - 1) // 2
    assert drawn.first.get_attribute("data-tip").split("\n")[0] == (
        f"Iteration 0 to {each - 1}, mean: {mean / 1000:.1f} µs"
    )
    assert page.find(f"{CHART} rect").count() <= 2 * drawn.count() + 2  # its part, what is behind it, the borders
    # Near enough, and moved: other bars, of one iteration each, and nothing is asked for.
    page.go("iterations", zoom="5000-5060")
    box = page.find(CHART).bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    assert drawn.first.get_attribute("data-bar") == "5000"
    questions: list[str] = []
    page.tab.on("request", lambda request: questions.append(request.url) if "/api/" in request.url else None)
    page.tab.mouse.move(x, y)
    page.tab.mouse.down()
    page.tab.mouse.move(x - 200, y, steps=10)
    page.tab.mouse.up()
    page.settled()
    assert int(drawn.first.get_attribute("data-bar")) > 5000
    assert 60 <= drawn.count() <= 62
    assert questions == []
    assert len(asked) == 1


@pytest.mark.statement("IT12", "IT13", "IT17", "IT14", "IT15", "IT16")
def test_borders_follow_the_fields_and_the_key_node_is_picked(page: Page):
    page.go("iterations")
    button = page.find("section button:text-is('Reaggregate')")
    assert button.is_disabled()
    left = page.find("[data-border=start]")
    before = left.bounding_box()["x"]
    page.find("[data-field=start]").fill("2")
    page.settled()
    assert left.bounding_box()["x"] > before
    assert left.get_attribute("aria-valuenow") == "2"
    assert not button.is_disabled()
    page.find("[data-field=start]").press("ArrowUp")
    assert left.get_attribute("aria-valuenow") == "3"
    page.find("[data-field=start]").hover()
    page.tab.mouse.wheel(0, -100)
    page.wait("document.querySelector('[data-field=start]').value !== '3'")  # a wheel's event comes later
    assert page.find("[data-field=start]").input_value() == "4"
    page.find("[data-field=stop]").fill("1")
    assert page.find(".wrong").inner_text() == "Start (4) comes after stop (1)."
    assert button.is_disabled()
    page.find("[data-field=stop]").fill("99")
    assert page.find(".wrong").inner_text() == "There are iterations 0 to 5."
    right = page.find("[data-border=stop]")
    page.find("[data-field=stop]").fill("5")
    right.focus()
    page.tab.keyboard.press("ArrowLeft")
    assert page.find("[data-field=stop]").input_value() == "4"
    page.go("iterations")
    field = page.find("[data-field=key]")
    assert field.get_attribute("readonly") is not None
    before = field.input_value()
    page.find("button:has-text('Choose the key operator')").click()
    page.find("dialog[open] [data-table=keys] tbody tr").first.click()
    page.find("dialog[open] button:text-is('Cancel')").click()
    assert field.input_value() == before
    page.find("button:has-text('Choose the key operator')").click()
    row = page.find("dialog[open] [data-table=keys] tbody tr").first
    row.wait_for()
    assert row.locator("[data-key=per_step]").inner_text() == "✓"
    assert row.locator("[data-key=calls]").inner_text() == str(STEPS)
    name = row.locator("[data-key=name]").inner_text()
    row.click()
    page.find("dialog[open] button:text-is('Choose')").click()
    assert field.get_attribute("data-tip") == name
    assert not page.find("section button:text-is('Reaggregate')").is_disabled()


@pytest.fixture
def own(copied: Callable[[], Path]) -> Iterator[Asking]:
    """A server of a database that may be changed."""
    with serving(copied()) as asking:
        yield asking


@pytest.mark.statement("IT18", "IT19", "IT20", "IT21", "N06", "N07", "N08", "IT05")
def test_other_iterations_are_added_up(opened: Open, own: Asking):
    page = opened(own)
    page.go("iterations")
    page.find("[data-field=start]").fill("2")
    page.find("[data-field=stop]").fill("3")
    page.find("section button:text-is('Reaggregate')").click()
    dialog = page.find("dialog[open]")
    assert "2 to 3" in dialog.inner_text()
    dialog.locator("button:text-is('Cancel')").click()
    assert own.json("/api/jobs") == []
    page.find("section button:text-is('Reaggregate')").click()
    page.find("dialog[open] button:text-is('Reaggregate')").click()
    page.find("[data-job]").wait_for()
    page.go("op-types")  # the viewer can be used meanwhile
    page.find("[data-job=done]").wait_for()
    assert "Success!" in page.find("[data-job]").inner_text()
    page.settled()
    before = sum(int(text.replace(",", "")) for text in page.column("types", "calls"))
    page.find("[data-job] button:text-is('Refresh')").click()
    page.settled()
    box = page.find("header.noprint").first.get_by_label("Aggregation")
    assert box.locator("option").all_inner_texts() == ["Iterations 0 to 5", "Iterations 2 to 3"]
    assert all(
        title.startswith("Key operator") for title in box.locator("option").evaluate_all("o => o.map(x => x.title)")
    )
    after = sum(int(text.replace(",", "")) for text in page.column("types", "calls"))
    assert after * STEPS == before * 2
    box.select_option("1")
    page.settled()
    assert sum(int(text.replace(",", "")) for text in page.column("types", "calls")) == before
    page.go("iterations", agg="2")
    bars = page.find(f"{CHART} [data-bar]").all()
    assert [bar.locator("rect[data-part]").count() > 0 for bar in bars] == [
        False,
        False,
        True,
        True,
        False,
        False,
    ]
    assert "Outside the profile" in bars[0].get_attribute("data-tip")
    assert page.find("[data-badge=profiled]").inner_text() == "2"


@pytest.mark.statement(
    "KI01", "KI02", "KI03", "KI04", "KI05", "KI06", "KI07", "KI08", "KI09", "KI10", "KI11", "KI12", "KI13",
    "KI14", "KI15", "KI16", "KI17",
)  # fmt: skip
def test_kernels_by_iteration(page: Page, prof: profiles.Profile):
    page.go("iterations", tab="kernels")
    heads = page.headings("iterations")
    assert heads == [
        "Iteration",
        "Timestamp (ns)",
        "Duration (ns)",
        "Total Kernels",
        "TC Kernels",
        "Average GPU Time (ns)",
        "Average TC GPU Time (ns)",
    ]
    assert "Select an iteration above" in page.find("[data-panel=iteration-kernels]").inner_text()
    row = page.find("[data-table=iterations] tbody tr").nth(3)
    assert row.locator("[data-key=kernels]").inner_text() == "4"
    assert row.locator("[data-key=tc_kernels]").inner_text() == "1"
    meter = row.locator("[data-key=average_ns]")
    # Iteration 3: 70, 33, 12, 11 and a copy of 25 ns, on one GPU.
    length = int(prof.steps["duration_ns"].iloc[3])
    assert meter.inner_text().split("\n") == ["151 ns", f"{100 * 151 / length:.1f} %"]
    assert meter.locator(".track").count() == 1
    assert "151 ns" in meter.locator(".meter").get_attribute("data-tip")
    row.click()
    page.settled()
    heads = page.headings("launched")
    assert heads == [
        "Op Name",
        "Kernel Name",
        "Device ID",
        "Kernel Timestamp (ns)",
        "GPU Time (ns)",
        "Uses TC",
        "Grid",
        "Block",
    ]
    page.find("[data-table=launched] [data-sort=launch]").click()
    page.settled()
    page.find("[data-table=launched] [data-sort=launch]").click()
    page.settled()
    assert page.column("launched", "dur") == ["70", "33", "12", "11", "25"]  # as they were launched
    assert page.column("launched", "uses_tc")[:2] == ["✓", "✗"]
    assert page.column("launched", "grid")[0] == "40, 1, 1"
    page.find("[data-table=launched] [aria-label='Filter Uses TC']").fill("1")
    page.settled()
    assert page.column("launched", "dur") == ["70"]


@pytest.mark.statement(
    "KO01", "KO02", "KO03", "KO04", "KO05", "KO06", "KO07", "KO08", "KO09", "KO10", "KO11", "KO12", "KO13",
    "KO14", "KO15", "KO16", "KO17", "KO18", "KO19", "KO20", "KO21", "KO22", "KO23", "KO24", "KO25",
)  # fmt: skip
def test_kernels_by_op(page: Page):
    page.go("iterations", tab="ops")
    heads = page.headings("iterations")
    assert heads == [
        "Iteration",
        "Timestamp (ns)",
        "Duration (ns)",
        "Total Kernels",
        "TC Kernels",
        "Total GPU Time (ns)",
        "Total TC GPU Time (ns)",
    ]
    page.find("[data-table=iterations] tbody tr").nth(2).click()
    page.settled()
    heads = page.headings("iterops")
    for wanted in (
        "Op Name",
        "Direction",
        "Op Type",
        "Total Kernels",
        "TC Kernels",
        "Total GPU Time (ns)",
        "TC GPU Time (ns)",
        "Data Type",
        "Stack Trace",
    ):
        assert wanted in heads
    row = page.find("[data-table=iterops] tbody tr").filter(has_text="mm").first
    kernels = int(row.locator("[data-key=kernels]").inner_text())
    row.click()
    page.settled()
    heads = page.headings("opkernels")
    assert heads == [
        "Kernel Name",
        "Device ID",
        "Kernel Timestamp (ns)",
        "GPU Time (ns)",
        "Uses TC",
        "Grid",
        "Block",
    ]
    assert len(page.rows("opkernels")) == kernels == 2
    assert sorted(page.column("opkernels", "dur")) == ["32", "70"]
    page.find("[data-table=iterations] tbody tr").nth(4).click()
    page.settled()
    assert "Select an op above" in page.find("[data-panel=iteration-op-kernels]").inner_text()
