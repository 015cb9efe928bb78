# SPDX-License-Identifier: Apache-2.0
"""What every table can do, on the table of operators and that of launches."""

from __future__ import annotations

import csv
import io

import pytest

from pyprof import profiles
from tests.server.browser.conftest import Open, Page
from tests.server.conftest import HOSTILE, Asking


def grouped(value: int) -> str:
    return f"{value:,}"


def fill(page: Page, selector: str, text: str) -> None:
    page.find(selector).fill(text)
    page.settled()


@pytest.mark.statement("DT01", "DT08", "DT09")
def test_pages(page: Page):
    page.go("kernels", tab="launches")
    assert page.showing("launches") == "Showing 1 to 25 of 30 entries"  # 6 steps of 5 events
    previous, next_ = (
        page.find(f"[data-table=launches] nav button:has-text('{name}')") for name in ("Previous", "Next")
    )
    assert previous.is_disabled()
    next_.click()
    page.settled()
    assert page.showing("launches") == "Showing 26 to 30 of 30 entries"
    assert next_.is_disabled()
    page.find("[data-table=launches] nav button:has-text('1')").click()
    page.settled()
    assert page.showing("launches").startswith("Showing 1 to 25")
    page.find("[data-table=launches] select").last.select_option("10")
    page.settled()
    assert page.showing("launches") == "Showing 1 to 10 of 30 entries"
    assert page.find("[data-table=launches] nav button[aria-current]").inner_text() == "1"
    assert page.find("[data-table=launches] nav button.number").count() == 3


@pytest.mark.statement("DT02", "DT15", "DT16")
def test_search_finds_names_as_they_are_and_says_so_if_there_is_none(page: Page):
    page.go("ops")
    fill(page, "[data-table=ops] input[type=search]", "<IMG")
    assert page.showing("ops").startswith("Showing 1 to 1 of 1 entries (filtered from")
    assert HOSTILE in page.find("[data-table=ops] td[data-key=name]").inner_text()
    assert page.find("main img").count() == 0
    fill(page, "[data-table=ops] input[type=search]", "")
    assert "filtered" not in page.showing("ops")
    page.go("ops", **{"ops.q": "no such thing"})
    assert "No row fits the filters." in page.find("[data-table=ops] tbody").inner_text()
    assert page.showing("ops").startswith("Showing 0 of 0 entries")
    page.find("[data-table=ops] button:has-text('Clear filters')").click()
    page.settled()
    assert page.rows("ops")


@pytest.mark.statement("DT03", "DT04", "DT05", "OK08", "OK09")
def test_columns_filter_together(page: Page, prof: profiles.Profile):
    page.go("ops")
    whole = int(page.showing("ops").split(" of ")[1].split()[0])
    fill(page, "[data-table=ops] [aria-label='Filter GPU Time']", ">100ns")
    table = prof.report("detail")
    slow = table[table["gpu"] > 100]
    assert 0 < len(slow) < whole
    assert page.showing("ops") == f"Showing 1 to {len(slow)} of {len(slow)} entries (filtered from {whole} total)"
    fill(page, "[data-table=ops] [aria-label='Filter Op Type']", "mm")
    both = slow[slow["type"].str.contains("mm")]
    assert page.column("ops", "gpu") == [grouped(v) for v in sorted(both["gpu"], reverse=True)]
    page.go("ops")
    table = prof.report("detail")
    field = "[data-table=ops] [aria-label='Filter TC Eligible']"
    assert page.find(field).get_attribute("placeholder") == "yes / no"
    for yes, no in (("1", "0"), ("yes", "No")):
        fill(page, field, yes)
        assert set(page.column("ops", "eligible")) == {"✓"}
        assert len(page.rows("ops")) == int(table["eligible"].fillna(False).sum())
        fill(page, field, no)
        assert set(page.column("ops", "eligible")) == {"✗"}
    assert page.find("[data-key=eligible] [role=img]").first.get_attribute("aria-label") == "no"


