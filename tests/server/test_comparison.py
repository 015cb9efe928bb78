# SPDX-License-Identifier: Apache-2.0
"""Sums of a comparison by place in the model."""

from __future__ import annotations

from typing import Any

import pandas as pd

from pyprof.reports.diff import COLUMNS
from pyprof.views.column_table import arrow
from pyprof.views.comparison import NOWHERE, Comparison

INFO: dict[str, Any] = {"complete": True, "steps": [], "base": {}, "other": {}, "notes": [], "headline": ""}


def comparison(*rows: tuple[str | None, str, float | None, float | None]) -> Comparison:
    table = pd.DataFrame({column.key: pd.Series([None] * len(rows), dtype=object) for column in COLUMNS})
    table["module"], table["name"] = [row[0] for row in rows], [row[1] for row in rows]
    table["base_device_ns"] = pd.array([row[2] for row in rows], dtype="Float64")
    table["other_device_ns"] = pd.array([row[3] for row in rows], dtype="Float64")
    numbers = {column.key: "Float64" for column in COLUMNS if column.kind is float}
    return Comparison((INFO, arrow(table.astype(numbers | {"noise": "boolean"}), COLUMNS)))


ROWS = (("net.a", "mm", 5.0, 9.0), ("net.b", "mm", 7.0, 1.0), (None, "add", 2.0, None))


def sums(of: Comparison, *at: str) -> list[tuple[str, float, float, bool]]:
    return [(one.label, one.base, one.other, one.deeper) for one in of.groups([*at], "device_ns").groups]


def test_groups_are_summed_at_each_place_the_largest_first():
    of = comparison(*ROWS)
    assert sums(of) == [("net", 12, 10, True), (NOWHERE, 2, 0, True)]
    assert sums(of, "m:net") == [("a", 5, 9, True), ("b", 7, 1, True)]
    assert sums(of, "m:net", "m:b") == [("mm", 7, 1, False)]
    assert sums(of, "o:net") == []
    assert sums(of, f"m:{NOWHERE}") == [("add", 2, 0, False)]


def test_without_any_module_operators_come_first():
    of = comparison((None, "mm", 5.0, 9.0), (None, "add", 2.0, None))
    assert sums(of) == [("mm", 5, 9, False), ("add", 2, 0, False)]
