# SPDX-License-Identifier: Apache-2.0
"""Navigation, addresses, the palette, the drawer, what is said when something is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server.browser.conftest import Open, Page, plain
from tests.server.conftest import Asking, serving

NAMES = {
    "Dashboard": "overview", "Op Type Summary": "operators?by=type", "Group Ops": "operators?by=group",
    "Ops and Kernels": "operators?by=place", "Operator View": "operators", "Module View": "operators?by=module",
    "GPU Kernel": "kernels",
    "Kernels by Iteration": "iterations?tab=kernels", "Kernels by Op": "iterations?tab=ops", "Iterations": "iterations",
    "GPUs": "gpus", "Key Node Picker": "iterations", "Expert Systems": "overview",
    "Resource Usage Breakdown": "summaries", "Tensor Core Kernel Efficiency": "summaries",
    "Execution Summary": "summaries?tab=tensorboard",
}  # fmt: skip


@pytest.mark.statement("N01", "N02", "N10", "N06")
def test_navigation_stays_and_lists_nothing_that_there_is_not(page: Page):
    page.go("op-types")
    page.tab.evaluate("document.querySelector('main').scrollTo(0, 1e6)")
    assert page.find("nav[aria-label=Views]").bounding_box()["y"] >= 0
    assert page.find("header.noprint").first.bounding_box()["y"] == 0
    page.find(".brand").click()
    page.settled()
    assert page.find("main h1").inner_text() == "Overview"
    page.go()
    assert "Domain" not in page.find("header.noprint").first.inner_text()
    page.go()
    assert not page.find("header.noprint").first.get_by_label("Aggregation").count()


@pytest.mark.statement("N03", "N05")
def test_old_names_are_found(page: Page):
    page.go("help")
    for name, view in list(NAMES.items())[::3]:  # one is as the other
        page.tab.keyboard.press("/")
        page.tab.keyboard.type(name)
        page.find("#palette [role=option]").filter(has_text=name).first.click()
        page.wait(f"location.hash === {json.dumps(f'#/{view}')}")
        page.tab.evaluate("history.back()")
        page.wait("location.hash === '#/help' && !document.querySelector('dialog[open]')")
    page.settled()
    assert page.parameters() == "#/help"


OLD = {
    "dashboard": "overview", "kernels-by-op": "iterations?tab=ops", "op-types": "operators?by=type",
    "ops?ops.q=mm&d=op%3AMM_1": "operators?ops.q=mm&d=op%3AMM_1&by=place",
    "ops?tab=all": "operators?by=kernel", "ops?tab=tensor&tensor.q=mm": "operators?tensor.q=mm&by=tensor",
    "modules?modules.q=net": "operators?modules.q=net&by=module", "groups": "operators?by=group",
}  # fmt: skip


@pytest.mark.statement("N03")
def test_old_addresses_lead_on(page: Page):
    for old, view in OLD.items():
        page.go("help")
        page.tab.goto(f"{page.url}/#/{old}")
        page.settled()
        assert sorted(re.split("[?&]", page.parameters())) == sorted(re.split("[?&]", f"#/{view}"))
    page.tab.go_back()
    page.settled()
    assert page.parameters() == "#/help"


@pytest.mark.statement("P01", "P02", "P03", "D07")
def test_kernel_details(page: Page, client: Asking):
    page.go("summaries")
    assert not page.find("aside").count()
    button = page.find("[data-panel=kernel-time] button[aria-label='Show Kernel Details']")
    assert button.get_attribute("data-tip") == "Show Kernel Details"
    button.click()
    rows = page.find("aside tbody tr")
    rows.first.wait_for()
    cells = [row.inner_text().split("\t") for row in rows.all()]
    assert [row[0] for row in cells] == [
        "All Kernels",
        "Kernels Using TC",
        "Memory Kernels",
        "All Other Kernels",
    ]
    counts = [int(row[2].replace(",", "")) for row in cells]
    # Of each of 6 steps: one kernel of the tensor cores, one copy, three others.
    assert counts == [30, 6, 6, 18]
    exact = [int(row.locator("td").nth(1).get_attribute("data-tip").split()[0].replace(",", "")) for row in rows.all()]
    assert exact[0] == sum(exact[1:])
    assert exact[1:3] == [6 * 70, 6 * 25]
    page.find("aside button[aria-label='Close the details']").click()
    page.find("aside").wait_for(state="detached")


@pytest.mark.statement("TR05")
def test_bad_parameters_are_named(page: Page):
    for view, parameters, named in (
        ("nowhere", {}, "nowhere"),
        ("overview", {"agg": "77"}, "77"),
        ("ops", {"worker": "99"}, "99"),
        ("ops", {"run": "x"}, "x"),
    ):
        page.go(view, **parameters)
        text = page.find("[data-trouble]").inner_text()
        assert "Bad parameters found in URL" in text or "run" in text
        assert f"“{named}”" in text or named in text
        page.find("main a.button").click()
        page.tab.wait_for_selector("main h1:has-text('Overview')")
    page.wrong = [line for line in page.wrong if "Failed to load resource" not in line]  # the server's 4xx


@pytest.mark.statement("TR06")
def test_names_and_parameters_are_inert(page: Page):
    page.tab.add_init_script("window.alert = () => { document.title = 'ran'; }")
    hostile = "<img src=x onerror=alert(1)>"
    page.go("ops", **{"ops.q": hostile, "why": hostile})
    assert hostile in page.find(".why").inner_text()
    assert page.find("main img").count() == 0
    page.go("groups", **{"groups.open": "all"})
    assert hostile in page.find("main").inner_text()
    assert page.tab.title() != "ran"


@pytest.mark.statement("TR02")
def test_a_database_that_vanished(opened: Open, copied: Callable[[], Path]):
    file = copied()
    with serving(file) as server:
        page = opened(server)
        page.go()
        file.unlink()
        page.tab.reload()
        page.tab.wait_for_selector("[data-trouble=vanished]")
        text = page.find("[data-trouble]").inner_text()
        assert "cannot be found" in text
        assert "dlprofviewer [-b ADDRESS] [-p PORT] DATABASE" in text
        page.wrong.clear()  # the server's 410


def test_a_damaged_database_is_one_problem(opened: Open, copied: Callable[[], Path]):
    """Its title is the server's, the header has its name, and what would lead to the same again is not offered."""
    file = copied("a_name_without_blanks_that_is_wider_than_a_phone_whatever_the_folder_is_called_dldb.sqlite")
    file.write_bytes(file.read_bytes()[:20000])
    with serving(file) as server:
        page = opened(server)
        page.tab.set_viewport_size({"width": 390, "height": 800})
        page.tab.goto(server.url)
        page.tab.wait_for_selector("[data-trouble=damaged]")
        assert page.find("[data-trouble] h1").inner_text() == "The database is damaged"
        assert f"{file.name} is damaged (expected " in page.find("[data-trouble] p").first.inner_text()
        assert page.find("header .name").inner_text() == file.name.removesuffix("_dldb.sqlite")
        assert page.find("[data-trouble] .button").all_inner_texts() == ["Try again"]
        assert page.tab.evaluate("document.documentElement.scrollWidth") <= 390
        assert all(one.bounding_box()["width"] >= 24 for one in page.find("header button").all())
        box = page.find("[data-trouble]")
        assert box.evaluate("box => box.scrollWidth <= box.clientWidth")
        page.wrong.clear()  # the server's 409


