# SPDX-License-Identifier: Apache-2.0
"""Steps of language model servers: their work (prefill or decode) and their times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof.core import intervals
from pyprof.core.serving import step_of
from pyprof.facts.device.timeline import Activity
from pyprof.facts.steps.iteration_cuts import server_steps
from pyprof.facts.steps.source import Source
from pyprof.measures.queries import distribution, spans, started
from pyprof.reports import Column, Option, View, report
from pyprof.reports.step_time import WORKER
from pyprof.store import reads
from pyprof.store.ids import worker_of

_OF_STEP = ("step", "start_ns")  # of one step
_OF_PHASE = ("steps", "median_ns", "p95_ns", "min_ns", "max_ns")  # of several
_ON_GPU = ("kernels", "kernel_ns", "busy_ns")
_COUNTS = ("prefills", "decodes", "prefill_tokens", "decode_tokens", "context")
_SUMS = ("requests", *_COUNTS, "tokens", "duration_ns", *_ON_GPU)


@report(
    "inference",
    "Inference Steps",
    (
        WORKER,
        Column("step", "Step", "", "Number of the worker's step, from 0."),
        Column(
            "phase", "Phase", "",
            "prefill, decode, mixed (both), idle (no requests), or the server's own name of the mode.", str,
        ),
        Column("steps", "Steps", "count", "Steps of the phase."),
        Column("requests", "Requests", "count", "Requests that the step works on; summed over several steps."),
        Column("prefills", "Prefills", "count", "Requests in prefill; empty if the range does not say."),
        Column("decodes", "Decodes", "count", "Requests that generate; empty if the range does not say."),
        Column("prefill_tokens", "Prefill Tokens", "count", "New tokens of requests in prefill."),
        Column("decode_tokens", "Decode Tokens", "count", "New tokens of requests that generate."),
        Column("tokens", "Tokens", "count", "New tokens of all requests."),
        Column("context", "Context Tokens", "count", "All tokens, old and new, of all requests; empty if unknown."),
        Column("start_ns", "Start (ns)", "ns", "Start of the range."),
        Column("duration_ns", "Duration (ns)", "ns", "Time on the CPU from the start of the range to its end."),
        Column("median_ns", "Median Duration (ns)", "ns", "Median; of two middle values their mean.", float),
        Column("p95_ns", "95th Percentile (ns)", "ns", "Shortest time that 95 % of the steps do not exceed."),
        Column("min_ns", "Min Duration (ns)", "ns", "Shortest."),
        Column("max_ns", "Max Duration (ns)", "ns", "Longest."),
        Column("kernels", "Kernels", "count", "Kernels launched in it."),
        Column("kernel_ns", "Kernel (ns)", "ns", "Sum of their times."),
        Column(
            "busy_ns", "GPU Busy (ns)", "ns",
            "Time in which at least one kernel, copy or set launched in it ran, on any device.",
        ),
        Column("tokens_per_s", "Tokens per Second", "count", "Tokens divided by the duration.", float),
    ),
    options=(
        Option(
            "by", "What each row covers: one step, or all steps of a phase.",
            {"step": _OF_PHASE, "phase": ("worker", *_OF_STEP)},
        ),
    ),
    needs="ranges around the steps of a server (vLLM, SGLang)",
    view=View("Time"),
)  # fmt: skip
def inference(source: Source, by: str) -> pd.DataFrame:
    """One row per step that a language model server announces in the aggregated iterations, sorted by worker and start;
    with --by=phase, one per phase, sorted by duration. The text of a step's range tells what the step works
    on: that of vLLM (execute_context_2(812)_generation_30(30), with sums of lengths where they are recorded) and of
    SGLang (step[EXTEND bs=2 toks=107], step[DECODE bs=32]). Of nested ranges the outer one counts. An event belongs
    to the step in which it was launched, or in which it starts if its launch is not recorded; work launched between
    steps belongs to none. Rows of a phase sum over workers. Without a GPU, its columns are empty."""
    ranges = server_steps(source.store)
    frames = [_worker(source.activity(worker_of(low)), source, ranges) for low, _ in spans(source)]
    table = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=_ROW)
    if by == "phase":
        table = _phases(table)
    else:
        names = reads.worker_names(source.store)
        table["worker"] = [names[number] for number in table["worker"].tolist()]
    seconds = table["duration_ns"].where(table["duration_ns"] > 0).astype("Float64") / 1e9
    table = table.assign(tokens_per_s=(table["tokens"].astype("Float64") / seconds).astype(object))
    table["tokens_per_s"] = pd.to_numeric(table["tokens_per_s"], errors="coerce").astype(float)
    return table if source.gpu else table.assign(**dict.fromkeys(_ON_GPU))


_ROW = ["worker", "phase", "step", "start_ns", *_SUMS]


def _worker(activity: Activity, source: Source, ranges: list[tuple[int, int, int, str]]) -> pd.DataFrame:
    """Return the steps of a worker, one per row."""
    own = [row for row in ranges if row[0] == activity.worker]
    start, end = (np.array([row[place] for row in own], np.int64) for place in (1, 2))
    steps = [step for row in own if (step := step_of(row[3]))]
    time = np.where(activity.launched, np.r_[activity.call["start_ns"].values, 0][activity.launch], activity.start)
    at = np.searchsorted(start, time, side="right") - 1
    at = np.where((at >= 0) & (time < np.r_[end, 0][at]), at, -1)
    length = np.where(activity.kernel, activity.end - activity.start, 0)
    kernels, kernel_ns = np.zeros(len(own), np.int64), np.zeros(len(own), np.int64)
    inside = at >= 0
    np.add.at(kernels, at[inside], activity.kernel[inside])
    np.add.at(kernel_ns, at[inside], length[inside])
    columns: dict[str, Any] = {
        "worker": activity.worker, "phase": [step.phase for step in steps], "step": np.arange(len(own)),
        "start_ns": start, "requests": [step.requests for step in steps],
        **{name: pd.array([getattr(step, name) for step in steps], dtype="Int64") for name in (*_COUNTS, "tokens")},
        "duration_ns": end - start, "kernels": kernels, "kernel_ns": kernel_ns,
        "busy_ns": intervals.union_by(at, activity.start, activity.end, len(own)),
    }  # fmt: skip
    table = pd.DataFrame(columns, columns=_ROW)
    if source.aggregation.method == "none":
        return table
    return table[started(source, activity.worker, activity.span[1], start)]


def _phases(steps: pd.DataFrame) -> pd.DataFrame:
    """Return sums over the steps of each phase; a count that is unknown for one step is unknown."""
    grouped = steps.groupby("phase", sort=True)
    table = grouped[["requests", "duration_ns", *_ON_GPU]].sum().reset_index()
    for name in (*_COUNTS, "tokens"):
        table[name] = [None if part.isna().any() else part.sum() for _, part in grouped[name]]
    spread = distribution(grouped.ngroup().to_numpy(np.int64), steps["duration_ns"].to_numpy(np.int64), len(table))
    table["steps"] = spread["calls"]
    for name in ("median", "p95", "min", "max"):
        table[f"{name}_ns"] = spread[name]
    return table.sort_values("duration_ns", ascending=False, kind="stable", ignore_index=True)
