# SPDX-License-Identifier: Apache-2.0
"""The critical path of a step as stretches of tracks of the timeline."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyprof.core.model import Ints
from pyprof.facts.path.critical_path import (
    LAUNCHING,
    PARTS,
    UNRECORDED,
    Paths,
    Rank,
    StepEnd,
    last_ends,
)
from pyprof.facts.path.path_walk import path_of
from pyprof.facts.ranks.rank_clocks import between, clocks
from pyprof.facts.steps.source import Source
from pyprof.store import reads


def answer(source: Source, at: int) -> dict[str, Any]:
    """Return the path of the first step that ends after a time, of the last without one; `number` is null if there is
    no step. Times of stretches are those of their workers' clocks."""
    steps = last_ends(source)
    if not steps:
        return {"number": None, "worker": None, "start": 0, "end": 0, "stretches": [], "sums": []}
    step = next((one for one in steps if one.end > at), steps[-1])
    ranks: dict[int, Rank] = {}
    path = path_of(source, step, ranks)
    sums = path.segments.groupby("part")["length"].sum().sort_values(ascending=False, kind="stable")
    return {
        "number": step.number,
        "worker": reads.worker_names(source.store)[step.worker],
        "start": step.start,
        "end": step.end,
        "stretches": _stretches(source, path, ranks, step),
        "sums": [{"part": PARTS[part], "time": time} for part, time in zip(sums.index.tolist(), sums.tolist())],
    }


def _stretches(source: Source, path: Paths, ranks: dict[int, Rank], step: StepEnd) -> list[dict[str, Any]]:
    """Return segments that follow each other on a thread or a stream as one, the earliest first."""
    rows = path.segments[path.segments["part"] != UNRECORDED].iloc[::-1]
    columns = {
        name: rows[name].to_numpy(np.int64, copy=True) for name in ("worker", "part", "event", "thread", "low", "high")
    }
    worker = columns["worker"]
    thread, device, stream = columns["thread"].copy(), np.full(len(rows), -1), np.full(len(rows), -1)
    for number in np.unique(worker).tolist():
        own = worker == number
        _placed(ranks[number], columns, own, thread, device, stream)
        for name in ("low", "high"):
            columns[name][own] = between(clocks(source.store), step.worker, number, columns[name][own])
    keys = np.stack([worker, thread, device, stream], axis=1)
    first = np.flatnonzero(np.r_[True, (keys[1:] != keys[:-1]).any(axis=1)][: len(keys)])
    last = np.r_[first[1:], len(keys)][: len(first)] - 1
    return [
        {
            "worker": int(worker[begin]), "thread": _known(thread[begin]), "device": _known(device[begin]),
            "stream": _known(stream[begin]), "start": int(columns["low"][begin]), "end": int(columns["high"][end]),
        }
        for begin, end in zip(first.tolist(), last.tolist())
    ]  # fmt: skip


def _placed(rank: Rank, columns: dict[str, Ints], own: np.ndarray, thread: Ints, device: Ints, stream: Ints) -> None:
    """Fill in the threads, devices and streams of a rank's segments."""
    activity = rank.activity
    launching = own & (columns["part"] == LAUNCHING)
    thread[launching] = activity.call["thread"].values[activity.launch[columns["event"][launching]]]
    on_device = own & (columns["event"] >= 0) & ~launching
    event = columns["event"][on_device]
    device[on_device] = activity.event["device"].values[event]
    stream[on_device] = activity.event["stream"].values[event]


def _known(number: int) -> int | None:
    return None if number < 0 else int(number)
