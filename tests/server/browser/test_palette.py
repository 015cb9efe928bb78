# SPDX-License-Identifier: Apache-2.0
"""The search of the page on a recording of another program: what has the name is before what begins with it, what
contains it, and what merely mentions it."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.browser.conftest import Open, Page, read
from tests.server.conftest import Asking, serving


@pytest.fixture(scope="module")
def file(data: Path) -> Path:
    return data / "kineto" / "resnet50_v100_6steps.pt.trace.json.gz"


@pytest.fixture(scope="module")
def resnet(file: Path) -> Iterator[Asking]:
    with serving(file) as asking:
        read(asking)
        yield asking


@pytest.fixture(scope="module")
def events(file: Path) -> list[dict[str, Any]]:
    """Events of the file itself, with a name and a length."""
    return [one for one in json.loads(gzip.open(file).read())["traceEvents"] if "dur" in one]


def offers(page: Page, text: str) -> list[tuple[str, str]]:
    """What the palette offers: the name, and what it is."""
    page.go()
    page.tab.keyboard.press("Escape")
    page.wait('!document.querySelector("dialog[open]")')  # it is closed later
    page.tab.keyboard.press("/")
    page.tab.keyboard.type(text)
    page.wait(f'document.querySelector("#palette")?.dataset.answered === {json.dumps(text)}')
    page.settled()
    options = page.find("#palette [role=option]").all()
    return [
        (one.locator(".name").inner_text(), one.locator(".what").inner_text().partition(" · ")[0])
        for one in options
        if one.locator(".what").count()
    ]


@pytest.mark.long
def test_what_is_named_so_is_first_and_findings_are_last(opened: Open, resnet: Asking, events: list[Any]):
    page = opened(resnet)
    shown = offers(page, "addmm")
    assert shown[0] == ("aten::addmm", "Operator of torch")
    assert ("AddmmBackward", "Operator of torch") in shown
    shown = offers(page, "convolution_backward")
    names = {one["name"] for one in events if "convolutionbackward" in re.sub(r"[\W_]", "", one["name"].lower())}
    operators = {name for name in names if re.fullmatch(r"aten::\w+|\w+Backward\d*", name)}
    assert {name for name, what in shown if what == "Operator of torch"} == operators
    assert shown[0][1] == "Operator of torch"
    for text in ("addmm", "convolution_backward", "sgemm", "kernel", "memory"):
        kinds = [what for _, what in offers(page, text)]
        found = [at for at, what in enumerate(kinds) if what == "Finding"]
        assert found == list(range(len(kinds) - len(found), len(kinds))), text
    times: Counter[str] = Counter()
    for one in events:
        if "sgemm" in one["name"] and one.get("cat") == "Kernel":
            times[one["name"]] += one["dur"]
    shown = [name for name, what in offers(opened(resnet), "sgemm") if what == "Kernel"]
    assert shown == [name for name, _ in times.most_common(6)]
    assert not any("conv1" in one["name"].lower() for one in events)
    page = opened(resnet)
    assert offers(page, "conv1") == []
    assert page.find("#palette").inner_text() == "No matches."
    shown = offers(opened(resnet), "resnet.py:128")
    name, what = shown[0]
    assert what == "Source line"
    assert name.endswith("torchvision/models/resnet.py:128")
