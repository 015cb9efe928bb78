# SPDX-License-Identifier: Apache-2.0
"""What belongs to one thing that is selected: its figures, call stack, partners and source."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pyprof.viewer.models.base import Cell, Model
from pyprof.viewer.models.curves import Point
from pyprof.viewer.models.dashboard import Figure
from pyprof.viewer.models.tables import Column


class Text(Model):
    """A text about it: shapes, parameters, advice."""

    key: str
    heading: str
    value: str


class Frame(Model):
    """A line of a call stack, outermost first; `readable`: /api/source has its text."""

    file: str
    line: int
    readable: bool


class Partner(Model):
    """What belongs to it: the backward of a forward, the operator of a launch."""

    relation: Literal["forward", "backward", "operator", "kernel", "iteration", "parent"]
    kind: Literal["op", "kernel", "launch", "iteration"]
    id: str
    title: str


class NamedTable(Model):
    """A table in the drawer, with what its rows lead to."""

    title: str
    columns: list[Column]
    rows: list[list[Cell]]
    kind: Literal["op", "kernel", "launch", "iteration"] | None
    ids: list[str]
    total: int


class Details(Model):
    """Whatever is selected: titled figures, texts, and lists of what belongs to it."""

    kind: Literal["op", "kernel", "launch", "iteration", "finding"]
    id: str
    title: str
    subtitle: str
    figures: list[Figure]
    texts: list[Text]
    stack: list[Frame]
    partners: list[Partner]
    roofline: Point | None
    tables: list[NamedTable]


class SourceText(Model):
    """A source file that a call stack names. `origin` recording: as it was when it was recorded; disk: read below the
    source root, and perhaps changed since."""

    file: str
    line: int
    first: int = Field(description="Number of the first of the lines.")
    lines: list[str]
    total: int
    origin: Literal["recording", "disk"]
