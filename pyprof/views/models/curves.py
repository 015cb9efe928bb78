# SPDX-License-Identifier: Apache-2.0
"""Data of charts: the roofline, memory over time, two profiles side by side."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pyprof.views.models.base import Cell, Model
from pyprof.views.models.tables import Table


class Point(Model):
    """A kernel, or the kernels of an operator, on the roofline: sums over its executions with known work."""

    id: str
    name: str
    operator: str | None
    dtype: str | None
    kind: str | None
    calls: int
    time: int = Field(description="ns on the device.")
    flops: int | None
    bytes: int | None
    intensity: float | None = Field(description="FLOPs per byte.")
    achieved: float | None = Field(description="FLOPs per second.")
    bandwidth: float | None = Field(description="Bytes per second.")
    efficiency: float | None = Field(description="Percent: the roofline's time divided by the actual time.")
    tc: bool | None


class Ceiling(Model):
    """Peak of a device for a data type."""

    device: str
    dtype: str
    flops: float = Field(description="FLOPs per second.")
    tensor_cores: bool
    bandwidth: float | None
    source: str


class Roofline(Model):
    """Kernels as points under the ceilings of the devices that ran them."""

    points: list[Point]
    ceilings: list[Ceiling]
    total: int = Field(description="Number of all points; those with the longest time are returned.")
    notes: list[str]


class Curve(Model):
    """Memory in use on a device of a worker: times, and the values at these times."""

    worker: int
    name: str
    device: int | None = Field(description="null for the CPU.")
    recorded: bool = Field(description="Whether values are the allocator's own count; else the sum from 0.")
    events: int = Field(description="Events before downsampling, which keeps the largest and smallest of each stretch.")
    time: list[int]
    allocated: list[int]
    reserved: list[int | None]
    peak: int
    peak_time: int


class Memory(Model):
    """Memory over time."""

    curves: list[Curve]


class Heat(Model):
    """A figure of ranks and steps as cells: a row is `workers_per_row` workers, a column `steps_per_column` steps, and
    a cell has the worst of them."""

    figure: str = Field(description="Its key in the report ranks.")
    heading: str
    text: str
    worst: Literal["most", "least"] = Field(description="Which of several is shown.")
    workers: list[int] = Field(description="All workers, by their numbers.")
    steps: list[int] = Field(description="All steps, as the program numbers them.")
    lengths: list[int] = Field(description="Length of each step in ns, median of its workers.")
    workers_per_row: int
    steps_per_column: int
    values: list[list[int | None]] = Field(description="ns, by row and column; null: not known, or no such step.")
    which: list[list[int]] | None = Field(
        description="Of several workers and steps of a cell the one that is shown: worker * steps_per_column + step, "
        "from 0. null where each cell is of one."
    )


class Delta(Model):
    """A figure of two profiles."""

    key: str
    heading: str
    unit: str
    text: str
    base: Cell
    other: Cell
    delta: float | None


class Change(Model):
    """A step, one of its parts, or the peak of memory on a device, of two profiles; times are per step.

    `share`: of the step's change, in percent. `noise`: whether the difference is within the spread of the steps.
    """

    section: Literal["step", "part", "memory"]
    name: str
    unit: str
    base: float | None
    other: float | None
    delta: float | None
    share: float | None
    noise: bool | None


class Compare(Model):
    """Two profiles side by side."""

    base: str
    other: str
    by: str
    per: str
    headline: str
    notes: list[str]
    steps: list[Change]
    figures: list[Delta]
    table: Table


class Group(Model):
    """Rows of a comparison with a common place in the model: `key` tells it apart among its siblings."""

    key: str
    label: str
    base: float
    other: float
    deeper: bool


class Groups(Model):
    """Groups of a place; `rows`: those of the whole comparison."""

    groups: list[Group]
    rows: int
    complete: bool
