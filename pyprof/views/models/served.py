# SPDX-License-Identifier: Apache-2.0
"""The served profile, and its existing and running aggregations."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pyprof.views.models.base import Model


class Worker(Model):
    """A process of the recording."""

    id: int
    name: str
    rank: int | None
    host: str | None
    label: str | None
    pid: int | None
    span: int = Field(description="Number of the worker's recording, from 1.")
    start: int | None
    end: int | None


class Device(Model):
    """A device of a worker; `events` is 0 for one that was only visible."""

    worker: int
    number: int
    name: str | None
    compute_capability: str | None
    sm_count: int | None
    memory_bytes: int | None
    clock_hz: int | None
    bandwidth: int | None = Field(description="Bytes per second.")
    events: int | None


class Aggregation(Model):
    """Iterations first to last, both included, of a cut; `total` is the number of iterations in the cut. `steps`: the
    numbers that the program gave the first and the last; null if it marked none."""

    id: int
    iteration_set: int
    first: int
    last: int
    total: int
    steps: tuple[int, int] | None
    method: str
    key: str | None
    note: str | None


class Lost(Model):
    """Records that the recording or its reading left out."""

    reason: str
    count: int | None


class Run(Model):
    """A run that can be selected with ?run=. `opening`: a recording that is being read for the first time."""

    name: str
    state: Literal["new", "opening", "ready", "failed"]
    progress: float
    detail: str | None
    modified: float | None = Field(
        description="When its file was written last, in s since 1970; null if it is gone, or of files named one by one."
    )
    fleet: bool = Field(description="Whether it is the summary of a fleet, whose ranks are the other runs.")


class Counts(Model):
    """Counts of recorded items, for views that have nothing to show."""

    operators: int
    iterations: int
    devices_used: int
    memory_events: int
    collectives: int
    stacks: int
    modules: int


class Profile(Model):
    """The served profile."""

    name: str = Field(description="Name of the file or run.")
    path: str
    source: str | None = Field(description="The recording that the database was created from.")
    format: str | None
    gpu: bool = Field(
        description="Whether something ran on a GPU; if not, operator events take the place of GPU events."
    )
    workers: list[Worker]
    devices: list[Device]
    aggregations: list[Aggregation]
    facts: dict[str, str]
    lost: list[Lost]
    counts: Counts
    run: str = Field(description="Name of this run; empty if a single file is served.")
    runs: list[Run]
    runs_reason: str | None = Field(
        description="Why the files of a folder are several runs, in a sentence; null where they are one."
    )
    schema_version: str = Field(description="Schema version with which the database was created.")
    reads_schema: str = Field(description="Schema version that this program reads.")
    written_by: str | None
    program: str = Field(description="Version of the serving PyProf.")
    version: str = Field(
        description="Changes whenever the database does: numbers fetched under another version are stale."
    )
    can_aggregate: bool
    fleet: bool = Field(
        description="Whether it is the summary of a fleet, which has no single events: it has the reports that say so."
    )
    notice: str | None = Field(description="What to know of the profile before anything else: it is an example.")
    source_root: bool = Field(description="Whether source files may be read from disk.")


class Fleet(Model):
    """The summary of a fleet."""

    headline: str = Field(description="What a step takes, and which rank is late, in sentences.")


class Reaggregate(Model):
    """Iterations to aggregate, both bounds included; null stands for the first, the last, the existing cut."""

    start: int | None = Field(None, ge=0, le=2**53)
    stop: int | None = Field(None, ge=0, le=2**53)
    key: str | None = Field(None, min_length=1, max_length=4096)


class Job(Model):
    """A re-aggregation."""

    id: str
    run: str
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    progress: float
    what: str
    start: int | None
    stop: int | None
    key: str | None
    aggregation: int | None
    error: str | None
