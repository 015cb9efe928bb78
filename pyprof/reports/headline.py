# SPDX-License-Identifier: Apache-2.0
"""The answer in a sentence: what a step takes, and what to change first. A terminal and the page show the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd

from pyprof.core.units import duration
from pyprof.facts.steps.device_steps import activities, marked_numbers
from pyprof.facts.steps.source import Source
from pyprof.facts.steps.steady_state import UNEVEN
from pyprof.metrics import share
from pyprof.reports import find
from pyprof.reports.step_time import PARTIAL, START, STEP, TOTAL, WORKER, concat_rows, of_steps
from pyprof.rules import Outcome
from pyprof.rules.context import NOT_CUT, Run
from pyprof.rules.evaluation import BOUNDS, NOTES
from pyprof.rules.steps import missing_work
from pyprof.rules.thresholds import limit
from pyprof.store import reads

# Parts of a rank's work, as of `rank_work.PARTS`.
IN_PART = {
    "kernels": "in kernels and copies", "communication": "in other collectives", "dataloader": "in the data loader",
    "launch": "in API calls", "host": "in host operators", "other": "outside operators",
}  # fmt: skip
USED = "used"
PHASES = ("forward", "backward", "recompute", "optimizer", "no_phase")
_SHOWN = 3  # findings


class Step(NamedTuple):
    """The mean of the steady steps. `number`: of how many, None if the recording has no steps; on `workers` processes,
    with `spans` recordings if these are more.
    `parts`: name and share in percent of those that are not 0, 100 % together; on a GPU `busy` is the share in which it
    works. `first` and `last`: their numbers in the report step_time. `sums`: name and sum of each of its times over
    these steps, in ns. `steady`: whether they are of about equal length; else they are all steps. `used`: which of the
    recorded steps they are, and why not the others; empty if they are all."""

    length: float | None
    number: int | None
    workers: int
    parts: tuple[tuple[str, float], ...]
    busy: float | None
    first: int | None = None
    last: int | None = None
    sums: tuple[tuple[str, int], ...] = ()
    steady: bool = False
    spans: int = 0
    used: str = ""

    @property
    def whose(self) -> str:
        """Of whom the steps are; "" for one process that was recorded once.

        >>> step = Step(1e6, 6, 2, (), None)
        >>> step.whose, step._replace(spans=6).whose, step._replace(workers=1, spans=2).whose
        ('2 workers', '6 spans of 2 workers', '2 spans')
        """
        workers = f"{self.workers} workers" if self.workers > 1 else ""
        return " of ".join(filter(None, [f"{self.spans} spans" if self.spans > self.workers else "", workers]))


Kind = Literal["Finding", "Opportunity", "Note"]
FINDING, OPPORTUNITY, NOTE = get_args(Kind)


class Best(NamedTuple):
    """A finding of the rules; `saving` per step, `share` of the time that rules examine. `names_rank`: whether it is
    about the rank for which the others wait. `advice`: what to do about it; `kind`: a FINDING, an OPPORTUNITY, whose
    saving is a bound, or a NOTE on the measurement."""

    problem: str
    saving: float | None
    share: float | None
    names_rank: bool = False
    advice: str = ""
    kind: Kind = "Finding"


def headline(step: Step, best: Best | None, late: str = "") -> str:
    """Return the sentences that answer what a step takes, what to change first, and which rank is late, once.

    >>> step = Step(178e6, 5, 1, (), None, steady=True)
    >>> headline(step, Best("The loop waits for data.", 59e6, 33.2))
    'A step takes 178 ms, the mean of 5. The loop waits for data. This could save 59.0 ms a step (33.2 %).'
    >>> headline(step._replace(length=16e6, number=8, workers=8, steady=False), None)
    'A step takes 16.0 ms, the mean of 8 on 8 workers, not known to be steady.'
    >>> headline(step, Best("All ranks wait for rank3.", 59e6, 33.2, True), "The ranks wait for rank3.")
    'A step takes 178 ms, the mean of 5. All ranks wait for rank3. This could save 59.0 ms a step (33.2 %).'
    """
    if step.length is None:
        return ""
    if step.number is None:
        text = f"The recording takes {duration(step.length)}."
    else:
        whose = f" {'in' if 'spans' in step.whose else 'on'} {step.whose}" if step.whose else ""
        of = f", the mean of {step.number}{whose}" if step.number > 1 else ""
        if of and not step.steady:
            of += ", not known to be steady"
        text = f"A step takes {duration(step.length)}{of}."
    if best is not None:
        late = "" if best.names_rank else late
        text += f" {first_sentence(best.problem)}"
        if best.saving is not None:
            per = "" if step.number is None else " a step"
            of = "" if best.share is None else f" ({best.share:.1f} %)"
            text += f" This could save {'up to ' if best.kind == OPPORTUNITY else ''}{duration(best.saving)}{per}{of}."
    return f"{text} {late}".rstrip()


def first_sentence(text: str) -> str:
    """Return the first sentence of a text.

    >>> first_sentence("It waits for 1.92 ms of 18.1 ms. There are 266 kernels.")
    'It waits for 1.92 ms of 18.1 ms.'
    """
    return re.split(r"(?<=[.!?]) ", text, maxsplit=1)[0]


def of_summary(source: Source) -> str:
    """Return the sentences about the summary of a fleet: what a step takes, and which rank is late."""
    run = Run(source)
    rows = [of_steps(activity, steps) for activity, steps in activities(source)]
    table = concat_rows(rows, [WORKER, STEP, START, TOTAL, PARTIAL]).astype({"partial": "boolean"})
    steps = _steady(table, run)
    length = int(steps["total_ns"].sum()) / len(steps) if len(steps) else None
    workers, spans = _recorded(source, table)
    step = Step(length, len(steps) if run.cut else None, workers, (), None, spans=spans)
    late = f"{_last_rank(source)} {_longer_part(source)}"
    return headline(step, None, late) or "Nothing with a time was recorded, so there is no step."


def _recorded(source: Source, table: pd.DataFrame) -> tuple[int, int]:
    """Return the numbers of processes and of their recordings in a table of steps."""
    names = reads.process_names(source.store)
    workers = table["worker"].unique()
    return len({names.get(worker, worker) for worker in workers}), len(workers)


def _steady(table: pd.DataFrame, run: Run) -> pd.DataFrame:
    """Return the rows of step_time of the steady steps."""
    number = table.groupby("worker").cumcount() + run.source.aggregation.first
    return table[number.isin(run.numbers)]


def late_rank(source: Source) -> str:
    """Return the sentence that names the rank for which the others wait: the first of the report root_cause, or without
    one the rank that is the last in at least half of the collectives; empty if there is none."""
    if len(reads.worker_names(source.store)) < 2:
        return ""
    causes = find("root_cause").table(source)
    causes = causes[causes["saving_ns"].notna()]
    if not len(causes):
        return _last_rank(source)
    return root_cause({str(key): cell for key, cell in causes.iloc[0].items()})


def root_cause(row: dict[str, Any]) -> str:
    """Return a row of the report root_cause as a sentence.

    >>> row = {"worker": "rank3", "part": "data loader", "line": "train.py:12", "host": "next", "collectives": 9,
    ...        "kernel": None, "call": None, "caused_ns": 27e6, "share": 45.12, "step_avg": 5.3e6, "without_avg": 2.9e6}
    >>> root_cause(row)
    'The ranks wait for rank3: it is 27.0 ms late in total at 9 collectives, for more time in the data loader \
(next, train.py:12). Without that a step would take 2.90 ms instead of 5.30 ms (45.1 % less).'
    """
    place = [row[key] for key in ("kernel", "call", "host", "line")]
    names = ", ".join(dict.fromkeys(str(name) for name in place if not pd.isna(name)))
    part = str(row["part"])
    where = part if part.startswith("outside") else f"in {'the ' if part == 'data loader' else ''}{part}"
    times = f"{row['collectives']:,} collective{'s' if row['collectives'] > 1 else ''}"
    return (
        f"The ranks wait for {row['worker']}: it is {duration(row['caused_ns'])} late in total at {times}, for more "
        f"time {where}{f' ({names})' if names else ''}. Without that a step would take "
        f"{duration(row['without_avg'])} instead of {duration(row['step_avg'])} ({row['share']:.1f} % less)."
    )


def _last(source: Source) -> pd.Series[Any] | None:
    """Return the row of the rank that is the last in at least half of the collectives; None if there is none."""
    ranks = find("stragglers", by="rank").table(source)
    late = ranks[(ranks["times_last"] > 0) & (ranks["collectives"] <= 2 * ranks["times_last"])]
    return late.sort_values("late_ns", ascending=False, kind="stable").iloc[0] if len(late) else None


def _longer_part(source: Source) -> str:
    """Return the sentence that names the part of its work in which that rank took longer; empty if there is none."""
    own = _last(source)
    if own is None:
        return ""
    part = max(IN_PART, key=lambda name: int(own[f"{name}_ns"]))
    time = int(own[f"{part}_ns"])
    if time <= 0:
        return ""
    operator = f" ({own['operator']})" if part == "host" and not pd.isna(own["operator"]) else ""
    return f"Most of its own is more time {IN_PART[part]}{operator}: {duration(time)}."


def _last_rank(source: Source) -> str:
    """Return the sentence that names the rank that is the last in at least half of the collectives, and at which most;
    empty if there is none."""
    own = _last(source)
    if own is None:
        return ""
    rows = find("stragglers").table(source)
    device = rows["device"].isna() if pd.isna(own["device"]) else rows["device"] == own["device"]
    rows = rows[(rows["worker"] == own["worker"]) & device]
    most = rows.sort_values("late_ns", ascending=False, kind="stable").iloc[0]
    number = "" if pd.isna(most["place"]) else f" (number {most['place']} in each iteration)"
    behind, caused, before, carried, usual = (
        int(own[key]) for key in ("late_ns", "own_ns", "before_ns", "carried_ns", "median_ns")
    )
    # A rank that only began later, or was late before, is not the one to be changed.
    what = "is the straggler: last to arrive" if 2 * caused >= behind - before else "arrives last"
    parts = [
        (caused, "are its own"),
        (before, "are from before the recording"),
        (usual, "are usual (the median rank is as late)"),
        (carried, "are left from earlier collectives"),
    ]
    parts.sort(key=lambda part: -part[0])
    texts = [f"{duration(time)} {text}" for time, text in parts if time]
    return (
        f"{most['worker']} {what} at {own['times_last']:,} of {own['collectives']:,} collectives, "
        f"{duration(behind)} behind the first rank in total: {', '.join(texts)}. "
        f"{duration(int(most['late_ns']))} of it is at {most['name']}{number}."
    )


def mean_step(source: Source, run: Run) -> Step:
    """Return the mean of the steady steps, and its parts: phases, and the causes of idle time."""
    report = find("step_time", categories="phase")
    table = report.table(source)
    steps = _steady(table, run)
    lengths = [column.key for column in report.columns if column.key.endswith("_ns")]
    sums = {key.removesuffix("_ns"): int(steps[key].sum()) for key in lengths}
    total = sums.pop("total")
    sums = {name: sums[name] for name in (*PHASES, *sums)}
    parts = tuple((name, part) for name, time in sums.items() if (part := share(time, total)) and time)
    workers, spans = _recorded(source, table)
    numbers = (int(steps["step"].min()), int(steps["step"].max())) if len(steps) else (None, None)
    return Step(
        length=total / len(steps) if len(steps) else None,
        number=len(steps) if run.cut else None,
        workers=workers,
        spans=spans,
        parts=parts,
        busy=share(sum(sums[name] for name in PHASES), total) if source.gpu else None,
        first=numbers[0],
        last=numbers[1],
        sums=tuple(sums.items()),
        steady=run.is_steady,
        used=used_steps(source, run) if run.cut else "",
    )


def used_steps(source: Source, run: Run) -> str:
    """Return which steps means are taken of, and why not of the others; "" if of all."""
    window = source.aggregation
    rows = source.store.rows(
        """select worker, number, why from iteration where iteration_set = ? and number between ? and ?
           and (? is null or worker = ?) group by number order by number""",
        (window.iteration_set, window.first, window.last, source.worker, source.worker),
    )
    used = set(run.numbers.tolist())
    if len(used) == len(rows):
        return ""
    numbers = marked_numbers(source, rows[0][0], np.array([row[1] for row in rows], np.int64)).tolist()
    reasons = [USED if row[1] in used else row[2] or UNEVEN for row in rows]
    return f"{len(rows)} steps: {describe_steps(numbers, reasons)}"


def describe_steps(numbers: Sequence[int], reasons: Sequence[str]) -> str:
    """Return the numbers of steps by reason, the used ones first.

    >>> describe_steps(range(9), ["warm-up"] * 2 + ["used"] * 3 + ["long"] + ["used"] * 2 + ["incomplete"])
    '2 to 4, 6 and 7 used; 0 and 1 warm-up, 5 long, 8 incomplete'
    """
    texts: dict[str, list[str]] = {USED: []}
    for reason, group in groupby(zip(numbers, reasons), key=lambda pair: pair[1]):
        own = [number for number, _ in group]
        between = " and " if len(own) == 2 else " to "
        texts.setdefault(reason, []).append(f"{own[0]}{between}{own[-1]}" if len(own) > 1 else str(own[0]))
    parts = [f"{', '.join(runs)} {reason}" for reason, runs in texts.items() if runs]
    return "; ".join([parts[0], ", ".join(parts[1:])] if parts[1:] else parts)


def best_finding(outcomes: list[Outcome], run: Run) -> Best | None:
    """Return the first finding of the rules, the one with the largest saving; what is missing on the GPU precedes."""
    return next(iter(findings(outcomes, run)), None)


def findings(outcomes: list[Outcome], run: Run) -> list[Best]:
    """Return the first findings of the rules, at most three. After the first, notes on the measurement are left out."""
    launches, every = run.missing_launches
    if launches and launches >= limit("R38.launches") * every:
        return [Best(missing_work(launches, every), None, None, kind=NOTE)]
    out: list[Best] = []
    for rule, finding, _, part in outcomes:
        if finding is not None and not (out and rule.id in NOTES):
            saving = None if finding.saving is None else finding.saving / max(run.steps, 1)
            problem = finding.problem.removesuffix(NOT_CUT)
            kind = OPPORTUNITY if rule.id in BOUNDS else NOTE if rule.id in NOTES else FINDING
            out.append(Best(problem, saving, part, rule.id == "R30", finding.advice, kind))
    return out[:_SHOWN]
