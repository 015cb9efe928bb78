# SPDX-License-Identifier: Apache-2.0
"""What people come for, each from the Overview in three clicks or a search: the answer has to be right."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import pytest

from pyprof import session
from tests.viewer.browser.conftest import Open, Page, plain
from tests.viewer.browser.test_memory_in_use import sizes
from tests.viewer.browser.test_plugin_workers import groups
from tests.viewer.browser.traces import GEMM, TC_KERNEL
from tests.viewer.conftest import Asking

COUNT = "addEventListener('click', (event) => event.isTrusted && (window.clicks = (window.clicks ?? 0) + 1), true)"


@pytest.fixture
def opened(opened: Open) -> Iterator[Open]:
    """Opens tabs in which a task takes no more than three clicks."""
    pages: list[Page] = []

    def open_(*arguments: Any, **options: Any) -> Page:
        pages.append(opened(*arguments, **options))
        pages[-1].tab.add_init_script(COUNT)
        return pages[-1]

    yield open_
    assert all(page.tab.evaluate("window.clicks ?? 0") <= 3 for page in pages)


def search(page: Page, text: str, option: str) -> None:
    page.tab.keyboard.press("/")
    page.tab.keyboard.type(text)
    page.find(f"#palette [role=option]:has(.what:has-text('{option}'))").first.click()
    page.settled()


def test_which_layer_costs_most(page: Page, prof: session.Profile):
    page.go()
    page.find("nav a:has-text('Operators')").click()
    page.settled()
    page.find("[role=tab][data-tab=module]").click()
    page.settled()
    page.find("button:has-text('Expand All')").click()
    page.settled()
    own = prof.report("module").sort_values("device_self_ns", ascending=False)
    shown = dict(zip(page.column("modules", "device_self_ns"), page.rows("modules")))
    assert f"{own['device_self_ns'].iloc[0]:,}" in shown


def test_which_line_costs_most_and_what_ran_because_of_it(page: Page, prof: session.Profile):
    page.go()
    page.find("nav a:has-text('Source lines')").click()
    page.settled()
    table = prof.report("source_line")
    first = table.iloc[0]
    assert page.column("lines", "line")[0] == (first["line"] or "–")
    assert page.column("lines", "device_self_ns")[0] == f"{first['device_self_ns']:,}"
    line = table["line"].dropna().iloc[0]
    page.find(f"[data-table=lines] tr[data-row='{line}']").click()
    page.settled()
    detail = prof.report("detail")
    mine = detail[[line in str(stack).split("\n") for stack in detail["stack"]]]
    total = page.find("[data-table=lineops] tfoot [data-total=gpu]")
    shown = total.inner_text() if total.count() else page.column("lineops", "gpu")[0]
    assert shown == f"{mine['gpu'].sum()}"


def test_an_operator_of_any_spelling_and_its_kernels(page: Page, prof: session.Profile):
    page.go()
    detail = prof.report("detail")
    one = detail[detail["type"] == "mm"].sort_values("gpu", ascending=False).iloc[0]
    search(page, one["op_id"].lower().replace("_", " "), "Operator")
    assert page.find("[data-table=ops] tr.picked").get_attribute("data-row") == one["op_id"]
    kernels = prof.report("kernel")
    mine = kernels[kernels["op_id"] == one["op_id"]].sort_values("gpu", ascending=False)
    assert page.column("opkernels", "kernel") == list(mine["kernel"])
    assert page.find(f"aside[data-drawer='op:{one['op_id']}']").count() == 1


def test_the_kernels_of_an_operator_of_torch(opened: Open, traces: Asking):
    page = opened(traces)
    page.go("overview", run="alpha")
    search(page, "addmm", "Operator of torch")
    assert page.column("operators", "name")[0].startswith("aten::addmm")
    page.find("[data-table=operators] a:has-text('Kernels')").click()
    page.settled()
    assert set(page.column("operator_kernels", "name")) == {"aten::addmm"}
    times = zip(page.column("operator_kernels", "kernel"), page.column("operator_kernels", "device_total_ns"))
    assert dict(times) == {TC_KERNEL: "200,000", GEMM: "120,000"}  # of two steps


def test_the_kernels_of_an_operator_that_launches_none_itself(opened: Open, traces: Asking):
    """aten::linear launches nothing: the product is that of the aten::addmm inside it."""
    page = opened(traces)
    page.go("overview", run="alpha")
    search(page, "aten::linear", "Operator of torch")
    page.find("[data-table=operators] a:has-text('Kernels')").click()
    page.settled()
    assert page.column("operator_kernels", "kernel") == [TC_KERNEL]
    assert page.column("operator_kernels", "device_self_ns") == ["0"]
    assert page.column("operator_kernels", "device_total_ns") == ["200,000"]


def test_a_kernel_by_its_name(page: Page, prof: session.Profile):
    page.go()
    name = prof.report("kernel_summary")["name"].iloc[0]
    search(page, name[:20], "Kernel ·")
    assert page.column("kernels", "name")[0] == name
    box = page.find("[data-table=kernels] tbody tr").first.bounding_box()
    assert box["y"] + box["height"] < 720  # in sight


def test_why_the_gpu_idles_and_where(page: Page, prof: session.Profile):
    page.go()
    page.find("nav a:has-text('GPUs')").click()
    page.settled()
    table = prof.report("idle")
    sums: dict[str, int] = table.groupby("cause")["total_ns"].sum().to_dict()
    cause = max(sums, key=lambda name: sums[name])
    row: Any = page.find(f"[data-cause='{cause}']")
    assert f"{sums[cause]} ns" in plain(row.inner_text())
    assert table[table["cause"] == cause]["advice"].iloc[0] in plain(row.inner_text())
    known = 100 * table["total_ns"][table["operator"].notna()].sum() / table["total_ns"].sum()
    assert f"{known:.1f} %" in plain(page.find("[data-known]").inner_text())
    row.locator("a").click()
    page.settled()
    assert set(page.column("idle", "cause")) == {cause}


def test_which_rank_is_late(opened: Open, ranks: Asking):
    """Rank 2 comes 200 us after rank 0 to the only collective of each of two steps."""
    page = opened(ranks)
    page.go()
    sentence = plain(page.find("[data-headline]").inner_text())
    assert (
        "rank2 is the straggler: last to arrive at 2 of 2 collectives, 400 µs behind the first rank in total: 200 µs "
        "are its own, 200 µs are also the median rank's. 400 µs of it is at all_reduce" in sentence
    )
    page.find("nav a:has-text('Workers')").click()
    page.settled()
    page.find("[role=tab][data-tab=stragglers]").click()
    page.settled()
    late = dict(zip(page.column("stragglers", "worker"), page.column("stragglers", "late_ns")))
    assert late == {"rank2": "400,000", "rank0": "0", "rank1": "0"}
    assert page.rows("stragglers")[0][0] == "rank2"
    page.find("[data-option=group_by]").select_option("collective")
    page.settled()
    assert "stragglers.o.group_by=collective" in page.parameters()


def test_why_an_operator_does_not_use_tensor_cores(page: Page, prof: session.Profile):
    page.go()
    page.find("nav a:has-text('Operators')").click()
    page.settled()
    table = prof.report("operator")
    reasons = dict(
        zip(table["name"], table["tcwhy"].fillna("–").replace("-", "–"))
    )  # unknown, or does not apply
    names = [text.split("\n")[0] for text in page.column("operators", "name")]
    assert page.column("operators", "tcwhy") == [reasons[name] for name in names]
    assert {"used", "–"} <= set(reasons.values())


def test_what_changed_from_before_to_after(opened: Open, traces: Asking):
    """Of two steps and of four, in us per step: the modules take 120 and 140, what is outside of them 80 and 80."""
    page = opened(traces)
    page.go("overview", run="alpha")
    page.find("nav a:has-text('Compare')").click()
    page.settled()
    changes = {name: texts[2] for name, texts in groups(page).items()}
    assert changes == {"Net_0": "+20.0 µs (16.7 %)", "outside of modules, or in several": "0 ns (0.0 %)"}


def test_what_holds_the_memory_at_its_peak(opened: Open, traces: Asking):
    page = opened(traces)
    page.go("overview", run="alpha")
    page.find("nav a:has-text('Memory')").click()
    page.settled()
    assert page.find("[data-panel=alive] h2").inner_text() == "In use at 315 µs, the peak"
    assert sizes(page) == {"linear": 2048, "relu": 1024, "no allocation recorded": 1024}


def test_an_export_for_a_colleague(page: Page, prof: session.Profile):
    page.go()
    page.find("nav a:has-text('Operators')").click()
    page.settled()
    page.find("[data-table=operators] button:has-text('Export')").click()
    with page.tab.expect_download() as download:
        page.find("[data-table=operators] a.item:has-text('CSV')").click()
    lines = download.value.path().read_text(encoding="utf-8").splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("Name,"))
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))
    table = prof.report("operator")
    assert [int(row["Device Self (ns)"]) for row in rows] == table["device_self_ns"].tolist()
    assert [row["TC Reason"] for row in rows] == table["tcwhy"].fillna("").tolist()


def test_a_link_shows_what_its_sender_saw(opened: Open):
    one, other = opened(), opened()
    one.go("operators", by="place", **{"ops.f.gpu": ">100ns", "ops.s": "cpu", "ops.n": "25"})
    other.tab.goto(one.tab.url)
    other.settled()
    assert one.rows("ops") == other.rows("ops")
    assert len(one.rows("ops")) > 1
    assert other.parameters() == one.parameters()


def test_the_source_of_what_is_slow(opened: Open, traces: Asking):
    page = opened(traces)
    page.go("overview", run="alpha")
    search(page, "linear", "Operator")
    page.find("aside button.frame").last.click()
    page.find("aside .here").wait_for()
    assert "of net.py" in page.find("aside .here").inner_text()
