# SPDX-License-Identifier: Apache-2.0
"""The overview as torch.profiler's plugin for TensorBoard has it, and the choice of runs, workers and spans.

By hand, of each step of `traces` in us: kernels 100 + 20 + 60 = 180, a copy 20, API calls 4 x 10, the data loader 100.
Of the operators [130, 290), [310, 400) and [420, 520) kernels hide [200, 300), [330, 350) and [440, 500), API calls
[150, 160), [320, 330) and [430, 440): 50 + 60 + 30 = 140 are left, and 10 of the functions' calls are no operator.
The steps last 1000 and 1200."""

from __future__ import annotations

import pytest

from tests.server.browser.conftest import Open, Page
from tests.server.conftest import Asking

CATEGORIES = {
    "kernel": ("Kernel", 180), "memcpy": ("Memcpy", 20), "memset": ("Memset", 0), "communication": ("Communication", 0),
    "runtime": ("Runtime", 40), "dataloader": ("DataLoader", 100), "cpu": ("CPU", None), "other": ("Other", None),
}  # fmt: skip
MEAN = 1100  # us, of a step


@pytest.fixture
def alpha(opened: Open, traces: Asking) -> Page:
    page = opened(traces)
    page.go(run="alpha")
    return page


def tips(page: Page, selector: str) -> list[str]:
    return [one.get_attribute("data-tip") for one in page.find(selector).all()]


@pytest.mark.statement("PO01", "PO02", "PO03", "PO04", "PO05", "PO06", "PO07", "PO08", "PO15", "PO16")
def test_configuration_and_step_time(alpha: Page, traces: Asking):
    panel = "[data-panel=configuration]"
    assert alpha.find(f"{panel} [data-figure=workers]").inner_text() == "1"
    assert alpha.find(f"{panel} [data-figure=device_type]").inner_text() == "GPU"
    shown = {one.get_attribute("data-fact"): one.inner_text() for one in alpha.find(f"{panel} [data-fact]").all()}
    # 180 of 1000 and of 1200 us; of 80 multiprocessors 40 have a block for 100 us, all of them for 80.
    busy, filled = 100 * 360 / 2200, 100 * 2 * (100 * 0.5 + 80) / 2200
    assert shown == {
        "name": "Tesla V100", "memory_bytes": "16.0 GiB", "compute_capability": "7.0", "utilization": f"{busy:.1f} %",
        "sm_efficiency": f"{filled:.1f} %", "achieved_occupancy": "50.0 %", "tc_share": f"{100 * 100 / 180:.1f} %",
    }  # fmt: skip
    columns = {c["key"]: c["text"] for c in traces.json("/api/reports/gpu", run="alpha")["columns"]}
    assert tips(alpha, f"{panel} .info") == [columns[key] for key in shown]
    bars = alpha.find("[data-panel=step-time] [data-bar]").all()
    assert [bar.get_attribute("data-bar") for bar in bars] == ["1", "2"]
    rows = traces.table("/api/reports/step_time", run="alpha", categories="phase")
    for bar, row in zip(bars, rows):
        lines = bar.get_attribute("data-tip").split("\n")
        assert lines[0] == f"Step {row['step']}: {row['total_ns'] / 1e6:.2f} ms"
        assert lines[1] == f"Forward: 180 µs ({100 * 180_000 / row['total_ns']:.1f} %)"
        parts = [part.get_attribute("data-part") for part in bar.locator("[data-part]").all()]  # those that are not 0
        times = {key.removesuffix("_ns") for key in row if key.endswith("_ns") and row[key]} - {"total"}
        assert set(parts) == times
        assert len(lines) == 1 + len({key for one in rows for key in one if key.endswith("_ns") and one[key]}) - 1


