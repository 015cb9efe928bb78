# SPDX-License-Identifier: Apache-2.0
"""Find rows by their time: ids of a worker follow the starts, so a search by halves reads some twenty rows."""

from __future__ import annotations

from pyprof.store.files import Store
from pyprof.store.ids import first_id

BEFORE = -1  # ns: before the first event of the recording

# Events are in the order of their launches. One without a launch stands after the one before it on its stream, so at
# the launch of the event before it; if no launches are recorded, at its start.
_TIME = {
    "event": """select coalesce(
            (select a.start_ns from event n join api a on a.id = n.api where n.id <= e.id and n.id >= e.id >> 40 << 40
             order by n.id desc limit 1),
            case when exists (select 1 from api where id >= e.id >> 40 << 40 and id < (e.id >> 40) + 1 << 40)
                 then -1 else e.start_ns end)
        from event e where e.id = ?""",
    "api": "select start_ns from api where id = ?",
    "op": "select start_ns from op where id = ?",
    "range": "select start_ns from range where id = ?",
}


def first_from(store: Store, table: str, worker: int, time: int) -> int:
    """Return the id of the first row of a worker that starts at a time or later, of the last plus 1 without one."""
    low = first_id(worker)
    last = store.rows(f"select max(id) from {table} where id >= ? and id < ?", (low, first_id(worker + 1)))[0][0]
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
