# SPDX-License-Identifier: Apache-2.0
"""The dashboard: figures, parts of a whole, findings, the ledger."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pyprof.viewer.models.base import Cell, Model
from pyprof.viewer.models.tables import Table


class Figure(Model):
    """A number with what it means; null is unknown."""

    key: str
    heading: str
    value: Cell
    unit: str
    text: str
    denominator: str = ""


class Part(Model):
    """A part of a whole: `share` in percent of it."""

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


class Evidence(Model):
    """A row behind a finding."""

    values: dict[str, Cell]
    link: Link | None


class Finding(Model):
    """What an expert rule says. `outcome` needs: it could not be evaluated, `advice` says which facts it lacks."""

    id: str
    name: str
    text: str
    outcome: Literal["found", "needs"]
    problem: str
    advice: str
    saving: int | None = Field(description="Estimate of wall time, ns; null where nobody can tell.")
    share: float | None = Field(description="The saving in percent of the wall time.")
    verify: str
    evidence: list[Evidence]
    link: Link | None


class Insights(Model):
    """What the expert rules say, the largest saving first."""

    expert: list[Finding]
    silent: int = Field(description="Rules that found nothing.")


class LedgerPart(Model):
    """A part of a line of the ledger, with the time on the device and its share."""

    part: str
    time: int | None
    count: int | None
    share: float | None


class LedgerLine(Model):
    """What is known of the time on the device, in one respect; `dropped` has counts alone."""

    line: str
    parts: list[LedgerPart]


class Ledger(Model):
    """The coverage ledger, of the whole recording."""

    lines: list[LedgerLine]


class Overview(Model):
    """The dashboard. What looks at every event arrives by itself: /api/insights, /api/ledger, /api/step_time."""

    figures: list[Figure] = Field(description="Every figure of docs/metrics.md.")
    performance: list[Figure] = Field(description="DLProf's Performance Summary.")
    gpu_utilization: Breakdown
    resources: Breakdown = Field(
        description="DLProf's Resource Usage Breakdown: seven parts of the wall time."
    )
    kernel_time: Breakdown = Field(
        description="Sums of kernels with tensor cores, copies and sets, other kernels."
    )
    tensor_cores: Breakdown = Field(
        description="Kernels of eligible operators, with and without tensor cores."
    )
    iterations: list[Figure]
    top_operators: Table
    system: list[Figure]
    notes: list[str] = Field(
        description="What a reader has to know: no GPU, no iterations, records that were lost."
    )
