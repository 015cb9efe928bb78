# SPDX-License-Identifier: Apache-2.0
"""Where things stand on the page: nothing is cut without a hint, jumps, or leaves a blank."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyprof import profiles
from tests.build import call, recording, write_capture
from tests.server.browser.conftest import Open, Page
from tests.server.conftest import Asking, serving

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
    profiles.load(write_capture(folder / "a.sqlite", recording(text))).save(folder / "k_dldb.sqlite")
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
    assert all(height < 3 for height in lines_of(page, "main thead tr:first-child"))
    page.go("lines")
    texts = page.find("[data-table=lines] tbody td:first-child .end, td:first-child .number").all_inner_texts()
    assert "/net.py" in texts
    assert {":1", ":2", ":3"} <= set(texts)
