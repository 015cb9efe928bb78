# SPDX-License-Identifier: Apache-2.0
"""Common queries of reports about operators: sums over workers and executions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pyprof.core.model import DIRECTIONS, Bools, Column, Ints
from pyprof.facts.steps.source import Source
from pyprof.store.kinds import IS_KERNEL

SPREADS = ("cpu", "gpu", "overhead", "idle")
_SUMS = {"calls": "calls", "timed": "timed", "kernels": "kernels", "tc_kernels": "tc_kernels", "kernel": "kernel_ns",
         "tc": "tc_ns"}  # fmt: skip
# Rows of op_stat in the aggregation, for one worker if the source is limited to it.
SELECTED = "s.aggregation = :aggregation and (:worker is null or s.worker = :worker)"
# Columns without meaning if there is no GPU: gaps on it, API calls, tensor cores.
_ON_GPU = ("overhead", "idle")


def frame(source: Source, query: str) -> pd.DataFrame:
    """Run a query with :aggregation and :worker; integers stay integers, NULL is None."""
    names, rows = source.store.named(query, {"aggregation": source.aggregation.id, "worker": source.worker})
    return pd.DataFrame(rows, columns=names, dtype=object)


def spreads() -> str:
    """Return SQL for the sum, mean, minimum and maximum over rows `s` of op_stat. CPU columns cover the executions with
    known CPU times, and are missing without any."""
    return ", ".join(
        f"{total(n)} as {n}, sum(s.{n}_ns) * 1.0 / nullif(sum(s.{counted(n)}), 0) as {n}_avg, "
        f"min(s.{n}_min_ns) as {n}_min, max(s.{n}_max_ns) as {n}_max"
        for n in SPREADS
    )


def total(name: str) -> str:
    """Return SQL for the sum of a time of op_stat, missing if it is unknown for all executions."""
    return f"case when sum(s.{counted(name)}) > 0 then sum(s.{name}_ns) end"


def counted(name: str) -> str:
    """Return the column of op_stat with the number of executions behind a sum of times."""
    return "timed" if name in ("cpu", "overhead") else "calls"


def operators(source: Source, by_id: bool = False) -> pd.DataFrame:
    """Return one row per operator that ran, sorted by GPU time or by its number: its sums over workers, and its
    properties."""
    key = ("operators", source.aggregation.id, source.worker)
    cached = source.store.cached(key, lambda: _operators(source))
    return clear_unknown(source, cached.sort_values("id", ignore_index=True) if by_id else cached.copy())


def _operators(source: Source) -> pd.DataFrame:
    sums = ", ".join(f"sum(s.{column}) as {name}" for name, column in _SUMS.items())
    return frame(
        source,
        f"""with o as (
                select s.operator as id, {sums}, {spreads()} from op_stat s where {SELECTED} group by s.operator),
                 unknown as (
                select s.operator as id, sum(s.gpu_ns) as time_ns from op_kernel_stat s
                where {SELECTED} and s.tc = 3 and s.{IS_KERNEL} group by s.operator)
            select o.*, p.op_id, p.name, p.type, p.direction, p.module, p.params, p.dtype, p.shapes, p.eligible,
                   p.unassociated, nullif(k.frames, '') as stack,
                   case when o.tc_kernels > 0 then 1 when unknown.id is null then 0 end as using_tc,
                   coalesce(unknown.time_ns, 0) as tc_unknown
            from o join operator p using (id) left join stack k on k.id = p.stack left join unknown using (id)
            order by gpu desc, cpu desc, id""",
    )


def clear_unknown(source: Source, table: pd.DataFrame) -> pd.DataFrame:
    """Clear columns about GPUs in a recording without one, and replace direction codes by words."""
    if not source.gpu:
        names = [f"{name}{end}" for name in _ON_GPU for end in ("", "_avg", "_min", "_max")]
        for name in [*names, "using_tc", "tc", "tc_kernels", "tc_unknown"]:
            if name in table:
                table[name] = None
    if "direction" in table:
        table["direction"] = direction(table["direction"])
    return table


def direction(codes: Iterable[int]) -> list[str | None]:
    """Return fprop or bprop for each code; None for neither."""
    return [None if DIRECTIONS[code] == "na" else DIRECTIONS[code] for code in codes]


def spans(source: Source) -> list[tuple[int, int]]:
    """Return the ids of the events launched in the aggregated iterations, [first, last) for each worker."""
    window = source.aggregation
    rows = source.store.rows(
        """select min(first_event), max(last_event) from iteration
           where iteration_set = ? and number between ? and ? and (? is null or worker = ?)
           group by worker order by worker""",
        (window.iteration_set, window.first, window.last, source.worker, source.worker),
    )
    return [(low, high) for low, high in rows]


def bounds(source: Source, worker: int) -> tuple[int, int]:
    """Return the start of a worker's first aggregated iteration and the end of the last, on the host."""
    window = source.aggregation
    row: tuple[int, int] = source.store.rows(
        """select min(host_start_ns), max(host_end_ns) from iteration
           where iteration_set = ? and worker = ? and number between ? and ?""",
        (window.iteration_set, worker, window.first, window.last),
    )[0]
    return row


