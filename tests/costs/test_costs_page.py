# SPDX-License-Identifier: Apache-2.0
"""docs/costs.md names every operator, and every family says its conventions."""

from __future__ import annotations

from pathlib import Path

from pyprof.costs.cost import formulas
from pyprof.reference.costs import markdown

PAGE = Path(__file__).resolve().parents[2] / "docs" / "costs.md"


def test_every_covered_name_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in formulas() if f"`{name}`" not in page] == []


def test_every_family_says_its_conventions() -> None:
    for section in markdown().split("\n## ")[1:-1]:
        name, _, rest = section.partition("\n\n")
        assert len(rest.split("| names |")[0].strip()) > 40, name
