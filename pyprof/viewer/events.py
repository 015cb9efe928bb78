# SPDX-License-Identifier: Apache-2.0
"""GPU events, of which there may be tens of millions: pages that follow a cursor, by id, start or duration.

Names are looked for in their dictionaries first, and events by the numbers of what is found. Where a question is about
at most `MOST_ROWS` events (an iteration, an operator) they are a table in memory, which sorts by anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pandas as pd

from pyprof.analysis.source import Source
from pyprof.model import DIRECTIONS, KINDS
from pyprof.reports import Column
from pyprof.viewer.column_table import MOST_ROWS, Frame, from_rows, number_test, text_test, truth
from pyprof.viewer.models import Cell
from pyprof.viewer.problems import Trouble


class Shown(NamedTuple):
    """A column, the expression behind it, and the dictionary that its text is in (table, text, number in event)."""

    column: Column
    expression: str
    dictionary: tuple[str, str, str] | None = None


_OPERATOR = "operator"
COLUMNS = (
    Shown(Column("id", "Launch", "", "Number of the event, in the order of launches."), "e.id"),
    Shown(Column("iteration", "Iteration", "", "In which it was launched."), "null"),
    Shown(
        Column("name", "Op Name", "", "Operator that launched it.", str),
        "p.name",
        (_OPERATOR, "name", "operator"),
    ),
    Shown(
        Column("kernel", "Kernel Name", "", "Whole name of the kernel, copy or set.", str),
        "n.name",
        ("kernel_name", "name", "name"),
    ),
    Shown(
        Column("device", "Device ID", "", "Number of the device; empty for an event on the CPU."), "e.device"
    ),
    Shown(Column("launch", "Kernel Timestamp", "ns", "Start of the API call that launched it."), "a.start"),
    Shown(Column("start", "GPU Start Time", "ns", "Start on the device."), "e.start"),
    Shown(Column("dur", "GPU Time", "ns", "Time on the device; an operator event's own time."), "e.dur"),
    Shown(
        Column(
            "uses_tc", "Uses TC", "", "Whether it used tensor cores; empty if its name does not tell.", bool
        ),
        "case when e.kind = 3 or e.kind = 0 and e.tc is null then null else e.kind = 0 and e.tc = 1 end",
    ),
    Shown(
        Column("grid", "Grid", "", "Blocks in x, y, z.", str),
        "g.grid_x || ', ' || g.grid_y || ', ' || g.grid_z",
    ),
    Shown(
        Column("block", "Block", "", "Threads in x, y, z.", str),
        "g.block_x || ', ' || g.block_y || ', ' || g.block_z",
    ),
    Shown(Column("kind", "Kind", "", "kernel, memcpy, memset, or operator on the CPU.", str), "e.kind"),
    Shown(Column("direction", "Direction", "", "fprop or bprop.", str), "p.direction"),
    Shown(
        Column("type", "Op Type", "", "Kind of operation.", str), "p.type", (_OPERATOR, "type", "operator")
    ),
    Shown(
        Column("op_id", "Op ID", "", "Type and number of the operator.", str),
        "p.op_id",
        (_OPERATOR, "op_id", "operator"),
    ),
    Shown(Column("stream", "Stream", "", "Stream; of an operator event its thread."), "e.stream"),
    Shown(Column("launch_dur", "API Call Time", "ns", "Time of the launching API call."), "a.dur"),
    Shown(Column("flops", "FLOPs", "count", "Operations executed; empty if unknown."), "e.flops"),
    Shown(Column("bytes", "Bytes", "B", "Bytes that must move; empty if unknown."), "e.bytes"),
    Shown(
        Column("worker", "Worker", "", "Process that launched it.", str),
        "w.name",
        ("worker", "name", "id >> 40"),
    ),
)
_PART = 20_000  # events of a part of a file
_BY_KEY = {shown.column.key: shown for shown in COLUMNS}
_PLACE = {shown.column.key: place for place, shown in enumerate(COLUMNS)}
_NUMBERS = ("id", "start", "dur", "device", "stream", "flops", "bytes")  # of the event itself
_TABLES = """from event e left join api a on a.id = e.api join operator p on p.id = e.operator
join kernel_name n on n.id = e.name left join geometry g on g.id = e.geometry join worker w on w.id = e.id >> 40"""
SELECT = f"select {', '.join(shown.expression for shown in COLUMNS)} {_TABLES}"
Values = dict[str, Any]


def within(source: Source, iteration: int | None = None, operator: int | None = None) -> tuple[str, Values]:
    """The events that were launched in the aggregated iterations, or in one iteration of the cut, as a condition."""
    one = source.aggregation
    first, last = (one.first, one.last) if iteration is None else (iteration, iteration)
    spans = source.store.rows(
        """select min(first_event), max(last_event) from iteration
           where iteration_set = ? and number between ? and ? and (? is null or worker = ?)
           group by worker order by worker""",
        (one.iteration_set, first, last, source.worker, source.worker),
    )
    if not spans:
        if iteration is None:
            return "0", {}
        raise Trouble(
            "parameter", f"There is no iteration {iteration} in this aggregation's cut.", "iteration"
        )
    values: Values = {}
    parts = []
    for number, (low, high) in enumerate(spans):
        values |= {f"low{number}": low, f"high{number}": high}
        parts.append(f"e.id >= :low{number} and e.id < :high{number}")
    condition = f"({' or '.join(parts)})"
    if operator is not None:
        condition += " and e.operator = :operator"
        values["operator"] = operator
    return condition, values


def count_of(source: Source, condition: str, values: Values) -> int:
    """How many events fulfil a condition."""
    return int(source.store.rows(f"select count(*) from event e where {condition}", values)[0][0])


def known_count(source: Source, values: Values, operator: int | None) -> int:
    """How many events a condition of `within` has, without looking at them; of an operator at most so many."""
    total = sum(values[f"high{n}"] - values[f"low{n}"] for n in range(len(values) // 2))
    if operator is None:
        return int(total)
    one = source.aggregation
    rows = source.store.rows(
        "select coalesce(sum(calls), 0) from op_kernel_stat where aggregation = ? and operator = ?",
        (one.id, operator),
    )
    return min(int(total), int(rows[0][0]))


def small(source: Source, iteration: int | None, operator: int | None) -> bool:
    """Whether a question is about few enough events to have them in memory."""
    if iteration is None and operator is None and not _few(source):
        return False
    return known_count(source, within(source, iteration, operator)[1], operator) <= MOST_ROWS


def _few(source: Source) -> bool:
    return known_count(source, within(source)[1], None) <= MOST_ROWS


def table(source: Source, iteration: int | None, operator: int | None) -> Frame:
    """All events of an iteration, an operator, or a small recording."""
    condition, values = within(source, iteration, operator)
    rows = source.store.rows(f"{SELECT} where {condition} order by e.id", values)
    return from_rows(worded(source, rows), [shown.column for shown in COLUMNS])


def one(source: Source, number: int) -> list[tuple[Column, Cell]]:
    """An event with its columns."""
    rows = worded(source, source.store.rows(f"{SELECT} where e.id = ?", (number,)))
    return list(zip((shown.column for shown in COLUMNS), rows[0]))


def worded(source: Source, rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows with what codes stand for."""
    import numpy as np

    from pyprof.analysis.dataframes import steps_of

    if not rows:
        return []
    steps = steps_of(source.store, source.aggregation, np.array([row[0] for row in rows], np.int64))
    kind, direction, iteration = _PLACE["kind"], _PLACE["direction"], _PLACE["iteration"]
    out = []
    for row, step in zip(rows, steps.to_numpy(dtype=object, na_value=None)):
        cells = list(row)
        cells[iteration] = step
        cells[kind] = KINDS[row[kind]]
        way = DIRECTIONS[row[direction]]
        cells[direction] = None if way == "na" else way
        if row[_PLACE["uses_tc"]] is not None:
            cells[_PLACE["uses_tc"]] = bool(row[_PLACE["uses_tc"]])
        out.append(cells)
    return out


