# SPDX-License-Identifier: Apache-2.0
"""Tables of iterations, and of the operators of one iteration."""

from __future__ import annotations

from typing import Any

from pyprof.facts.steps.source import Source
from pyprof.metrics import FIGURES, PART_HEADINGS, PARTS
from pyprof.reports import Column
from pyprof.store.kinds import COMPUTES, MOVES_MEMORY, uses_tensor_cores
from pyprof.views.column_table import Frame, from_rows
from pyprof.views.events import spans

_LENGTH = "Length of the iteration."
_PART_TEXTS = {
    "tc": "Kernels that used tensor cores.", "kernel": "Other kernels.", "memory": "Copies and sets.",
    "dataloader": "Waits for the data loader.", "io": "Calls that read or write files.",
    "cpu": "Operators and API calls.", "other": "Remainder.",
}  # fmt: skip
ITERATION = (
    Column("worker", "Worker", "", "Process that ran it.", str),
    Column("worker_id", "Worker Number", "", "Number of the worker."),
    Column("iteration", "Iteration", "", "Number of the iteration, from 0."),
    Column(
        "start",
        "Timestamp",
        "ns",
        "Start, since the recording's first event: that on the host, or the end of the iteration before.",
    ),
    Column(
        "end",
        "End",
        "ns",
        "End, since the recording's first event: that on the host, or of the last event on a GPU that it launched.",
    ),
    Column("duration", "Duration", "ns", _LENGTH),
    *(Column(part, heading, "ns", _PART_TEXTS[part]) for part, heading in PART_HEADINGS.items()),
    Column("kernels", "Total Kernels", "count", "Kernels launched in it."),
    Column("tc_kernels", "TC Kernels", "count", "Kernels that used tensor cores."),
    Column("kernel_ns", "Total Kernel GPU Time", "ns", "Sum of their times on the device."),
    Column("tc_ns", "Total TC GPU Time", "ns", "Sum of the times of those that used tensor cores."),
    Column("memory_ns", "Memory Time", "ns", FIGURES["memory"].text),
    Column("busy_ns", "GPU Busy", "ns", "Union of the events on each device in it, summed over devices."),
    Column(
        "devices",
        "GPUs",
        "count",
        "Devices on which something ran in the recording: the divisor of averages.",
    ),
    Column(
        "average_ns",
        "Average GPU Time",
        "ns",
        "Total Kernel GPU Time and Memory Time divided by GPUs.",
        float,
    ),
    Column("average_share", "Average GPU Time (%)", "%", "Average GPU Time as a share of the duration.", float),
    Column("average_tc_ns", "Average TC GPU Time", "ns", "Total TC GPU Time divided by GPUs.", float),
    Column(
        "average_tc_share",
        "Average TC GPU Time (%)",
        "%",
        "Average TC GPU Time as a share of the duration.",
        float,
    ),
    Column("total_ns", "Total GPU Time", "ns", "Total Kernel GPU Time and Memory Time."),
    Column(
        "total_share",
        "Total GPU Time (%)",
        "%",
        "Total GPU Time as a share of the duration.",
        float,
    ),
    Column("total_tc_share", "Total TC GPU Time (%)", "%", "Total TC GPU Time as a share of the duration.", float),
    Column("partial", "Partial", "", "Whether it is the remainder after the last boundary.", bool),
    Column("aggregated", "Aggregated", "", "Whether figures include it.", bool),
)


def iterations(source: Source) -> Frame:
    """Return all iterations of the aggregation's cut."""
    window, parts = source.aggregation, ", ".join(f"p.{part}_ns" for part in PARTS)
    sums = ("kernels", "tc_kernels", "kernel_ns", "tc_ns", "memory_ns", "busy_ns")
    rows = source.store.rows(
        f"""select w.name, i.worker, i.number, i.start_ns, i.end_ns, i.end_ns - i.start_ns - i.paused_ns, {parts},
                   {", ".join(f"d.{name}" for name in sums)}, coalesce(g.n, 0),
                   i.partial, i.number between :first and :last
            from iteration i join worker w on w.id = i.worker
            join iteration_part p using (iteration_set, worker, number)
            left join (select worker, number, {", ".join(f"sum({name}) as {name}" for name in sums)}
                       from iteration_device where iteration_set = :set group by worker, number) d
                   on d.worker = i.worker and d.number = i.number
            left join (select worker, count(*) as n from device where events > 0 group by worker) g
                   on g.worker = i.worker
            where i.iteration_set = :set and (:worker is null or i.worker = :worker) order by i.worker, i.number""",
        {"set": window.iteration_set, "first": window.first, "last": window.last, "worker": source.worker},
    )
    missing = set(() if source.gpu else ("tc", "kernel", "memory"))
    if not source.store.rows("select 1 from io limit 1"):
        missing.add("io")
    return from_rows([_with_shares(row, source.gpu, missing) for row in rows], ITERATION)


