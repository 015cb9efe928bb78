# SPDX-License-Identifier: Apache-2.0
"""What people come for, each from the Overview in three clicks or a search: the answer has to be right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.browser.conftest import Open, Page

COUNT = "addEventListener('click', (event) => event.isTrusted && (window.clicks = (window.clicks ?? 0) + 1), true)"


@pytest.fixture
def opened(opened: Open) -> Iterator[Open]:
    """Opens tabs in which a task takes no more than three clicks."""
    pages: list[Page] = []

    def open_(*arguments: Any, **options: Any) -> Page:
        pages.append(opened(*arguments, **options))
        pages[-1].tab.add_init_script(COUNT)
        return pages[-1]

    yield open_
    assert all(page.tab.evaluate("window.clicks ?? 0") <= 3 for page in pages)


# Of the six steps of `tests.server.conftest.steps`, in ns: step i has products of 70 and, beside it, of 30 + i, and a
# relu of 12.
FIRST, SECOND, RELU = 6 * 70, sum(30 + i for i in range(6)), 6 * 12
GEMM_KERNEL, SECOND_KERNEL = "volta_h884gemm_64x64_ldg8_nn", "volta_sgemm_128x64_nn"


def search(page: Page, text: str, option: str) -> None:
    page.tab.keyboard.press("/")
    page.tab.keyboard.type(text)
    page.find(f"#palette [role=option]:has(.what:has-text('{option}'))").first.click()
    page.settled()


def test_which_line_costs_most_and_what_ran_because_of_it(page: Page):
    page.go()
    page.find("nav a:has-text('Source lines')").click()
    page.settled()
    assert page.column("lines", "line")[0] == "run.py:9"
    assert page.column("lines", "device_self_ns")[0] == f"{FIRST + RELU}"
    page.find("[data-table=lines] tr[data-row='run.py:9']").click()
    page.settled()
    assert page.column("lineops", "gpu") == [f"{FIRST}", f"{RELU}"]


def test_an_operator_of_any_spelling_and_its_kernels(page: Page):
    page.go()
    search(page, "mm 1", "Operator")
    assert page.find("[data-table=ops] tr.picked").get_attribute("data-row") == "MM_1"
    assert page.column("opkernels", "kernel") == [GEMM_KERNEL, SECOND_KERNEL]
    assert page.column("opkernels", "gpu") == [f"{FIRST}", f"{SECOND}"]
    assert page.find("aside[data-drawer='op:MM_1']").count() == 1
