# SPDX-License-Identifier: Apache-2.0
"""The answer in a sentence: what a step takes, and what to change first. A terminal and the page show the same."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from pyprof.analysis.source import Source
from pyprof.metrics import share
from pyprof.reports import find
from pyprof.rules import Outcome
from pyprof.rules.context import NOT_CUT, Run
from pyprof.store import reads
from pyprof.units import duration

_PHASES = ("forward", "backward", "recompute", "optimizer", "no_phase")


class Step(NamedTuple):
    """The median step. It is the median of `number` steps of `workers` workers; None: the recording has no steps.
    `parts`: name and share, 100 % together; on a GPU `busy` is the share in which it works."""

    length: float | None
    number: int | None
    workers: int
    parts: tuple[tuple[str, float], ...]
    busy: float | None


class Mean(NamedTuple):
    """The mean of the steady steps. `frame`: their rows of the step-time report; `first` and `last`: their numbers in
    it."""

    frame: pd.DataFrame
    first: int | None
    last: int | None


class Best(NamedTuple):
    """The first finding of the rules; `saving` per step, `share` of the time that rules examine."""

    problem: str
    saving: float | None
    share: float | None


def headline(step: Step, best: Best | None, late: str = "") -> str:
    """Return the sentences that answer what a step takes, what to change first, and which rank is late.

    >>> headline(Step(178e6, 5, 1, (), None), Best("The loop waits for data.", 59e6, 33.2))
    'A step takes 178 ms, the median of 5. The loop waits for data. This could save up to 59 ms a step (33.2 %).'
    >>> headline(Step(16e6, 8, 8, (), None), None)
    'A step takes 16 ms, the median of 8 on 8 workers.'
    """
    if step.length is None:
        return ""
    if step.number is None:
        text = f"The recording takes {duration(step.length)}."
    else:
        whose = f" on {step.workers} workers" if step.workers > 1 else ""
        of = f", the median of {step.number}{whose}" if step.number > 1 else ""
        text = f"A step takes {duration(step.length)}{of}."
    if best is not None:
        text += f" {best.problem}"
        if best.saving is not None:
            per = "" if step.number is None else " a step"
            of = "" if best.share is None else f" ({best.share:.1f} %)"
            text += f" This could save up to {duration(best.saving)}{per}{of}."
    return f"{text} {late}".rstrip()


def late_rank(source: Source) -> str:
    """Return the sentence that names the rank for which the others wait, and at which collective most; empty if no
    rank is the last in at least half of the collectives."""
    if len(reads.worker_names(source.store)) < 2:
        return ""
    ranks = find("stragglers").table(source).groupby(["worker", "device"], sort=False, dropna=False)
    late = [own for _, own in ranks if 0 < own["collectives"].sum() <= 2 * own["times_last"].sum()]
    if not late:
        return ""
    own = max(late, key=lambda rows: int(rows["late_ns"].sum()))
    most = own.sort_values("late_ns", ascending=False, kind="stable").iloc[0]
    number = "" if pd.isna(most["place"]) else f" (number {most['place']} of the iteration)"
    return (
        f"{most['worker']} is the straggler: last to arrive at {own['times_last'].sum():,} of "
        f"{own['collectives'].sum():,} collectives, {duration(int(own['late_ns'].sum()))} behind the first rank in "
        f"total, {duration(int(most['late_ns']))} of it at {most['name']}{number}."
    )


def median_step(source: Source, run: Run) -> Step:
    """Return the median of the steady steps, and its parts."""
    table = find("step_time", categories="phase").table(source)
    workers = table["worker"].nunique()
    steady = _steady(table, run)
    # The step of median length, or the two in the middle: a first step a hundred times as long would
    # dominate the sums of all.
    order = steady.sort_values("total_ns", kind="stable")
    middle = order.iloc[max(len(order) - 1, 0) // 2 : len(order) // 2 + 1]
    total = int(middle["total_ns"].sum())
    sums = {name: int(middle[f"{name}_ns"].sum()) for name in (*_PHASES, "dataloader", "other")}
    parts = tuple((name, part) for name, time in sums.items() if (part := share(time, total)) and time)
    busy = share(sum(sums[name] for name in _PHASES), total) if source.gpu else None
    length = total / len(middle) if len(middle) else None
    return Step(length, len(steady) if run.cut else None, workers, parts, busy)


def mean_step(source: Source, run: Run) -> Mean:
    """Return the steady steps by kind of work; without a GPU, by phase of the training, as on a terminal."""
    steady = _steady(find("step_time", categories=parts_of_step(source.gpu)).table(source), run)
    numbers = (int(steady["step"].min()), int(steady["step"].max())) if len(steady) else (None, None)
    return Mean(steady, *numbers)


def parts_of_step(gpu: bool) -> str:
    """Return which parts of the step-time report tell most: on a CPU, nearly everything is of the kind CPU."""
    return "8" if gpu else "phase"


def _steady(table: pd.DataFrame, run: Run) -> pd.DataFrame:
    """Return the whole steps of the steady iterations; all steps if there is none."""
    number = table.groupby("worker").cumcount() + run.source.aggregation.first
    steady = table[number.between(*run.steady) & ~table["partial"].fillna(False)]
    return steady if len(steady) else table


def best_finding(outcomes: list[Outcome], run: Run) -> Best | None:
    """Return the first finding of the rules, the one with the largest saving."""
    for outcome in outcomes:
        finding = outcome.finding
        if finding is not None:
            saving = None if finding.saving is None else finding.saving / max(run.steps, 1)
            return Best(finding.problem.removesuffix(NOT_CUT), saving, outcome.share)
    return None