@pytest.mark.statement("DT06", "DT07", "DT13")
def test_sorting(page: Page, prof: profiles.Profile):
    page.go("ops")
    cpu = [int(v) for v in prof.report("detail")["cpu"].dropna()]
    page.find("[data-table=ops] [data-sort=cpu]").click()
    page.settled()
    assert page.find("[data-table=ops] th[aria-sort]").get_attribute("aria-sort") == "descending"
    assert [v for v in page.column("ops", "cpu") if v != "–"] == [grouped(v) for v in sorted(cpu, reverse=True)]
    page.find("[data-table=ops] [data-sort=cpu]").click()
    page.settled()
    assert page.find("[data-table=ops] th[aria-sort]").get_attribute("aria-sort") == "ascending"
    assert [v for v in page.column("ops", "cpu") if v != "–"] == [grouped(v) for v in sorted(cpu)]
    page.find("[data-table=ops] [data-sort=name]").click()
    page.settled()
    assert page.find("[data-table=ops] th[aria-sort]").get_attribute("aria-sort") == "ascending"  # texts
    assert page.tab.evaluate("getComputedStyle(document.querySelector('td[data-key=cpu]')).textAlign") == "right"


@pytest.mark.statement("DT10", "DT11")
def test_an_export_has_what_is_shown(page: Page):
    page.go("kernels", tab="launches")
    page.go("ops", **{"ops.f.gpu": ">100ns", "ops.s": "gpu"})
    page.find("[data-table=ops] button:has-text('Export')").click()
    with page.tab.expect_download() as download:
        page.find("[data-table=ops] a.item:has-text('CSV')").click()
    lines = download.value.path().read_text(encoding="utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if "Total GPU Time (ns)" in line)
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))
    assert [grouped(int(row["Total GPU Time (ns)"])) for row in rows] == page.column("ops", "gpu")


@pytest.mark.statement("DT17", "DT19", "DT14")
def test_selection_and_state_are_in_the_address_and_in_questions(page: Page):
    page.go("ops")
    page.find("[data-table=ops] tbody tr").nth(1).click()
    page.settled()
    chosen = page.find("[data-table=ops] tr.picked").get_attribute("data-row")
    page.find("[data-table=ops] [data-sort=cpu]").click()
    page.settled()
    assert page.find("[data-table=ops] tr.picked").get_attribute("data-row") == chosen
    address = page.tab.url
    page.go("help")
    page.tab.goto(address)
    page.settled()
    assert page.find("[data-table=ops] tr.picked").get_attribute("data-row") == chosen
    assert page.find("[data-table=ops] th[aria-sort] button").get_attribute("data-sort") == "cpu"
    fill(page, "[data-table=ops] input[type=search]", "<img" if chosen and "TANH" not in chosen else "mm")
    assert not page.find("[data-table=ops] tr.picked").count()
    assert "ops.sel" not in page.parameters()
    asked: list[str] = []
    page.tab.on("request", lambda request: asked.append(request.url))
    page.go("ops", **{"ops.s": "-cpu", "ops.q": "m", "ops.f.gpu": ">1", "ops.n": "50"})
    one = next(url for url in asked if "/api/reports/detail?" in url)
    assert "sort=-cpu" in one
    assert "search=m" in one
    assert "filter=gpu%3A%3E1" in one
    assert "limit=50" in one


@pytest.mark.statement("DT18")
def test_long_names_and_headings_are_told(page: Page, client: Asking):
    page.go("kernels")
    cell = page.find("[data-table=kernels] td[data-key=name] .template").filter(has_text="vectorized")
    name = cell.get_attribute("data-tip")
    assert name == "void at::native::vectorized_elementwise_kernel<4, f, N>(int)"
    cell.scroll_into_view_if_needed()
    page.tab.mouse.move(1, 1)
    cell.hover()
    page.find("#tip.shown").wait_for()
    assert page.find("#tip").inner_text() == name
    page.go("op-types")
    columns = {c["key"]: c for c in client.json("/api/reports/op_type")["columns"]}
    tips = {
        button.get_attribute("data-sort"): button.get_attribute("data-tip")
        for button in page.find("[data-table=types] th button").all()
    }
    assert tips == {key: column["text"] for key, column in columns.items()}


