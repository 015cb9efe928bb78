# SPDX-License-Identifier: Apache-2.0
"""Figures of the overview. Each is a cell of a report, or a sum or mean of one of its columns.

Times are ns, shares percent; None is unknown. Operators and modules are those of all aggregated iterations, the step
is one of the steady iterations, which the expert rules use as well.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, NamedTuple

import pandas as pd

from pyprof.analysis.source import Source
from pyprof.metrics import share
from pyprof.reports import find
from pyprof.reports.headline import Best, Step, best_finding, mean_step
from pyprof.rules import Outcome
from pyprof.rules.context import Run
from pyprof.rules.evaluation import evaluate
from pyprof.store import reads
from pyprof.symbols import short_name

TOP = 5
_SENTENCES, _LETTERS = 16, 1000  # of a verdict
LEDGER = {"operator": "operator", "source line": "line", "module": "module", "FLOPs": "FLOPs"}
_LIBRARY = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python\d[^/\\]*[/\\]")


class Row(NamedTuple):
    """An operator, kernel or module. `line`: the user's line with most of its time; `more`: the number of its other
    lines."""

    name: str
    time: int
    share: float | None
    calls: int | None
    line: str | None = None
    more: int = 0


class Figures(NamedTuple):
    """Content of the overview. `kernels`: `operators` are kernels, since the recording has no operators. `steps`: the
    number of iterations summed in operators and modules, None without any. `best`: None if no rule found anything;
    `evaluated`: the number of rules that could be evaluated."""

    gpu: bool
    step: Step
    kernels: bool
    operators: tuple[Row, ...]
    modules: tuple[Row, ...]
    steps: int | None
    ledger: tuple[tuple[str, float | None], ...]
    best: Best | None
    evaluated: int
    rank: int | None = None
    ranks: int | None = None
    verdict: tuple[str, ...] = ()  # of a flight record


def figures(source: Source, outcomes: list[Outcome] | None = None) -> Figures:
    """Return all figures of the overview. `outcomes`: of the rules, where they are known already. Raises
    PyProfError."""
    run = Run(source)
    operators, kernels = _operators(source)
    aggregation = source.aggregation
    rank, ranks = _ranks(run)
    outcomes = evaluate(source) if outcomes is None else outcomes
    return Figures(
        gpu=source.gpu,
        step=mean_step(source, run),
        kernels=kernels,
        operators=operators,
        modules=_modules(source),
        steps=aggregation.last - aggregation.first + 1 if run.cut else None,
        ledger=_ledger(source),
        best=best_finding(outcomes, run),
        evaluated=sum(outcome.needs is None for outcome in outcomes),
        rank=rank,
        ranks=ranks,
        verdict=_verdict(run),
    )


def _operators(source: Source) -> tuple[tuple[Row, ...], bool]:
    """Return the operator types with the most time; kernels if no operator was recorded."""
    types, details = find("op_type").table(source), find("detail").table(source)
    total = int(types["gpu"].sum())
    if not reads.has_operators(source.store):
        kernels = find("kernel_summary").table(source).head(TOP)
        named = zip(kernels["name"], kernels["total_ns"], kernels["calls"])
        return tuple(Row(short_name(n), int(t), share(int(t), total), int(c)) for n, t, c in named), True
    rows = []
    largest = types.loc[types["gpu"] > 0, ["type", "gpu", "calls"]].head(TOP)
    for kind, time, calls in largest.itertuples(index=False):
        line, other_lines = _line(details[details["type"] == kind])
        rows.append(Row(kind, int(time), share(int(time), total), int(calls), line, other_lines))
    return tuple(rows), False


def _line(operators: pd.DataFrame) -> tuple[str | None, int]:
    """Return the user's line with the most time of some operators, and the number of others."""
    times: Counter[str] = Counter()
    for stack, time in zip(operators["stack"], operators["gpu"]):
        line = user_line(stack)
        if line is not None:
            times[line] += 0 if pd.isna(time) else int(time)
    return (times.most_common(1)[0][0], len(times) - 1) if times else (None, 0)


def user_line(stack: Any) -> str | None:
    r"""Return the innermost line of a stack outside installed packages; without one the innermost line.

    >>> user_line("train.py:9\nnet.py:30\n/env/lib/python3.11/site-packages/torchvision/models/resnet.py:132")
    'net.py:30'
    """
    frames = [frame for frame in stack.split("\n") if frame] if isinstance(stack, str) else []
    own = [frame for frame in frames if not _LIBRARY.search(frame)]
    candidates = own or frames
    return candidates[-1] if candidates else None


def _modules(source: Source) -> tuple[Row, ...]:
    """Return the modules with the most time of their own, in the operators' unit; everything outside modules counts as
    one, named "". Empty if no module was recorded."""
    table, details = find("module").table(source), find("detail").table(source)
    if not (table["module"] != "").any():
        return ()
    times = details.groupby(details["module"].fillna(""))["gpu"].sum()
    total = int(times.sum())
    calls = dict(zip(table["module"], table["occurrences"]))
    largest = times[times > 0].sort_values(ascending=False, kind="stable").head(TOP)
    return tuple(
        Row(str(name), int(time), share(int(time), total), int(calls[name])) for name, time in largest.items()
    )


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


def _ranks(run: Run) -> tuple[int | None, int | None]:
    """Return rank and number of ranks of the run, if the recording is that of one rank."""
    ranks = reads.ranks(run.store)
    size = run.facts.get("distributed.world_size", "")
    if len(ranks) == 1 and size.isdecimal() and int(size) > 1:
        return ranks[0], int(size)
    return None, None
