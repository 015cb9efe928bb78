# SPDX-License-Identifier: Apache-2.0
"""Operators and kernels as torch.profiler's plugin for TensorBoard has them.

By hand, of the two steps of `traces` in us. addmm runs kernels of 100 and 60, relu of 20; nobody called the copy of
20. linear, 160 long, has an addmm of 140 in it; another addmm lasts 100, relu 90; each launch takes 10 of the one
around."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.browser.conftest import Open, Page
from tests.server.browser.traces import GEMM, RELU, TC_KERNEL
from tests.server.conftest import Asking

US = 1000  # ns
WORK = ("Roofline Efficiency (%)", "MFU (%)", "Bound", "TC Reason")  # ours, after those of the plugin
DEVICE_SELF = {"aten::addmm": 320, "aten::relu": 40, "unassociated": 40}
DEVICE_TOTAL = {"aten::addmm": 320, "aten::linear": 200, "aten::relu": 40, "unassociated": 40}
HOST_SELF = {"aten::addmm": 440, "aten::relu": 160, "aten::linear": 40}
HOST_TOTAL = {"aten::addmm": 480, "aten::linear": 320, "aten::relu": 180}
DONUTS = {
    "device_self_ns": DEVICE_SELF,
    "device_total_ns": DEVICE_TOTAL,
    "host_self_ns": HOST_SELF,
    "host_total_ns": HOST_TOTAL,
}


def slices(page: Page, panel: str) -> dict[str, float]:
    """Shares of a donut by name."""
    rows = page.find(f"[data-panel={panel}] [data-legend]").all()
    return {one.get_attribute("data-legend"): float(one.locator(".amount").inner_text().split()[0]) for one in rows}


def shares(times: dict[str, int], most: int = 10, overlapping: bool = False) -> dict[str, Any]:
    """Shares of all, as the table has them; of times that overlap, and so have no sum, of those that are shown."""
    kept = dict(sorted(times.items(), key=lambda one: -one[1])[:most])
    others = 0 if overlapping else sum(times.values()) - sum(kept.values())
    kept |= {"\0others": others} if others else {}
    return {name: pytest.approx(100 * time / sum(kept.values()), abs=0.051) for name, time in kept.items()}


def times(page: Page, table: str, key: str) -> list[int]:
    return [int(text.replace(",", "")) for text in page.column(table, key) if text != "–"]


@pytest.mark.statement(
    "PP01", "PP02", "PP03", "PP04", "PP05", "PP06", "PP10", "PP21", "PP08", "PP09", "PP11", "PP12", "PP13",
    "PP14", "PP15", "PP16", "PP19", "PP07",
)  # fmt: skip
def test_operators(opened: Open, traces: Asking, on_cpu: Asking):
    page = opened(traces)
    page.go("operators", run="alpha")
    for panel, expected in DONUTS.items():
        assert slices(page, panel) == shares(expected), panel
    for tip in (page.find(f"[data-panel={panel}] .info").get_attribute("data-tip") for panel in DONUTS):
        assert "busy all the time" in tip
    number = page.find("input[aria-label='How many operators']")
    assert (number.input_value(), page.find("input[name=top]").nth(1).is_checked()) == ("10", True)
    number.fill("2")
    page.until("[data-panel=host_total_ns] [data-legend]", 2)
    for panel, expected in DONUTS.items():
        assert slices(page, panel) == shares(expected, 2, overlapping="total" in panel), panel
    assert "top=2" in page.parameters()
    page.find("[data-option=by]").select_option("shapes")
    page.settled()
    assert slices(page, "host_total_ns") == shares(HOST_TOTAL, 2, overlapping=True)
    page.find("label:has-text('All operators') input").check()
    page.settled()
    assert slices(page, "device_total_ns") == shares(DEVICE_TOTAL)
    page = opened(traces)
    page.go("operators", run="alpha")
    assert page.headings("operators") == [
        "Name", "Calls", "Device Self (ns)", "Device Total (ns)", "Host Self (ns)", "Host Total (ns)",
        "Tensor Cores Eligible", "Tensor Cores Self (%)", "Tensor Cores Total (%)", *WORK,
    ]  # fmt: skip
    names = [text.split("\n")[0] for text in page.column("operators", "name")]
    assert names == ["aten::addmm", "aten::relu", "unassociated", "aten::linear"]
    for key, expected in DONUTS.items():
        shown = page.column("operators", key)
        assert [text.replace(",", "") for text in shown] == [
            str(expected[name] * US) if name in expected else ("0" if key.startswith("device") else "–")
            for name in names
        ]
    assert page.column("operators", "calls") == ["4", "2", "–", "2"]
    marks = page.find("[data-table=operators] td[data-key=tc_eligible]").all()
    assert [mark.inner_text().strip() for mark in marks] == ["✓", "✗", "–", "✓"]
    assert page.column("operators", "tc_self") == ["62.5", "0", "–", "–"]  # 100 of 160
    assert page.column("operators", "tc_total") == ["62.5", "0", "–", "100"]
    page.find("[data-table=operators] input[type=search]").fill("LIN")
    page.until("[data-table=operators] tbody tr", 1)
    assert page.column("operators", "host_total_ns") == ["320,000"]
    page.go("operators", run="alpha", **{"operators.o.by": "shapes", "operators.f.name": "addmm"})
    assert page.column("operators", "shapes") == ["(64, 32); (32, 16)", "(8, 32); (32, 16)"]
    assert times(page, "operators", "device_self_ns") == [200 * US, 120 * US]
    page = opened(on_cpu)
    page.go("operators")
    assert page.find("[data-panel]").count() == 2
    own = times(page, "operators", "host_self_ns")
    assert own == sorted(own, reverse=True) != []


@pytest.mark.statement("PP17", "PP18")
def test_call_stacks_lead_to_the_source(opened: Open, traces: Asking):
    page = opened(traces)
    page.go("operators", run="alpha")
    page.find("button[aria-label='View call stacks of aten::addmm']").click()
    page.find("[data-panel=stacks]").wait_for()
    page.settled()
    frames = [
        [one.get_attribute("data-frame") for one in row.locator("[data-frame]").all()]
        for row in page.find("[data-table=stack] tbody tr").all()
    ]
    assert frames == [["train.py:3", "net.py:2"], ["train.py:3"]]  # outermost first
    assert times(page, "stack", "device_self_ns") == [200 * US, 120 * US]
    assert times(page, "stack", "host_total_ns") == [280 * US, 200 * US]
    page.find("[data-frame='net.py:2']").click()
    page.find("aside[data-drawer='source:net.py:2'] .here").wait_for()
    assert page.find("aside .here").inner_text().split("\n")[0].endswith("line 2 of net.py")
    page.find("[data-panel=stacks] button[aria-label='Close the call stacks']").click()
    page.find("[data-panel=stacks]").wait_for(state="detached")
    # Of one shape alone, where rows are of shapes.
    page.go("operators", run="alpha", **{"operators.o.by": "shapes"})
    page.find("button[aria-label='View call stacks of aten::addmm']").last.click()
    page.find("[data-panel=stacks]").wait_for()
    page.settled()
    assert times(page, "stack", "device_self_ns") == [120 * US]


@pytest.mark.statement(
    "PK01", "PK02", "PK03", "PK04", "PK12", "PK05", "PK06", "PK07", "PK08", "PK09", "PK10", "PK11",
)  # fmt: skip
def test_kernels(opened: Open, traces: Asking, on_cpu: Asking):
    page = opened(traces)
    page.go("kernels", run="alpha", top="2")
    assert slices(page, "kernel-time") == shares({TC_KERNEL: 200, GEMM: 120, RELU: 40}, 2)
    page.find("label:has-text('All kernels') input").check()
    page.settled()
    assert slices(page, "kernel-time") == shares({TC_KERNEL: 200, GEMM: 120, RELU: 40})
    assert slices(page, "tc-time") == shares({"tc": 200, "kernel": 160})
    assert "fully busy" in page.find("[data-panel=kernel-time] .info").get_attribute("data-tip")
    colours = page.tab.eval_on_selector_all(
        "[data-panel=tc-time] [data-slice]", "all => all.map(e => e.getAttribute('fill'))"
    )
    assert colours == ["var(--c-tc)", "var(--c-kernel)"]
    page = opened(on_cpu)
    page.go("kernels")
    assert "Everything ran on the CPU" in page.find("main").inner_text()
    page.tab.keyboard.press("/")
    page.tab.keyboard.type("gpu kernel")
    assert "Roofline" in page.find("dialog[open]").inner_text()  # as the view is called without a GPU
    page = opened(traces)
    page.go("kernels", run="alpha")
    whole = [
        "Name", "Operator", "Grid", "Block", "Registers Per Thread", "Shared Memory (B)", "Tensor Cores Used",
        "Op Tensor Cores Eligible", "Calls", "Total (ns)", "Mean (ns)", "Max (ns)", "Min (ns)", "Mean Blocks Per SM",
        "Mean Est. Achieved Occupancy (%)", *WORK, "FLOP Rate (FLOP/s)", "Bandwidth (GB/s)", "Intensity (FLOP/B)",
    ]  # fmt: skip
    of_operator = ("Operator", "Op Tensor Cores Eligible")
    assert page.headings("kernels") == [one for one in whole[:1] + whole[6:] if one not in of_operator]
    assert page.column("kernels", "name") == [TC_KERNEL, GEMM, RELU.removeprefix("void ")]  # and no copy
    assert times(page, "kernels", "total_ns") == [200 * US, 120 * US, 40 * US]
    assert page.column("kernels", "calls") == ["2", "2", "2"]
    for key in ("mean_ns", "max_ns", "min_ns"):
        assert times(page, "kernels", key) == [100 * US, 60 * US, 20 * US]
    assert page.column("kernels", "blocks_per_sm") == ["0.5", "1", "2"]
    assert page.column("kernels", "occupancy") == ["50", "50", "50"]
    page.go("kernels", run="alpha", tab="properties")
    times_first = ["Calls", "Total (ns)", "Mean (ns)"]  # what it is sorted by, in sight
    assert page.headings("properties") == [
        *whole[:2], *times_first, *(one for one in whole[2:] if one not in times_first)
    ]  # fmt: skip
    assert page.column("properties", "grid") == ["40, 1, 1", "80, 1, 1", "160, 1, 1"]
    assert page.column("properties", "registers") == ["32", "32", "32"]
    assert page.column("properties", "shared_memory") == ["1,024"] * 3
    page.find("[data-table=properties] input[aria-label='Filter Operator']").fill("addmm")
    page.until("[data-table=properties] tbody tr", 2)
    assert page.column("properties", "name") == [TC_KERNEL, GEMM]
    page.go("kernels", run="alpha", tab="operators")
    assert page.headings("operators") == [one for one in whole if one not in whole[2:6]]
    assert page.column("operators", "operator") == ["aten::addmm", "aten::addmm", "aten::relu"]
    marks = page.find("[data-table=operators] td[data-key=tc_eligible]").all()
    assert [mark.inner_text().strip() for mark in marks] == ["✓", "✓", "✗"]
    page.find("[data-table=operators] input[type=search]").fill("relu_kernel")
    page.until("[data-table=operators] tbody tr", 1)
    assert page.column("operators", "name") == [RELU.removeprefix("void ")]


def test_a_rectangle_of_the_roofline_zooms_in_and_filters_the_table(opened: Open, example: Asking):
    """The rows are those of the points in it."""
    page = opened(example)
    page.go("kernels")
    points = page.find("[data-panel=roofline] [data-point]")
    total = points.count()
    points.last.scroll_into_view_if_needed()
    box = page.find("[data-panel=roofline] svg").bounding_box()
    x, y, width, height = (box[key] for key in ("x", "y", "width", "height"))
    page.tab.mouse.move(x + 0.5 * width, y + 5)
    page.tab.mouse.down()
    page.tab.mouse.move(x + 0.88 * width, y + 0.5 * height)
    page.tab.mouse.up()
    inside = {one.get_attribute("data-tip").split("\n")[0] for one in points.all()}
    assert inside
    assert points.count() < total
    page.find("[data-panel=roofline] button:has-text('Filter Table')").click()
    page.settled()
    names = page.find("[data-table=kernels] tbody td[data-key=name]")
    shown = [one.inner_text().replace("\n", "") for one in names.all()]
    assert sorted(shown) == sorted(name.removeprefix("void ") for name in inside)