@pytest.mark.statement("DT20")
def test_keys_and_marking_text(page: Page):
    page.go("ops")
    page.find("[data-table=ops] input[type=search]").focus()
    for _ in range(60):
        page.tab.keyboard.press("Tab")
        if page.tab.evaluate("document.activeElement.dataset.sort") == "gpu":
            break
    page.tab.keyboard.press("Enter")
    page.settled()
    assert page.find("[data-table=ops] th[aria-sort]").get_attribute("aria-sort") == "ascending"
    page.find("[data-table=ops] tbody tr").first.focus()
    page.tab.keyboard.press("ArrowDown")
    page.tab.keyboard.press("Enter")
    page.settled()
    assert page.find("[data-table=ops] tbody tr").nth(1).get_attribute("aria-selected") == "true"
    page.go("ops")
    box = page.find("[data-table=ops] tbody td[data-key=type]").first.bounding_box()
    page.tab.mouse.move(box["x"] + 8, box["y"] + 10)
    page.tab.mouse.down()
    page.tab.mouse.move(box["x"] + 40, box["y"] + 10, steps=4)
    page.tab.mouse.up()
    assert page.tab.evaluate("String(getSelection())")
    assert not page.find("[data-table=ops] tr.picked").count()
    page.tab.evaluate("getSelection().empty()")
    page.find("[data-table=ops] tbody td[data-key=type]").first.click()
    assert page.find("[data-table=ops] tr.picked").count() == 1


# --- for people


def test_times_have_a_unit_a_share_and_a_total(page: Page, prof: profiles.Profile):
    page.go("ops")
    table = prof.report("detail")
    total = int(table["gpu"].sum())
    cell = page.find("[data-table=ops] tbody tr").first.locator("td[data-key=gpu]")
    first = int(table["gpu"].max())
    assert cell.get_attribute("data-tip").startswith(f"{first:,} ns\n")
    assert cell.get_attribute("data-percent") == f"{100 * first / total:.1f} %"
    foot = page.find("[data-table=ops] tfoot [data-total=gpu]")
    assert (foot.inner_text(), foot.get_attribute("data-percent")) == (f"{total}", "100.0 %")
    # Of what the filters leave, the share of all rows.
    fill(page, "[data-table=ops] [aria-label='Filter GPU Time']", ">100ns")
    some = int(table["gpu"][table["gpu"] > 100].sum())
    assert foot.get_attribute("data-percent") == f"{100 * some / total:.1f} %"
    assert "Filtered total" in page.find("[data-table=ops] tfoot").inner_text()
    page.go("ops")
    exact = page.column("ops", "gpu")
    page.find("[data-table=ops] button:has-text('Units')").click()
    page.find("[data-table=ops] [data-unit=ns]").select_option("µs")
    head = page.find("[data-table=ops] [data-sort=gpu]")
    assert "(µs)" in head.inner_text()
    largest = int(prof.report("detail")["gpu"].max())
    shown = page.find("[data-table=ops] td[data-key=gpu]").first
    assert shown.inner_text() == f"{largest / 1000:.3f}"
    assert page.column("ops", "gpu") == exact
    page.tab.reload()
    page.settled()
    assert "(µs)" in head.inner_text()
    page.find("[data-table=ops] button:has-text('Units')").click()
    page.find("[data-table=ops] [data-unit=ns]").select_option("")
    assert "(ns)" in head.inner_text()


