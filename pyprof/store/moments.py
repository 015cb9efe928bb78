# SPDX-License-Identifier: Apache-2.0
"""Find rows by their time: ids of a worker follow the starts, so a search by halves reads some twenty rows."""

from __future__ import annotations

from pyprof.store.files import Store
from pyprof.store.ids import first_id

# Events are in the order of their launches; without a launch, of their starts.
_TIME = {
    "event": "select coalesce(a.start_ns, e.start_ns) from event e left join api a on a.id = e.api where e.id = ?",
    "api": "select start_ns from api where id = ?",
    "op": "select start_ns from op where id = ?",
    "range": "select start_ns from range where id = ?",
}


def first_from(store: Store, table: str, worker: int, time: int) -> int:
    """Return the id of the first row of a worker that starts at a time or later, of the last plus 1 without one."""
    low = first_id(worker)
    last = store.rows(f"select max(id) from {table} where id >= ? and id < ?", (low, first_id(worker + 1)))[
        0
    ][0]
    high = low if last is None else last + 1
    while low < high:
        middle = (low + high) // 2
        ((start,),) = store.rows(_TIME[table], (middle,)) or ((None,),)
        if start is None:
            raise store.damaged(f"table {table} has ids with gaps")
        if start < time:
            low = middle + 1
        else:
            high = middle
    return low
