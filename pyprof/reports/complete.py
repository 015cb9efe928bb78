# SPDX-License-Identifier: Apache-2.0
"""Sums over the iterations of an aggregation that means are taken of, for comparisons.

The statistics of an aggregation cover all of its iterations. Where some are no steady ones, sums are made of
the others instead.
"""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from pyprof.facts.steps.source import Source, used
from pyprof.facts.steps.sums import Shape, between


class Iterations(NamedTuple):
    """Iterations of each worker, in order, with the ids of their executions or events: low <= id < high. `whole`:
    whether they are all of the aggregation."""

    table: pd.DataFrame
    whole: bool


def iterations(source: Source, shape: Shape, every: bool = False) -> Iterations:
    """Return the iterations that means are taken of, or every aggregated one."""
    window = source.aggregation
    columns = source.store.columns(
        f"""select first_{shape.table} as low, last_{shape.table} as high, number from iteration
            where iteration_set = {window.iteration_set} and number between {window.first} and {window.last}
            {"" if source.worker is None else f"and worker = {source.worker}"} order by worker, number"""
    )
    table = pd.DataFrame({name: column.values for name, column in columns.items()})
    selected = table.pop("number").isin(used(source))
    if every or selected.all():
        return Iterations(table, True)
    return Iterations(table[selected], False)


def sums(source: Source, shape: Shape, covered: Iterations, keys: list[str]) -> pd.DataFrame:
    """Return the sums over iterations by some keys of their table."""
    names = [*shape.keys, *shape.sums]
    parts = [pd.DataFrame({name: pd.Series([], dtype="int64") for name in names})]
    for low, high in _stretches(covered.table):
        parts.append(between(source.store, shape, low, high).select(names).to_pandas())
    return pd.concat(parts).groupby(keys, sort=True)[list(shape.sums)].sum().reset_index()


def _stretches(table: pd.DataFrame) -> list[tuple[int, int]]:
    """Return the ids of iterations, [first, last), with those that follow each other as one."""
    out: list[tuple[int, int]] = []
    for low, high in zip(table["low"].tolist(), table["high"].tolist()):
        if out and out[-1][1] == low:
            out[-1] = out[-1][0], high
        elif low < high:
            out.append((low, high))
    return out