def test_columns_are_moved_resized_and_chosen(page: Page):
    page.go("ops")
    head = page.find("[data-table=ops] [data-sort=gpu]")
    before = page.headings("ops")
    at = before.index("GPU Time (ns)")
    head.press("Alt+ArrowLeft")
    moved = page.headings("ops")
    assert moved.index("GPU Time (ns)") == at - 1
    name = page.find("[data-table=ops] th:has([data-sort=name])")
    width = name.bounding_box()["width"]
    grip = name.locator(".grip").bounding_box()
    page.tab.mouse.move(grip["x"] + 3, grip["y"] + 5)
    page.tab.mouse.down()
    page.tab.mouse.move(grip["x"] + 103, grip["y"] + 5, steps=3)
    page.tab.mouse.up()
    assert name.bounding_box()["width"] == pytest.approx(width + 100, abs=4)
    page.go("overview")
    page.go("ops")
    assert page.headings("ops") == moved
    assert name.bounding_box()["width"] == pytest.approx(width + 100, abs=4)
    page.find("[data-table=ops] button:has-text('Columns')").click()
    page.find("button:has-text('Back to the default')").click()
    assert page.headings("ops") == before
    page.go("ops")
    heads = page.find("[data-table=ops] th").all_inner_texts()
    assert "Parameters" not in heads
    page.find("[data-table=ops] button:has-text('Columns')").click()
    page.find("[data-table=ops] label.item:has-text('Parameters')").click()
    page.settled()
    assert "Parameters" in page.find("[data-table=ops] th").all_inner_texts()
    assert "ops.h=params" in page.parameters()


def test_a_table_is_copied_for_a_spreadsheet(page: Page, prof: profiles.Profile):
    page.tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.go("ops", **{"ops.f.gpu": ">100ns"})
    page.find("[data-table=ops] tbody tr").first.click()
    export = page.find("[data-table=ops] button:has-text('Export')")

    def copied(label: str) -> str:
        export.click()
        page.find(f"[data-table=ops] button.item:has-text('{label}')").click()
        page.find("[data-table=ops] [role=status]:has-text('Copied')").wait_for()
        return str(page.tab.evaluate("navigator.clipboard.readText()"))

    lines = [line.split("\t") for line in copied("Copy table").splitlines()]
    table = prof.report("detail").query("gpu > 100").sort_values("gpu", ascending=False)
    assert [line[lines[0].index("Total GPU Time (ns)")] for line in lines[1:]] == [str(v) for v in table["gpu"]]
    html = page.tab.evaluate(
        "navigator.clipboard.read().then(items => items[0].getType('text/html')).then(blob => blob.text())"
    )
    assert html.count("<tr>") == len(lines)
    row = copied("Copy row as Markdown").splitlines()
    assert len(row) == 3
    assert str(table["gpu"].iloc[0]) in row[2]
    assert copied("Copy link") == page.tab.url


# --- a phone


IN_SIGHT = """([table, key]) => {
    const box = document.querySelector(`[data-table="${table}"] .scroll`);
    const row = box.querySelector("tbody tr");
    const [name, figure] = [row.cells[0], row.querySelector(`td[data-key="${key}"]`)];
    const before = name.getBoundingClientRect();
    const left = box.getBoundingClientRect().right - figure.getBoundingClientRect().right;
    box.scrollLeft = box.scrollWidth;
    const moved = name.getBoundingClientRect().left - before.left;
    return { name: before.width / box.clientWidth, left, more: box.scrollLeft > 0, moved };
}"""


def test_a_phone_has_the_figure_beside_the_name(opened: Open):
    page = opened(width=390, height=844)
    for view, table, key, parameters in (
        ("operators", "operators", "host_self_ns", {"operators.s": "-host_self_ns"}),
        ("operators", "groups", "gpu", {"by": "group", "groups.open": "all"}),
        ("kernels", "launches", "dur", {"tab": "launches"}),
    ):
        page.go(view, **parameters)
        seen = page.tab.evaluate(IN_SIGHT, [table, key])
        assert seen["name"] <= 0.5
        assert seen["left"] >= 0
        assert seen["more"]
        assert abs(seen["moved"]) < 1  # the name stays
