# SPDX-License-Identifier: Apache-2.0
"""Sums of a comparison by place in the model."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from pyprof.reports.diff import COLUMNS
from pyprof.viewer.column_table import arrow
from pyprof.viewer.comparison import NOWHERE, Comparison

INFO: dict[str, Any] = {"complete": True, "steps": [], "base": {}, "other": {}, "notes": []}


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


@pytest.mark.parametrize(
    ("step", "parts", "sentence"),
    [
        ((178e6, 143e6, False), [("idle", -59e6, False), ("kernel", 1e6, False)],
         "A step takes 35.0 ms less (-19.7 %): 178 ms in the base, 143 ms in the other. The part that changed most is "
         "idle, by 59.0 ms."),
        ((10e6, 12e6, None), [("kernel", 2e6, True), ("idle", -1e6, None)],
         "A step takes 2.00 ms more (+20.0 %): 10.0 ms in the base, 12.0 ms in the other."),
        ((10e6, 12e6, True), [],
         "A step takes 10.0 ms in the base, 12.0 ms in the other: the difference (+20.0 %) is within the noise of the "
         "steps."),
        ((10e6, 10e6, True), [], "A step takes as long in both: 10.0 ms in the base, 10.0 ms in the other."),
        ((None, 12e6, None), [], ""),
    ],
)  # fmt: skip
def test_the_headline_names_the_step_and_the_part_that_changed_most(step, parts, sentence):
    base, other, noise = step
    delta = None if base is None else other - base
    change = {"section": "step", "name": "step", "unit": "ns", "base": base, "other": other, "delta": delta}
    rows = [change | {"share": None, "noise": noise}]
    for name, delta, noisy in parts:
        change = {"section": "part", "name": name, "unit": "ns", "base": None, "other": None, "delta": delta}
        rows.append(change | {"share": None, "noise": noisy})
    table = arrow(pd.DataFrame({column.key: pd.Series([], dtype=object) for column in COLUMNS}), COLUMNS)
    assert Comparison((INFO | {"steps": rows}, table)).headline == sentence


def test_without_any_module_operators_come_first():
    of = comparison((None, "mm", 5.0, 9.0), (None, "add", 2.0, None))
    assert sums(of) == [("mm", 5, 9, False), ("add", 2, 0, False)]
