# SPDX-License-Identifier: Apache-2.0
"""The timeline: tracks, texts, colors. Times are ns since the first event."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pyprof.views.models.base import Model

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


class TimelineStep(Model):
    """A step that the program marked."""

    worker: int
    number: int
    start: int
    end: int


class TimelinePause(Model):
    """A time in which the program waited for its recording to be read. It counts in no figure."""

    worker: int
    start: int
    end: int


class TimelineWorker(Model):
    """A process of the timeline."""

    id: int
    name: str


class Counter(Model):
    """A quantity of a device over time. `unit`: %, B/s or B."""

    worker: int
    device: int
    key: str
    title: str
    unit: str
    text: str


class CounterValues(Model):
    """Values in buckets, null where nothing is known; `unknown`: the share of the bucket's time (%) in which events of
    an unknown amount ran, null of memory."""

    key: str
    values: list[float | None]
    unknown: list[float | None]


class Counters(Model):
    """Counters of a device in buckets of `width` ns, which follow one another from the start."""

    worker: int
    device: int
    start: int
    width: int
    counters: list[CounterValues]


class Timeline(Model):
    """Tracks of a recording."""

    version: str = Field(description="Changes with the database.")
    start: int
    end: int
    workers: list[TimelineWorker]
    tracks: list[Track]
    counters: list[Counter] = Field(description="Of devices, as far as the recording knows them.")
    steps: list[TimelineStep] = Field(description="At most 20,000.")
    pauses: list[TimelinePause] = Field(description="At most 20,000.")
    causes: dict[str, str] = Field(description="Causes of idle time that the recording has, each with what to do.")


class PathStretch(Model):
    """A part of a critical path on a thread, or on a stream of a device; by the worker's own clock."""

    worker: int
    thread: int | None
    device: int | None
    stream: int | None
    start: int
    end: int


class PathSum(Model):
    """The time of a critical path in one of its parts."""

    part: str
    time: int


class CriticalPath(Model):
    """The critical path of a step of the worker that ends it last, over ranks; `number` is null without steps.

    `start`, `end`: of the step, by the clock of that worker. `stretches`: the earliest first, without what was not
    recorded; `sums`: they add up to the step without pauses."""

    number: int | None
    worker: str | None
    start: int
    end: int
    stretches: list[PathStretch]
    sums: list[PathSum]


class ColorGroup(Model):
    """Events of one color."""

    label: str
    time: int = Field(description="Time on the device, of the whole recording.")


class Colors(Model):
    """The group of each operator, or of each kernel name, -1 for none. Groups are sorted by time."""

    groups: list[ColorGroup]
    of: Literal["operator", "name"]
    group: list[int]


class FlowEnd(Model):
    """An event at an end of an arrow."""

    track: int
    kind: Literal["launch", "call", "range"]
    id: int
    start: int
    end: int


class Flow(Model):
    """An arrow: from a call to what it launched, from an operator to its kernels, from a forward to its backward."""

    kind: Literal["launch", "operator", "backward"]
    source: FlowEnd
    target: FlowEnd


class Flows(Model):
    """Arrows of an event, at most 2,000."""

    total: int
    flows: list[Flow]


class IdleCause(Model):
    """Idle time of a device by its cause, and the longest gap of it: its id, and its time inside, ns."""

    cause: str
    time: int
    count: int
    gap: str
    longest: int


class SelectedWork(Model):
    """Work of kernels in a stretch of time; of one that crosses its edges, as much as of its time is inside. A sum is
    null if that of no kernel is known; `_unknown`: the number of kernels that it lacks. HFU and MFU: the time that they
    need at the peak for their FLOPs as % of the length of a device; in rows, as in reports, of the time of the kernels
    for which it is known."""

    kernels: int
    flops: float | None
    flops_unknown: int
    bytes: float | None
    bytes_unknown: int
    hfu: float | None = Field(description="null also without such time.")
    hfu_unknown: int
    mfu: float | None = Field(description="null also without such time.")
    mfu_unknown: int


class SelectedDevice(Model):
    """A device in a stretch of time: busy and idle add up to the length, its part of the recording."""

    worker: int
    worker_name: str
    device: int
    length: int
    busy: int = Field(description="Union of its events.")
    idle: int
    causes: list[IdleCause]
    work: SelectedWork | None = Field(description="null unless it was asked for.")


class SelectedRow(Model):
    """The events of a group, clipped to the stretch. `id`: op:NUMBER or kernel:NUMBER if it is of one alone."""

    id: str | None
    label: str
    time: int = Field(description="Sum over all streams.")
    count: int
    work: SelectedWork | None = Field(description="null unless it was asked for.")


class SelectedTable(Model):
    """Sums, as they were sorted; `total` is that of all rows, also of those left out."""

    key: Literal["type", "operator", "module", "kernel", "kind"]
    title: str
    rows: list[SelectedRow]
    total: int
    events: int
    work: SelectedWork | None = Field(description="Of all rows; null unless it was asked for.")
    left_out: int


class Selection(Model):
    """Sums over a stretch of time."""

    start: int
    end: int
    devices: list[SelectedDevice]
    tables: list[SelectedTable]


class Durations(Model):
    """Durations of the events of a name, in ns, null without any. The median and the 95th percentile (`p95`) are
    durations that occur: the shortest that so many of the events do not exceed. Bucket i has those from edges[i] to
    less than edges[i + 1]; buckets are equally long, or grow by a factor where the longest is more than ten times the
    shortest."""

    count: int
    total: int
    shortest: int | None
    median: int | None
    p95: int | None
    longest: int | None
    edges: list[int]
    counts: list[int]


class FlameRow(Model):
    """A node of the tree of operators. `module`: its path; `kernel`: null, or the name of a kernel of that operator;
    `self`: time of its own events, of the total."""

    module: str
    kernel: str | None
    depth: int
    total: int
    self: int
    count: int
    work: SelectedWork | None = Field(description="null unless it was asked for.")


class Flame(Model):
    """Device time of a stretch by operator as a tree: a node comes before those inside it, which are one deeper, the
    one with the most time first. `left_out`: nodes that are not among the rows."""

    total: int
    rows: list[FlameRow]
    left_out: int


class TrackHits(Model):
    """A track with events that were found; `time`: the sum of their durations in ns."""

    track: int
    events: int
    time: int


class EventHit(Model):
    """An event that was found. `id`, `name`, `operator`: numbers as in a tile."""

    track: int
    lane: int
    start: int
    end: int
    id: int
    name: int
    operator: int


class SearchHits(Model):
    """Events that fit a search, and where they are."""

    find: str
    total: int
    tracks: list[TrackHits]
    start: int
    width: int = Field(description="Length of a bucket in ns; buckets follow one another from the start.")
    ticks: list[tuple[int, int, int]] = Field(
        description="Track, bucket, and how many events begin in it; in the first also those that began before."
    )
    events: list[EventHit] | None = Field(
        description="Those in the stretch, in the order of their starts; null if there are more than were asked for."
    )


class EventHits(Model):
    """Some of the events that fit a search, in the order that was asked for."""

    total: int
    offset: int
    hits: list[EventHit]
    places: list[int] = Field(description="Place of each among all hits in the order of their starts, from 0.")
