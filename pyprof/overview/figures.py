# SPDX-License-Identifier: Apache-2.0
"""Figures of the overview. Each is a cell of a report, or a sum or mean of one of its columns.

Times are ns, shares percent of a step; None is unknown. All are means over the same steady steps, of which the expert
rules speak as well: a time is that of one step of one process.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pandas as pd

from pyprof.core.symbols import short_name
from pyprof.facts.host.places import user_line
from pyprof.facts.steps.source import Source
from pyprof.metrics import share
from pyprof.reports import find
from pyprof.reports.headline import Best, Step, findings, mean_step
from pyprof.rules import Outcome
from pyprof.rules.context import Run
from pyprof.rules.evaluation import evaluate
from pyprof.store import reads

TOP = 5
_SENTENCES, _LETTERS = 16, 1000  # of a verdict
_COSTLY = 5  # percent of a window
LEDGER = {"operator": "operator", "source line": "line", "module": "module", "FLOPs": "FLOPs"}


class Row(NamedTuple):
    """An operator, kernel or module: its time and calls in a step. `line`: the user's line with most of its time;
    `more`: the number of its other lines."""

    name: str
    time: float
    share: float | None
    calls: float | None
    line: str | None = None
    more: int = 0


class Pauses(NamedTuple):
    """Pauses in which records were read: their time, that of the windows with them, and their number."""

    time: int
    window: int
    number: int


class Figures(NamedTuple):
    """Content of the overview. `kernels`: `operators` are kernels, since the recording has no operators. `best`: None
    if no rule found anything; `evaluated`: the number of rules that could be evaluated; `pauses`: None unless they took
    more than 5 % of the windows."""

    gpu: bool
    step: Step
    kernels: bool
    operators: tuple[Row, ...]
    modules: tuple[Row, ...]
    ledger: tuple[tuple[str, float | None], ...]
    best: Best | None
    evaluated: int
    rank: int | None = None
    ranks: int | None = None
    verdict: tuple[str, ...] = ()  # of a flight record
    pauses: Pauses | None = None
    more: tuple[Best, ...] = ()  # the next two findings


def figures(source: Source, outcomes: list[Outcome] | None = None) -> Figures:
    """Return all figures of the overview. `outcomes`: of the rules, where they are known already. Raises
    PyProfError."""
    run = Run(source)
    step = mean_step(source, run)
    scale = _Scale(step.number or step.workers or 1, step.length)
    kernels = not reads.has_operators(source.store)
    rank, ranks = _ranks(run)
    outcomes = evaluate(source) if outcomes is None else outcomes
    first = findings(outcomes, run)
    return Figures(
        gpu=source.gpu,
        step=step,
        kernels=kernels,
        operators=_kernels(run, scale) if kernels else _operators(run, scale),
        modules=_modules(run, scale),
        ledger=_ledger(source),
        best=first[0] if first else None,
        more=tuple(first[1:]),
        evaluated=sum(outcome.needs is None for outcome in outcomes),
        rank=rank,
        ranks=ranks,
        verdict=_verdict(run),
        pauses=_pauses(run),
    )


class _Scale(NamedTuple):
    """Divisor of sums over the steps of all processes, and the length of a step."""

    steps: int
    length: float | None

    def row(self, name: str, time: int, calls: int | None = None, line: str | None = None, more: int = 0) -> Row:
        mean = time / self.steps
        of_step = 100 * mean / self.length if self.length else None
        return Row(name, mean, of_step, None if calls is None else calls / self.steps, line, more)


def _largest(table: pd.DataFrame, by: str) -> pd.DataFrame:
    """Return the keys with the most time, and their sums."""
    sums = table.groupby(by)[["gpu_ns", "calls"]].sum()
    return sums[sums["gpu_ns"] > 0].sort_values("gpu_ns", ascending=False, kind="stable").head(TOP)


def _kernels(run: Run, scale: _Scale) -> tuple[Row, ...]:
    """Return the kernels with the most time."""
    return tuple(
        scale.row(short_name(str(name)), int(time), int(calls))
        for name, time, calls in _largest(run.kernels, "kernel").itertuples()
    )


def _operators(run: Run, scale: _Scale) -> tuple[Row, ...]:
    """Return the operator types with the most time."""
    rows = []
    for kind, time, calls in _largest(run.ops, "type").itertuples():
        line, other_lines = _line(run.ops[run.ops["type"] == kind])
        rows.append(scale.row(str(kind), int(time), int(calls), line, other_lines))
    return tuple(rows)


def _line(operators: pd.DataFrame) -> tuple[str | None, int]:
    """Return the user's line with the most time of some operators, and the number of others."""
    times: Counter[str] = Counter()
    for stack, time in zip(operators["frames"], operators["gpu_ns"]):
        line = user_line(stack)
        if line is not None:
            times[line] += int(time)
    return (times.most_common(1)[0][0], len(times) - 1) if times else (None, 0)


def _modules(run: Run, scale: _Scale) -> tuple[Row, ...]:
    """Return the modules with the most time of their own, in the operators' unit; everything outside modules counts as
    one, named "". Empty if no module was recorded."""
    table = run.ops.assign(module=run.ops["module"].fillna(""))
    if not (table["module"] != "").any():
        return ()
    return tuple(scale.row(str(name), int(time)) for name, time, _ in _largest(table, "module").itertuples())


def _ledger(source: Source) -> tuple[tuple[str, float | None], ...]:
    table = find("coverage").table(source)
    out = []
    for line, name in LEDGER.items():
        entries = table[table["line"] == line]
        explained = int(entries.loc[entries["part"] != "unknown", "time"].sum())
        out.append((name, share(explained, int(entries["time"].sum()))))
    return tuple(out)


def _verdict(run: Run) -> tuple[str, ...]:
    """Return the first sentences of a flight record, limited in number and length, since the file may be from
    anyone."""
    names = (f"flight.verdict.{number}" for number in range(_SENTENCES))
    return tuple(text[:_LETTERS] for name in names if (text := run.facts.get(name)))


def _pauses(run: Run) -> Pauses | None:
    texts = [run.facts.get(f"overhead.{name}", "") for name in ("paused_ns", "window_ns", "pauses")]
    if not all(text.isdecimal() and len(text) < 19 for text in texts):
        return None
    pauses = Pauses(*map(int, texts))
    return pauses if _COSTLY * pauses.window < 100 * pauses.time <= 100 * pauses.window else None


def _ranks(run: Run) -> tuple[int | None, int | None]:
    """Return rank and number of ranks of the run, if the recording is that of one rank."""
    ranks = reads.ranks(run.store)
    size = run.facts.get("distributed.world_size", "")
    if len(ranks) == 1 and size.isdecimal() and int(size) > 1:
        return ranks[0], int(size)
    return None, None
