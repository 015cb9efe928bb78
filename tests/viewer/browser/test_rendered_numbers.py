# SPDX-License-Identifier: Apache-2.0
"""The same figure is the same number wherever it is written: in the page's text, in the API and on the command line.

What is compared is the text as a reader sees it, rounded to its unit; test_published.py compares the API, the command
line and Python with each other, exactly."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pyprof import session
from pyprof.commands import main
from pyprof.reports.headline import mean_step
from pyprof.rules.context import Run
from pyprof.viewer import demo
from tests.build import call, write_capture
from tests.build import recording as kernels_of
from tests.viewer.browser.conftest import Open, Page, plain, read
from tests.viewer.conftest import Asking, serving

SCALE = {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}


def nanoseconds(text: str) -> float:
    """A time as the page writes it."""
    number, unit = text.split()[:2]
    return float(number.replace(",", "")) * SCALE[unit]


def percent(text: str) -> float:
    """A share; of less than 0.1 the middle."""
    number = float(text.replace("%", "").strip("<> "))
    return number / 2 if text.startswith("<") else number


@pytest.fixture(scope="module", params=["steps", "example"])
def recording(request: pytest.FixtureRequest, made: Any) -> Any:
    """A recording with its server: that of the other tests, and the example that PyProf contains."""
    path = made if request.param == "steps" else demo.RECORDING
    with serving(path) as server:
        read(server)
        yield session.load(path), server, path


@pytest.fixture
def page(opened: Open, recording: tuple[session.Profile, Asking, Any]) -> Page:
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
        assert percent(share) == pytest.approx(100 * total / table["total_ns"].sum(), rel=0.06, abs=0.051), (
            key
        )
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
    shares = [
        plain(cause.inner_text()).partition(" % of the idle time")[0].rsplit(", ", 1)[-1] for cause in causes
    ]
    totals = prof.report("idle").groupby("cause")["total_ns"].sum().sort_values(ascending=False)
    assert [percent(share) for share in shares] == [
        pytest.approx(100 * total / idle, abs=0.051) for total in totals.iloc[: len(shares)]
    ]


def test_a_share_in_the_row_of_a_step_is_of_that_step(page: Page, recording: Any):
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
    assert percent(total) == pytest.approx(
        100 * table["kernel_ns"].sum() / table["total_ns"].sum(), abs=0.051
    )


def test_why_it_idles_is_said_as_the_table_is_grouped(page: Page, recording: Any):
    prof = recording[0]
    page.go("gpus")
    stacks = prof.report("idle")["line"].notna().any()
    by = page.find("[data-table=idle] [data-option=group_by]")
    assert by.input_value() == ("line" if stacks else "place")
    for grouping in ("line", "place"):
        by.select_option(grouping)
        page.settled()
        table = prof.report("idle", group_by=grouping)
        named = table.assign(
            name=table["line"] if grouping == "line" else table["operator"].fillna(table["host"])
        )
        for cause in page.find("[data-cause]").all():
            own = named[named["cause"] == cause.get_attribute("data-cause")]
            known = own.dropna(subset="name").nlargest(1, "total_ns")
            if not len(known):
                assert cause.locator("code").count() == 0
                continue
            first = known.iloc[0]
            assert cause.locator("code").inner_text() == first["name"]
            shares = re.findall(r"([<> \d.]+ %) of it", plain(cause.inner_text()))
            assert [percent(share) for share in shares or ["100 %"]] == [
                pytest.approx(100 * first["total_ns"] / own["total_ns"].sum(), abs=0.11)
            ]
            rows = [row for row in page.rows("idle") if row[0] == first["cause"] and first["name"] in row]
            assert rows[0][1] == f"{first['total_ns']:,}"


def test_what_is_equal_in_every_row_is_said_once(opened: Open, recording: Any, tmp_path: Path):
    """No function of the second program that calls an operator calls another one."""
    flat = "".join(
        f"{call(f'torch.{name}', (64, 16), trace=(f'net.py:{line}',))}\n    > 70 {name}_kernel\n"
        for line, name in enumerate(("relu", "tanh"), 1)
    )
    path = write_capture(tmp_path / "flat.sqlite", kernels_of(flat))
    with serving(path) as server:
        read(server)
        for asking, nests in ((recording[1], True), (server, False)):
            page = opened(asking)
            page.go("lines")
            for total in ("device_total_ns", "host_total_ns"):
                assert bool(page.column("lines", total)) == nests
                assert page.find(f"[data-same={total}]").count() == (not nests)
            assert {"Operator Calls", "Kernels"} <= set(page.headings("lines"))
        assert page.find("[data-same=device_total_ns]").inner_text() == (
            "Device Busy Total is not shown: it equals Device Busy Self in every row."
        )


def test_the_top_operator_and_the_kernels(page: Page, recording: Any):
    prof = recording[0]
    detail = prof.report("detail")
    detail = detail.assign(line=detail["stack"].str.rpartition("\n")[2])
    group = detail.groupby(["type", "direction", "shapes", "line"], dropna=False)["gpu"].sum().max()
    page.go()
    top = page.find("[data-panel=top-ops] td[data-key=time]").first
    assert nanoseconds(top.inner_text()) == pytest.approx(group, rel=0.005)
    assert percent(top.get_attribute("data-percent")) == pytest.approx(
        100 * group / detail["gpu"].sum(), abs=0.051
    )
    page.go("kernels")
    kernels = prof.report("kernel_summary")
    assert page.column("kernels", "total_ns") == [f"{one:,}" for one in kernels["total_ns"].head(25)]
    total = page.find("[data-table=kernels] tfoot [data-total=total_ns]").get_attribute("data-tip")
    assert total.splitlines()[0] == f"{kernels['total_ns'].sum():,} ns"
    page.go("operators")
    operators = prof.report("operator").sort_values("device_self_ns", ascending=False, kind="stable")
    if len(operators):  # of torch's, which a recording with markers alone has not
        assert page.column("operators", "device_self_ns")[0] == f"{operators['device_self_ns'].iloc[0]:,}"


def test_a_row_without_a_roofline_says_why(page: Page, recording: Any):
    kernels = recording[0].report("kernel_summary").head(25)
    empty = kernels["efficiency"].isna().all()
    page.go("kernels", **({"kernels.h": "efficiency"} if empty else {}))
    cells = page.find("[data-table=kernels] tbody td[data-key=efficiency]").all()
    assert len(cells) == len(kernels)
    for cell, value, why in zip(cells, kernels["efficiency"], kernels["roofline_why"]):
        if value != value:
            assert cell.locator("[data-tip]").get_attribute("data-tip") == f"Unknown: {why}"
            assert cell.locator("[role=img]").get_attribute("aria-label") == f"unknown: {why}"