@pytest.mark.statement("PO09", "PO10", "PO11", "PO12", "PO13", "PO14")
def test_execution_summary(alpha: Page, traces: Asking):
    alpha.go("summaries", run="alpha", tab="tensorboard")
    rows = alpha.find("[data-panel=execution] [data-category]").all()
    shown = {row.get_attribute("data-category"): row.inner_text().split("\t") for row in rows}
    assert [name.strip() for name, *_ in shown.values()] == [
        "Average Step Time",
        *(heading for heading, _ in CATEGORIES.values()),
    ]
    assert [text.strip() for text in shown["total"][1:]] == ["1.10 ms", "100.0 %"]
    for key, (_, us) in CATEGORIES.items():
        if us is not None:
            assert float(shown[key][2].split()[0]) == pytest.approx(100 * us / MEAN, abs=0.051), key
    exact = {row.get_attribute("data-category"): row.locator("td").nth(1).get_attribute("data-tip") for row in rows}
    times = {key: float(text.removesuffix(" ns").replace(",", "")) for key, text in exact.items()}
    for key, (_, us) in CATEGORIES.items():
        if us is not None:
            assert times[key] == us * 1000
    assert times.pop("total") == sum(times.values()) == MEAN * 1000
    report = traces.table("/api/reports/step_time", run="alpha")
    assert times["cpu"] == sum(row["cpu_ns"] for row in report) / 2
    columns = {c["key"]: c["text"] for c in traces.json("/api/reports/step_time", run="alpha")["columns"]}
    said = [row.locator("td").first.get_attribute("data-tip") for row in rows[1:]]
    assert said == [columns[f"{key}_ns"] for key in CATEGORIES]
    assert "first" in alpha.find("[data-panel=execution] .info").get_attribute("data-tip")
    pie = {tip.split(":")[0]: tip for tip in tips(alpha, "[data-panel=execution] [data-slice]")}
    assert list(pie) == [heading for key, (heading, _) in CATEGORIES.items() if times[key]]
    assert pie["Memcpy"].startswith("Memcpy: 20.0 µs, 1.8 %")


@pytest.mark.statement("PO18", "PO19")
def test_seven_categories_and_what_to_do(alpha: Page, opened: Open, ranks: Asking, traces: Asking):
    found = [one for one in traces.json("/api/insights", run="alpha")["expert"] if one["outcome"] == "found"]
    panel = alpha.find("[data-panel=expert]")
    assert panel.locator("[data-finding]").count() == len(found) > 0
    for one in found:
        assert one["advice"][:20] in panel.inner_text()
    page = opened(ranks)
    page.go("workers")
    kernel = [int(text.replace(",", "")) for text in page.column("steps", "kernel_ns")]
    collective = [int(text.replace(",", "")) for text in page.column("steps", "communication_ns")]
    page.find("[data-option=categories]").select_option("7")
    page.settled()
    assert page.column("steps", "communication_ns") == []
    both = [int(text.replace(",", "")) for text in page.column("steps", "kernel_ns")]
    assert both == [one + other for one, other in zip(kernel, collective)]
    assert sum(collective) > 0


@pytest.mark.statement("PR01", "PR02", "PR03", "PR05", "PR10")
def test_runs_workers_and_spans(alpha: Page):
    header = alpha.find("header.noprint label")
    run = header.filter(has_text="Run").locator("select")
    assert run.locator("option").all_inner_texts() == ["alpha", "beta"]
    assert header.count() == 1  # one worker of one span
    run.select_option("beta")
    alpha.tab.wait_for_selector("header label:has-text('Worker')")
    alpha.settled()
    worker = header.filter(has_text="Worker").locator("select")
    assert worker.locator("option").all_inner_texts() == ["All 2", "host_100"]
    steps = alpha.find("[data-panel=step-time]")
    assert steps.locator("[data-bar]").count() == 2  # of the first worker; the panel has a list of both
    steps.locator("select").select_option(index=1)
    assert steps.locator("[data-bar]").count() == 2
    assert not header.filter(has_text="Span").count()
    worker.select_option("host_100")
    alpha.settled()
    span = header.filter(has_text="Span").locator("select")
    assert span.locator("option").all_inner_texts() == ["1", "2"]
    span.select_option("2")
    alpha.settled()
    assert alpha.find("[data-panel=step-time] [data-bar]").count() == 2
    assert {"run=beta", "worker=1"} <= set(alpha.parameters().partition("?")[2].split("&"))
    names = alpha.find("nav a").all_inner_texts()
    for name in ("Overview", "Operators", "Kernels", "Memory", "Workers", "Compare"):
        assert name in names
    alpha.go("memory", run="alpha")
    assert "Peak Memory Usage" in alpha.find("main").inner_text()
