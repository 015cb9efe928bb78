# SPDX-License-Identifier: Apache-2.0
"""Parts of a step have colors of their own wherever they are shown. That those of the page are told apart is tested in
frontend/tests/colors.test.ts: the notebook has the same."""

from __future__ import annotations

import re
from pathlib import Path

from pyprof.facts.steps.step_phases import IDLE
from pyprof.overview import html
from pyprof.reports.headline import PHASES
from pyprof.top import pages

SOURCES = Path(__file__).parents[2] / "frontend" / "src"
PARTS = {*PHASES, "dataloader", *IDLE}


def test_a_notebook_has_the_colors_of_the_page() -> None:
    light = (SOURCES / "style.css").read_text(encoding="utf-8").partition(':root[data-theme="dark"]')[0]
    color = dict(re.findall(r"--c-([\w-]+): (#[0-9a-f]{6});", light))
    script = (SOURCES / "lib" / "colours.ts").read_text(encoding="utf-8")
    parts = re.search(r"const PARTS: .*?\{(.*?)\};", script, re.DOTALL)[1]
    meaning = dict(re.findall(r'(\w+): "([\w-]+)"', parts))
    assert {part: color[meaning[part]] for part in PARTS} == html._COLORS
    assert color["other"] == html._OTHER
    # Waits for the data loader have one color, with and without a GPU.
    assert len({*html._COLORS.values(), html._OTHER}) == len(PARTS)


def test_no_two_parts_on_a_terminal_have_one_color_or_one_letter() -> None:
    assert set(pages._PARTS) == {*PARTS, "other"}
    letters, colors = zip(*pages._PARTS.values())
    assert len(set(letters)) == len(letters)
    assert pages._PARTS["dataloader"][1] == pages._PARTS["data_loader"][1]  # with and without a GPU
    assert len(set(colors)) == len(colors) - 1
