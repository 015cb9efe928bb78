# SPDX-License-Identifier: Apache-2.0
"""GPU events, possibly tens of millions: pages that follow a cursor, by id, start or duration.

Names are searched in their dictionaries first, then events by the matching numbers. At most `MOST_ROWS` events (of
an iteration or an operator) are a table in memory, which can be sorted by any column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pandas as pd

from pyprof.core.model import DIRECTIONS, KINDS
from pyprof.facts.steps.source import Source
from pyprof.reports import Column
from pyprof.store.kinds import IS_KERNEL, ON_CPU, ON_GPU, uses_tensor_cores
from pyprof.views.column_table import MOST_ROWS, Frame, from_rows
from pyprof.views.filters import Condition, parse, text_test
from pyprof.views.models import Cell
from pyprof.views.problems import Trouble


class EventColumn(NamedTuple):
    """Column, the SQL expression behind it, and the dictionary of its text (table, text, number in event)."""

    column: Column
    expression: str
    dictionary: tuple[str, str, str] | None = None


_OPERATOR = "operator"
COLUMNS = (
    EventColumn(Column("id", "Launch", "", "Number of the event, in the order of launches."), "e.id"),
    EventColumn(Column("iteration", "Iteration", "", "Iteration in which it was launched."), "null"),
    EventColumn(
        Column("name", "Op Name", "", "Operator that launched it.", str),
        "p.name",
        (_OPERATOR, "name", "operator"),
    ),
    EventColumn(
        Column("kernel", "Kernel Name", "", "Full name of the kernel, copy or set.", str),
        "n.name",
        ("kernel_name", "name", "name"),
    ),
    EventColumn(
        Column("device", "Device ID", "", "Number of the device; empty for an event on the CPU."), "e.device"
    ),
    EventColumn(
        Column("launch", "Kernel Timestamp", "ns", "Start of the API call that launched it."), "a.start_ns"
    ),
    EventColumn(Column("start", "GPU Start Time", "ns", "Start on the device."), "e.start_ns"),
    EventColumn(
        Column("dur", "GPU Time", "ns", "Time on the device; an operator event's own time."), "e.duration_ns"
    ),
    EventColumn(
        Column(
            "uses_tc",
            "Uses TC",
            "",
            "Whether it used tensor cores; empty if the name does not show it.",
            bool,
        ),
        f"case when e.{ON_CPU} or e.{IS_KERNEL} and e.tc is null then null else {uses_tensor_cores('e')} end",
    ),
    EventColumn(
        Column("grid", "Grid", "", "Blocks in x, y, z.", str),
        "g.grid_x || ', ' || g.grid_y || ', ' || g.grid_z",
    ),
    EventColumn(
        Column("block", "Block", "", "Threads in x, y, z.", str),
        "g.block_x || ', ' || g.block_y || ', ' || g.block_z",
    ),
    EventColumn(Column("kind", "Kind", "", "kernel, memcpy, memset, or operator on the CPU.", str), "e.kind"),
    EventColumn(Column("direction", "Direction", "", "fprop or bprop.", str), "p.direction"),
    EventColumn(
        Column("type", "Op Type", "", "Kind of operation.", str), "p.type", (_OPERATOR, "type", "operator")
    ),
    EventColumn(
        Column("op_id", "Op ID", "", "Type and number of the operator.", str),
        "p.op_id",
        (_OPERATOR, "op_id", "operator"),
    ),
    EventColumn(Column("stream", "Stream", "", "Stream; for an operator event, its thread."), "e.stream"),
    EventColumn(
        Column("launch_dur", "API Call Time", "ns", "Time of the launching API call."), "a.duration_ns"
    ),
    EventColumn(Column("flops", "FLOPs", "count", "Operations executed; empty if unknown."), "e.flops"),
    EventColumn(Column("bytes", "Bytes", "B", "Bytes that must move; empty if unknown."), "e.bytes"),
    EventColumn(
        Column("worker", "Worker", "", "Process that launched it.", str),
        "w.name",
        ("worker", "name", "id >> 40"),
    ),
)
_PART = 20_000  # events per part of a file
_BY_KEY = {entry.column.key: entry for entry in COLUMNS}
_PLACE = {entry.column.key: place for place, entry in enumerate(COLUMNS)}
_NUMBERS = ("id", "start", "dur", "device", "stream", "flops", "bytes")  # columns of the event itself
_TABLES = """from event e left join api a on a.id = e.api join operator p on p.id = e.operator
join kernel_name n on n.id = e.name left join geometry g on g.id = e.geometry join worker w on w.id = e.id >> 40"""
SELECT = f"select {', '.join(entry.expression for entry in COLUMNS)} {_TABLES}"
Values = dict[str, Any]


def within(source: Source, iteration: int | None = None, operator: int | None = None) -> tuple[str, Values]:
    """Return a condition for the events launched in the aggregated iterations, or in one iteration of the cut."""
    window = source.aggregation
    first, last = (window.first, window.last) if iteration is None else (iteration, iteration)
    spans = source.store.rows(
        """select min(first_event), max(last_event) from iteration
           where iteration_set = ? and number between ? and ? and (? is null or worker = ?)
           group by worker order by worker""",
        (window.iteration_set, first, last, source.worker, source.worker),
    )
    if not spans:
        if iteration is None:
            return "0", {}
        raise Trouble("parameter", f"No iteration {iteration} in this aggregation's cut.", "iteration")
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
    """Return the number of events that fulfil a condition."""
    return int(source.store.rows(f"select count(*) from event e where {condition}", values)[0][0])


def known_count(source: Source, values: Values, operator: int | None) -> int:
    """Return the number of events in a condition of `within`, without reading them; for an operator an upper bound."""
    total = sum(values[f"high{number}"] - values[f"low{number}"] for number in range(len(values) // 2))
    if operator is None:
        return int(total)
    window = source.aggregation
    rows = source.store.rows(
        "select coalesce(sum(calls), 0) from op_kernel_stat where aggregation = ? and operator = ?",
        (window.id, operator),
    )
    return min(int(total), int(rows[0][0]))


def small(source: Source, iteration: int | None, operator: int | None) -> bool:
    """Return whether a request covers few enough events to hold them in memory."""
    if iteration is None and operator is None and not _few(source):
        return False
    return known_count(source, within(source, iteration, operator)[1], operator) <= MOST_ROWS


def _few(source: Source) -> bool:
    return known_count(source, within(source)[1], None) <= MOST_ROWS


def table(source: Source, iteration: int | None, operator: int | None) -> Frame:
    """Return all events of an iteration, an operator, or a small recording."""
    condition, values = within(source, iteration, operator)
    rows = source.store.rows(f"{SELECT} where {condition} order by e.id", values)
    return from_rows(decode(source, rows), [column.column for column in COLUMNS])


def one(source: Source, number: int) -> list[tuple[Column, Cell]]:
    """Return an event with its columns."""
    rows = decode(source, source.store.rows(f"{SELECT} where e.id = ?", (number,)))
    return list(zip((column.column for column in COLUMNS), rows[0]))


def decode(source: Source, rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """Replace codes in rows by their meaning."""
    import numpy as np

    from pyprof.facts.steps.dataframes import steps_of

    if not rows:
        return []
    steps = steps_of(source.store, source.aggregation, np.array([row[0] for row in rows], np.int64))
    kind, direction, iteration = _PLACE["kind"], _PLACE["direction"], _PLACE["iteration"]
    out = []
    for row, step in zip(rows, steps.to_numpy(dtype=object, na_value=None)):
        cells = list(row)
        cells[iteration] = step
        cells[kind] = KINDS[row[kind]]
        name = DIRECTIONS[row[direction]]
        cells[direction] = None if name == "na" else name
        if row[_PLACE["uses_tc"]] is not None:
            cells[_PLACE["uses_tc"]] = bool(row[_PLACE["uses_tc"]])
        out.append(cells)
    return out


def filtered(
    source: Source, search: str, filters: Sequence[str], dur: tuple[str, str] | None = None
) -> tuple[str, Values]:
    """Return filters as a condition on events: texts through their dictionaries. `dur`: for sums over blocks, the
    columns that lower and upper bounds of durations apply to. Raises Trouble for filters that only a table in memory
    supports."""
    parts, values = ["1"], Values()
    for number, condition in enumerate(parse(filters, [entry.column for entry in COLUMNS])):
        parts.append(_sql(source, condition, number, values, dur))
    if search.strip():
        test = text_test(search.strip().lstrip("="))
        names = [_of_texts(source, _BY_KEY[key].dictionary, test) for key in ("kernel", "name", "type")]
        parts.append(f"({' or '.join(names)})")
    return " and ".join(f"({part})" for part in parts), values


def _of_texts(source: Source, dictionary: tuple[str, str, str] | None, test: Any) -> str:
    assert dictionary is not None
    name, text, number = dictionary
    numbers = [
        str(row[0]) for row in source.store.rows(f"select id, {text} from {name}") if row[1] and test(row[1])
    ]
    return f"(e.{number} in ({', '.join(numbers)}))"  # our own numbers


def _sql(
    source: Source, condition: Condition, number: int, values: Values, dur: tuple[str, str] | None
) -> str:
    """Return a condition in SQL, with its parameters in `values`."""
    key, entry = condition.key, _BY_KEY[condition.key]
    most, least = (dur if key == "dur" else None) or (entry.expression, entry.expression)
    if entry.dictionary is not None or key == "kind":
        test = condition.text or (lambda text: True)
        if entry.dictionary is not None:
            hits = _of_texts(source, entry.dictionary, test)
        else:
            hits = f"e.kind in ({', '.join(str(code) for code, name in enumerate(KINDS) if test(name))})"
        return f"not {hits}" if condition.known is False else hits
    if condition.known is not None and key in (*_NUMBERS, "uses_tc"):
        return f"({least}) is {'not ' if condition.known else ''}null"
    if condition.truth is not None:  # the only such column is uses_tc
        uses_tc = uses_tensor_cores("e")
        return (
            uses_tc
            if condition.truth
            else f"not ({uses_tc}) and e.{ON_GPU} and (not e.{IS_KERNEL} or e.tc is not null)"
        )
    if key not in _NUMBERS:
        raise Trouble(
            "parameter",
            f"filter {key}: for more than {MOST_ROWS:,} events, select an iteration or an operator first.",
            "filter",
        )
    if condition.bounds is None:
        assert condition.digits is not None
        values[f"digits{number}"] = condition.digits
        if most != least:  # of a sum over a block: its events are not known
            return "1"
        return f"instr(cast({least} as text), :digits{number}) > 0"
    low, high, low_included, high_included = condition.bounds
    parts = []
    if low > float("-inf"):
        values[f"from{number}"] = low
        parts.append(f"{most} {'>=' if low_included else '>'} :from{number}")
    if high < float("inf"):
        values[f"to{number}"] = high
        parts.append(f"{least} {'<=' if high_included else '<'} :to{number}")
    return " and ".join(parts)


def parts(
    source: Source, iteration: int | None, operator: int | None, search: str, filters: Sequence[str]
) -> Iterator[pd.DataFrame]:
    """Yield all events that pass, in the order of launches, in parts. Raises Trouble as `event_index.page` does."""
    condition, values = within(source, iteration, operator)
    extra, parameters = filtered(source, search, filters)
    columns, last = [column.column for column in COLUMNS], -1
    while True:
        rows = source.store.rows(
            f"{SELECT} where {condition} and {extra} and e.id > :last order by e.id limit {_PART}",
            values | parameters | {"last": last},
        )
        frame = from_rows(decode(source, rows), columns)
        yield frame.pandas(frame.select())
        if len(rows) < _PART:
            return
        last = rows[-1][0]
