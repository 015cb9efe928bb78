# SPDX-License-Identifier: Apache-2.0
"""Memory and modules as torch.profiler's plugin for TensorBoard has them, of `traces`."""

from __future__ import annotations

import re

import pytest

from tests.server.browser.conftest import Open, Page
from tests.server.conftest import Asking

US = 1000  # ns
# On the GPU, by hand, of both steps: us, bytes, in use after it, and the operator around it.
EVENTS = [
    (step + time, size, total, operator)
    for step in (0, 1000)
    for time, size, total, operator in (
        (145, 2048, 3072, "aten::addmm"), (315, 1024, 4096, "aten::relu"), (410, -1024, 3072, "unassociated"),
        (450, -2048, 1024, "aten::addmm"),
    )
]  # fmt: skip
# What was given, and until when.
ALLOCATIONS = [(s + a, s + b, size, op) for s in (0, 1000)
               for a, b, size, op in ((145, 450, 2048, "aten::addmm"), (315, 410, 1024, "aten::relu"))]  # fmt: skip


def allocated(page: Page) -> list[tuple[str, ...]]:
    return [tuple(row) for row in page.rows("events")]


def cells(some: list[tuple[int, int, int, str]]) -> list[tuple[str, ...]]:
    """Rows of the table of allocations, the largest first."""
    rows = sorted(some, key=lambda one: -one[2])
    return [(op, f"{size:,}", f"{a * US:,}", f"{b * US:,}", f"{(b - a) * US:,}") for a, b, size, op in rows]


def own(page: Page) -> dict[str, tuple[int, int]]:
    """Self size increase and self allocation size by operator."""
    keys = ("operator", "self_size_increase", "self_allocation_bytes")
    columns = [page.column("memory", key) for key in keys]
    return {op: (int(a.replace(",", "")), int(b.replace(",", ""))) for op, a, b in zip(*columns)}


def expected(low: float, high: float) -> dict[str, tuple[int, int]]:
    out: dict[str, tuple[int, int]] = {}
    for time, size, _, operator in EVENTS:
        if low <= time < high:
            one = out.get(operator, (0, 0))
            out[operator] = one[0] + size, one[1] + max(size, 0)
    return out


@pytest.mark.statement(
    "PM01", "PM02", "PM03", "PM04", "PM05", "PM06", "PM07", "PM08", "PM09", "PM10", "PM11", "PM13", "PM14",
)  # fmt: skip
def test_a_curve_of_memory_and_a_stretch_of_it(opened: Open, traces: Asking, on_cpu: Asking):
    page = opened(traces)
    page.go("memory", run="alpha")
    assert page.find("[data-panel=curve] h2").inner_text() == "Peak Memory Usage: 4.00 KiB"
    for curve in ("allocated", "reserved"):
        path = page.find(f"[data-curve={curve}]").get_attribute("d")
        assert re.fullmatch(r"M[\d. ]+(H[\d.]+V[\d.]+)+", path)  # steps
        assert path.count("H") == len(EVENTS) - 1
    behind = page.find("main .hidden table tbody tr").all()
    shown = [[cell.inner_text() for cell in row.locator("td").all()] for row in behind]
    (curve,) = (one for one in traces.json("/api/memory", run="alpha")["curves"] if one["device"] == 0)
    assert curve["allocated"] == [total for _, _, total, _ in EVENTS]
    assert curve["time"] == [time * US for time, *_ in EVENTS]
    assert [row[1] for row in shown] == [f"{total / 1024:.2f} KiB" for _, _, total, _ in EVENTS]
    assert {row[2] for row in shown} == {"8.00 KiB"}
    device = page.find("label:has-text('Device') select")
    assert device.locator("option").all_inner_texts() == ["host_100 · CPU", "host_100 · GPU 0"]
    device.select_option("host_100 · CPU")
    page.settled()
    assert page.find("[data-panel=curve] h2").inner_text() == "Peak Memory Usage: 512 B"
    assert own(page) == {"aten::addmm": (0, 1024)}
    page = opened(on_cpu)
    page.go("memory")
    assert "profile_memory=True" in page.find("main").inner_text()
    page = opened(traces)
    page.go("memory", run="alpha")
    svg = page.find("[data-panel=curve] svg")
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    page.tab.mouse.move(box["x"] + 70, box["y"] + 60)
    page.tab.mouse.down()
    page.tab.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 80, steps=4)
    page.tab.mouse.up()
    page.settled()
    low, high = (int(end) / US for end in re.search(r"time=(\d+)-(\d+)", page.parameters()).groups())  # type: ignore[union-attr]
    assert (low, 460 < high < 1000) == (145, True)  # the first step, by the place on the page
    assert own(page) == expected(low, high) | {"aten::linear": (0, 0)}
    page.find("input[aria-label='From, in ms']").fill("0.3")
    page.find("input[aria-label='From, in ms']").press("Enter")
    page.settled()
    page.find("input[aria-label='To, in ms']").fill("0.42")
    page.find("input[aria-label='To, in ms']").press("Enter")
    page.settled()
    assert own(page) == expected(300, 420) == {"aten::relu": (1024, 1024), "unassociated": (-1024, 0)}
    assert page.find("[data-panel=curve] h2").inner_text() == "Peak Memory Usage: 4.00 KiB"
    page.find("[data-tab=events]").click()
    page.settled()
    assert allocated(page) == cells([(315, 410, 1024, "aten::relu")])
    page.find("button:has-text('All the time')").click()
    page.until("[data-table=events] tbody tr", 4)
    assert "time=" not in page.parameters()
    page = opened(traces)
    page.go("memory", run="alpha")
    heads = page.headings("memory")
    assert heads == [
        "Operator", "Calls", "Size Increase (B)", "Self Size Increase (B)", "Allocation Count", "Self Allocation Count",
        "Allocation Size (B)", "Self Allocation Size (B)", "Peak (B)",
    ]  # fmt: skip
    # The first addmm is in linear, whose own events are none.
    assert own(page) == expected(0, 9999) | {"aten::linear": (0, 0)}
    row = next(row for row in page.rows("memory") if row[0] == "aten::linear")
    assert row[1:] == ["2", "4,096", "0", "2", "0", "4,096", "0", "3,072"]
    page.go("memory", run="alpha", tab="events")
    heads = page.headings("events")
    assert heads == ["Operator", "Size (B)", "Allocation Time (ns)", "Release Time (ns)", "Duration (ns)"]
    assert allocated(page) == cells(ALLOCATIONS)
    page.find("input[aria-label='Smallest size']").fill("1.5KiB")
    page.until("[data-table=events] tbody tr", 2)
    assert {row[1] for row in allocated(page)} == {"2,048"}
    page.find("input[aria-label='Smallest size']").fill("")
    page.find("input[aria-label='Largest size']").fill("1.5KB")
    page.until("[data-table=events] td[data-key=bytes][data-tip^='2,048 B']", 0)
    assert {row[1] for row in allocated(page)} == {"1,024"}
    page.find("input[aria-label='Largest size']").fill("")
    page.until("[data-table=events] tbody tr", 4)
    page.find("[data-table=events] input[aria-label='Filter Operator']").fill("relu")
    page.until("[data-table=events] tbody tr", 2)


