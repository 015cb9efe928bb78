# SPDX-License-Identifier: Apache-2.0
"""The same figure is the same number wherever it is written: in the page's text, in the API and on the command line.

What is compared is the text as a reader sees it, rounded to its unit; test_published.py compares the API, the command
line and Python with each other, exactly."""

from __future__ import annotations

from typing import Any

import pytest

from pyprof import profiles
from pyprof.commands import main
from pyprof.reports.headline import mean_step
from pyprof.rules.context import Run
from pyprof.server import demo
from tests.server.browser.conftest import Open, Page, plain
from tests.server.conftest import Asking

SCALE = {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}


def nanoseconds(text: str) -> float:
    """A time as the page writes it."""
    number, unit = text.split()[:2]
    return float(number.replace(",", "")) * SCALE[unit]


def percent(text: str) -> float:
    """A share; of less than 0.1 the middle."""
    number = float(text.replace("%", "").strip("<> "))
    return number / 2 if text.startswith("<") else number


@pytest.fixture(scope="module")
def recording(example: Asking) -> Any:
    """The example that PyProf contains, with its server."""
    return profiles.load(demo.RECORDING), example, demo.RECORDING


@pytest.fixture
def page(opened: Open, recording: tuple[profiles.Profile, Asking, Any]) -> Page:
    return opened(recording[1])


def test_the_step(page: Page, recording: Any, capsys: pytest.CaptureFixture[str]):
    prof, _, path = recording
    step = mean_step(prof.source(), Run(prof.source()))
    table = prof.report("step_time", categories="phase")
    table = table[~table["partial"].fillna(False)]
    assert main.main(["report", str(path)]) == 0
    terminal = capsys.readouterr().out
    page.go()
    sentence = plain(page.find("[data-headline]").inner_text())
    mean = sentence.removeprefix("A step takes ").partition(",")[0]
    assert nanoseconds(mean) == pytest.approx(step.length, rel=0.005)
    assert f"Step {mean}, mean of {step.number} steps" in terminal.splitlines()[0]
    assert page.find("[data-step-total]").inner_text() == mean
    assert step.length == pytest.approx(table["total_ns"].mean())
    parts = page.find("[data-legend-part]").all()
    shown = {}
    for part in parts:
        time, share = part.locator(".num").all()
        shown[part.get_attribute("data-legend-part")] = time.get_attribute("data-tip"), share.inner_text()
    for key, (time, share) in shown.items():
        total = table[f"{key}_ns"].sum()
        assert nanoseconds(time) == pytest.approx(total / len(table), rel=0.006, abs=0.5), key
        assert percent(share) == pytest.approx(100 * total / table["total_ns"].sum(), rel=0.06, abs=0.051), key
    assert sum(percent(share) for _, share in shown.values()) == pytest.approx(100, abs=0.4)


def test_busy_idle_and_tensor_cores(page: Page, recording: Any):
    prof = recording[0]
    gpu = prof.report("gpu").iloc[0]
    idle = prof.report("idle")["total_ns"].sum()
    kernels = prof.report("kernel_summary")
    steps = prof.report("step_time")
    page.go()
    facts = {one.get_attribute("data-fact"): one.inner_text() for one in page.find("[data-fact]").all()}
    assert percent(facts["utilization"]) == pytest.approx(gpu["utilization"], abs=0.051)
    assert percent(facts["tc_share"]) == pytest.approx(gpu["tc_share"], abs=0.051)
    with_tc = kernels.loc[kernels["tc"].fillna(False), "total_ns"].sum()
    assert percent(facts["tc_share"]) == pytest.approx(100 * with_tc / kernels["total_ns"].sum(), abs=0.051)
    tips = [part.get_attribute("data-tip") for part in page.find("[data-stepbar] [data-part]").all()]
    shares = [
        percent(tip.rsplit(", ", 1)[1].removesuffix(" of a step"))
        for tip in tips
        if not tip.startswith(("Idle", "DataLoader"))
    ]
    busy = steps[["kernel_ns", "memcpy_ns", "memset_ns", "communication_ns"]].sum().sum()
    assert sum(shares) == pytest.approx(100 * busy / steps["total_ns"].sum(), abs=0.051 * len(shares))
    page.go("gpus")
    assert float(page.column("gpus", "utilization")[0]) == pytest.approx(gpu["utilization"], abs=0.00005)
    causes = page.find("[data-cause]").all()
    shares = [plain(cause.inner_text()).partition(" % of the idle time")[0].rsplit(", ", 1)[-1] for cause in causes]
    totals = prof.report("idle").groupby("cause")["total_ns"].sum().sort_values(ascending=False)
    assert [percent(share) for share in shares] == [
        pytest.approx(100 * total / idle, abs=0.051) for total in totals.iloc[: len(shares)]
    ]
    table = recording[0].report("step_time")
    parts = [key for key in table if key.endswith("_ns") and key != "total_ns" and table[key].notna().all()]
    page.go("workers")
    shown = page.find("[data-table=steps] tbody tr").all()
    assert len(shown) == len(table) > 1
    for row, step in zip(shown, table.to_dict("records")):
        assert row.locator("[data-key=total_ns]").get_attribute("data-percent") is None  # it is the whole
        for key in parts:
            share = row.locator(f"[data-key={key}]").get_attribute("data-percent")
            assert percent(share) == pytest.approx(100 * step[key] / step["total_ns"], abs=0.051), key
    total = page.find("[data-table=steps] tfoot [data-total=kernel_ns]").get_attribute("data-percent")
    assert percent(total) == pytest.approx(100 * table["kernel_ns"].sum() / table["total_ns"].sum(), abs=0.051)
