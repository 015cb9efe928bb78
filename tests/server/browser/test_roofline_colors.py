# SPDX-License-Identifier: Apache-2.0
"""Colors by share of the roofline: each kernel's own, in ranges that the legend has; what is unknown is hatched."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.server.browser.conftest import Open, Page
from tests.server.browser.test_timeline import column, drawn, row, start, stream, surface
from tests.server.conftest import Asking, serving

# Percent of events, one after the other, and the range that each is in.
SHARES = [
    (3, 0),
    (9, 0),
    (10, 1),
    (24, 1),
    (25, 2),
    (49, 2),
    (50, 3),
    (74, 3),
    (75, 4),
    (100, 4),
    (None, None),
]
LABELS = ["below 10 % of the roofline", "10 to 25 %", "25 to 50 %", "50 to 75 %", "75 % and more", "unknown"]


@pytest.fixture(scope="module")
def events() -> list[tuple[int, int, int, int | None, int | None]]:
    """Kernels of stream 7: id, start, end, percent and range."""
    return []


@pytest.fixture(scope="module")
def planted(made: Path, tmp_path_factory: pytest.TempPathFactory, events: list[tuple[int, ...]]) -> Iterator[Asking]:
    path = tmp_path_factory.mktemp("roofline") / "net_dldb.sqlite"
    path.write_bytes(made.read_bytes())
    with closing(sqlite3.connect(path)) as database:
        kernels = database.execute(
            "select id, start_ns, start_ns + duration_ns, stream from event where kind = 0 order by start_ns"
        ).fetchall()
        database.execute("update event set roofline_ns = null, hardware_ps = 0")
        for place, (number, begin, end, stream_) in enumerate(kernels):
            percent, rank = SHARES[place % len(SHARES)]
            if percent is not None:
                # The least whole ns of which so many percent are reached.
                roofline = -(-percent * (end - begin) // 100)
                database.execute("update event set roofline_ns = ? where id = ?", (roofline, number))
                percent = 100 * roofline // (end - begin)
                rank = sum(percent >= low for low in (10, 25, 50, 75))
            if stream_ == 7:
                events.append((number, begin, end, percent, rank))  # type: ignore[arg-type]
        database.commit()
    with serving(path) as asking:
        yield asking


def pixels(page: Page, y: float) -> list[str]:
    """Colors of a row of the lanes, as the page writes them."""
    return list(
        page.tab.evaluate(
            """([y]) => {
                const canvas = document.querySelector(".canvases canvas");
                const copy = new OffscreenCanvas(canvas.width, 1).getContext("2d", { willReadFrequently: true });
                copy.drawImage(canvas, 0, -Math.floor((y * canvas.height) / canvas.clientHeight));
                const data = copy.getImageData(0, 0, canvas.width, 1).data;
                const hex = (value) => value.toString(16).padStart(2, "0");
                return Array.from({ length: canvas.width }, (_, x) => "#" + hex(data[4 * x]) + hex(data[4 * x + 1])
                    + hex(data[4 * x + 2]));
            }""",
            [y - surface(page)["y"]],
        )
    )


def ink(page: Page, name: str) -> str:
    return str(
        page.tab.evaluate("name => getComputedStyle(document.documentElement).getPropertyValue(name).trim()", name)
    )


@pytest.mark.statement("WY03", "WT05")
def test_a_kernel_has_the_color_of_its_share(
    opened: Open, planted: Asking, events: list[tuple[int, int, int, int | None, int | None]]
):
    page = opened(planted, theme="dark")
    start(page, by="roofline")
    assert {rank for *_, rank in events} == {0, 1, 2, 3, 4, None}
    inks = [ink(page, f"--e-{number}") for number in range(5)]
    assert len(set(inks)) == 5
    number = stream(planted, 7)
    distinct = {one[4]: one for one in events}  # an event of each range
    for _, begin, end, _, rank in distinct.values():
        page.tab.goto("about:blank")
        start(page, by="roofline", **{"from": str(begin - (end - begin)), "to": str(end + (end - begin))})
        lane = pixels(page, row(page, number) + 7)
        scale = len(lane) / surface(page)["width"]
        left, right = ((column(page, time) - surface(page)["x"]) * scale for time in (begin, end))
        inside = set(lane[round(left) + 2 : round(right) - 2])
        if rank is not None:
            assert inside == {inks[rank]}
        else:
            assert ink(page, "--c-outside") in inside
            assert len(inside) == 2  # lines, and what is between them
            assert not inside & set(inks)
    page = opened(planted)
    start(page)
    page.find("[data-by]").select_option("roofline")
    drawn(page)
    assert "by=roofline" in page.parameters()
    entries = page.find(".legend li").all_inner_texts()[: len(LABELS)]
    assert [text.strip() for text in entries] == LABELS
    swatches = page.tab.eval_on_selector_all(
        ".legend .swatch", "all => all.map(one => getComputedStyle(one).backgroundColor)"
    )
    inks = [ink(page, f"--e-{number}") for number in range(5)]
    assert [f"#{''.join(f'{int(part):02x}' for part in re.findall('[0-9]+', one))}" for one in swatches[:5]] == inks
    for _, begin, end, percent, _ in (next(one for one in events if one[3] is None), events[0]):
        page.tab.goto("about:blank")
        start(page, by="roofline", **{"from": str(begin - 5), "to": str(end + 5)})
        page.tab.mouse.move(column(page, (begin + end) / 2), row(page, stream(planted, 7)))
        tip = page.find(".page [role=tooltip]")
        tip.wait_for()
        said = "unknown" if percent is None else f"{percent} %"
        assert f"roofline: {said}" in tip.inner_text()
