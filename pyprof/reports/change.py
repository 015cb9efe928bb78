# SPDX-License-Identifier: Apache-2.0
"""Sentences on what made a step longer or shorter: the parts of the step that changed, each with its place.

The parts are those of the report diff, means over the same steps. A place is where most of a part's change is: for
work the line that called it, for waits what the host did meanwhile, by rank. Changes within the noise, and those of
less than a tenth of the step's, are left out. Then come findings that the slower run has and the faster one not, or
with a quarter of the saving: what the base's predicted for a change that was made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd

from pyprof.core.units import duration, percent
from pyprof.facts.host.places import user_line
from pyprof.facts.steps.source import Source
from pyprof.reports.headline import first_sentence
from pyprof.reports.host_account import LOADING, OUTSIDE
from pyprof.reports.idle import IDLE
from pyprof.rules.context import Run
from pyprof.rules.evaluation import BOUNDS, evaluate

_LEAST = 0.1  # of the step's change
_MOST = 3  # parts, and findings
_WORK = ("kernel", "operators")
_OTHER = "other"  # part of steps on a CPU: what is in no operator
_NAMES = {"kernel": "kernels", _OTHER: "outside of operators"}


class _Side(NamedTuple):
    """A run, and the divisor of its sums over steps and workers."""

    run: Run
    steps: float

    @property
    def source(self) -> Source:
        return self.run.source


def describe_change(base: Source, other: Source, table: pd.DataFrame) -> list[str]:
    """Return sentences on how a step of `other` differs from one of `base`; none without steps. `table`: the rows of
    the report diff by step."""
    runs = [Run(source) for source in (base, other)]
    noisy = table["noise"].eq(True).fillna(False).astype(bool)  # unknown with one step
    is_step = table["section"] == "step"
    if not all(run.cut and run.steps for run in runs) or not is_step.any():
        return []
    step = table[is_step].iloc[0]
    if pd.isna(step["base_time_ns"]) or pd.isna(step["other_time_ns"]) or not step["base_time_ns"]:
        return []
    before, after = float(step["base_time_ns"]), float(step["other_time_ns"])
    change = after - before
    if noisy[is_step].any() or not change:
        if duration(after) == duration(before):
            return [f"A step takes as long as in the base, {duration(before)}."]
        return [
            f"A step takes {duration(after)}, and {duration(before)} in the base: the difference is within the noise."
        ]
    sides = [_Side(run, max(run.steps * run.workers, 1)) for run in runs]
    rows = table[(table["section"] == "part") & ~noisy]
    parts = {str(name): float(delta) for name, delta in zip(rows["name"], rows["delta_time_ns"])}
    large = [(name, delta) for name, delta in parts.items() if abs(delta) >= _LEAST * abs(change)]
    same = [(name, delta) for name, delta in large if delta * change > 0]
    against = [(name, delta) for name, delta in large if delta * change < 0]
    waits = table[table["section"] == "place"]
    places = pd.Series(waits["delta_time_ns"].astype(float).to_numpy(), waits["name"].astype(str))
    causes = "; ".join(_part(sides, places, name, delta) for name, delta in same[:_MOST])
    offset = ", ".join(f"{_named(name)} {_signed(delta)}" for name, delta in against[:_MOST])
    text = (
        f"A step is {duration(abs(change))} ({percent(abs(change) / before)}) "
        f"{'longer' if change > 0 else 'shorter'}: {duration(after)} instead of {duration(before)}"
    )
    text += f". {causes[0].upper()}{causes[1:]}" if causes else ", in many small parts"
    return [f"{text}{f'; partly offset by {offset}' if offset else ''}.", *_findings(sides, change)]


def _part(sides: list[_Side], places: pd.Series[float], name: str, delta: float) -> str:
    place = _where_changed(sides, places, name, delta)
    return f"{_named(name)} {_signed(delta)}{f', mostly {place}' if place else ''}"


def _named(name: str) -> str:
    return f"waiting ({name.removeprefix(IDLE)})" if name.startswith(IDLE) else _NAMES.get(name, name)


def _signed(delta: float) -> str:
    return f"{'+' if delta > 0 else '-'}{duration(abs(delta))}"


def _where_changed(sides: list[_Side], places: pd.Series[float], name: str, delta: float) -> str:
    """Return where most of the change of a part is, as `conv2d at model.py:41, +2.00 ms`; empty if it is not known.
    `places`: the changes of waits by cause and place."""
    if name in _WORK:
        base, other = (_operators(side) for side in sides)
        changes = other.sub(base, fill_value=0)
    elif name == _OTHER:
        changes = places[~places.index.str.startswith((IDLE, LOADING))]
        changes.index = changes.index.str.removeprefix(f"{OUTSIDE}, ")
    else:
        changes = places[places.index.str.startswith(f"{name}, ")]
        changes.index = changes.index.str.removeprefix(f"{name}, ")
    changes = changes * (1 if delta > 0 else -1)
    if not len(changes) or changes.max() < abs(delta) / 4:
        return ""
    place, change = str(changes.idxmax()), float(changes.max())
    return place if change >= 0.9 * abs(delta) else f"{place}, {_signed(change if delta > 0 else -change)}"


def _operators(side: _Side) -> pd.Series[float]:
    """Return the time of operators by name and line."""
    table = side.run.ops
    lines = table["frames"].map(user_line)
    keys = [f"{kind} at {line}" if line else kind for kind, line in zip(table["type"], lines)]
    return table["gpu_ns"].astype(float).groupby(pd.Index(keys)).sum() / side.steps


def _findings(sides: list[_Side], change: float) -> Iterator[str]:
    """Yield what the slower run has, and the faster one not or hardly: after an improvement, what was predicted."""
    findings = [
        {o.rule.id: o.finding for o in evaluate(side.source) if o.finding is not None and o.finding.saving}
        for side in sides
    ]
    slow, fast = (0, 1) if change < 0 else (1, 0)
    savings, left = (
        {rule: (finding.saving or 0) / max(sides[one].run.steps, 1) for rule, finding in findings[one].items()}
        for one in (slow, fast)
    )
    fresh = [rule for rule, saving in savings.items() if saving >= max(abs(change) / 4, 4 * left.get(rule, 0))]
    for rule in sorted(fresh, key=lambda one: -savings[one])[:_MOST]:
        most = "at most " if rule in BOUNDS else ""
        who = "Predicted in the base" if change < 0 else "Found in the other"
        problem = first_sentence(findings[slow][rule].problem)
        yield f"{who} ({rule}, {most}{duration(savings[rule])} a step): {problem}"
