# SPDX-License-Identifier: Apache-2.0
"""Details of one selected item: figures, call stack, related items and source."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pyprof.views.models.base import Cell, Model
from pyprof.views.models.curves import Point
from pyprof.views.models.dashboard import Figure
from pyprof.views.models.tables import Column


class Text(Model):
    """A text about the item: shapes, parameters, advice."""

    key: str
    heading: str
    value: str


class Frame(Model):
    """A line of a call stack, outermost first; `readable`: /api/source has its text."""

    file: str
    line: int
    readable: bool


class Partner(Model):
    """A related item: the backward of a forward, the operator of a launch."""

    relation: Literal["forward", "backward", "operator", "kernel", "iteration", "parent", "idle before", "ended by"]
    kind: Literal["op", "kernel", "launch", "iteration", "gap"]
    id: str
    title: str


class NamedTable(Model):
    """A table in the drawer, with the items that its rows lead to."""

    title: str
    columns: list[Column]
    rows: list[list[Cell]]
    kind: Literal["op", "kernel", "launch", "iteration"] | None
    ids: list[str]
    total: int


class Details(Model):
    """The selected item: titled figures, texts, and lists of related items."""

    kind: Literal["op", "kernel", "launch", "iteration", "finding", "range", "call", "gap"]
    id: str
    title: str
    subtitle: str
    figures: list[Figure]
    texts: list[Text]
    stack: list[Frame]
    partners: list[Partner]
    roofline: Point | None
    tables: list[NamedTable]
    start: int | None = Field(default=None, description="Of what is on the timeline: when it starts and ends.")
    end: int | None = None


class SourceText(Model):
    """A source file named in a call stack. `origin` recording: as it was at the time of the recording; disk: read below
    the source root, and possibly changed since."""

    file: str
    line: int
    first: int = Field(description="Number of the first line.")
    lines: list[str]
    total: int
    origin: Literal["recording", "disk"]
