# SPDX-License-Identifier: Apache-2.0
"""Verdict of the gate: each condition with the figures of both runs.

A comparison fails if the increase exceeds both the limit and the margin of noise: the limit is the least effect that
matters, the margin says whether there is one at all. The margin holds for all comparisons of all conditions together.
"Cannot tell" are too few iterations, a figure that a run does not have, and an increase beyond the limit but within the
noise.

The samples are the iterations of all runs of a side. If both sides have several runs, enough for a test, the samples
are the means of runs instead: two recordings of the same program differ by more than their iterations do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from pyprof.facts.steps.source import Source
from pyprof.gate.conditions import ALONE, WITH_PATTERN, Condition
from pyprof.gate.significance import ALPHA, Differences, Floats, block_length, blocks, differences, enough
from pyprof.reports import per_iteration
from pyprof.reports.per_iteration import Iterations

FAIL, PASS, UNKNOWN = "fail", "pass", "cannot tell"
LEAST_SHARE = 0.01  # of the device time of all operators: what a pattern with a star compares
_TOO_FEW = "too few iterations"
_NOT_RECORDED = "not recorded"
_NEW = "only in the other, no percentage"
_NOISE = "above the limit, but within the noise"


class Comparison(NamedTuple):
    """A figure in both runs, per iteration in ns or bytes. `margin`: the increase that is significant; `p`: chance
    of an increase as significant as this in any of the comparisons if nothing changed; both None if not computed."""

    name: str
    status: str
    reason: str
    base: float | None
    other: float | None
    margin: float | None
    p: float | None

    @property
    def change(self) -> float | None:
        """Increase as a share of the base; None if that is unknown or 0."""
        return None if not self.base or self.other is None else self.other / self.base - 1


class Outcome(NamedTuple):
    """A condition with its comparisons, the worst first. `omitted`: matches of a pattern with a star that take too
    little time to be compared."""

    condition: Condition
    comparisons: list[Comparison]
    omitted: int = 0

    @property
    def status(self) -> str:
        """Status of the worst comparison."""
        states = {comparison.status for comparison in self.comparisons}
        return next((status for status in (FAIL, UNKNOWN) if status in states), PASS)


class Verdict(NamedTuple):
    """Outcomes of all conditions. `samples`: the compared samples of the base and the other, `unit` what they are;
    `block`: iterations in a sample. `new`, `removed`: operators of one side alone, with their time per iteration
    (ns)."""

    outcomes: list[Outcome]
    samples: tuple[int, int]
    iterations: tuple[int, int]
    unit: str
    block: int
    new: dict[str, float]
    removed: dict[str, float]

    @property
    def status(self) -> str:
        """Status of the worst condition."""
        states = {outcome.status for outcome in self.outcomes}
        return next((status for status in (FAIL, UNKNOWN) if status in states), PASS)


class Table(NamedTuple):
    """Figures of the iterations of both sides. `columns`: for each condition the names of its comparisons and their
    columns. `new`, `removed` as in Verdict; `omitted` by condition."""

    sides: tuple[pd.DataFrame, pd.DataFrame]
    runs: tuple[list[int], list[int]]
    columns: list[dict[str, str]]
    omitted: list[int]
    new: dict[str, float]
    removed: dict[str, float]


def compare(base: Sequence[Source], other: Sequence[Source], conditions: Sequence[Condition]) -> Verdict:
    """Judge conditions about runs."""
    return judge(tabulate(base, other, conditions), conditions)


def tabulate(base: Sequence[Source], other: Sequence[Source], conditions: Sequence[Condition]) -> Table:
    """Return the figures of the iterations of both sides that the conditions are about."""
    runs = [per_iteration.iterations(run) for run in (*base, *other)]
    sides = [0] * len(base) + [1] * len(other)
    tables = [run.parts.copy() for run in runs]
    # For the block length, and operators that are new.
    columns: list[dict[str, str]] = []
    omitted = []
    matched = {"operator": per_iteration.rows(runs, sides, "operator")} if all(len(r.numbers) for r in runs) else {}
    for condition in conditions:
        left_out = 0
        if condition.metric in ALONE:
            key = f"idle:{condition.pattern}" if condition.pattern else condition.metric
            _absent_causes(tables, runs, key)
            names = {key: key}
        elif not matched:
            names = {condition.text.rpartition(">")[0]: ""}
        else:
            by = "kernel" if condition.metric == "kernel" else "operator"
            if by not in matched:
                matched[by] = per_iteration.rows(runs, sides, by)
            groups, left_out = _groups(condition, matched[by], sides)
            names = {}
            for name, numbers in groups.items():
                column = f"{condition.metric}:{name}" if condition.each else condition.text.rpartition(">")[0]
                for table, times in zip(tables, matched[by].times):
                    table[column] = times.reindex(columns=numbers, fill_value=0.0).sum(axis=1).to_numpy()
                names[column] = column
        columns.append(names)
        omitted.append(left_out)
    new, removed = _one_sided(matched["operator"], sides) if matched else ({}, {})
    joined: list[pd.DataFrame] = []
    run_numbers: list[list[int]] = []
    for side in (0, 1):
        parts = [table for table, of in zip(tables, sides) if of == side]
        joined.append(pd.concat(parts, ignore_index=True))
        run_numbers.append([number for number, part in enumerate(parts) for _ in range(len(part))])
    return Table((joined[0], joined[1]), (run_numbers[0], run_numbers[1]), columns, omitted, new, removed)


def _absent_causes(tables: list[pd.DataFrame], runs: list[Iterations], key: str) -> None:
    """Fill the column of a cause of idle time with 0 in runs of a GPU that have no such gap."""
    for table, run in zip(tables, runs):
        if key.startswith("idle:") and key not in table and run.run.gpu:
            table[key] = 0.0


def _groups(condition: Condition, rows: per_iteration.Rows, sides: list[int]) -> tuple[dict[str, list[int]], int]:
    """Return the numbers of the rows of each comparison by its name, and how many take too little time."""
    labels = rows.labels
    if condition.metric == "module":
        texts = labels["module"].fillna("").astype(str)
        names = texts
    else:
        texts = labels["name"].astype(str)
        direction = labels["direction"].fillna("").astype(str)
        names = texts.where(direction == "", texts + " " + direction) if condition.metric == "op" else texts
    selected = [bool(text) and condition.matches(text) for text in texts]
    if not condition.each:
        return {condition.pattern: labels.index[selected].tolist()}, 0
    groups = {
        str(name): numbers.index.tolist() for name, numbers in labels[selected].groupby(names[selected], sort=True)
    }
    least = [LEAST_SHARE * total for total in _means(rows, sides, labels.index.tolist())]
    large = {
        name: numbers
        for name, numbers in groups.items()
        if any(mean >= low > 0 for mean, low in zip(_means(rows, sides, numbers), least))
    }
    return large, len(groups) - len(large)


def _means(rows: per_iteration.Rows, sides: list[int], numbers: list[int]) -> list[float]:
    """Return the time of rows per iteration on each side (ns)."""
    out = []
    for side in (0, 1):
        sums = [times.reindex(columns=numbers, fill_value=0.0).sum(axis=1) for times, of in zip(rows.times, sides)
                if of == side]  # fmt: skip
        out.append(float(pd.concat(sums).mean()))
    return out


def _one_sided(rows: per_iteration.Rows, sides: list[int]) -> tuple[dict[str, float], dict[str, float]]:
    """Return operators that only the other has, and that only the base has, the slowest first."""
    total = _means(rows, sides, rows.labels.index.tolist())
    out: tuple[dict[str, float], dict[str, float]] = {}, {}
    for place, side in ((0, 1), (1, 0)):
        alone = rows.labels[(rows.sides["min"] == side) & (rows.sides["max"] == side)]
        means = {
            str(name): _means(rows, sides, numbers.index.tolist())[side]
            for name, numbers in alone.groupby("name", sort=True)
        }
        large = {name: mean for name, mean in means.items() if mean >= LEAST_SHARE * total[side] > 0}
        out[place].update(sorted(large.items(), key=lambda item: -item[1]))
    return out


def judge(table: Table, conditions: Sequence[Condition]) -> Verdict:
    """Judge conditions about a table of iterations."""
    base, other = table.sides
    keys = list(dict.fromkeys(key for names in table.columns for key in names.values()))
    known = [key for key in keys if _known(base, key) and _known(other, key)]
    values, unit, block = _samples(table, known)
    limits = dict.fromkeys(known, (0.0, 0.0))
    for condition, names in zip(conditions, table.columns):
        for key in names.values():
            if key in limits:  # of several limits, one in percent
                own = (0.0, condition.limit) if condition.unit == "%" else (condition.limit, 0.0)
                limits[key] = own if limits[key] == (0.0, 0.0) else min(limits[key], own)
    count = len(values[0]), len(values[1])
    tested = None
    if known and enough(*count):
        absolute, share = (np.array([limits[key][part] for key in known]) for part in (0, 1))
        tested = differences(values[0], values[1], absolute, share)
    outcomes = []
    for condition, names, omitted in zip(conditions, table.columns, table.omitted):
        comparisons = [_comparison(condition, name, key, known, values, tested) for name, key in names.items()]
        order = {FAIL: 0, UNKNOWN: 1, PASS: 2}
        comparisons.sort(key=lambda one: (order[one.status], -(one.change or 0.0), one.name))
        outcomes.append(Outcome(condition, comparisons, omitted))
    return Verdict(outcomes, count, (len(base), len(other)), unit, block, table.new, table.removed)


def _known(side: pd.DataFrame, key: str) -> bool:
    return key in side and len(side) > 0 and bool(side[key].notna().all())


def _samples(table: Table, keys: list[str]) -> tuple[tuple[Floats, Floats], str, int]:
    """Return the samples of both sides, what they are, and how many iterations are one."""
    sides = [side.reindex(columns=keys).to_numpy(float) for side in table.sides]
    runs = [np.array(run, np.int64) for run in table.runs]
    counts = [len(np.unique(run)) for run in runs]
    if enough(counts[0], counts[1]):
        means = [np.vstack([side[run == one].mean(axis=0) for one in np.unique(run)]) for side, run in zip(sides, runs)]
        return (means[0], means[1]), "run", 1
    series = [
        side.loc[run == one, name].to_numpy(float)
        for side, run in zip(table.sides, runs)
        for one in np.unique(run)
        for name in (per_iteration.STEP, per_iteration.BUSY)
        if name in side
    ]
    length = max(map(block_length, series), default=1)
    means = [
        np.vstack([blocks(side[run == one], length) for one in np.unique(run)]) if len(run) else side
        for side, run in zip(sides, runs)
    ]
    return (means[0], means[1]), "iteration", length


def _comparison(
    condition: Condition,
    name: str,
    key: str,
    known: list[str],
    values: tuple[Floats, Floats],
    tested: Differences | None,
) -> Comparison:
    if key not in known:
        return Comparison(name, UNKNOWN, _NOT_RECORDED, None, None, None, None)
    place = known.index(key)
    if tested is None:
        means = [float(side[:, place].mean()) if len(side) else None for side in values]
        return Comparison(name, UNKNOWN, _TOO_FEW, means[0], means[1], None, None)
    base, other = float(tested.base[place]), float(tested.other[place])
    if base == 0 and other == 0 and condition.metric in WITH_PATTERN:
        return Comparison(name, UNKNOWN, _NOT_RECORDED, base, other, None, None)
    margin, p = float(tested.margin[place]), float(tested.p[place])
    if base == 0 and other > 0 and condition.unit == "%":
        return Comparison(name, UNKNOWN, _NEW, base, other, margin, p)
    limit = condition.limit * (base if condition.unit == "%" else 1.0)
    if other - base <= limit:
        return Comparison(name, PASS, "", base, other, margin, p)
    if p <= ALPHA:
        return Comparison(name, FAIL, "", base, other, margin, p)
    return Comparison(name, UNKNOWN, _NOISE, base, other, margin, p)
