# SPDX-License-Identifier: Apache-2.0
"""What reports about operators have in common: sums over workers and executions, and how they are asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from pyprof.analysis.source import Source
from pyprof.model import DIRECTIONS, Bools, Column, Ints
from pyprof.store.files import EVENTS_OF_SPANS

SPREADS = ("cpu", "gpu", "overhead", "idle")
_SUMS = ("calls", "timed", "kernels", "tc_kernels", "kernel", "tc")
# Rows of op_stat of the aggregation, of one worker if the source is of one.
MINE = "s.aggregation = :aggregation and (:worker is null or s.worker = :worker)"
# What says nothing where there is no GPU: gaps on it, API calls, tensor cores.
_ON_GPU = ("overhead", "idle")


def frame(source: Source, query: str) -> pd.DataFrame:
    """A query with :aggregation and :worker; integers stay integers, NULL is None."""
    names, rows = source.store.named(query, {"aggregation": source.aggregation.id, "worker": source.worker})
    return pd.DataFrame(rows, columns=names, dtype=object)


def spreads() -> str:
    """Sum, mean, smallest and largest over rows `s` of op_stat. Those of the CPU are of the executions whose time there
    is known, and missing without any."""
    return ", ".join(
        f"{total(n)} as {n}, sum(s.{n}) * 1.0 / nullif(sum(s.{counted(n)}), 0) as {n}_avg, min(s.{n}_min) as {n}_min, "
        f"max(s.{n}_max) as {n}_max"
        for n in SPREADS
    )


def total(name: str) -> str:
    """The sum of a column of op_stat, missing where it is known of no execution."""
    return f"case when sum(s.{counted(name)}) > 0 then sum(s.{name}) end"


def counted(name: str) -> str:
    """The column of op_stat with the executions that the sum of another is of."""
    return "timed" if name in ("cpu", "overhead") else "calls"


def operators(source: Source, by_id: bool = False) -> pd.DataFrame:
    """One row per operator that ran, by GPU time or by its number: its sums over workers, and what it is."""
    key = ("operators", source.aggregation.id, source.worker)
    shared = source.store.cached(key, lambda: _operators(source))
    return known(source, shared.sort_values("id", ignore_index=True) if by_id else shared.copy())


def _operators(source: Source) -> pd.DataFrame:
    sums = ", ".join(f"sum(s.{name}) as {name}" for name in _SUMS)
    return frame(
        source,
        f"""with o as (
                select s.operator as id, {sums}, {spreads()} from op_stat s where {MINE} group by s.operator),
                 unknown as (
                select s.operator as id, sum(s.gpu) as time from op_kernel_stat s
                where {MINE} and s.tc = 3 and s.kind = 0 group by s.operator)
            select o.*, p.op_id, p.name, p.type, p.direction, p.module, p.params, p.dtype, p.shapes, p.eligible,
                   p.unassociated, nullif(k.frames, '') as stack,
                   case when o.tc_kernels > 0 then 1 when unknown.id is null then 0 end as using_tc,
                   coalesce(unknown.time, 0) as tc_unknown
            from o join operator p using (id) left join stack k on k.id = p.stack left join unknown using (id)
            order by gpu desc, cpu desc, id""",
    )


def known(source: Source, table: pd.DataFrame) -> pd.DataFrame:
    """Without a GPU what is said of GPUs is missing; the direction in words."""
    if not source.gpu:
        names = [f"{name}{end}" for name in _ON_GPU for end in ("", "_avg", "_min", "_max")]
        for name in [*names, "using_tc", "tc", "tc_kernels", "tc_unknown"]:
            if name in table:
                table[name] = None
    if "direction" in table:
        table["direction"] = direction(table["direction"])
    return table


def direction(codes: Iterable[int]) -> list[str | None]:
    """fprop or bprop; None for neither."""
    return [None if DIRECTIONS[code] == "na" else DIRECTIONS[code] for code in codes]


def spans(source: Source) -> list[tuple[int, int]]:
    """Ids of the events that were launched in the aggregated iterations, [first, last) of each worker."""
    chosen = source.aggregation
    rows = source.store.rows(
        """select min(first_event), max(last_event) from iteration
           where iteration_set = ? and number between ? and ? and (? is null or worker = ?)
           group by worker order by worker""",
        (chosen.iteration_set, chosen.first, chosen.last, source.worker, source.worker),
    )
    return [(low, high) for low, high in rows]


def bounds(source: Source, worker: int) -> tuple[int, int]:
    """From the start of a worker's first aggregated iteration to the end of the last, on the host."""
    chosen = source.aggregation
    found: tuple[int, int] = source.store.rows(
        """select min(start), max("end") from iteration
           where iteration_set = ? and worker = ? and number between ? and ?""",
        (chosen.iteration_set, worker, chosen.first, chosen.last),
    )[0]
    return found


