# SPDX-License-Identifier: Apache-2.0
"""Step time by kind of work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof.facts.device.partition import Union
from pyprof.facts.device.timeline import Activity
from pyprof.facts.host import loader_work
from pyprof.facts.steps.device_steps import Steps, activities
from pyprof.facts.steps.source import Source
from pyprof.facts.steps.step_phases import IDLE, PHASES, phases, split
from pyprof.reports import Column, Option, View, report

WORKER = Column("worker", "Worker", "", "Process that ran it.", str)
STEP = Column("step", "Step", "", "Number of the step as marked by the program, else of the iteration, from 0.")
START = Column(
    "start",
    "Start (ns)",
    "ns",
    "Start of the step: its start on the host, or the end of the step before, whichever is later.",
)
TOTAL = Column(
    "total_ns",
    "Total (ns)",
    "ns",
    "Length of the step, without pauses in which the recording was read. It ends at its end on the host, or with the "
    "last device event that it launched.",
)
PARTIAL = Column(
    "partial", "Partial", "",
    "Whether the recording ends within the step: a last step that launched nothing or less than 0.8 times as many "
    "events as the one before, or the remainder after the last end of a key operator; or whether the recording was "
    "read within it. Partial steps are shown and counted.", bool,
)  # fmt: skip
_ON_GPU = {
    "kernel": "Kernels other than communication; with --categories=7, communication kernels too.",
    "memcpy": "Copies, except those between devices; with --categories=7, those too.",
    "memset": "Sets on a device.",
    "communication": "Kernels of collectives, and copies between devices.",
    "runtime": "API calls on any thread.",
}
_ON_CPU = {
    "dataloader": "Waits of the training loop for its data loader.",
    "cpu": "Operator events and named ranges on any thread, except those of steps.",
    "other": "Remainder of the step.",
}
# Of --categories=phase, and of loader.
_OF_PHASE = (*PHASES, "no_phase")
_OF_LOADER = {
    "loader_samples": "was getting its samples",
    "loader_collate": "was collating it",
    "loader_pin": "had sent it, and its memory was being pinned",
    "loader_queue": "had made it, and it was on its way to the loop",
}
_PARTS = tuple(f"{key}_ns" for key in (*_OF_PHASE, *_OF_LOADER, *_ON_GPU, *_ON_CPU, *IDLE))
_LOADER_OUT = tuple(f"{name}_ns" for name in _OF_LOADER)
_SEVEN_OUT = ("communication_ns",)
_PHASES_OUT = (*(f"{name}_ns" for name in (*_OF_PHASE, *IDLE)), *_LOADER_OUT)
_KINDS_OUT = tuple(f"{name}_ns" for name in (*_ON_GPU, "cpu"))


def _part(key: str, text: str) -> Column:
    """Return the column of a part of a step."""
    overlap = "" if key in ("kernel", "other") else " Time already counted in a column before is excluded."
    needs = " Empty for a recording without a GPU." if key in _ON_GPU else ""
    heading = {"cpu": "CPU", "dataloader": "DataLoader"}.get(key, key.title())
    return Column(f"{key}_ns", f"{heading} (ns)", "ns", f"{text}{overlap}{needs}")


def _phase(key: str) -> Column:
    """Return the column of a phase of the training."""
    heading = key.replace("_", " ").title()
    phase = "no phase" if key == "no_phase" else f"the phase {key}"
    text = (
        f"With --categories=phase: GPU events of {phase}; without a GPU, operator events outside waits for the data "
        "loader. Time already counted in a column before is excluded."
    )
    return Column(f"{key}_ns", f"{heading} (ns)", "ns", text)


def _loader(key: str) -> Column:
    """Return the column of a stage of the batches that the loop waited for."""
    text = f"With --categories=loader: waits for a batch while a worker of the loader {_OF_LOADER[key]}."
    empty = " Empty where the work of workers was not recorded."
    return Column(f"{key}_ns", f"{key.replace('_', ' ').title()} (ns)", "ns", text + empty)


def _idle(key: str) -> Column:
    """Return the column of a cause of idle time."""
    text = (
        f"With --categories=phase and a GPU: time in which all devices of the worker were idle for the cause "
        f"{IDLE[key]}, as in the report idle."
    )
    return Column(f"{key}_ns", f"Idle: {IDLE[key].title()} (ns)", "ns", text)


@report(
    "step_time",
    "Step Time Breakdown",
    (
        WORKER,
        STEP,
        START,
        TOTAL,
        *(_phase(key) for key in _OF_PHASE),
        *(_part(key, text) for key, text in (_ON_GPU | _ON_CPU).items()),
        *(_idle(key) for key in IDLE),
        PARTIAL,
        *(_loader(key) for key in _OF_LOADER),
    ),
    options=(
        Option(
            "categories",
            "Parts of a step: 8; the 7 of the TensorBoard plugin, in which communication is kernels and copies; the "
            "phases of the training and the causes of idle time; or the waits for a loader with workers by what these "
            "did, and dataloader the rest of the waits.",
            {
                "8": _PHASES_OUT,
                "7": (*_SEVEN_OUT, *_PHASES_OUT),
                "phase": (*_KINDS_OUT, *_LOADER_OUT),
                "loader": tuple(f"{name}_ns" for name in (*_OF_PHASE, *_ON_GPU, "cpu", *IDLE)),
            },
        ),
    ),
    needs="steps: pyprof.step(), or step() of torch.profiler",
    view=View(
        "Time",
        sums=" ".join(("total_ns", *_PARTS)),
        wholes=dict.fromkeys(_PARTS, "total_ns"),
    ),
)
def step_time(source: Source, categories: str) -> pd.DataFrame:
    """One row per worker and step. The parts add up to the length of the step: where parts overlap, on any device or
    thread, the time counts only for the first of them. Steps have the device's bounds: a step lasts until everything
    that it launched has ended, and the next one begins there."""
    if categories == "phase":
        frames = [_phase_rows(source, activity, steps) for activity, steps in activities(source)]
        parts = [*map(_phase, _OF_PHASE), _part("dataloader", ""), _part("other", ""), *map(_idle, IDLE)]
        return concat_rows(frames, [WORKER, STEP, START, TOTAL, *parts, PARTIAL])
    if categories == "loader":
        frames = [_loader_rows(source, activity, steps) for activity, steps in activities(source)]
        parts = [_part("dataloader", ""), _part("other", "")]
        return concat_rows(frames, [WORKER, STEP, START, TOTAL, *parts, PARTIAL, *map(_loader, _OF_LOADER)])
    rows = [_rows(source, activity, steps, categories == "7") for activity, steps in activities(source)]
    return concat_rows(rows, [WORKER, STEP, START, TOTAL, *(_part(key, "") for key in _ON_GPU | _ON_CPU), PARTIAL])


def _phase_rows(source: Source, activity: Activity, steps: Steps) -> dict[str, Any]:
    """Return the phases of the work, and idle time of the devices by cause."""
    parts = dict.fromkeys((*_OF_PHASE, *_ON_CPU, *IDLE)) | phases(source, activity, steps)
    return {**of_steps(activity, steps), **{f"{name}_ns": part for name, part in parts.items()}}


def _loader_rows(source: Source, activity: Activity, steps: Steps) -> dict[str, Any]:
    """Return the waits for the loader by what its workers did."""
    known = loader_work.stages(source.store, activity.worker)
    classes = {f"loader_{stage}": union for stage, union in (known or {}).items()}
    parts = split(activity, steps, {**classes, "dataloader": activity.dataloader})
    return {
        **of_steps(activity, steps),
        **dict.fromkeys(_LOADER_OUT),
        **{f"{name}_ns": part for name, part in parts.items()},
    }


def _rows(source: Source, activity: Activity, steps: Steps, seven: bool) -> dict[str, Any]:
    """Return the columns of a worker's steps."""
    device = activity.classes(np.ones(len(activity.id), bool))
    if seven:
        between = activity.communication
        device["kernel"] = device["kernel"].with_(activity.union(between & activity.kernel))
        device["memcpy"] = device["memcpy"].with_(activity.union(between & ~activity.kernel))
        device["communication"] = Union(steps.start[:0], steps.start[:0])
    classes = {**device, "runtime": activity.runtime, "dataloader": activity.dataloader, "cpu": activity.cpu}
    parts = split(activity, steps, classes)
    columns = {name: part if source.gpu or name in _ON_CPU else None for name, part in parts.items()}
    return {**of_steps(activity, steps), **{f"{name}_ns": part for name, part in columns.items()}}


def of_steps(activity: Activity, steps: Steps) -> dict[str, Any]:
    """Return the columns that identify the step of a row."""
    return {
        "worker": activity.name, "step": steps.number, "start": steps.start, "total_ns": steps.length(activity),
        "partial": steps.partial if steps.known else [flag or None for flag in steps.partial.tolist()],
    }  # fmt: skip


def concat_rows(rows: list[dict[str, Any]], columns: list[Column]) -> pd.DataFrame:
    """Concatenate the tables of workers; without any, return the empty columns."""
    keys = [column.key for column in columns]
    frames = [pd.DataFrame(row, dtype=object)[keys] for row in rows]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=keys, dtype=object)