def filtered(
    source: Source, search: str, filters: Sequence[str], dur: tuple[str, str] | None = None
) -> tuple[str, Values]:
    """Filters as a condition on events: texts through their dictionaries. `dur`: on sums over blocks, which of their
    columns has to be above, and which below, what durations have to be. Raises Trouble for what only a table in memory
    can filter by."""
    parts, values = ["1"], Values()
    for number, text in enumerate(filters):
        key, colon, condition = text.partition(":")
        shown = _BY_KEY.get(key)
        if not colon or shown is None:
            raise Trouble(
                "parameter", f"filter {text!r}: expected KEY:CONDITION with a column that is shown.", "filter"
            )
        if shown.dictionary is not None:
            parts.append(_of_texts(source, shown.dictionary, text_test(condition)))
        elif key == "uses_tc":
            used = "e.kind = 0 and e.tc = 1"
            parts.append(
                used
                if truth(condition)
                else f"not ({used}) and e.kind < 3 and (e.kind > 0 or e.tc is not null)"
            )
        elif key == "kind":
            test = text_test(condition)
            numbers = [str(code) for code, name in enumerate(KINDS) if test(name)]
            parts.append(f"e.kind in ({', '.join(numbers)})")
        elif key in _NUMBERS:
            most, least = dur or (shown.expression, shown.expression)
            parts.append(_of_numbers(most, least, shown.column.unit, condition, number, values))
        else:
            raise Trouble(
                "parameter",
                f"filter {key}: of more than {MOST_ROWS:,} events choose an iteration or an operator first.",
                "filter",
            )
    if search.strip():
        test = text_test(search.strip().lstrip("="))
        names = [_of_texts(source, _BY_KEY[key].dictionary, test) for key in ("kernel", "name", "type")]
        parts.append(f"({' or '.join(names)})")
    return " and ".join(f"({part})" for part in parts), values


