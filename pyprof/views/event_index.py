# SPDX-License-Identifier: Apache-2.0
"""Find one page of events among millions using block summaries instead of a scan.

The summaries (store/blocks.py) list the operators and kernel names of each block of ids, with the longest event of
each. The n-th longest of these is an event, so the n longest events are at least as long, and are in the blocks that
have one as long. Of 10 million events, a few of 150 blocks are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pyprof.facts.steps.source import Source
from pyprof.store import blocks
from pyprof.views import events, models
from pyprof.views.column_table import MOST_ROWS
from pyprof.views.problems import Trouble
from pyprof.views.queries import PageQuery
from pyprof.views.report_pages import columns_of

Spans = list[tuple[int, int]]
_SUMMED = {"kernel", "name", "type", "op_id", "kind"}  # columns of op_kernel_stat under the same names
_OF_BLOCKS = {*_SUMMED, "dur"}
_SORTS = {"id": "e.id", "start": "e.start_ns", "dur": "e.duration_ns"}


def page(
    source: Source,
    iteration: int | None,
    operator: int | None,
    query: PageQuery,
    cursor: str | None,
) -> models.Launches:
    """Return a page of many events. Raises Trouble for a column that they cannot be sorted by."""
    sort, limit = query.sort, query.limit
    key = (sort or "id").removeprefix("-")
    if key not in _SORTS:
        raise Trouble(
            "parameter",
            f"sort {key}: more than {MOST_ROWS:,} events can only be sorted by id, start or dur.",
            "sort",
        )
    down = (sort or "").startswith("-")
    _, values = events.within(source, iteration, operator)
    extra, parameters = events.filtered(source, query.search, query.filters)
    total = events.known_count(source, values, operator)
    where = extra if operator is None else f"{extra} and e.operator = :operator"
    after = int(cursor.rpartition(".")[0]) if cursor and key == "dur" else None
    places = _places(
        source, _spans(values), operator, query.search, query.filters, sort or "", limit + 1, after
    )
    expression, direction, beyond = _SORTS[key], "desc" if down else "asc", "<" if down else ">"
    values |= parameters
    if cursor:
        value, _, last = cursor.rpartition(".")
        values |= {"value": int(value), "last": int(last)}
        where += f" and ({expression} {beyond} :value or {expression} = :value and e.id > :last)"
    # The + prevents use of an index: that of starts is by device and stream, and would be walked event by event.
    order_by = "e.id " + direction if key == "id" else f"+{expression} {direction}, e.id"
    ids: list[tuple[Any, ...]] = []
    for place in places:
        ids += source.store.rows(
            f"select e.id, {expression} from event e where {place} and {where} order by {order_by} limit {limit + 1}",
            values,
        )
        if key == "id" and len(ids) > limit:
            break
    ids.sort(key=lambda row: (-row[1] if down else row[1], row[0]))
    page_ids = [row[0] for row in ids[:limit]]
    rows = source.store.rows(f"{events.SELECT} where e.id in ({', '.join(map(str, page_ids))})")
    by_id = {row[0]: row for row in events.decode(source, rows)}
    cells: list[list[models.Cell]] = [by_id[id_] for id_ in page_ids]
    return models.Launches(
        columns=columns_of([entry.column for entry in events.COLUMNS]),
        rows=cells,
        ids=page_ids,
        offset=0,
        next=f"{ids[limit - 1][1]}.{ids[limit - 1][0]}" if len(ids) > limit else None,
        paged=False,
        total=total,
        filtered=total if extra == "(1)" and operator is None else None,
    )


def count_events(
    source: Source, iteration: int | None, operator: int | None, search: str, filters: Sequence[str]
) -> models.Count:
    """Return the number of all events and of those that pass. Raises Trouble when time is up."""
    condition, values = events.within(source, iteration, operator)
    total = (
        events.count_of(source, condition, values)
        if operator is not None
        else events.known_count(source, values, None)
    )
    extra, parameters = events.filtered(source, search, filters)
    if extra == "(1)":
        return models.Count(total=total, filtered=total)
    keys = {text.partition(":")[0] for text in filters}
    if iteration is None and keys <= _SUMMED:  # the aggregation's sums suffice, without reading events
        selection = {"aggregation": source.aggregation.id, "worker": source.worker, "operator": operator}
        rows = source.store.rows(
            f"""select coalesce(sum(calls), 0) from op_kernel_stat e where e.aggregation = :aggregation and {extra}
                and (:worker is null or e.worker = :worker) and (:operator is null or e.operator = :operator)""",
            selection | parameters,
        )
        return models.Count(total=total, filtered=int(rows[0][0]))
    places = _places(source, _spans(values), operator, search, filters)
    extra, parameters = (
        (extra, parameters)
        if operator is None
        else (f"{extra} and e.operator = :operator", values | parameters)
    )
    return models.Count(
        total=total,
        filtered=sum(events.count_of(source, f"{place} and {extra}", parameters) for place in places),
    )


def _spans(values: dict[str, Any]) -> Spans:
    """Return the ranges of ids in a condition of `events.within`."""
    return [
        (values[f"low{number}"], values[f"high{number}"])
        for number in range(sum(key.startswith("low") for key in values))
    ]


def _places(
    source: Source,
    spans: Spans,
    operator: int | None,
    search: str,
    filters: Sequence[str],
    sort: str = "",
    count: int = 0,
    after: int | None = None,
) -> list[str]:
    """Return conditions on events, each a range of ids, that cover all requested events; in order if sorted by id."""
    if not spans:
        return []

    keys = {text.partition(":")[0] for text in filters}
    block_filters = [text for text in filters if text.partition(":")[0] in _OF_BLOCKS]

    def conditions(dur: tuple[str, str]) -> tuple[str, dict[str, Any]]:
        condition, values = events.filtered(source, search, block_filters, dur)
        if operator is None:
            return condition, values
        return f"{condition} and e.operator = :operator", values | {"operator": operator}

    nearest, extra = None, ""
    condition, values = conditions(("e.gpu_max_ns", "e.gpu_min_ns"))
    if sort.endswith("dur") and keys <= _OF_BLOCKS:
        column = "e.gpu_max_ns" if sort.startswith("-") else "e.gpu_min_ns"
        nearest = nearest_spans(
            source, spans, condition, conditions((column, column))[0], values, column, count, after
        )
    if nearest is not None:
        extra, spans = f" and {nearest.condition}", nearest.spans
    elif condition != "(1)":
        spans = spans_with(source, spans, condition, values)
    places = [f"e.id >= {low} and e.id < {high}{extra}" for low, high in spans]
    return places[::-1] if sort == "-id" else places


def spans_with(source: Source, spans: Spans, condition: str, values: dict[str, Any]) -> Spans:
    """Return a superset of the id ranges whose events fulfil a condition on block sums (of operator, name, kind)."""
    touched = " or ".join(
        f"e.block >= {low >> blocks.SHIFT} and e.block < {-(-high >> blocks.SHIFT)}" for low, high in spans
    )
    rows = source.store.rows(
        f"select distinct e.block from event_block e where ({touched}) and {condition}", values
    )
    ranges = _merge([(block << blocks.SHIFT, (block + 1) << blocks.SHIFT) for (block,) in rows])
    return _merge([(max(low, a), min(high, b)) for low, high in spans for a, b in ranges])


class Nearest(NamedTuple):
    """Position of the first events in sort order: a condition on `e.duration_ns`, and ranges of ids."""

    condition: str
    spans: Spans


def nearest_spans(
    source: Source,
    spans: Spans,
    condition: str,
    exact: str,
    values: dict[str, Any],
    column: str,
    count: int,
    after: int | None,
) -> Nearest | None:
    """Return the position of the first `count` events by duration, among those in ranges of ids that fulfil a condition
    of `spans_with`. `exact`: a condition that tells that the event in `column`, the longest or shortest of a sum, is
    one of them. `after`: only events beyond this duration. None: anywhere."""
    whole_blocks = [(-(-low >> blocks.SHIFT), high >> blocks.SHIFT) for low, high in spans]
    whole = " or ".join(f"e.block >= {first} and e.block < {last}" for first, last in whole_blocks)
    order, beyond, up_to = ("desc", "<", ">=") if column == "e.gpu_max_ns" else ("", ">", "<=")
    behind = f"and {column} {beyond} :after" if after is not None else ""
    rows = source.store.rows(
        f"""select {column} from event_block e where ({whole}) and {exact} {behind}
            order by {column} {order} limit {count}""",
        values | {"after": after},
    )
    if len(rows) < count:
        return None
    bound = int(rows[-1][0])
    block_rows = source.store.rows(
        f"select distinct e.block from event_block e where ({whole}) and {condition} and {column} {up_to} {bound}",
        values,
    )
    ranges = [(block << blocks.SHIFT, (block + 1) << blocks.SHIFT) for (block,) in block_rows]
    for (low, high), (first, last) in zip(spans, whole_blocks):
        edge = min(high, first << blocks.SHIFT)
        ranges += [(low, edge), (max(edge, last << blocks.SHIFT), high)]  # partial blocks
    return Nearest(f"e.duration_ns {up_to} {bound}", _merge(ranges))


def _merge(ranges: Spans) -> Spans:
    """Sort ranges, merge adjacent ones and drop empty ones."""
    out: Spans = []
    for low, high in sorted(ranges):
        if low >= high:
            continue
        if out and out[-1][1] == low:
            out[-1] = out[-1][0], high
        else:
            out.append((low, high))
    return out
