# SPDX-License-Identifier: Apache-2.0
"""The timeline: tracks, texts, colors. Times are ns since the first event."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pyprof.viewer.models.base import Model

TrackKind = Literal["range", "function", "overlap", "module", "api", "file", "loader", "stream", "idle"]


class Track(Model):
    """A row of the timeline: lanes of events that do not overlap."""

    id: int
    worker: int
    kind: TrackKind
    thread: int | None
    device: int | None
    stream: int | None
    name: str = Field(description="Name of its thread, stream or device.")
    lanes: int
    outer: int = Field(description="Lanes at the top with one event each.")
    events: int
    start: int
    end: int
    levels: list[tuple[int, int]] = Field(
        description="Levels of detail, finest first, and the shift of each: a tile has 2^shift ns."
    )


class Step(Model):
    """A step that the program marked."""

    worker: int
    number: int
    start: int
    end: int


class TimelineWorker(Model):
    """A process of the timeline."""

    id: int
    name: str


class Timeline(Model):
    """Tracks of a recording."""

    version: str = Field(description="Changes with the database.")
    start: int
    end: int
    workers: list[TimelineWorker]
    tracks: list[Track]
    steps: list[Step] = Field(description="At most 20,000.")


class ColorGroup(Model):
    """Events of one color."""

    label: str
    time: int = Field(description="Time on the device, of the whole recording.")


class Colors(Model):
    """The group of each operator, or of each kernel name, -1 for none. Groups are sorted by time."""

    groups: list[ColorGroup]
    of: Literal["operator", "name"]
    group: list[int]