def _of_texts(source: Source, dictionary: tuple[str, str, str] | None, test: Any) -> str:
    assert dictionary is not None
    name, text, number = dictionary
    found = [
        str(row[0]) for row in source.store.rows(f"select id, {text} from {name}") if row[1] and test(row[1])
    ]
    return f"e.{number} in ({', '.join(found)})"  # numbers of ours


def _of_numbers(most: str, least: str, unit: str, condition: str, number: int, values: Values) -> str:
    """`most` is compared with a lower bound, `least` with an upper one."""
    if condition.strip() in ("?", "!?"):
        return f"{least} is {'not ' if condition.strip() == '!?' else ''}null"
    bounds = number_test(condition, unit)
    if bounds is None:
        bounds = number_test(f"={condition}", unit)
    assert bounds is not None
    low, high, low_in, high_in = bounds
    parts = []
    if low > float("-inf"):
        values[f"from{number}"] = low
        parts.append(f"{most} {'>=' if low_in else '>'} :from{number}")
    if high < float("inf"):
        values[f"to{number}"] = high
        parts.append(f"{least} {'<=' if high_in else '<'} :to{number}")
    return " and ".join(parts)


def parts(
    source: Source, iteration: int | None, operator: int | None, search: str, filters: Sequence[str]
) -> Iterator[pd.DataFrame]:
    """All events that pass, in the order of launches, some at a time. Raises Trouble as `following` does."""
    condition, values = within(source, iteration, operator)
    more, chosen = filtered(source, search, filters)
    columns, last = [shown.column for shown in COLUMNS], -1
    while True:
        rows = source.store.rows(
            f"{SELECT} where {condition} and {more} and e.id > :last order by e.id limit {_PART}",
            values | chosen | {"last": last},
        )
        frame = from_rows(worded(source, rows), columns)
        yield frame.pandas(frame.select())
        if len(rows) < _PART:
            return
        last = rows[-1][0]
