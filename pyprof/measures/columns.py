# SPDX-License-Identifier: Apache-2.0
"""Columns of tables: key, heading, unit and definition."""

from __future__ import annotations

from typing import NamedTuple


class Column(NamedTuple):
    """Column of a table. `kind`: int, float, str, bool, or object for values of any type. `extra`: DLProf has no such
    column."""

    key: str
    heading: str
    unit: str
    text: str
    kind: type = int
    extra: bool = False