def started(source: Source, worker: int, last: int, time: Ints) -> Bools:
    """Which times are in a worker's aggregated iterations; the last one takes what is left if it goes to `last`, the
    end of the recording."""
    start, end = bounds(source, worker)
    return np.asarray((time >= start) & ((time < end) | (end >= last)))


def distribution(group: Ints, values: Ints, groups: int) -> pd.DataFrame:
    """Per group calls, total, mean, median, p95, min and max of whole numbers; of an empty group all but the first two
    are missing. p95: the smallest value that 95 % of the values do not exceed.

    >>> distribution(np.array([0, 0, 2, 0]), np.array([9, 1, 5, 4]), 3).astype(object).values.tolist()[0]
    [3, 14, 4.666666666666667, 4.0, 9, 1, 9]
    """
    order = np.lexsort((values, group))
    ordered = values[order].astype(np.int64)
    calls = np.bincount(group, minlength=groups).astype(np.int64)
    first = np.cumsum(calls) - calls
    some = calls > 0
    total = np.zeros(groups, np.int64)
    np.add.at(total, group, values)
    ordered = np.r_[ordered, 0]  # of empty groups at the end

    def at(place: Ints) -> Ints:
        return np.asarray(ordered[np.where(some, first + place, -1)])

    high, low, last = at(calls // 2), at((calls - 1) // 2), at(np.maximum(calls - 1, 0))
    p95 = at(np.maximum(-(-95 * calls // 100) - 1, 0))
    divisor = np.maximum(calls, 1)
    found = pd.DataFrame(
        {"calls": calls, "total": total, "mean": total / divisor, "median": (high + low) / 2}
    )
    found = found.assign(p95=p95, min=at(np.zeros(groups, np.int64)), max=last)
    for name in ("p95", "min", "max"):
        found[name] = found[name].astype("Int64")
    found.loc[~some, ["mean", "median", "p95", "min", "max"]] = None
    return found


def launched(source: Source, columns: str, condition: str) -> dict[str, Column]:
    """Columns, and the ids, of events that were launched in the aggregated iterations and fulfil a condition."""
    return source.store.columns(
        f"select id, {columns} from {EVENTS_OF_SPANS} where {condition} order by id",
        (json.dumps(spans(source)),),
    )


def distinct(rows: Iterable[tuple[Any, ...]], none: tuple[Any, ...]) -> tuple[list[tuple[Any, ...]], Ints]:
    """What numbered rows (number, cell, ...) say, each once, and which of it the row of each number says. Rows that are
    shown alike are one, whatever else tells them apart. The number -1 says `none`.

    >>> said, code = distinct([(0, "mm"), (2, "relu"), (3, "mm")], (None,))
    >>> said, code.tolist()
    ([('mm',), ('relu',), (None,)], [0, 2, 1, 0, 2])
    """
    table = {row[0]: row[1:] for row in rows}
    said = list(dict.fromkeys([*table.values(), none]))
    place = {one: i for i, one in enumerate(said)}
    code = np.full(max(table, default=-1) + 2, place[none])
    code[list(table)] = [place[one] for one in table.values()]
    return said, code
