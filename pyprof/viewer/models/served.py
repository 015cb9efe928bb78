# SPDX-License-Identifier: Apache-2.0
"""The profile that is served, and the aggregations of it that there are or that run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pyprof.viewer.models.base import Model


class Worker(Model):
    """A process of the recording."""

    id: int
    name: str
    rank: int | None
    host: str | None
    label: str | None
    pid: int | None
    span: int = Field(description="Which of its recordings, from 1.")
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
    """Iterations first to last, both included, of a cut; `total` is how many the cut has."""

    id: int
    iteration_set: int
    first: int
    last: int
    total: int
    method: str
    key: str | None
    note: str | None


class Lost(Model):
    """What the recording or its reading left out."""

    reason: str
    count: int | None


class Run(Model):
    """A run that can be chosen with ?run=. `opening`: a recording that is being read for the first time."""

    name: str
    state: Literal["new", "opening", "ready", "failed"]
    progress: float
    detail: str | None


class Counts(Model):
    """How much there is: views without anything to show say so."""

    gpu_events: int = Field(description="Kernels, copies and sets; 0 where operator events stand for them.")
    operators: int
    executions: int
    iterations: int
    devices_used: int
    memory_events: int
    collectives: int
    stacks: int
    modules: int


class Profile(Model):
    """The profile that is served."""

    name: str = Field(description="The file's name, or that of the run.")
    path: str
    source: str | None = Field(description="The recording that it was made of.")
    format: str | None
    gpu: bool = Field(
        description="Whether something ran on a GPU; if not, operator events stand for GPU events."
    )
    workers: list[Worker]
    devices: list[Device]
    aggregations: list[Aggregation]
    facts: dict[str, str]
    lost: list[Lost]
    counts: Counts
    run: str = Field(description="The run that this is; empty where one file is served.")
    runs: list[Run]
    schema_version: str = Field(description="Version of the database's tables when it was made.")
    reads_schema: str = Field(description="The version that this program reads.")
    written_by: str | None
    program: str = Field(description="Version of PyProf that serves.")
    version: str = Field(
        description="Changes whenever the database does: numbers fetched under another are old."
    )
    can_aggregate: bool
    source_root: bool = Field(description="Whether source files may be read from disk.")


class Reaggregate(Model):
    """Which iterations to add up, both included; null is the first, the last, the cut that is there."""

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
