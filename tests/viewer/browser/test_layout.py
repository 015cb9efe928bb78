# SPDX-License-Identifier: Apache-2.0
"""Where things stand on the page: nothing is cut without a hint, jumps, or leaves a blank."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyprof import session
from tests.build import call, recording, write_capture
from tests.viewer.browser.conftest import Open, Page
from tests.viewer.conftest import Asking, serving

PHONE = {"width": 390, "height": 844}
KERNELS = (
    "volta_scudnn_128x64_relu_interior_nn_v1", "volta_scudnn_128x64_relu_medium_nn_v1",
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>",
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<double, double, int, 512, true, 1, true>",
)  # fmt: skip


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    """A server of a recording of kernels whose names differ far behind their beginning; one has no source line."""
    folder = tmp_path_factory.mktemp("kernels")
    text = "".join(
        f"{call(f'torch.op{n}', (64, 32), trace=(f'/a/folder/of/a/project/net.py:{n}',) if n else ())}\n"
        f"    op seq={n} aten::op_of_a_name_that_a_phone_has_no_room_for_{n}\n        > {1 + 100 * n} {name}\n"
        for n, name in enumerate(KERNELS)
    )
    session.load(write_capture(folder / "a.sqlite", recording(text))).save(folder / "k_dldb.sqlite")
    with serving(folder / "k_dldb.sqlite") as asking:
        yield asking


def lines_of(page: Page, selector: str) -> list[float]:
    """The heights of elements, in lines of text."""
    return page.find(selector).evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().height / parseFloat(getComputedStyle(one).lineHeight))"
    )


def test_the_menu_does_not_move(page: Page):
    """Whichever view is the current one, whose name is bold."""
    places = set()
    for view in ("overview", "summaries"):
        page.go(view)
        places.add(
            page.find("nav a").evaluate_all(
                "all => JSON.stringify(all.map(one => [one.offsetTop, one.offsetWidth, one.offsetHeight]))"
            )
        )
        assert len(set(page.find("nav a").evaluate_all("all => all.map(one => one.offsetHeight)"))) == 1
    assert len(places) == 1
    assert "Italic: no data" in page.find("nav[aria-label=Views]").inner_text()


def test_a_short_name_leaves_no_gap(opened: Open, copied: Callable[[str], Path]):
    with serving(copied("tb_dldb.sqlite")) as server:
        page = opened(server)
        page.go()
        assert page.find("header .name").inner_text() == "tb"
        assert page.find("header .name").bounding_box()["width"] < 24


def test_a_name_has_two_lines_on_a_phone(opened: Open, kernels: Asking):
    page = opened(kernels, **PHONE)
    page.go("kernels")
    cells = "[data-table=kernels] tbody td:first-child"
    names = page.find(cells).evaluate_all("""cells => cells.map(cell => {
        const box = cell.getBoundingClientRect();
        const parts = [...cell.querySelectorAll('.text')].filter(one => !one.querySelector('.text'));
        // What is seen of a name: the letters that are in its box.
        return parts.map(part => {
            const node = document.createTreeWalker(part, NodeFilter.SHOW_TEXT), range = document.createRange();
            const own = part.getBoundingClientRect();
            let seen = '';
            for (let text; (text = node.nextNode()); )
                for (let at = 0; at < text.length; at++) {
                    range.setStart(text, at);
                    range.setEnd(text, at + 1);
                    const letter = range.getBoundingClientRect();
                    const inside = letter.right <= own.right + 1 && letter.bottom <= own.bottom + 4;
                    if (letter.width && inside) seen += text.data[at];
                }
            return seen;
        }).join(' ');
    })""")
    assert len(names) == len(set(names)) == len(KERNELS), names
    assert all(1.8 < lines < 2.9 for lines in lines_of(page, cells)), lines_of(page, cells)
    page.go("lines")
    texts = page.find(
        "[data-table=lines] tbody td:first-child .end, td:first-child .number"
    ).all_inner_texts()
    assert "/net.py" in texts
    assert {":1", ":2", ":3"} <= set(texts)


def test_a_row_without_a_line_says_so(opened: Open, kernels: Asking):
    page = opened(kernels)
    page.go("lines")
    names = page.find("[data-table=lines] tbody td:first-child").all_inner_texts()
    assert names.count("no source line") == 1
    assert "–" not in names


def test_a_long_name_in_a_sentence_is_broken(opened: Open):
    page = opened(**PHONE)
    page.go("reports", report="a_name_without_blanks" * 20)
    assert page.find("main [data-note=error]").is_visible()
    assert page.find("main").evaluate("main => main.scrollWidth <= main.clientWidth")


@pytest.mark.parametrize("view", ["kernels", "gpus", "reports"])
def test_headings_leave_no_blank_on_a_phone(opened: Open, view: str):
    """Columns that are not in sight have at most the two lines of those that are."""
    page = opened(**PHONE)
    page.go(view)
    for height in lines_of(page, "main thead tr:first-child"):
        assert height < 3


def test_links_beside_a_name_make_no_row_higher(opened: Open, kernels: Asking):
    page = opened(kernels)
    page.go("operators")
    assert page.find("[data-table=operators] tbody a, [data-table=operators] tbody button").count() > 3
    linked = lines_of(page, "[data-table=operators] tbody tr")
    page.go("kernels")
    assert max(linked) == pytest.approx(max(lines_of(page, "[data-table=kernels] tbody tr")), abs=0.1)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_button_that_is_off_can_be_read(opened: Open, theme: str):
    page = opened(theme=theme)
    page.go("iterations")
    ratio = page.find(".button.primary:disabled").first.evaluate("""button => {
        const light = color => {
            const [r, g, b] = color.match(/[\\d.]+/g).map(value => value / 255)
                .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
        };
        const style = getComputedStyle(button);
        const [text, ground] = [light(style.color), light(style.backgroundColor)];
        return style.opacity * Math.max(text / ground, ground / text);
    }""")
    assert ratio >= 4.5


def test_a_phone_shows_all_colors_and_no_empty_lanes(opened: Open, client: Asking):
    page = opened(**PHONE)
    page.go("timeline")
    page.tab.wait_for_selector("[data-track]")
    page.settled()
    legend = page.find("ul[aria-label=Colors]")
    assert legend.evaluate("list => list.scrollHeight <= list.clientHeight + 1")
    entries = legend.locator("li").all_inner_texts()
    first = next(text for text in entries if text.startswith("Idle:"))  # and no line ends with this word
    assert len(first.split()) > 1
    lowest = max(
        one.bounding_box()["y"] + one.bounding_box()["height"] for one in page.find("[data-track]").all()
    )
    frame = page.find(".frame").bounding_box()
    assert frame["height"] <= max(16 * 13 + 1, lowest - frame["y"] + 10)
    hint = page.find("[data-strip]").inner_text()
    assert "wheel" not in hint
    assert page.find("[data-strip]").evaluate("one => one.scrollWidth <= one.clientWidth")


def test_the_number_of_a_thread_is_a_word_of_its_own(page: Page):
    page.go("timeline")
    page.tab.wait_for_selector("[data-track]")
    threads = [
        text for text in page.find("[data-track] .title").all_inner_texts() if text.startswith("thread")
    ]
    assert threads
    assert all(re.match(r"thread\s\d+ ", text) for text in threads), threads


def test_modules_are_beside_another_panel(opened: Open, client: Asking):
    """Over the whole width of a large screen a name would be far from its bar."""
    page = opened(width=1920, height=1080)
    page.go()
    assert not page.find("[data-panel=threads]").count()
    main = page.find("main").bounding_box()["width"]
    assert page.find("[data-panel=modules]").bounding_box()["width"] < 0.55 * main
