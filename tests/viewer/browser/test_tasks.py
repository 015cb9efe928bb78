# SPDX-License-Identifier: Apache-2.0
"""What people come for, each from the Overview in three clicks or a search: the answer has to be right."""

from __future__ import annotations

from typing import Any

from pyprof import session
from tests.viewer.browser.conftest import Open, Page
from tests.viewer.conftest import Asking


def search(page: Page, text: str, option: str) -> None:
    page.tab.keyboard.press("/")
    page.tab.keyboard.type(text)
    page.find(f"#palette [role=option]:has-text('{option}')").first.click()
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
    shown = total.inner_text() if total.count() else f"{page.column('lineops', 'gpu')[0]} ns"
    assert shown == f"{mine['gpu'].sum()} ns"


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
    shown = {row[1] for row in page.rows("operators")}
    assert shown == {"aten::addmm"}


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
    assert f"{sums[cause]} ns" in row.inner_text()
    assert table[table["cause"] == cause]["advice"].iloc[0] in row.inner_text()
    known = 100 * table["total_ns"][table["operator"].notna()].sum() / table["total_ns"].sum()
    assert f"{known:.1f} %" in page.find("[data-known]").inner_text()
    row.locator("a").click()
    page.settled()
    assert set(page.column("idle", "cause")) == {cause}


def test_which_rank_is_late(opened: Open, ranks: Asking):
    """Rank 2 comes 200 us after rank 0 to the only collective of each of two steps."""
    page = opened(ranks)
    page.go()
    sentence = page.find("[data-headline]").inner_text()
    assert (
        "rank2 is the straggler: last to arrive at 2 of 2 collectives, 400 us behind the first rank in total, "
        "400 us of it at all_reduce" in sentence
    )
