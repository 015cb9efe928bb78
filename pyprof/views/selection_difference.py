# SPDX-License-Identifier: Apache-2.0
"""Sums over two stretches of the timeline, two steps for example, and their difference.

Times are sums over streams, clipped to each stretch. What is in no row is in `rest`: the differences of the rows add up
to that of the totals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyprof.store.files import Store
from pyprof.views.event_sums import COUNT, TIME, Part, Sums, parts_of, sums_of, values_of
from pyprof.views.models import DeviceDifference, Difference, DifferenceRow
from pyprof.views.selection import GROUPINGS, Key, device_of, devices_of, groups_of

_ROWS = 200
_Stretch = tuple[int, int]


def difference(
    store: Store, base: _Stretch, other: _Stretch, by: Key, worker: int | None, shifts: Mapping[int, int]
) -> Difference:
    """Return the sums over both stretches by group, the largest difference first. Raises Trouble for a stretch that is
    empty or has too many events."""
    both = [_read(store, *stretch, worker, shifts) for stretch in (base, other)]
    grouping = next(one for one in GROUPINGS if one.key == by)
    values = [values_of(sums, False) for _, sums in both]
    groups = [groups_of(store, sums, grouping) for _, sums in both]
    rows = []
    for label in dict.fromkeys([*groups[0], *groups[1]]):
        inside = [one.get(label) for one in groups]
        own = [
            sums[one.places].sum(axis=0) if one else sums[:0].sum(axis=0) for one, sums in zip(inside, values)
        ]
        ids = {one.id(grouping.of) for one in inside if one}
        rows.append(
            DifferenceRow(
                id=ids.pop() if len(ids) == 1 else None,
                label=label,
                base=int(own[0][TIME]),
                other=int(own[1][TIME]),
                base_count=int(own[0][COUNT]),
                other_count=int(own[1][COUNT]),
            )
        )
    rows.sort(key=lambda row: (-abs(row.other - row.base), row.label))
    rest = rows[_ROWS:]
    devices = sorted({key for parts, _ in both for key in devices_of(parts)})
    of_devices = [[device_of(store, key, *one) for one in both] for key in devices]
    return Difference(
        base=base,
        other=other,
        devices=[DeviceDifference(base=one, other=two) for one, two in of_devices],
        key=grouping.key,
        title=grouping.title,
        rows=rows[:_ROWS],
        rest=_sum(f"{len(rest)} more", rest) if rest else None,
        total=_sum("All", rows),
    )


def _read(
    store: Store, start: int, end: int, worker: int | None, shifts: Mapping[int, int]
) -> tuple[list[Part], list[Sums]]:
    parts = parts_of(store, start, end, worker, shifts, ("stream", "idle"))
    return parts, sums_of(store, [part for part in parts if part.kind == "stream"], False)


def _sum(label: str, rows: Sequence[DifferenceRow]) -> DifferenceRow:
    return DifferenceRow(
        id=None,
        label=label,
        base=sum(row.base for row in rows),
        other=sum(row.other for row in rows),
        base_count=sum(row.base_count for row in rows),
        other_count=sum(row.other_count for row in rows),
    )
