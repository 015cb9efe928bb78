# SPDX-License-Identifier: Apache-2.0
"""Workers and the comparison of runs as torch.profiler's plugin for TensorBoard has them.

By hand: in each of the two steps of `ranks`, of 1000 us, rank r computes for 100 (r + 1) us and is in the collective
for 500 - 100 (r + 1) us, in which 200 are data transfer: rank 2, the last, waits for nobody."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.browser.conftest import Open, Page
from tests.server.conftest import Asking

US = 1000  # ns
SIZE = 4000  # bytes of a collective


def lines(page: Page, panel: str) -> dict[str, list[str]]:
    """What the tip of each bar says, by bar."""
    bars = page.find(f"[data-panel={panel}] [data-bar]").all()
    return {bar.get_attribute("data-bar"): bar.get_attribute("data-tip").split("\n")[1:] for bar in bars}


def part(name: str, us: int, whole: int) -> str:
    return f"{name}: {us} {'µs' if us else 'ns'} ({100 * us / whole:.1f} %)"


@pytest.mark.statement("PW03", "PW04", "PW01", "PW05", "PW06", "PW07", "PW08")
def test_computation_and_communication(opened: Open, ranks: Asking, on_cpu: Asking):
    page = opened(ranks)
    page.go("workers", tab="overlap")
    expected = {
        f"rank{r} · GPU {r}": [
            part("Computation alone", 100 * (r + 1), 1000), part("Overlapping", 0, 1000),
            part("Communication alone", 500 - 100 * (r + 1), 1000), part("Copies and Sets", 0, 1000),
            part("Device Idle", 500, 1000),
        ]
        for r in range(3)
    }  # fmt: skip
    assert lines(page, "overlap-bars") == expected
    step = page.find("label:has-text('Step') select")
    assert step.locator("option").all_inner_texts() == ["all (mean)", "5", "6"]
    step.select_option("6")
    page.settled()
    assert lines(page, "overlap-bars") == expected  # the steps are alike
    report = ranks.table("/api/reports/overlap", limit=1000)
    assert {row["computation_ns"] for row in report if row["worker"] == "rank1"} == {200 * US}
    page = opened(ranks)
    page.go("workers", tab="communication")
    waits = {0: 200, 1: 100, 2: 0}
    expected = {
        f"rank{r} · GPU {r}": [
            part("Data transfer", 200, 200 + wait),
            part("Synchronizing", wait, 200 + wait),
        ]
        for r, wait in waits.items()
    }
    assert lines(page, "comm-bars") == expected
    page.find("label:has-text('Step') select").select_option("5")
    page.settled()
    assert lines(page, "comm-bars") == expected
    keys = {
        "worker": [f"rank{r}" for r in waits], "name": ["all_reduce"] * 3, "calls": ["2"] * 3,
        "bytes": [f"{2 * SIZE:,}"] * 3, "bytes_avg": [f"{SIZE:,}"] * 3,
        "latency_ns": [f"{2 * (200 + wait) * US:,}" for wait in waits.values()],
        "latency_avg": [f"{(200 + wait) * US:,}" for wait in waits.values()],
        "transfer_ns": [f"{400 * US:,}"] * 3, "transfer_avg": [f"{200 * US:,}"] * 3,
        "wait_ns": [f"{2 * wait * US:,}" if wait else "0" for wait in waits.values()],
    }  # fmt: skip
    assert {key: page.column("communication", key) for key in keys} == keys
    page = opened(on_cpu)
    page.go("workers", tab="communication")
    assert "No collective" in page.find("main").inner_text()


def groups(page: Page) -> dict[str, tuple[str, ...]]:
    """What the tip of each group says of both runs and their difference, by group."""
    found = page.find("[data-group]").all()
    return {
        one.get_attribute("data-group"): tuple(
            line.split(": ")[1] for line in one.get_attribute("data-tip").split("\n")[1:5]
        )
        for one in found
    }


def height(page: Page, group: str, side: str) -> float:
    box: Any = page.find(f"[data-group='{group}'] [data-side={side}]").bounding_box()
    return float(box["height"])


@pytest.mark.statement("PD01", "PD03", "PD04", "PD05", "PD06", "PD07", "PD08", "PD09", "PW02")
def test_two_runs_side_by_side(opened: Open, traces: Asking):
    """In us, of two steps and of four: linear 200 and 400, relu 40 and 160, the addmm outside and the copy 160 and
    320. Per step that is linear 100 and 100, relu 20 and 40, the others 80 and 80."""
    page = opened(traces)
    page.go("compare")
    assert groups(page) == {
        "Net_0": ("120 µs", "140 µs", "+20.0 µs (16.7 %)", "120 µs and 140 µs"),
        "outside of modules, or in several": ("80.0 µs", "80.0 µs", "0 ns (0.0 %)", "200 µs and 220 µs"),
    }
    page.go("compare", per="run")
    for name in ("Base", "Other"):
        options = page.find(f"label:has-text('{name}') select option").all_inner_texts()
        assert options == ["alpha", "beta"]
    outside = "outside of modules, or in several"
    assert groups(page) == {
        "Net_0": ("240 µs", "560 µs", "+320 µs (133.3 %)", "240 µs and 560 µs"),
        outside: ("160 µs", "320 µs", "+160 µs (100.0 %)", "400 µs and 880 µs"),
    }
    assert height(page, "Net_0", "other") == pytest.approx(height(page, "Net_0", "base") * 560 / 240, rel=0.02)
    assert height(page, "Net_0", "delta") == pytest.approx(height(page, outside, "delta") * 2, rel=0.03)
    for line in ("base", "other"):
        points = page.find(f"[data-line={line}]").get_attribute("points").split()
        tops = [float(point.split(",")[1]) for point in points]
        assert len(tops) == 2
        assert tops[0] > tops[1]  # further down the page is less
    page.find("[data-group='Net_0']").click()
    page.settled()
    assert groups(page) == {
        "Linear_0": ("200 µs", "400 µs", "+200 µs (100.0 %)", "200 µs and 400 µs"),
        "relu": ("40.0 µs", "160 µs", "+120 µs (300.0 %)", "240 µs and 560 µs"),
    }
    page.find("[data-group='relu']").focus()
    page.tab.keyboard.press("Enter")
    page.settled()
    assert list(groups(page)) == ["(64, 16)"]
    back = page.find("[data-panel=difference] button:has-text('Back')")
    for count in (2, 2):
        back.click()
        page.until("[data-group]", count)
    assert "Net_0" in groups(page)
    page.find("button:has-text('Swap')").click()
    page.settled()
    assert groups(page)["Net_0"][2] == "-320 µs (-57.1 %)"
    assert page.find("label:has-text('Base') select").input_value() == "beta"
    page = opened(traces)
    page.go("compare", per="run")

    def heads() -> list[str]:
        return page.headings("compare")

    calls = ["Name", "Base Calls", "Other Calls", "Delta Calls", "Delta Calls (%)"]
    more = ["Direction", "Module", "Input Shapes", "Matched By"]
    assert heads() == [
        *calls,
        *(f"{side} Device Time (ns)" for side in ("Base", "Other", "Delta")),
        "Delta Device Time (%)",
        "Within Noise",
        *more,
    ]
    rows = {row[0]: row[1:9] for row in page.rows("compare")}
    assert rows["relu"] == ["2", "4", "2", "100", "40,000", "160,000", "120,000", "300"]
    assert rows["linear"] == ["2", "4", "2", "100", "200,000", "400,000", "200,000", "100"]
    page.find("label:has-text('Column') select").select_option("host_ns")
    page.settled()
    assert heads()[5:9] == [
        *(f"{side} Host Time (ns)" for side in ("Base", "Other", "Delta")),
        "Delta Host Time (%)",
    ]
    rows = {row[0]: row[5:9] for row in page.rows("compare")}
    assert rows["relu"] == ["180,000", "360,000", "180,000", "100"]
    assert groups(page)["Net_0"][:2] == ("500 µs", "1.00 ms")
    page.find("label:has-text('Column') select").select_option("calls")
    page.settled()
    assert heads() == [*calls, *more]
    assert groups(page)["Net_0"][:3] == ("4", "8", "+4 (100.0 %)")
    page.tab.get_by_label("Per iteration").select_option("iteration")
    page.settled()
    assert groups(page)["Net_0"][:3] == ("2", "2", "0 (0.0 %)")
    page = opened(traces)
    page.go("workers", run="beta", tab="devices")
    (first, second) = page.rows("devices")
    assert first == ["host_100", "0", "Tesla V100", f"{16 << 30:,}", "7.0", "80"]
    assert second[0] == "host_100 span 2"
    page.go("overview", run="beta")  # one process that was recorded twice is not two workers
    assert "2 spans" in page.find("[data-panel=top-ops] thead").inner_text()
    page.go("overview", run="beta", worker="1")
    assert "span" not in page.find("[data-panel=top-ops] thead").inner_text()
