# SPDX-License-Identifier: Apache-2.0
"""Parameters of the API: meanings and limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import Depends, Path, Query

from pyprof.views.queries import PageQuery, RowQuery

MOST = 2**53  # largest integer of JavaScript

Name = Annotated[str, Path(min_length=1, max_length=64, pattern=r"^[a-z_0-9]+$")]
Run = Annotated[str | None, Query(max_length=4096, description="A run of /api/profile; default: the first.")]
AggregationId = Annotated[
    int | None, Query(ge=1, le=MOST, description="An aggregation of /api/profile; default: the first.")
]
WorkerId = Annotated[int | None, Query(ge=0, le=2**20, description="A worker of /api/profile; default: all.")]
Offset = Annotated[int, Query(ge=0, le=MOST)]
Limit = Annotated[int, Query(ge=10, le=1000, description="Rows per page.")]
Sort = Annotated[
    str | None,
    Query(
        max_length=400,
        pattern=r"^-?[a-z_0-9]+(,-?[a-z_0-9]+)*$",
        description="Columns; - for descending order: -gpu,name",
    ),
]
Open = Annotated[
    str | None,
    Query(
        max_length=14_000,
        pattern="^(none|(all|[0-9a-f]{12})(,[0-9a-f]{12})*)$",
        description="Open nodes by their keys: none, all, the open ones, or all and the closed ones; default: a single "
        "root.",
    ),
]
Search = Annotated[str, Query(max_length=1000, description="Rows with this text in any column, case-insensitive.")]
Filter = Annotated[
    Sequence[Annotated[str, Query(max_length=1000)]],
    Query(
        max_length=20,
        description="Rows whose column fulfils a condition, KEY:CONDITION; several are combined with AND. Numbers: "
        ">5ms, <=2.5KB, 10..20us (units ns us ms s, B KB MB GB KiB MiB GiB, %); digits only are searched in the number "
        "as written. Booleans: 1 or 0. Texts: a substring, or =TEXT exactly. Any: ? is unknown, !? known.",
    ),
]
Format = Annotated[Literal["csv", "json", "xlsx", "pdf", "md", "parquet"], Query()]


def _rows(sort: Sort = None, search: Search = "", filter: Filter = ()) -> RowQuery:
    return RowQuery(sort, search, list(filter))


def _page(
    sort: Sort = None, search: Search = "", filter: Filter = (), offset: Offset = 0, limit: Limit = 25
) -> PageQuery:
    return PageQuery(sort, search, list(filter), offset, limit)


Rows = Annotated[RowQuery, Depends(_rows)]
Page = Annotated[PageQuery, Depends(_page)]
