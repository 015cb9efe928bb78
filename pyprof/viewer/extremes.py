# SPDX-License-Identifier: Apache-2.0
"""Where in millions of events those are that a page shows, without a look at each.

The sums over blocks of ids (db/blocks.py) say which operators and kernel names a block has, and have the longest event
of each. The n-th longest of these is an event, so the n longest events are at least as long, and they are in the blocks
that have one as long. Of 10 million events some blocks in 150 are looked at, not all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pyprof.db import blocks
from pyprof.db.source import Source

Spans = list[tuple[int, int]]


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
