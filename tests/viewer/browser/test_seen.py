# SPDX-License-Identifier: Apache-2.0
"""What a reader sees: no word about a GPU where there is none, nothing cut without a sign of it, names whole where they
tell most, and what is not recorded with its reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pyprof import session
from tests.build import call, recording, write_capture
from tests.viewer import planted_ranks
from tests.viewer.browser.conftest import Open, Page
from tests.viewer.conftest import Asking, serving

OF_A_GPU = re.compile(r"\bgpus?\b|kernel|tensor core|\bcuda\b|memcpy|memset|\bsm\b|launch", re.I)
LONG = "/home/user/projects/of/last/year/language_model/training/transformer.py"
PHONE = {"width": 390, "height": 844}


@pytest.mark.parametrize(
    ("view", "parameters"),
    [
        ("overview", {}),
        ("workers", {}),
        ("iterations", {}),
        ("iterations", {"tab": "kernels", "iterations.sel": "0"}),
        ("iterations", {"tab": "ops", "iterations.sel": "0", "iterops.sel": "0"}),
        ("kernels", {}),
        ("kernels", {"tab": "launches"}),
        ("summaries", {}),
        ("summaries", {"tab": "tensorboard"}),
    ],
)
def test_without_a_gpu_no_word_is_about_one(
    opened: Open, on_cpu: Asking, view: str, parameters: dict[str, str]
):
    page = opened(on_cpu)
    page.go(view, **parameters)
    text = page.find("main").inner_text() + page.find("nav[aria-label=Views]").inner_text()
    assert not [line for line in text.splitlines() if OF_A_GPU.search(line)]


def test_without_a_gpu_reports_of_one_are_not_offered(opened: Open, on_cpu: Asking):
    page = opened(on_cpu)
    page.go("reports")
    names = page.find("[data-reports] option").evaluate_all("all => all.map(one => one.value)")
    needed = {one["name"]: one["needs"] for one in on_cpu.json("/api/reports")}
    assert {"categories", "step_time"} <= set(names)
    assert not [name for name in names if "GPU" in needed[name] or "CUDA" in needed[name]]
    assert not [heading for heading in page.headings("categories") if OF_A_GPU.search(heading)]
    page.go("reports", report="gpu")  # by an old address: it says what it needs
    assert "which needs a GPU" in page.find("main").inner_text()


def test_one_bar_is_not_a_chart(opened: Open, page: Page, client: Asking, lines: Asking):
    lone = opened(lines)
    lone.go("iterations")
    iteration = lone.find("[data-panel=iterations]")
    (row,) = lines.table("/api/iterations")
    assert not iteration.locator("svg[role=group]").count()
    assert iteration.locator("[data-bar] p .num").get_attribute("data-tip") == f"{row['duration']:,} ns"
    shares = iteration.locator("[data-part]").evaluate_all(
        "all => all.map(one => parseFloat(one.style.width))"
    )
    assert sum(shares) == pytest.approx(100, abs=0.01)
    # Steps of one worker are compared with each other.
    page.go("workers")
    steps = [str(row["step"]) for row in client.table("/api/reports/step_time")]
    bars = page.find("[data-panel=step-bars] [data-bar]")
    assert bars.evaluate_all("bars => bars.map(bar => bar.dataset.bar)") == steps
    assert len(steps) > 1


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    """A server of a recording whose source lines have long paths."""
    folder = tmp_path_factory.mktemp("lines")
    text = "".join(
        f"{call('torch.mm', (64, 32), (32, 16), trace=(f'{LONG}:{1000 + n}',))}\n"
        f"    op seq={n} aten::mm\n        wait {50 + n}\n"
        for n in range(3)
    )
    session.load(write_capture(folder / "a.sqlite", recording(text))).save(folder / "a_dldb.sqlite")
    with serving(folder / "a_dldb.sqlite") as asking:
        yield asking


CUT = """parts => parts.filter(one => {
    const text = document.createRange();
    text.selectNodeContents(one);
    const box = one.getBoundingClientRect();  // an ellipsis comes with the first fraction of a pixel that is missing
    return text.getBoundingClientRect().width > box.width + 0.01
        || box.right > one.parentElement.getBoundingClientRect().right + 0.5;
}).length"""


@pytest.mark.parametrize("size", [{}, PHONE], ids=["desktop", "phone"])
def test_a_source_line_keeps_its_file_and_number(opened: Open, lines: Asking, size: dict[str, int]):
    page = opened(lines, **size)
    for view, table in (("overview", "[data-panel=top-ops]"), ("lines", "[data-table=lines]")):
        page.go(view)
        assert page.find(f"{table} .end:has-text('/transformer.py')").count() == 3
        assert page.find(f"{table} .path .number").first.inner_text().startswith(":100")
        assert page.tab.eval_on_selector_all(f"{table} .path .end, {table} .path .number", CUT) == 0


def test_without_call_stacks_it_is_said_why_there_are_no_lines(opened: Open, tmp_path: Path):
    op = f"{call('torch.mm', (64, 32), (32, 16))}\n    op seq=0 aten::mm\n        wait 50\n"
    session.load(write_capture(tmp_path / "a.sqlite", recording(op))).save(tmp_path / "a_dldb.sqlite")
    with serving(tmp_path / "a_dldb.sqlite") as asking:
        page = opened(asking)
        why = "No call stack was recorded, so there are no source lines"
        page.go()
        assert "Source line" not in page.find("[data-panel=top-ops] thead").inner_text()
        assert why in page.find("[data-panel=top-ops]").inner_text()
        page.go("lines")
        assert why in page.find("main").inner_text()
        assert not page.find("[data-table=lines]").count()


def test_an_edge_that_cuts_a_table_fades_until_it_is_reached(opened: Open):
    page = opened(**PHONE)
    page.go("kernels")
    scroll = page.find("[data-table=kernels] .scroll")
    assert "right" in scroll.get_attribute("data-cut")
    assert "gradient" in scroll.evaluate("one => getComputedStyle(one).maskImage")
    scroll.evaluate("one => (one.scrollLeft = one.scrollWidth)")
    page.wait("!document.querySelector('[data-table=kernels] .scroll').dataset.cut.includes('right')")


def test_a_phone_shows_the_legend_and_the_sums_of_the_timeline(opened: Open):
    page = opened(**PHONE)
    page.go("timeline")
    sums = page.find("[data-panel=sums] [data-device]").first
    sums.wait_for()
    box = sums.bounding_box()
    assert box["y"] + 16 < PHONE["height"]  # its first line, without scrolling
    entries = page.find(".legend li").all()
    assert len(entries) > 3
    assert all(one.bounding_box()["x"] + one.bounding_box()["width"] <= PHONE["width"] for one in entries)


def test_the_legend_has_the_causes_that_occur(page: Page, client: Asking):
    page.go("timeline")
    causes = [row["cause"] for row in client.table("/api/reports/idle", group_by="cause")]
    assert 0 < len(causes) < 6
    entries = " ".join(page.find(".legend li").all_inner_texts()).partition("Idle:")[2]
    assert sorted(entries.split()) == sorted(" ".join(causes).split())


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_filter_is_seen_to_be_a_field(opened: Open, theme: str):
    """Its border has the contrast of a control to what is around it (WCAG 1.4.11), its hint that of text."""
    page = opened(theme=theme)
    page.go("kernels")
    ratio = """(one, [style, pseudo]) => {
        const linear = (part) => (part <= 10 ? part / 3294 : ((part / 255 + 0.055) / 1.055) ** 2.4);
        const light = (color) => color.match(/[\\d.]+/g).slice(0, 3).map(Number).map(linear)
            .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
        const of = getComputedStyle(one, pseudo)[style];
        const around = getComputedStyle(pseudo ? one : one.parentElement).backgroundColor;
        const [low, high] = [light(of), light(around)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    }"""
    field = page.find("[data-table=kernels] .filters input").first
    assert field.evaluate(ratio, ["borderTopColor", None]) >= 3
    assert field.evaluate(ratio, ["color", "::placeholder"]) >= 4.5


def test_two_numberings_of_steps_are_told_apart(opened: Open, ranks: Asking):
    page = opened(ranks)  # the program's steps are 5 and 6
    for view in ("iterations", "workers", "summaries"):
        page.go(view)
        assert "the program's steps 5 to 6 are iterations 0 to 1" in page.find("main").inner_text()


def test_marks_of_ranks_do_not_cross_the_label_of_a_step(opened: Open, tmp_path: Path):
    session.load(planted_ranks.write(tmp_path / "run")).save(tmp_path / "run_dldb.sqlite")
    with serving(tmp_path / "run_dldb.sqlite") as asking:
        page = opened(asking, **PHONE)  # the first three of seven steps begin within the width of a label
        page.go("timeline")
        page.find("[data-step]").first.wait_for()
        _labels_are_whole(page)


def _labels_are_whole(page: Page) -> None:
    boxes: list[dict[str, Any]] = page.tab.eval_on_selector_all(
        "[data-axis] .step",
        """all => all.map(one => ({
            ...one.getBoundingClientRect().toJSON(), covered: one.classList.contains("covered") }))""",
    )
    labels = [one for one in boxes if not one["covered"]]
    assert 0 < len(labels) < len(boxes)
    for one, next_ in pairwise(labels):
        assert one["right"] <= next_["left"] + 1
    inside = [mark for mark in boxes if any(one["left"] < mark["left"] < one["right"] for one in labels)]
    assert inside
    assert all(mark["covered"] and mark["height"] <= 5 for mark in inside)
    assert re.fullmatch(r"step \d+ rank\d", page.find("[data-step]").first.inner_text())


def test_where_a_finding_is_seen_is_said_in_words(page: Page):
    page.go()
    link = page.find("[data-finding] td a").first
    assert link.inner_text() == "See it"
    assert link.get_attribute("aria-label").startswith("See it: ")