def _with_shares(row: tuple[Any, ...], gpu: bool, missing: set[str]) -> tuple[Any, ...]:
    """Return a row with averages and shares; `missing` contains the parts that the recording could not show, which are
    unknown."""
    head, parts, sums, (devices, *flags) = row[:6], row[6:13], row[13:19], row[19:]
    parts = tuple(None if name in missing else part for name, part in zip(PARTS, parts))
    length = row[5]
    if not gpu:  # tensor core and memory figures of a GPU are unknown
        sums = (sums[0], None, *sums[2:3], None, None, None)
    kernels, tc_kernels, kernel, tc, memory, busy = sums
    if not gpu or not devices:
        return (
            *head,
            *parts,
            kernels,
            tc_kernels,
            kernel,
            tc,
            memory,
            busy,
            0 if gpu else None,
            *[None] * 7,
            *flags,
        )
    both, tensor = (kernel or 0) + (memory or 0), tc or 0
    shares = [
        both / devices, _share(both / devices, length), tensor / devices, _share(tensor / devices, length),
        both, _share(both, length), _share(tensor, length),
    ]  # fmt: skip
    return (*head, *parts, kernels, tc_kernels, kernel, tc, memory, busy, devices, *shares, *flags)


def _share(part: float, whole: int) -> float | None:
    return 100 * part / whole if whole else None


# --- operators of an iteration

ITERATION_OPERATORS = (
    Column("name", "Op Name", "", "Path in the model, ending with the operation.", str),
    Column("direction", "Direction", "", "fprop or bprop; empty if neither.", str),
    Column("type", "Op Type", "", "Kind of operation.", str),
    Column("calls", "Calls", "count", "Executions that launched something in it."),
    Column("kernels", "Total Kernels", "count", "Kernels launched in the iteration."),
    Column("copies", "Copies and Sets", "count", "Copies and sets launched in the iteration."),
    Column("tc_kernels", "TC Kernels", "count", "Kernels that used tensor cores."),
    Column("gpu", "Total GPU Time (ns)", "ns", FIGURES["kernel_gpu"].text),
    Column("tc", "TC GPU Time (ns)", "ns", FIGURES["tc"].text),
    Column("dtype", "Data Type", "", "Type of the operands.", str),
    Column("stack", "Stack Trace", "", "Source lines of the call, one per line, outermost first.", str),
    Column("op_id", "Op ID", "", "Type and number of the operator.", str),
    Column("operator", "Operator", "", "Number of the operator, for requests of its events."),
)


def iteration_operators(source: Source, number: int) -> Frame:
    """Return operators with events launched in an iteration; their counts add up to those of the iteration."""
    inside = " or ".join(f"id >= {first} and id < {last}" for first, last in spans(source, number))
    rows = source.store.rows(
        f"""select p.name, case p.direction when 0 then 'fprop' when 1 then 'bprop' end, p.type, e.calls, e.kernels,
                   e.copies, e.tc_kernels, e.gpu, e.tc, p.dtype, nullif(k.frames, ''), p.op_id, p.id
            from (select operator, count(distinct op) as calls, sum({COMPUTES}) as kernels,
                         sum({MOVES_MEMORY}) as copies, sum({uses_tensor_cores()}) as tc_kernels,
                         sum(duration_ns) as gpu, sum(case when {uses_tensor_cores()} then duration_ns else 0 end) as tc
                  from event where {inside} group by operator) e
            join operator p on p.id = e.operator left join stack k on k.id = p.stack order by e.gpu desc, p.id"""
    )
    if not source.gpu:
        rows = [(*row[:5], None, row[6], None, *row[8:]) for row in rows]
    return from_rows(rows, ITERATION_OPERATORS)