def started(source: Source, worker: int, last: int, time: Ints) -> Bools:
    """Return a mask of the times in a worker's aggregated iterations. If the last one ends at `last`, the end of the
    recording, all later times count too."""
    start, end = bounds(source, worker)
    return np.asarray((time >= start) & ((time < end) | (end >= last)))


def distribution(group: Ints, values: Ints, groups: int) -> pd.DataFrame:
    """Return calls, total, mean, median, p95, min and max of whole numbers per group; for an empty group all but the
    first two are missing. p95: the smallest value that 95 % of the values do not exceed.

    >>> distribution(np.array([0, 0, 2, 0]), np.array([9, 1, 5, 4]), 3).astype(object).values.tolist()[0]
    [3, 14, 4.666666666666667, 4.0, 9, 1, 9]
    """
    order = np.lexsort((values, group))
    ordered = values[order].astype(np.int64)
    calls = np.bincount(group, minlength=groups).astype(np.int64)
    first = np.cumsum(calls) - calls
    nonempty = calls > 0
    total = np.zeros(groups, np.int64)
    np.add.at(total, group, values)
    ordered = np.r_[ordered, 0]  # of empty groups at the end

    def at(place: Ints) -> Ints:
        return np.asarray(ordered[np.where(nonempty, first + place, -1)])

    high, low, last = at(calls // 2), at((calls - 1) // 2), at(np.maximum(calls - 1, 0))
    p95 = at(np.maximum(-(-95 * calls // 100) - 1, 0))
    divisor = np.maximum(calls, 1)
    table = pd.DataFrame({"calls": calls, "total": total, "mean": total / divisor, "median": (high + low) / 2})
    table = table.assign(p95=p95, min=at(np.zeros(groups, np.int64)), max=last)
    for name in ("p95", "min", "max"):
        table[name] = table[name].astype("Int64")
    table.loc[~nonempty, ["mean", "median", "p95", "min", "max"]] = None
    return table


def launched(source: Source, names: Sequence[str], kinds: Sequence[int]) -> dict[str, Column]:
    """Return columns, and the ids, of the events of some kinds that were launched in the aggregated iterations."""
    parts = list(launched_parts(source, names, kinds))
    return {name: _joined([part.pop(name) for part in parts]) for name in ("id", *names)}


def launched_parts(source: Source, names: Sequence[str], kinds: Sequence[int]) -> Iterator[dict[str, Column]]:
    """Yield what `launched` returns, in parts of a bounded size; at least one, which may be empty."""
    needed = tuple(dict.fromkeys(("id", "kind", *names)))
    yield {name: Column(np.empty(0, np.int64)) for name in needed}
    for first, last in spans(source):
        for part in source.store.parts("event", needed, first, last):
            mask = np.isin(part["kind"].values, kinds)
            yield part if mask.all() else {name: one.take(mask) for name, one in part.items()}


def _joined(parts: list[Column]) -> Column:
    values = np.concatenate([np.empty(0, np.int64), *(part.values for part in parts)])
    if all(part.present is None for part in parts):
        return Column(values)
    return Column(values, np.concatenate([part.mask() for part in parts]))


def codes(column: Column) -> Ints:
    """Return the values of a column, -1 where missing."""
    return column.values if column.present is None else np.where(column.present, column.values, -1)


def distinct(rows: Iterable[tuple[Any, ...]], none: tuple[Any, ...]) -> tuple[list[tuple[Any, ...]], Ints]:
    """Return the distinct cells of numbered rows (number, cell, ...), and the index of each number's cells among them.
    Rows with equal cells are merged. The number -1 stands for `none`.

    >>> cells, code = distinct([(0, "mm"), (2, "relu"), (3, "mm")], (None,))
    >>> cells, code.tolist()
    ([('mm',), ('relu',), (None,)], [0, 2, 1, 0, 2])
    """
    table = {row[0]: row[1:] for row in rows}
    cells = list(dict.fromkeys([*table.values(), none]))
    place = {entry: i for i, entry in enumerate(cells)}
    code = np.full(max(table, default=-1) + 2, place[none])
    code[list(table)] = [place[entry] for entry in table.values()]
    return cells, code
