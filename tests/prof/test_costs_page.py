# SPDX-License-Identifier: Apache-2.0
"""docs/costs.md says what the registry says; `pytest --regold` rewrites it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyprof.prof.cost import formulas
from pyprof.prof.costdoc import markdown

PAGE = Path(__file__).resolve().parents[2] / "docs" / "costs.md"


def test_the_page_of_costs_is_what_the_registry_generates(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--regold"):
        PAGE.write_text(markdown(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == markdown()


def test_every_covered_name_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in formulas() if f"`{name}`" not in page] == []


def test_every_family_says_its_conventions() -> None:
    for section in markdown().split("\n## ")[1:-1]:
        name, _, rest = section.partition("\n\n")
        assert len(rest.split("| names |")[0].strip()) > 40, name
