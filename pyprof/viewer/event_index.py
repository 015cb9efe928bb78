# SPDX-License-Identifier: Apache-2.0
"""Find one page of events among millions using block summaries instead of a scan.

The summaries (store/blocks.py) list the operators and kernel names of each block of ids, with the longest event of
each. The n-th longest of these is an event, so the n longest events are at least as long, and are in the blocks that
have one as long. Of 10 million events, a few of 150 blocks are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pyprof.analysis.source import Source
from pyprof.store import blocks
from pyprof.viewer import events, models
from pyprof.viewer.column_table import MOST_ROWS
from pyprof.viewer.problems import Trouble
from pyprof.viewer.report_pages import columns_of

Spans = list[tuple[int, int]]
_SUMMED = {"kernel", "name", "type", "op_id", "kind"}  # what op_kernel_stat has under the same names
_OF_BLOCKS = {*_SUMMED, "dur"}
_SORTS = {"id": "e.id", "start": "e.start", "dur": "e.dur"}


def following(
    source: Source,
    iteration: int | None,
    operator: int | None,
    sort: str | None,
    limit: int,
    cursor: str | None,
    search: str,
    filters: Sequence[str],
) -> models.Launches:
    """A page of many events. Raises Trouble for a column that they cannot be sorted by."""
    key = (sort or "id").removeprefix("-")
    if key not in _SORTS:
        raise Trouble(
            "parameter", f"sort {key}: more than {MOST_ROWS:,} events are sorted by id, start or dur.", "sort"
        )
    down = (sort or "").startswith("-")
    _, values = events.within(source, iteration, operator)
    more, chosen = events.filtered(source, search, filters)
    total = events.known_count(source, values, operator)
    where = more if operator is None else f"{more} and e.operator = :operator"
    after = int(cursor.rpartition(".")[0]) if cursor and key == "dur" else None
    places = _places(source, _spans(values), operator, search, filters, sort or "", limit + 1, after)
    expression, way, beyond = _SORTS[key], "desc" if down else "asc", "<" if down else ">"
    values |= chosen
    if cursor:
        value, _, last = cursor.rpartition(".")
        values |= {"value": int(value), "last": int(last)}
        where += f" and ({expression} {beyond} :value or {expression} = :value and e.id > :last)"
    # With + no index is used: that of starts is by device and stream, and would be walked event by event.
    order = "e.id " + way if key == "id" else f"+{expression} {way}, e.id"
    ids: list[tuple[Any, ...]] = []
    for place in places:
        ids += source.store.rows(
            f"select e.id, {expression} from event e where {place} and {where} order by {order} limit {limit + 1}",
            values,
        )
        if key == "id" and len(ids) > limit:
            break
    ids.sort(key=lambda row: (-row[1] if down else row[1], row[0]))
    shown = [row[0] for row in ids[:limit]]
    rows = source.store.rows(f"{events.SELECT} where e.id in ({', '.join(map(str, shown))})")
    by_id = {row[0]: row for row in events.worded(source, rows)}
    cells: list[list[models.Cell]] = [by_id[id_] for id_ in shown]
    return models.Launches(
        columns=columns_of([one.column for one in events.COLUMNS]),
        rows=cells,
        ids=shown,
        offset=0,
        next=f"{ids[limit - 1][1]}.{ids[limit - 1][0]}" if len(ids) > limit else None,
        paged=False,
        total=total,
        filtered=total if more == "(1)" and operator is None else None,
    )


def counted(
    source: Source, iteration: int | None, operator: int | None, search: str, filters: Sequence[str]
) -> models.Count:
    """How many events there are, of all and of those that pass. Raises Trouble when time is up."""
    condition, values = events.within(source, iteration, operator)
    total = (
        events.count_of(source, condition, values)
        if operator is not None
        else events.known_count(source, values, None)
    )
    more, chosen = events.filtered(source, search, filters)
    if more == "(1)":
        return models.Count(total=total, filtered=total)
    keys = {text.partition(":")[0] for text in filters}
    if iteration is None and keys <= _SUMMED:  # the sums of the aggregation tell, without a look at events
        one = {"aggregation": source.aggregation.id, "worker": source.worker, "operator": operator}
        rows = source.store.rows(
            f"""select coalesce(sum(calls), 0) from op_kernel_stat e where e.aggregation = :aggregation and {more}
                and (:worker is null or e.worker = :worker) and (:operator is null or e.operator = :operator)""",
            one | chosen,
        )
        return models.Count(total=total, filtered=int(rows[0][0]))
    places = _places(source, _spans(values), operator, search, filters)
    more, chosen = (
        (more, chosen) if operator is None else (f"{more} and e.operator = :operator", values | chosen)
    )
    return models.Count(
        total=total, filtered=sum(events.count_of(source, f"{place} and {more}", chosen) for place in places)
    )


def _spans(values: dict[str, Any]) -> Spans:
    """The ranges of ids of a condition of `events.within`."""
    return [
        (values[f"low{n}"], values[f"high{n}"]) for n in range(sum(key.startswith("low") for key in values))
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
    """Conditions on events, each a range of ids, outside of which none is asked for; in order if it is by id."""
    if not spans:
        return []

    keys = {text.partition(":")[0] for text in filters}
    known = [text for text in filters if text.partition(":")[0] in _OF_BLOCKS]

    def about(dur: tuple[str, str]) -> tuple[str, dict[str, Any]]:
        condition, values = events.filtered(source, search, known, dur)
        if operator is None:
            return condition, values
        return f"{condition} and e.operator = :operator", values | {"operator": operator}

    found, more = None, ""
    condition, values = about(("e.gpu_max", "e.gpu_min"))
    if sort.endswith("dur") and keys <= _OF_BLOCKS:
        column = "e.gpu_max" if sort.startswith("-") else "e.gpu_min"
        found = near(source, spans, condition, about((column, column))[0], values, column, count, after)
    if found is not None:
        more, spans = f" and {found.condition}", found.spans
    elif condition != "(1)":
        spans = holding(source, spans, condition, values)
    places = [f"e.id >= {low} and e.id < {high}{more}" for low, high in spans]
    return places[::-1] if sort == "-id" else places


def holding(source: Source, spans: Spans, condition: str, values: dict[str, Any]) -> Spans:
    """The parts of ranges of ids that have events that fulfil a condition on sums over blocks (of
    operator, name, kind); among others."""
    touched = " or ".join(
        f"e.block >= {low >> blocks.SHIFT} and e.block < {-(-high >> blocks.SHIFT)}" for low, high in spans
    )
    found = source.store.rows(
        f"select distinct e.block from event_block e where ({touched}) and {condition}", values
    )
    ranges = _joined([(block << blocks.SHIFT, (block + 1) << blocks.SHIFT) for (block,) in found])
    return _joined([(max(low, a), min(high, b)) for low, high in spans for a, b in ranges])


class Near(NamedTuple):
    """Where the first events of an order are: a condition on `e.dur`, and ranges of ids."""

    condition: str
    spans: Spans


def near(
    source: Source,
    spans: Spans,
    condition: str,
    exact: str,
    values: dict[str, Any],
    column: str,
    count: int,
    after: int | None,
) -> Near | None:
    """Where the first `count` events by duration are, of those in ranges of ids that fulfil a condition of `holding`.
    `exact`: a condition that says of the event in `column`, the longest or the shortest of a sum, that it is one of
    them. `after`: behind events of this duration. None: anywhere."""
    least = [(-(-low >> blocks.SHIFT), high >> blocks.SHIFT) for low, high in spans]
    whole = " or ".join(f"e.block >= {first} and e.block < {last}" for first, last in least)
    order, beyond, reaches = ("desc", "<", ">=") if column == "e.gpu_max" else ("", ">", "<=")
    behind = f"and {column} {beyond} :after" if after is not None else ""
    found = source.store.rows(
        f"""select {column} from event_block e where ({whole}) and {exact} {behind}
            order by {column} {order} limit {count}""",
        values | {"after": after},
    )
    if len(found) < count:
        return None
    bound = int(found[-1][0])
    near = source.store.rows(
        f"select distinct e.block from event_block e where ({whole}) and {condition} and {column} {reaches} {bound}",
        values,
    )
    ranges = [(block << blocks.SHIFT, (block + 1) << blocks.SHIFT) for (block,) in near]
    for (low, high), (first, last) in zip(spans, least):
        edge = min(high, first << blocks.SHIFT)
        ranges += [(low, edge), (max(edge, last << blocks.SHIFT), high)]  # what is no whole block
    return Near(f"e.dur {reaches} {bound}", _joined(ranges))


def _joined(ranges: Spans) -> Spans:
    """Ranges in order, those that touch as one, none that is empty."""
    out: Spans = []
    for low, high in sorted(ranges):
        if low >= high:
            continue
        if out and out[-1][1] == low:
            out[-1] = out[-1][0], high
        else:
            out.append((low, high))
    return out
