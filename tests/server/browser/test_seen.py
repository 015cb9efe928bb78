# SPDX-License-Identifier: Apache-2.0
"""What a reader sees: no word about a GPU where there is none, nothing cut without a sign of it, names whole where they
tell most, and what is not recorded with its reason."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from pyprof import profiles
from tests.build import call, recording, write_capture
from tests.server.browser.conftest import Open, Page
from tests.server.conftest import Asking, serving

OF_A_GPU = re.compile(r"\bgpus?\b|kernel|tensor core|\bcuda\b|memcpy|memset|\bsm\b|launch", re.I)
LONG = "/home/user/projects/of/last/year/language_model/training/transformer.py"
PHONE = {"width": 390, "height": 844}


@pytest.mark.statement("PO17", "PO19")
def test_without_a_gpu_no_word_is_about_one(opened: Open, on_cpu: Asking):
    page = opened(on_cpu)
    for view, parameters in (
        ("overview", {}),
        ("workers", {}),
        ("iterations", {"tab": "kernels", "iterations.sel": "0"}),
        ("iterations", {"tab": "ops", "iterations.sel": "0", "iterops.sel": "0"}),
        ("kernels", {"tab": "launches"}),
        ("summaries", {}),
        ("summaries", {"tab": "tensorboard"}),
    ):
        page.go(view, **parameters)
        text = page.find("main").inner_text() + page.find("nav[aria-label=Views]").inner_text()
        assert not [line for line in text.splitlines() if OF_A_GPU.search(line)], view
    page.go("timeline")
    assert "GPU" not in page.find("main").inner_text()
    page.go("reports")
    names = page.find("[data-reports] option").evaluate_all("all => all.map(one => one.value)")
    needed = {one["name"]: one["needs"] for one in on_cpu.json("/api/reports")}
    assert {"categories", "step_time"} <= set(names)
    assert not [name for name in names if "GPU" in needed[name] or "CUDA" in needed[name]]
    assert not [heading for heading in page.headings("categories") if OF_A_GPU.search(heading)]
    page.go("reports", report="gpu")  # by an old address: it says what it needs
    assert "which needs a GPU" in page.find("main").inner_text()


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    """A server of a recording whose source lines have long paths."""
    folder = tmp_path_factory.mktemp("lines")
    text = "".join(
        f"{call('torch.mm', (64, 32), (32, 16), trace=(f'{LONG}:{1000 + n}',))}\n"
        f"    op seq={n} aten::mm\n        wait {50 + n}\n"
        for n in range(3)
    )
    profiles.load(write_capture(folder / "a.sqlite", recording(text))).save(folder / "a_dldb.sqlite")
    with serving(folder / "a_dldb.sqlite") as asking:
        yield asking


CUT = """parts => parts.filter(one => {
    const text = document.createRange();
    text.selectNodeContents(one);
    const box = one.getBoundingClientRect();  // an ellipsis comes with the first fraction of a pixel that is missing
    return text.getBoundingClientRect().width > box.width + 0.01
        || box.right > one.parentElement.getBoundingClientRect().right + 0.5;
}).length"""


def test_a_source_line_keeps_its_file_and_number(opened: Open, lines: Asking):
    page = opened(lines, **PHONE)
    for view, table in (("overview", "[data-panel=top-ops]"), ("lines", "[data-table=lines]")):
        page.go(view)
        assert page.find(f"{table} .end:has-text('/transformer.py')").count() == 3
        assert page.find(f"{table} .path .number").first.inner_text().startswith(":100")
        assert page.tab.eval_on_selector_all(f"{table} .path .end, {table} .path .number", CUT) == 0


def test_a_phone_shows_what_is_cut_and_the_sums_of_the_timeline(opened: Open):
    page = opened(**PHONE)
    page.go("kernels")
    scroll = page.find("[data-table=kernels] .scroll")
    assert "right" in scroll.get_attribute("data-cut")
    assert "gradient" in scroll.evaluate("one => getComputedStyle(one).maskImage")
    scroll.evaluate("one => (one.scrollLeft = one.scrollWidth)")
    page.wait("!document.querySelector('[data-table=kernels] .scroll').dataset.cut.includes('right')")
    page = opened(**PHONE)
    page.go("timeline")
    sums = page.find("[data-panel=sums] [data-device]").first
    sums.wait_for()
    box = sums.bounding_box()
    assert box["y"] + 16 < PHONE["height"]  # its first line, without scrolling
    entries = page.find(".legend li").all()
    assert len(entries) > 3
    assert all(one.bounding_box()["x"] + one.bounding_box()["width"] <= PHONE["width"] for one in entries)


def test_a_filter_is_seen_to_be_a_field(page: Page):
    """Its border has the contrast of a control to what is around it (WCAG 1.4.11), its hint that of text."""
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
