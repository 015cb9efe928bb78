# SPDX-License-Identifier: Apache-2.0
"""Where in millions of events those are that a page shows, without a look at each.

The sums over blocks of ids (db/blocks.py) say which operators and kernel names a block has, and have the longest event
of each. The n-th longest of these is an event, so the n longest events are at least as long, and they are in the blocks
that have one as long. Of 10 million events some blocks in 150 are looked at, not all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pyprof.db import blocks
from pyprof.db.source import Source
from pyprof.viewer import events, models
from pyprof.viewer.problems import Trouble
from pyprof.viewer.tables import columns_of
from pyprof.viewer.tasks import MOST

Spans = list[tuple[int, int]]
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
            "parameter", f"sort {key}: more than {MOST:,} events are sorted by id, start or dur.", "sort"
        )
    down = (sort or "").startswith("-")
    _, values = events.within(source, iteration, operator)
    more, chosen = events.filtered(source, search, filters)
    total = events.known_count(source, values, operator)
    spans = [(values[f"low{n}"], values[f"high{n}"]) for n in range(len(values) // 2)]
    where = more if operator is None else f"{more} and e.operator = :operator"
    after = int(cursor.rpartition(".")[0]) if cursor and key == "dur" else None
    places = _places(source, spans, operator, search, filters, sort or "", limit + 1, after)
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


def _places(
    source: Source,
    spans: Spans,
    operator: int | None,
    search: str,
    filters: Sequence[str],
    sort: str,
    count: int,
    after: int | None,
) -> list[str]:
    """Conditions on events, each a range of ids, outside of which none is on the page; in order if it is by id."""
    if not spans:
        return []
    by_sums = [text for text in filters if text.partition(":")[0] in events.SUMMED]
    about, values = events.filtered(source, search, by_sums)
    if operator is not None:
        about, values = f"{about} and e.operator = :operator", values | {"operator": operator}
    found, more = None, ""
    if sort.endswith("dur") and len(by_sums) == len(filters):
        found = near(source, spans, about, values, sort.startswith("-"), count, after)
    if found is not None:
        more, spans = f" and {found.condition}", found.spans
    elif about != "(1)":
        spans = holding(source, spans, about, values)
    places = [f"e.id >= {low} and e.id < {high}{more}" for low, high in spans]
    return places[::-1] if sort == "-id" else places


def holding(source: Source, spans: Spans, condition: str, values: dict[str, Any]) -> Spans:
    """The parts of ranges of ids that have events that fulfil a condition on what sums over blocks have
    (operator, name, kind); among others."""
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
    values: dict[str, Any],
    down: bool,
    count: int,
    after: int | None,
) -> Near | None:
    """Where the first `count` events by duration are, of those in ranges of ids that fulfil a condition as of
    `holding`. `after`: behind events of this duration. None: anywhere."""
    least = [(-(-low >> blocks.SHIFT), high >> blocks.SHIFT) for low, high in spans]
    whole = " or ".join(f"e.block >= {first} and e.block < {last}" for first, last in least)
    column, order, beyond = ("gpu_max", "desc", "<") if down else ("gpu_min", "", ">")
    behind = f"and e.{column} {beyond} :after" if after is not None else ""
    given = values | {"after": after}
    found = source.store.rows(
        f"""select e.{column} from event_block e where ({whole}) and {condition} {behind}
            order by e.{column} {order} limit {count}""",
        given,
    )
    if len(found) < count:
        return None
    bound, reaches = int(found[-1][0]), ">=" if down else "<="
    near = source.store.rows(
        f"select distinct e.block from event_block e where ({whole}) and {condition} and e.{column} {reaches} {bound}",
        given,
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
