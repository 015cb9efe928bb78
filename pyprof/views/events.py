# SPDX-License-Identifier: Apache-2.0
"""GPU events, possibly tens of millions: pages that follow a cursor, by id, start or duration.

Those that pass are found in the few columns that a filter reads; names are searched in their dictionaries first. At
most `MOST_ROWS` events (of an iteration or an operator) are a table in memory, which can be sorted by any column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.model import DIRECTIONS, KERNELS, KINDS, OPERATOR, Bools, Ints
from pyprof.core.model import Column as Values
from pyprof.facts.steps.dataframes import steps_of
from pyprof.facts.steps.source import Source
from pyprof.reports import Column
from pyprof.store.ids import worker_of
from pyprof.store.kinds import IS_KERNEL, ON_CPU, uses_tensor_cores
from pyprof.views import models
from pyprof.views.column_table import MOST_ROWS, Frame, from_rows
from pyprof.views.filters import Condition, numbers_pass, parse, text_test
from pyprof.views.problems import Trouble
from pyprof.views.queries import PageQuery
from pyprof.views.report_pages import columns_of
from pyprof.views.text_masks import text_mask, texts_pass


class EventColumn(NamedTuple):
    """Column, the SQL expression behind it, and the dictionary of its text (table, text, column of events)."""

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
    EventColumn(Column("device", "Device ID", "", "Number of the device; empty for an event on the CPU."), "e.device"),
    EventColumn(Column("launch", "Kernel Timestamp", "ns", "Start of the API call that launched it."), "a.start_ns"),
    EventColumn(Column("start", "GPU Start Time", "ns", "Start on the device."), "e.start_ns"),
    EventColumn(Column("dur", "GPU Time", "ns", "Time on the device; an operator event's own time."), "e.duration_ns"),
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
    EventColumn(Column("type", "Op Type", "", "Kind of operation.", str), "p.type", (_OPERATOR, "type", "operator")),
    EventColumn(
        Column("op_id", "Op ID", "", "Type and number of the operator.", str),
        "p.op_id",
        (_OPERATOR, "op_id", "operator"),
    ),
    EventColumn(Column("stream", "Stream", "", "Stream; for an operator event, its thread."), "e.stream"),
    EventColumn(Column("launch_dur", "API Call Time", "ns", "Time of the launching API call."), "a.duration_ns"),
    EventColumn(Column("flops", "FLOPs", "count", "Operations executed; empty if unknown."), "e.flops"),
    EventColumn(Column("bytes", "Bytes", "B", "Bytes that must move; empty if unknown."), "e.bytes"),
    EventColumn(
        Column("worker", "Worker", "", "Process that launched it.", str),
        "w.name",
        ("worker", "name", "id"),
    ),
)
_PART = 20_000  # events per part of a file
_BY_KEY = {entry.column.key: entry for entry in COLUMNS}
_PLACE = {entry.column.key: place for place, entry in enumerate(COLUMNS)}
_NUMBERS = {  # columns of the event itself
    "id": "id", "start": "start_ns", "dur": "duration_ns", "device": "device", "stream": "stream", "flops": "flops",
    "bytes": "bytes",
}  # fmt: skip
_SORTS = ("id", "start", "dur")
_SELECT = f"""select {", ".join(entry.expression for entry in COLUMNS)}
from event e left join api a on a.id = e.api join operator p on p.id = e.operator
join kernel_name n on n.id = e.name left join geometry g on g.id = e.geometry join worker w on w.id = e.id >> 40"""
Events = dict[str, Values]


class Test(NamedTuple):
    """A test of events, and the columns that it reads."""

    names: tuple[str, ...]
    passes: Callable[[Events], Bools]


def spans(source: Source, iteration: int | None = None) -> list[tuple[int, int]]:
    """Return the ids, [first, last), of events launched in the aggregated iterations, or in one iteration of the cut,
    by worker. Raises Trouble for an iteration that does not exist."""
    window = source.aggregation
    first, last = (window.first, window.last) if iteration is None else (iteration, iteration)
    rows = source.store.rows(
        """select min(first_event), max(last_event) from iteration
           where iteration_set = ? and number between ? and ? and (? is null or worker = ?)
           group by worker order by worker""",
        (window.iteration_set, first, last, source.worker, source.worker),
    )
    if not rows and iteration is not None:
        raise Trouble("parameter", f"No iteration {iteration} in this aggregation's cut.", "iteration")
    return rows


def small(source: Source, iteration: int | None, operator: int | None) -> bool:
    """Return whether a request covers few enough events to hold them in memory."""
    most = _count(source, iteration)
    if operator is not None and most > MOST_ROWS:
        query = "select coalesce(sum(calls), 0) from op_kernel_stat where aggregation = ? and operator = ?"
        most = min(most, int(source.store.rows(query, (source.aggregation.id, operator))[0][0]))
    return most <= MOST_ROWS


def _count(source: Source, iteration: int | None) -> int:
    return sum(last - first for first, last in spans(source, iteration))


def passing(source: Source, iteration: int | None, tests: Sequence[Test], names: Sequence[str] = ("id",)) -> Events:
    """Return columns of the events that pass, by id."""
    read = list(dict.fromkeys([*names, *(name for test in tests for name in test.names)]))
    parts: dict[str, list[Ints]] = {name: [np.empty(0, np.int64)] for name in names}
    for first, last in spans(source, iteration):
        for events in source.store.parts("event", read, first, last):
            inside = np.ones(len(events[names[0]].values), bool)
            for test in tests:
                inside &= test.passes(events)
            for name in names:
                parts[name].append(events[name].values[inside])
    return {name: Values(np.concatenate(arrays)) for name, arrays in parts.items()}


def table(source: Source, iteration: int | None, operator: int | None) -> Frame:
    """Return all events of an iteration, an operator, or a small recording."""
    ids = passing(source, iteration, _tests(source, operator))["id"].values
    return from_rows(_rows(source, ids), [column.column for column in COLUMNS])


def one(source: Source, number: int) -> list[tuple[Column, models.Cell]]:
    """Return an event with its columns."""
    (row,) = _rows(source, np.array([number]))
    return list(zip((column.column for column in COLUMNS), row))


def _rows(source: Source, ids: Ints) -> list[list[Any]]:
    """Return events in the order of their ids here, with codes replaced by their meaning."""
    by_id: dict[int, tuple[Any, ...]] = {}
    for first in range(0, len(ids), _PART):
        numbers = ", ".join(map(str, ids[first : first + _PART].tolist()))
        by_id |= {row[0]: row for row in source.store.rows(f"{_SELECT} where e.id in ({numbers})")}
    rows = [by_id[number] for number in ids.tolist()]
    steps = steps_of(source.store, source.aggregation, ids)
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


def page(
    source: Source, iteration: int | None, operator: int | None, query: PageQuery, cursor: str | None
) -> models.Launches:
    """Return a page of many events. Raises Trouble for a column that they cannot be sorted by."""
    key, sign = (query.sort or "id").removeprefix("-"), -1 if (query.sort or "").startswith("-") else 1
    if key not in _SORTS:
        raise Trouble(
            "parameter",
            f"sort {key}: more than {MOST_ROWS:,} events can only be sorted by id, start or dur.",
            "sort",
        )
    tests = _tests(source, operator, query.search, query.filters)
    events = passing(source, iteration, tests, tuple({"id", _NUMBERS[key]}))
    ids, values = events["id"].values, sign * events[_NUMBERS[key]].values
    total = filtered = len(ids)
    if query.search.strip() or query.filters:
        own = _tests(source, operator)
        total = len(passing(source, iteration, own)["id"].values) if own else _count(source, iteration)
    if cursor:
        value, _, last = cursor.rpartition(".")
        beyond = (values > sign * int(value)) | (values == sign * int(value)) & (ids > int(last))
        ids, values = ids[beyond], values[beyond]
    if len(ids) > query.limit:  # sort no more than the first ones, and those that equal the last of them
        first = np.flatnonzero(values <= np.partition(values, query.limit)[query.limit])
        ids, values = ids[first], values[first]
    order = np.lexsort((ids, values))[: query.limit]
    page_ids = ids[order]
    return models.Launches(
        columns=columns_of([entry.column for entry in COLUMNS]),
        rows=_rows(source, page_ids),
        ids=page_ids.tolist(),
        offset=0,
        next=f"{sign * values[order[-1]]}.{page_ids[-1]}" if len(ids) > query.limit else None,
        paged=False,
        total=total,
        filtered=filtered,
    )


def parts(
    source: Source, iteration: int | None, operator: int | None, search: str, filters: Sequence[str]
) -> Iterator[pd.DataFrame]:
    """Yield all events that pass, in the order of launches, in parts. Raises Trouble as `page` does."""
    ids = passing(source, iteration, _tests(source, operator, search, filters))["id"].values
    for first in range(0, max(len(ids), 1), _PART):
        rows = _rows(source, ids[first : first + _PART])
        frame = from_rows(rows, [column.column for column in COLUMNS])
        yield frame.pandas(frame.select())


def _tests(source: Source, operator: int | None, search: str = "", filters: Sequence[str] = ()) -> list[Test]:
    """Return the tests of filters. Raises Trouble for those that only a table in memory supports."""
    tests = [_test(source, one) for one in parse(filters, [entry.column for entry in COLUMNS])]
    if operator is not None:
        tests.append(Test(("operator",), lambda events: events["operator"].values == operator))
    if search.strip():
        test = text_test(search.strip().lstrip("="))
        kernel, name, type_ = (
            text_mask(source.store, f"select id, {column} from {table}", test)
            for table, column in (("kernel_name", "name"), ("operator", "name"), ("operator", "type"))
        )
        tests.append(
            Test(
                ("name", "operator"),
                lambda events: kernel[events["name"].values] | (name | type_)[events["operator"].values],
            )
        )
    return tests


def _test(source: Source, condition: Condition) -> Test:
    key, dictionary = condition.key, _BY_KEY[condition.key].dictionary
    if dictionary is not None:
        table, text, column = dictionary
        mask = texts_pass(source.store, table, text, condition)
        if table == "worker":
            return Test((column,), lambda events: mask[worker_of(events[column].values)])
        return Test((column,), lambda events: mask[events[column].values])
    if key == "kind":
        kinds = [
            code for code, name in enumerate(KINDS) if condition.known or (condition.text and condition.text(name))
        ]
        return Test(("kind",), lambda events: np.isin(events["kind"].values, kinds))
    if key == "uses_tc":
        return Test(("kind", "tc"), lambda events: _uses_tc(condition, events["kind"].values, events["tc"]))
    if key not in _NUMBERS:
        raise Trouble(
            "parameter",
            f"filter {key}: for more than {MOST_ROWS:,} events, select an iteration or an operator first.",
            "filter",
        )
    column = _NUMBERS[key]
    return Test((column,), lambda events: _number_passes(condition, events[column]))


def _uses_tc(condition: Condition, kind: Ints, tc: Values) -> Bools:
    kernel = np.isin(kind, KERNELS)
    known: Bools = (kind != OPERATOR) & (~kernel | tc.mask())
    uses: Bools = kernel & tc.mask() & (tc.values == 1)
    if condition.known is not None:
        return known if condition.known else ~known
    return uses if condition.truth else known & ~uses


def _number_passes(condition: Condition, column: Values) -> Bools:
    present = column.mask()
    out = np.full(len(present), condition.known is False)
    out[present] = numbers_pass(condition, column.values[present])
    return out
