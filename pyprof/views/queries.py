# SPDX-License-Identifier: Apache-2.0
"""Rows of a table that a reader asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RowQuery:
    """Rows of a table, and their order. `sort`: keys of columns with commas between, - for descending order;
    `search`: text in any column; `filters`: KEY:CONDITION, all of which must hold."""

    sort: str | None = None
    search: str = ""
    filters: Sequence[str] = ()


@dataclass(frozen=True)
class PageQuery(RowQuery):
    """A page of such rows."""

    offset: int = 0
    limit: int = 25