@pytest.mark.long
@pytest.mark.statement("N08")
def test_every_view_of_one_worker_and_another_aggregation(opened: Open, copied: Callable[[], Path]):
    with serving(copied()) as server:
        server.done(server.job(start=1, stop=2))
        page = opened(server)
        for view in (
            "overview",
            "groups",
            "ops",
            "operators",
            "modules",
            "iterations",
            "kernels",
            "gpus",
            "workers",
            "compare",
        ):
            page.go(view, agg="2", worker="0")
            assert not page.find("[data-note=error]").count(), view
        page.go("iterations", agg="2", worker="0")
        page.find("button:has-text('Choose the key operator')").click()
        page.find("dialog[open] [data-table=keys] tbody tr").first.wait_for()
        page.go("compare")
        assert page.find("[data-panel=compare-step] [data-part=step]").get_attribute("data-verdict") == "same"
        figures = page.find("[data-panel=compare-figures] tbody tr")
        figures.first.wait_for()
        row = page.find("[data-panel=compare-figures] [data-figure=iterations] td").all_inner_texts()
        assert row == ["Aggregated Iterations", "6", "2", "-4"]


# --- robust


def test_rows_stay_while_the_server_is_away(page: Page):
    page.go("ops")
    rows = page.rows("ops")
    page.tab.context.set_offline(True)
    try:
        page.find("[data-table=ops] [data-sort=cpu]").click()
        page.find("[data-away]").wait_for()
        assert sorted(page.rows("ops")) == sorted(rows)
    finally:
        page.tab.context.set_offline(False)
    page.find("[data-away]").wait_for(state="detached")
    page.settled()
    shown = [int(text.replace(",", "")) for text in page.column("ops", "cpu") if text != "–"]
    assert shown == sorted(shown, reverse=True)  # asked again
    page.wrong.clear()  # the questions that nobody answered


def test_a_narrow_page_has_its_details_above_it(opened: Open):
    page = opened(width=1000)
    page.go("ops")
    width = page.find("main").bounding_box()["width"]
    page.find("[data-table=ops] tbody tr").last.click()
    page.find("button:has-text('Details')").click()
    page.settled()
    assert page.find("aside").bounding_box()["width"] < 600
    assert page.find("main").bounding_box()["width"] == width
    page = opened(width=390, height=844)
    page.go("overview")
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.find("main").bounding_box()["width"] == 390
    page.find("nav a[data-view=kernels]").click()
    page.settled()
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_tab_that_is_not_there_is_said_and_the_theme_is_kept(page: Page):
    page.go("iterations", tab="nonsense")
    assert page.find("[data-tab=chart]").get_attribute("aria-selected") == "true"
    assert "Unknown tab “nonsense”; showing Iterations." in page.find("main").inner_text()
    assert page.find("[data-panel=iterations]").count() == 1
    page.go()
    page.find("button[aria-label='Dark colours']").click()
    page.tab.wait_for_selector('html[data-theme="dark"]')
    page.tab.reload()
    page.settled()
    assert page.tab.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_first_finding_is_three_keys_away_and_a_question_mark_lists_them(page: Page, client: Asking):
    page.go()
    first = next(one for one in client.json("/api/insights")["expert"] if one["outcome"] == "found")
    page.tab.keyboard.press("Tab")
    page.tab.keyboard.press("Tab")
    assert page.tab.evaluate("document.activeElement.innerText") == "To the findings"
    page.tab.keyboard.press("Enter")
    assert plain(page.tab.evaluate("document.activeElement.innerText")) == first["problem"]
    page.tab.keyboard.press("Enter")
    page.find("aside h2").wait_for()
    assert page.parameters() == f"#/overview?d=finding%3A{first['id']}"
    page.go("ops")  # which has no findings
    assert not page.find("a:has-text('To the findings')").count()
    page.go("ops")
    page.tab.keyboard.press("?")
    page.settled()
    assert page.parameters() == "#/help?tab=keys"
