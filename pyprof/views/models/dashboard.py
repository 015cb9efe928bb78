# SPDX-License-Identifier: Apache-2.0
"""The dashboard: figures, parts of a whole, findings, the ledger."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pyprof.views.models.base import Cell, Model


class Figure(Model):
    """A number with its definition; null is unknown."""

    key: str
    heading: str
    value: Cell
    unit: str
    text: str
    denominator: str = ""


class Part(Model):
    """A part of a whole; `share` is in percent of it."""

    key: str
    heading: str
    value: int | None
    unit: str
    share: float | None
    text: str
    count: int | None = None


class Breakdown(Model):
    """Parts that add up to `total`."""

    key: str
    title: str
    total: int | None
    unit: str
    parts: list[Part]


class Link(Model):
    """A view of the page: a report (or `launches`, `iterations`), with filters as the API takes them."""

    report: str
    title: str
    filters: list[str]
    search: str = ""


class Hit(Model):
    """A name that a search finds. `kind`: `operator` of the program, `dispatched`: one of the dispatcher or of
    autograd, `kernel`, `module`, or `line` of the source; `match`: whether the text is the name, its start, a part of
    it, or in the path before it; `time`: ns in the aggregation."""

    kind: Literal["operator", "dispatched", "kernel", "module", "line"]
    id: str
    title: str
    match: Literal["name", "start", "part", "path"]
    time: int | None


class Evidence(Model):
    """A row behind a finding."""

    values: dict[str, Cell]
    link: Link | None


class Finding(Model):
    """Result of an expert rule. `outcome` needs: it could not be evaluated, and `advice` lists the missing data."""

    id: str
    name: str
    text: str
    outcome: Literal["found", "needs"]
    problem: str
    advice: str
    saving: int | None = Field(description="Estimated saving of wall time, ns; null if it cannot be estimated.")
    saving_per_step: int | None = Field(description="The same for a step; of all if there are no steps.")
    share: float | None = Field(description="The saving in percent of the steady steps.")
    verify: str
    evidence: list[Evidence]
    link: Link | None


class Step(Model):
    """The mean of `count` steady steps, which have the numbers `first` to `last` in the report step_time: by phase of
    the training, and by cause of idle time."""

    count: int
    first: int | None
    last: int | None
    steady: bool = Field(description="Whether they are of about equal length; else they are all steps.")
    used: str = Field(description="Which of the recorded steps they are, and why not the others; empty if all.")
    breakdown: Breakdown


class Insights(Model):
    """Results of the expert rules, largest saving first."""

    expert: list[Finding]
    silent: int = Field(description="Number of rules without a finding.")
    headline: str = Field(description="What a step takes, and what to change first, in sentences.")
    cut: bool = Field(description="Whether there are steps; else the whole recording counts as one.")
    step: Step


class LedgerPart(Model):
    """A part of a line of the ledger, with the time on the device and its share."""

    part: str
    time: int | None
    count: int | None
    share: float | None


class LedgerLine(Model):
    """Known and unknown time on the device, in one respect; `dropped` has only counts."""

    line: str
    parts: list[LedgerPart]


class Ledger(Model):
    """The coverage ledger of the whole recording."""

    lines: list[LedgerLine]


class TopOperator(Model):
    """One of the operators of a group. `time`: ns on the device; without a GPU, of its own on the CPU."""

    op_id: str
    name: str
    calls: int
    time: int


class TopGroup(Model):
    """Operators of one type, phase, shapes and source line: the same thing in each of a model's layers. `module`:
    their path, with * for numbers that differ; `share`: percent of `total_time`; `members`: those of the longest
    time."""

    type: str
    phase: str | None
    shapes: str | None
    module: str | None
    line: str | None
    operators: int
    calls: int
    time: int
    share: float
    eligible: bool | None
    using_tc: bool | None
    members: list[TopOperator]


class Top(Model):
    """The groups of operators that take most time, and the time of all operators, in ns."""

    total_time: int
    groups: list[TopGroup]


class Share(Model):
    """A module or thread with its time: on the device; without a GPU, of its operators on the CPU. `count`: of modules
    whose paths differ only in numbers, with those of the longest time in `members`."""

    name: str
    time: int
    share: float
    calls: int
    count: int = 1
    members: tuple[Share, ...] = ()


class Overview(Model):
    """The dashboard. Parts that read every event are separate: /api/insights, /api/ledger, /api/step_time."""

    figures: list[Figure] = Field(description="Every figure of docs/metrics.md.")
    performance: list[Figure] = Field(description="DLProf's Performance Summary.")
    gpu_utilization: Breakdown
    resources: Breakdown = Field(description="DLProf's Resource Usage Breakdown: seven parts of the wall time.")
    kernel_time: Breakdown = Field(description="Sums of kernels with tensor cores, copies and sets, other kernels.")
    tensor_cores: Breakdown = Field(description="Kernels of eligible operators, with and without tensor cores.")
    iterations: list[Figure]
    top: Top
    modules: list[Share] = Field(description="Modules of the longest time of their own.")
    threads: list[Share] = Field(description="Threads of the longest time, of a recording without a GPU.")
    system: list[Figure]
    notes: list[str] = Field(description="Notes for the reader: no GPU, no iterations, lost records.")
