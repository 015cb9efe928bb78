# SPDX-License-Identifier: Apache-2.0
"""What the API answers. OpenAPI, and the page's types, are generated from these. Times are ns from the first event."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Cell = bool | int | float | str | None
ColumnKind = Literal["int", "float", "str", "bool", "object"]


class Model(BaseModel):
    """Base: nothing but the fields that are there."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Problem(Model):
    """RFC 9457. `type` is one word, `detail` one or two sentences for the person at the page."""

    type: Literal[
        "parameter", "missing", "token", "host", "forbidden", "foreign", "older", "newer", "damaged", "vanished",
        "unreadable", "opening", "slow", "busy", "internal",
    ]  # fmt: skip
    title: str
    status: int
    detail: str
    parameter: str | None = Field(None, description="The parameter of the URL that is wrong.")
    progress: float | None = Field(None, description="Of `opening`: the share that is done.")


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


class Column(Model):
    """A column of a table: what it means and in which unit."""

    key: str
    heading: str
    unit: str
    text: str
    kind: ColumnKind
    extra: bool = Field(description="DLProf has no such column.")


class Option(Model):
    """What can be chosen of a report: each value, and the columns that it leaves out; `default` comes first."""

    name: str
    text: str
    default: str
    choices: dict[str, list[str]]


class Report(Model):
    """A report; `columns` are all that it can have."""

    name: str
    title: str
    suffix: str
    text: str
    columns: list[Column]
    options: list[Option]


class Table(Model):
    """A page of a table. `ids`: the rows' places in the unsorted table, by which a selection is kept. Not `complete`:
    the table is longer than what is shown of it, as `note` says."""

    columns: list[Column]
    rows: list[list[Cell]]
    ids: list[int]
    offset: int
    total: int
    filtered: int
    complete: bool
    note: str | None


class Launches(Model):
    """A page of GPU events. `next`: cursor of the page behind it, null on the last. `total` and `filtered` are null
    where counting would take too long: /api/launches/count has them. `offset` counts where `paged` is true (a range of
    iterations or operators with at most 100,000 events): then any column sorts and pages have numbers."""

    columns: list[Column]
    rows: list[list[Cell]]
    ids: list[int] = Field(description="Ids of the events, for /api/details/launch/.")
    offset: int
    next: str | None
    paged: bool
    total: int | None
    filtered: int | None


class Count(Model):
    """How many events there are, of all and of those that the filters leave; null where time was up."""

    total: int | None
    filtered: int | None


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


class Iterations(Model):
    """A page of iterations of an aggregation's cut; those outside of the aggregation too. Rows are per worker; the
    seven parts add up to the length."""

    columns: list[Column]
    rows: list[list[Cell]]
    offset: int
    total: int
    filtered: int
    first: int
    last: int
    longest: int | None


class KeyOperator(Model):
    """An operator that could cut the run into iterations."""

    id: int
    op_id: str
    name: str
    type: str
    direction: str | None
    calls: int
    gpu: int | None
    cpu: int | None
    per_iteration: float = Field(description="Its executions divided by iterations and workers.")
    per_step: bool = Field(description="It runs once in each iteration of the aggregation.")


class KeyOperators(Model):
    """Candidates, those that run once per iteration first."""

    rows: list[KeyOperator]
    total: int
    filtered: int


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


class Point(Model):
    """A kernel, or an operator's kernel, on the roofline: sums over its executions whose work is known."""

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
    efficiency: float | None = Field(description="Percent: the roofline's time by the time it took.")
    tc: bool | None


class Ceiling(Model):
    """Peak of a device for a type."""

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
    total: int = Field(description="Points that there are; those shown are the ones that took longest.")
    notes: list[str]


class Curve(Model):
    """Memory in use on a device of a worker; times and values of the same moments."""

    worker: int
    name: str
    device: int | None = Field(description="null is the CPU.")
    recorded: bool = Field(description="Whether values are the allocator's own; else the sum from 0.")
    events: int = Field(
        description="Events before thinning out: the largest and smallest of each stretch are kept."
    )
    time: list[int]
    allocated: list[int]
    reserved: list[int | None]
    peak: int
    peak_time: int


class Memory(Model):
    """Memory over time."""

    curves: list[Curve]


class Delta(Model):
    """A figure of two profiles."""

    key: str
    heading: str
    unit: str
    text: str
    base: Cell
    other: Cell
    delta: float | None


class Compare(Model):
    """Two profiles side by side."""

    base: str
    other: str
    by: str
    notes: list[str]
    figures: list[Delta]
    table: Table


class SourceText(Model):
    """A source file that a call stack names. `origin` recording: as it was when it was recorded; disk: read below the
    source root, and perhaps changed since."""

    file: str
    line: int
    first: int = Field(description="Number of the first of the lines.")
    lines: list[str]
    total: int
    origin: Literal["recording", "disk"]


Details.model_rebuild()
