# SPDX-License-Identifier: Apache-2.0
"""What the views show: the reports' numbers, and what leads from one to another."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pyprof import profiles
from pyprof.reports import every
from tests.server.browser.conftest import Open, Page
from tests.server.conftest import STEPS, Asking

PARTS = (
    "Using Tensor Cores", "Not Using Tensor Cores", "Memory", "DataLoader", "I/O", "CPU (DLProf)", "Other (DLProf)",
)  # fmt: skip


def grouped(value: int) -> str:
    return f"{value:,}"


def legend(page: Page, panel: str) -> dict[str, str]:
    """The legend of a donut: share by label."""
    out = {}
    for button in page.find(f"[data-panel={panel}] [data-legend]").all():
        label, share = button.inner_text().split("\n")
        out[label] = share
    return out


def percents(found: dict[str, str]) -> list[float]:
    return [float(text.split()[0]) for text in found.values() if text != "na"]


# --- overview


@pytest.mark.statement(
    "D01", "D02", "D05", "D08", "D04", "D06", "D09", "D10", "D11", "D12", "D13", "D14", "D15", "D16", "D17",
    "D18", "IT04", "D41", "D42",
)  # fmt: skip
def test_the_summaries(page: Page, prof: profiles.Profile):
    page.go("summaries")
    busy = legend(page, "gpu-utilization")
    assert list(busy) == ["Using GPU", "Idle GPU"]
    assert sum(percents(busy)) == pytest.approx(100, abs=0.11)
    summary = prof.report("summary")
    utilization = summary[summary["name"].str.contains("GPU Utilization", na=False)]["value"].iloc[0]
    assert percents(busy)[0] == pytest.approx(float(utilization), abs=0.051)
    slice_ = page.find("[data-panel=gpu-utilization] [data-slice=busy]")
    assert slice_.get_attribute("data-tip").startswith("Using GPU: ")
    assert "%" in slice_.get_attribute("data-tip")
    page.find("[data-panel=gpu-utilization] [data-legend=busy]").click()
    assert not page.find("[data-panel=gpu-utilization] [data-slice=busy]").count()
    page.find("[data-panel=gpu-utilization] [data-legend=busy]").click()
    assert page.find("[data-panel=gpu-utilization] [data-slice=busy]").count()
    assert sum(percents(legend(page, "tensor-cores"))) == pytest.approx(100, abs=0.11)
    found = legend(page, "resources")
    assert tuple(found) == PARTS
    assert sum(percents(found)) == pytest.approx(100, abs=0.36)
    kernels = legend(page, "kernel-time")
    assert list(kernels) == ["Kernels Using Tensor Cores", "Memory Kernels", "All Other Kernels"]
    # By hand, of six steps: 70, 25, and 30 + i + 12 + 8 + i ns.
    tc, memory, other = 6 * 70, 6 * 25, sum(30 + i + 12 + 8 + i for i in range(6))
    whole = tc + memory + other
    for part, name, amount in (
        ("tc", "Kernels Using Tensor Cores", tc),
        ("memory", "Memory Kernels", memory),
    ):
        tip = page.find(f"[data-panel=kernel-time] [data-slice={part}]").get_attribute("data-tip")
        assert tip.startswith(f"{name}: {amount} ns, ")
    assert percents(kernels) == [pytest.approx(100 * part / whole, abs=0.051) for part in (tc, memory, other)]
    shown = {dd.get_attribute("data-figure"): dd.inner_text() for dd in page.find("[data-panel=performance] dd").all()}
    assert list(shown) == [
        "wall_time", "tc_utilization", "gpu_utilization", "total_iterations", "iterations", "first", "last",
        "average_iteration",
    ]  # fmt: skip
    assert (shown["total_iterations"], shown["iterations"], shown["first"], shown["last"]) == (
        str(STEPS),
        str(STEPS),
        "0",
        "5",
    )
    wall = page.find("[data-figure=wall_time]").get_attribute("data-tip")
    steps = prof.steps
    assert wall == f"{int(steps['end_ns'].max() - steps['start_ns'].min()):,} ns"
    tips = [one.get_attribute("data-tip") for one in page.find("[data-panel=performance] .info").all()]
    assert len(tips) == len(shown)
    assert all(tips)
    assert page.find("[data-panel=iteration-summary] [data-bar]").count() == STEPS

    def colour(selector: str) -> str:
        return str(page.tab.eval_on_selector(selector, "e => getComputedStyle(e).backgroundColor"))

    for part in ("tc", "kernel", "memory"):
        assert colour(f"[data-panel=resources] [data-legend={part}] .swatch") == colour(
            f"[data-panel=iteration-summary] [data-legend={part}] .swatch"
        )
    links = page.find("[data-panel=guidance] a").all()
    assert links
    assert {one.get_attribute("target") for one in links} == {"_blank"}
    assert all("noopener" in one.get_attribute("rel") for one in links)


@pytest.mark.statement("D19", "D20", "D21", "D22", "D23", "D24", "D25", "D26", "D43")
def test_top_operators_and_coverage(page: Page, prof: profiles.Profile, client: Asking):
    page.go()
    panel = "[data-panel=top-ops]"
    heads = page.find(f"{panel} th").all_inner_texts()
    assert heads == [
        "Op Type", f"GPU time, {STEPS} steps", "Ops", "Calls", "Phase", "Shapes", "Source line", "Module",
        "TC Eligible", "Using TC",
    ]  # fmt: skip
    assert not page.find(f"{panel} th button").count()
    assert not page.find(f"{panel} input").count()
    table = prof.report("detail")
    phases = dict(prof.source().store.rows("select op_id, phase from operator"))
    table = table[table["gpu"] > 0].assign(
        line=table["stack"].str.rpartition("\n")[2], phase=table["op_id"].map(phases)
    )
    groups = table.groupby(["type", "phase", "shapes", "line"], dropna=False, sort=False)
    expected = groups[["gpu", "calls"]].sum().sort_values("gpu", ascending=False).head(10)
    assert page.find(f"{panel} td[data-key=time]").all_inner_texts() == [f"{v} ns" for v in expected["gpu"]]
    assert page.find(f"{panel} td[data-key=calls]").all_inner_texts() == [str(v) for v in expected["calls"]]
    shares = [cell.get_attribute("data-percent") for cell in page.find(f"{panel} td[data-key=time]").all()]
    assert shares == [f"{100 * v / table['gpu'].sum():.1f} %" for v in expected["gpu"]]
    # A row of one operator opens its details, of several their list.
    page.find(f"{panel} td[data-key=type] button").first.click()
    page.settled()
    assert page.find("aside h2").count() or page.find(f"{panel} tr.member").count()
    page.go()
    for line in client.json("/api/ledger")["lines"]:
        shares = [p["share"] for p in line["parts"] if p["share"] is not None]
        if not shares:
            continue
        known = sum(p["share"] for p in line["parts"] if p["share"] and p["part"] != "unknown")
        text = page.find(f"[data-line='{line['line']}'] td").last.inner_text()
        assert float(text.split()[0]) == pytest.approx(known, abs=0.051)


@pytest.mark.statement("D28", "D29", "D36", "D37", "D39", "D40")
def test_system_configuration_and_findings(page: Page, client: Asking):
    page.go()
    expected = [one for one in client.json("/api/overview")["system"] if one["value"] is not None]
    assert page.find("[data-panel=system] dt").all_inner_texts() == [one["heading"] for one in expected]
    assert "GPU Count" in page.find("[data-panel=system]").inner_text()
    page.go()
    found = [one for one in client.json("/api/insights")["expert"] if one["outcome"] == "found"]
    assert [row.get_attribute("data-finding") for row in page.find("[data-finding]").all()] == [
        one["id"] for one in found
    ]
    linked = next(one for one in found if one["link"])
    page.find(f"[data-finding={linked['id']}] a").first.click()
    page.settled()
    assert "#/overview" not in page.parameters()
    if page.find(".why").count():
        page.find(".why a:has-text('Show everything')").click()
        page.settled()
        assert not page.find(".why").count()


# --- tables of reports


def text_of(value: Any) -> str:
    """A cell as the page is said to write it, or its tip where it is rounded."""
    if value is None or value == "-":  # of what does not apply
        return "–"
    if isinstance(value, bool):
        return "✓" if value else "✗"
    if isinstance(value, int):
        return grouped(value)
    if isinstance(value, float):
        if value.is_integer():
            return grouped(int(value))
        return f"{value:,.1f}" if abs(value) >= 100 else f"{value:,.4f}".rstrip("0")
    # Of a kernel the return type and torch's namespaces are left to the tip: all have the same.
    return re.sub(r"^void (at::native::|\(anonymous namespace\)::)*", "", str(value)) if value else "–"


@pytest.mark.statement(
    "OT01", "OT02", "OT03", "OT04", "OT05", "OT06", "OT07", "OT08", "OT09", "OT10", "OT11", "OT12", "OT13",
    "OT14", "OT15", "OT16", "OT17", "OT18", "OT19", "OT20", "GP02", "GP03", "GP04", "GP05", "GP06",
)  # fmt: skip
def test_numbers_are_the_reports(page: Page, client: Asking, prof: profiles.Profile):
    for view, table, report, sort in (("gpus", "gpus", "gpu", ""), ("op-types", "types", "op_type", "-gpu")):
        page.go(view)
        answer = client.json(f"/api/reports/{report}", limit=25, **({"sort": sort} if sort else {}))
        shown = [
            cell.get_attribute("data-key")
            for cell in page.find(f"[data-table={table}] tbody tr").first.locator("td").all()
        ]
        place = {column["key"]: n for n, column in enumerate(answer["columns"])}
        for number, row in enumerate(page.rows(table)):
            for key, text in zip(shown, row):
                expected = text_of(answer["rows"][number][place[key]])
                assert (
                    re.sub(r"(\n(Kernels|Stacks))+$|See More$", "", text).strip()[:60]
                    == expected.replace("\n", " · ")[:60]
                ), key
    shown = sum(int(text.replace(",", "")) for text in page.column("types", "gpu"))
    assert shown == int(prof.report("detail")["gpu"].sum())
    calls = sum(int(text.replace(",", "")) for text in page.column("types", "calls"))
    assert calls == int(prof.report("detail")["calls"].sum())


@pytest.mark.statement(
    "OK01", "OK02", "OK03", "OK04", "OK05", "OK06", "OK07", "OK10", "OK11", "OK12", "OK14", "OK15", "OK16",
    "OK17", "OK18", "OK19", "OK20", "OK13",
)  # fmt: skip
def test_ops_and_kernels(page: Page, prof: profiles.Profile, client: Asking):
    page.go("ops")
    assert "Select an op above" in page.find("[data-panel=op-kernels]").inner_text()
    assert page.headings("ops") == [
        "Op Name", "Direction", "Op Type", "GPU Time (ns)", "CPU Time (ns)", "Calls", "TC Eligible", "Using TC",
        "TC Unknown (ns)", "Kernel Calls", "TC Reason", "Data Type", "Stack Trace",
    ]  # fmt: skip
    row = page.find("[data-table=ops] tbody tr").filter(has_text="mm").first
    op = row.get_attribute("data-row")
    row.click()
    page.settled()
    heads = page.headings("opkernels")
    assert heads == ["Kernel Name", "Using TC", "Calls", "GPU Time (ns)", "Avg (ns)", "Min (ns)", "Max (ns)"]
    table = prof.report("kernel")
    mine = table[table["op_id"] == op].sort_values("gpu", ascending=False)
    for key in ("gpu", "gpu_min", "gpu_max", "calls"):
        assert page.column("opkernels", key) == [grouped(v) for v in mine[key]]
    averages = [float(text.replace(",", "")) for text in page.column("opkernels", "gpu_avg")]
    assert averages == [pytest.approx(gpu / calls) for gpu, calls in zip(mine["gpu"], mine["calls"])]
    page.go("ops")
    rows = client.table("/api/reports/detail", sort="-gpu", limit=10)
    cells = page.find("[data-table=ops] td[data-key=stack]").all()
    for row, cell in zip(rows, cells):
        stack = row["stack"] or ""
        assert bool(cell.locator("button").count()) == (len(stack) > 100 or "\n" in stack)
    folded = next(cell for cell in cells if cell.locator("button").count())
    folded.locator("button").click()
    assert folded.locator("button").inner_text() == "See Less"
    assert "net.py" in folded.inner_text()
    folded.locator("button").click()
    assert folded.locator("button").inner_text() == "See More"


# --- trees


@pytest.mark.statement(
    "GO01", "GO02", "GO03", "GO04", "GO05", "GO06", "GO07", "GO08", "GO09", "GO10", "GO11", "GO12", "GO14",
    "GO13",
)  # fmt: skip
def test_group_ops(page: Page, prof: profiles.Profile):
    page.go("groups")
    page.find("button:has-text('Expand All')").click()
    page.settled()
    rows = page.find("[data-table=groups] tbody tr").all()
    levels = [int(row.get_attribute("aria-level")) for row in rows]
    indents = [row.locator(".indent").bounding_box()["width"] for row in rows]
    assert levels[0] == 1
    assert indents == [pytest.approx((level - 1) * 1.1 * 13, abs=0.5) for level in levels]
    cells = page.rows("groups")
    groups = [row for row in cells if row[1] == "Group"]
    assert groups
    assert all(row[0].endswith("/") for row in groups)
    # Every number of a group is the sum of what is directly inside it.
    for at, row in enumerate(cells):
        if row[1] != "Group" or at + 1 >= len(cells) or levels[at + 1] <= levels[at]:
            continue
        inside = []
        for other in range(at + 1, len(cells)):
            if levels[other] <= levels[at]:
                break
            if levels[other] == levels[at] + 1:
                inside.append(cells[other])
        for column in range(3, len(row)):
            values = [int(one[column].replace(",", "")) for one in inside if one[column] != "–"]
            if row[column] != "–":
                assert sum(values) == int(row[column].replace(",", "")), (row[0], column)
    page.find("button:has-text('Collapse All')").click()
    page.settled()
    assert [int(row.get_attribute("aria-level")) for row in page.find("[data-table=groups] tbody tr").all()] == [1]
    page.find("[data-table=groups] .fold").first.click()
    page.settled()
    assert len(page.rows("groups")) > 1
    page.find("[data-table=groups] tbody tr").first.click()
    page.find(".selection").wait_for()
    assert "Total GPU Time" in page.find(".selection").inner_text()
    page.go("groups", **{"groups.q": "relu"})
    shown = [row[0].split("\n")[-1] for row in page.rows("groups")]
    assert any("relu" in name for name in shown)
    assert shown[0] == "/"
    assert not any(name == "mm" for name in shown)


@pytest.mark.long
@pytest.mark.statement("GO15")
def test_a_tree_of_50_000_nodes(opened: Open, made: Path, monkeypatch: pytest.MonkeyPatch):
    from tests.server.conftest import serving
    from tests.server.test_trees import made as tree_of
    from tests.server.test_trees import plain

    nodes = plain(50_000, 3)
    tree = tree_of(nodes)
    monkeypatch.setattr("pyprof.server.report_routes.Tree", lambda answer, name: tree)
    with serving(made) as server:
        page = opened(server)
        sizes: list[int] = []
        page.tab.on(
            "response",
            lambda answer: sizes.append(len(answer.body())) if "/api/trees/" in answer.url else None,
        )

        def shows(count: int, asked: int) -> None:
            page.settled()
            assert page.showing("groups") == f"Showing 1 to 25 of {count:,} entries"
            assert page.find("[data-table=groups] tbody tr").count() == 25
            assert len(sizes) == asked

        page.go("groups")
        shows(1 + len(nodes[0].inside), 1)
        page.find("button:has-text('Expand All')").click()
        shows(50_000, 2)
        second = page.find("[data-table=groups] tbody tr").nth(1)
        inside = tree.paths.index(second.get_attribute("data-row"))
        second.locator("button.fold").click()
        shows(50_000 - len(nodes[inside].everything()) + 1, 3)
        second.locator("button.fold").click()
        shows(50_000, 4)
        page.find("[data-table=groups] [data-sort=cpu]").click()
        page.settled()
        page.find("button:has-text('Collapse All')").click()
        page.settled()
        assert page.showing("groups") == "Showing 1 to 1 of 1 entries"
        assert len(sizes) == 6
        assert max(sizes) < 40_000  # the rows that are shown, of 50,000


# --- drawer


def test_details_lead_to_all_that_is_known_and_back(page: Page, prof: profiles.Profile, client: Asking):
    page.go("kernels", tab="launches")
    page.find("[data-table=launches] tbody tr").first.click()
    page.find("aside h2").wait_for()
    page.settled()
    page.find("aside .partners a").first.click()
    page.tab.wait_for_selector("aside[data-drawer^='op:']")
    page.settled()
    assert "Call stack" in page.find("aside").inner_text()
    page.tab.go_back()
    page.tab.wait_for_selector("aside[data-drawer^='launch:']")
    page.tab.keyboard.press("Escape")
    page.find("aside").wait_for(state="detached")
    detail = prof.report("detail")
    one = detail[detail["module"].notna() & detail["shapes"].notna() & detail["stack"].notna()].iloc[0]
    related = "aside ul[aria-label=Related] a"
    for label, table, key, expected in (
        ("Kernels", "kernels", "op_id", [one["op_id"]]), ("All shapes of its type", "ops", "type", [one["type"]]),
        ("Same shapes", "ops", "shapes", [one["shapes"]]), ("Module", "modules", "", []),
        ("Source", "lines", "line", [one["stack"].split("\n")[-1]]),
    ):  # fmt: skip
        page.go("operators", by="place", d=f"op:{one['op_id']}")
        page.find(
            related,
        ).filter(has_text=label).first.click()
        page.settled()
        assert page.find(f"aside[data-drawer='op:{one['op_id']}']").count() == 1
        text = f"{table}.f.{key}" if key else "modules.q"
        assert text in page.parameters()
        assert page.find(f"[data-table={table}] tbody tr").count()
        if key in ("type", "line"):
            assert set(page.column(table, key)) == set(expected)
        page.tab.go_back()
        page.settled()
        assert "by=place" in page.parameters()
    assert page.find("aside [data-figure=tcwhy]").count() == prof.report("detail")["tcwhy"].notna().iloc[0]
    page.find("aside table button.link").first.click()
    page.tab.wait_for_selector("aside[data-drawer^='kernel:']")
    page.find("aside button:has-text('Back')").click()
    page.tab.wait_for_selector(f"aside[data-drawer='op:{one['op_id']}']")


@pytest.mark.statement("GP01", "D03")
def test_several_gpus_have_bars_and_lead_to_their_view(opened: Open, client: Asking, ranks: Asking):
    page = opened(client)
    page.go("gpus")
    assert not page.find("[data-share]").count()
    page = opened(ranks)
    page.go("gpus")
    bars = page.find("[data-share] .amount").all_inner_texts()
    table = ranks.table("/api/reports/gpu")
    assert [float(text.split()[0]) for text in bars] == [pytest.approx(row["utilization"], abs=0.051) for row in table]
    page = opened(client)
    page.go("summaries")
    assert not page.find("[data-panel=gpu-utilization] a").count()
    page = opened(ranks)
    page.go("summaries")
    page.find("[data-panel=gpu-utilization] a").click()
    page.settled()
    assert page.find("main h1").inner_text() == "GPUs"


def test_every_report_is_in_the_view_of_all_reports(page: Page, prof: Any):
    """Also one that no other view shows: it needs no edit of the page."""
    page.go("reports")
    offered = page.find("[data-reports] option").evaluate_all("options => options.map(o => o.value)")
    assert sorted(offered) == [one.name for one in every()]
    for one in list(every())[::12]:
        page.go("reports", report=one.name)
        assert page.find("[data-reports]").input_value() == one.name
        assert not page.find("[data-note=error]").count(), one.name
        assert page.find(f'[data-table="{one.name}"]').count() == 1, one.name
    page.go("reports", report="op_type")
    table = prof.report("op_type")
    assert page.column("op_type", "type") == table.sort_values("gpu", ascending=False, kind="stable")["type"].tolist()
    page.go("help")
    page.tab.keyboard.press("/")
    page.tab.keyboard.type("Short Kernels")
    page.find("#palette [role=option]").first.click()
    page.settled()
    assert page.parameters() == "#/reports?report=short_kernels"
