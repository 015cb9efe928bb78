# SPDX-License-Identifier: Apache-2.0
"""Every view, of profiles that have everything and of such that lack it: drawn without a fault, in both themes, without
a violation that axe finds, no wider than the window."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pyprof.server import demo
from tests.build import LONG
from tests.server.browser.conftest import Open, Page, axe
from tests.server.conftest import Asking

VIEWS = (
    "timeline", "lines", "overview", "summaries", "summaries?tab=tensorboard", "operators", "operators?by=type",
    "operators?by=module", "operators?by=group", "operators?by=place", "operators?by=kernel", "operators?by=tensor",
    "iterations",
    "iterations?tab=kernels", "iterations?tab=ops", "kernels", "kernels?tab=properties",
    "kernels?tab=operators", "kernels?tab=launches",
    "memory", "memory?tab=copies", "gpus", "workers", "workers?tab=ranks", "workers?tab=overlap",
    "workers?tab=communication", "workers?tab=stragglers", "workers?tab=devices", "compare", "reports",
    "reports?report=ranges", "help", "help?tab=figures", "help?tab=keys",
)  # fmt: skip
OF_TRACES = ("operators?stacks=aten::addmm", "operators?by=module", "memory", "memory?tab=events", "compare")
OF_RANKS = [view for view in VIEWS if view.startswith(("workers", "gpus", "overview"))]
CASES = {"client": VIEWS, "on_cpu": VIEWS, "ranks": OF_RANKS, "traces": OF_TRACES}
_RULES = {
    "light": "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']",
    "dark": "['color-contrast', 'target-size']",
}  # all that differs


def test_every_view_is_opened() -> None:
    source = Path(__file__).resolve().parents[3] / "frontend" / "src" / "lib" / "views.ts"
    views = re.findall(r'\bid: "([^"]+)"', source.read_text(encoding="utf-8"))
    assert {view.partition("?")[0] for view in VIEWS} == {*views, "help"}


@pytest.mark.statement("TR07", "V05", "PR07")
@pytest.mark.counts
@pytest.mark.parametrize(
    "server",
    ["client", *(pytest.param(name, marks=pytest.mark.long) for name in ("on_cpu", "ranks", "traces"))],
)
def test_every_view(request: pytest.FixtureRequest, opened: Open, server: str):
    """One tab for all: what a view leaves behind must not spoil the next. Tabs of a view have its contrasts."""
    page = opened(request.getfixturevalue(server))
    page.go()
    page.tab.evaluate(axe())
    for view in CASES[server]:
        go(page, view)
        themes = ("light", "dark") if server == "client" else ("light",)
        problems = _problems(page, themes if LONG else themes[: "?" not in view])
        assert not problems, f"{view}: {problems}"


def test_no_view_asks_a_question_twice(opened: Open):
    """Each view in a tab of its own, which knows no answers."""
    for view in VIEWS if LONG else ("overview", "operators", "iterations", "timeline"):
        page = opened()
        asked: list[str] = []
        page.tab.on("request", lambda request, asked=asked: asked.append(request.url))
        go(page, view)
        questions = [url for url in asked if "/api/" in url]
        assert questions or view.startswith("help"), view
        assert sorted(set(questions)) == sorted(questions), view


def go(page: Page, view: str) -> None:
    name, _, query = view.partition("?")
    page.go(name, **dict([query.split("=")] if query else []))


def _problems(page: Page, themes: tuple[str, ...]) -> list[str]:
    """What is wrong with the view that is shown."""
    problems = page.find("[data-note=error]").all_inner_texts()
    if page.tab.evaluate("document.documentElement.scrollWidth > innerWidth"):
        problems.append("wider than the window")
    if page.tab.evaluate("(m => m.scrollWidth > m.clientWidth)(document.querySelector('main'))"):
        problems.append("wider than its frame")
    shown = page.find("main").inner_text()
    if len(shown) <= 60:
        problems.append("a heading with nothing under it")
    problems += {"undefined", "NaN", "[object Object]"} & set(shown.split())
    for theme in themes:
        page.tab.emulate_media(color_scheme=theme)
        page.tab.wait_for_selector(f'html[data-theme="{theme}"]')
        result: Any = page.tab.evaluate(
            f"axe.run(document, {{runOnly: {_RULES[theme]}, resultTypes: ['violations'], "
            "rules: {'target-size': {enabled: true}}})"
        )
        problems += [f"{theme} {v['id']}: {v['nodes'][0]['html'][:160]}" for v in result["violations"]]
    return problems


def test_a_phone_and_a_notice_have_no_violation(opened: Open, example: Asking):
    """Of any rule, best practices included; the saving of a finding is in sight."""
    page = opened(example, width=390, height=844)
    page.go()
    assert page.find("[data-notice]").inner_text() == demo.NOTICE
    panel = page.find("[data-panel=expert]").bounding_box()
    saving = page.find("[data-finding] td.right").first.bounding_box()
    assert saving["x"] + saving["width"] <= panel["x"] + panel["width"]
    page.tab.evaluate(axe())
    for view in ("overview", "operators?by=group"):
        go(page, view)
        result: Any = page.tab.evaluate(
            "axe.run(document, {resultTypes: ['violations'], rules: {'target-size': {enabled: true}}})"
        )
        assert not [f"{v['id']}: {v['nodes'][0]['html'][:160]}" for v in result["violations"]], view


@pytest.mark.statement("TR07")
def test_views_without_anything_are_dimmed_and_say_why(opened: Open, on_cpu: Any):
    page = opened(on_cpu)
    for view, words in (
        ("kernels", "Everything ran on the CPU"),
        ("gpus", "Nothing ran on a GPU"),
        ("memory", "Allocations were not recorded"),
        ("compare", "only one"),
    ):
        page.go(view)
        assert words in page.find("main").inner_text()
    page.go("workers", tab="communication")
    assert "No collective" in page.find("main").inner_text()
    page.go("summaries")
    assert not page.find("[data-panel=gpu-utilization]").count()
    page = opened(on_cpu)
    page.go()
    tips = {
        link.get_attribute("data-view"): link.get_attribute("data-tip").split("\n")[0]
        for link in page.find("nav a.nothing").all()
    }
    assert tips == {
        "memory": "Allocations were not recorded: torch.profiler records them with profile_memory=True, "
        "pyprof.profile() with memory=True.",
        "compare": "There is only one run.",
        "lines": "No call stack was recorded, so there are no source lines: record with pyprof.init(), or "
        "with_stack=True in torch.profiler.",
    }  # fmt: skip
    # The menu has no view of a GPU without one, and the roofline under its own name.
    assert not page.find("nav a[data-view=gpus]").count()
    assert page.find("nav a[data-view=kernels]").inner_text() == "Roofline"
    page = opened()
    page.go()
    assert page.find("nav a[data-view=gpus]").inner_text() == "GPUs"
    assert page.find("nav a[data-view=kernels]").inner_text() == "Kernels"


def test_a_large_screen_has_large_letters_and_nothing_is_cut(opened: Open):
    page = opened(width=3840, height=2160)
    for view in ("overview", "kernels"):
        page.go(view)
        assert not page.tab.evaluate("document.documentElement.scrollWidth > innerWidth")
        cut = page.tab.evaluate(
            "[...document.querySelectorAll('h1,h2,nav a,.button')].filter(e => e.scrollWidth > e.clientWidth + 1)"
            ".map(e => e.innerText)"
        )
        assert cut == []
    assert page.tab.evaluate("getComputedStyle(document.documentElement).fontSize") == "20px"


def test_first_view_is_small(opened: Open):
    page, sizes = opened(width=1281), []  # a context of its own, with an empty cache
    page.tab.on("requestfinished", lambda request: sizes.append(request.sizes()))
    page.go("overview")
    total = sum(one["responseBodySize"] + one["responseHeadersSize"] for one in sizes)
    assert 20_000 < total < 300_000