def boxes(page: Page) -> dict[str, float]:
    """Widths of the flame graph's boxes, in % of the graph."""
    whole = page.find("[data-panel=flame] .flame").bounding_box()["width"]
    found = page.find("[data-flame]").all()
    return {one.get_attribute("data-flame"): 100 * one.bounding_box()["width"] / whole for one in found}


@pytest.mark.statement("PMO01", "PMO02", "PMO03", "PMO04")
def test_modules(opened: Open, traces: Asking, on_cpu: Asking):
    page = opened(traces)
    page.go("modules", run="alpha")
    page.find("[data-table=modules] button:text-is('Expand All')").click()
    page.until("[data-table=modules] tbody tr", 3)
    heads = page.headings("modules")
    assert heads == [
        "Name", "Level", "Occurrences", "Operators", "Host Total (ns)", "Host Self incl. API (ns)",
        "Device Busy Total (ns)", "Device Busy Self (ns)",
    ]  # fmt: skip
    # In us, of two steps: linear 160 and 100 on the GPU, relu 90 and 20, addmm outside 100 and 60, the copy 10 and 20.
    assert [row[0].strip("▸ \n") for row in page.rows("modules")] == [
        "Net_0", "Linear_0", "Outside modules"
    ]  # fmt: skip
    numbers = [[int(text.replace(",", "")) for text in row[4:]] for row in page.rows("modules")]
    assert numbers == [
        [500 * US, 180 * US, 240 * US, 40 * US], [320 * US, 320 * US, 200 * US, 200 * US],
        [220 * US, 220 * US, 160 * US, 160 * US],
    ]  # fmt: skip
    near = lambda value: pytest.approx(value, abs=0.2)  # noqa: E731
    assert boxes(page) == {"Net_0": near(60), "Net_0.Linear_0": near(50), "(outside)": near(40)}
    tip = page.find("[data-flame='Net_0.Linear_0']").get_attribute("data-tip")
    assert tip == "Net_0.Linear_0\nTotal: 200 µs (50.0 %)\nSelf: 200 µs"
    page.find("[data-flame='Net_0']").click()
    page.settled()
    assert boxes(page) == {"Net_0": near(100), "Net_0.Linear_0": near(100 * 200 / 240)}
    assert "zoom=Net_0" in page.parameters()
    page.find("[data-flame='Net_0']").click()
    page.settled()
    page.find("[data-flame='Net_0']").focus()
    for key in ("ArrowLeft", "ArrowRight", "ArrowDown", "Enter"):
        page.tab.keyboard.press(key)
    page.settled()
    assert boxes(page) == {"Net_0": near(100), "Net_0.Linear_0": near(100)}
    page.find("[data-flame='Net_0.Linear_0']").focus()
    page.tab.keyboard.press("Escape")
    page.settled()
    page.find("[data-panel=flame] select").select_option("host")
    page.settled()
    assert boxes(page) == {
        "Net_0": near(100 * 500 / 720), "Net_0.Linear_0": near(100 * 320 / 720), "(outside)": near(100 * 220 / 720)
    }  # fmt: skip
    page.go("modules", run="beta")
    assert boxes(page)["Net_0"] == near(100 * 560 / 880)  # relu takes 40 there, in each of four steps
    page = opened(on_cpu)
    page.go("modules")
    assert "with_modules=True" in page.find("main").inner_text()
