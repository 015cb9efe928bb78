# SPDX-License-Identifier: Apache-2.0
"""Calls of a recording that can run again: operators with their arguments, by time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.analysis.operator_tree import tree
from pyprof.analysis.source import Source
from pyprof.marker import CallMarker, decode
from pyprof.model import Call
from pyprof.store.write.operators import shapes
from pyprof.terminal import visible

_ROWS = 30  # of the list


class Replayed(NamedTuple):
    """A call with its arguments. `time`: ns on the device without operators inside it, of all `calls`; on the CPU
    without a GPU."""

    call: Call
    calls: int
    time: int


def calls(source: Source) -> list[Replayed]:
    """Calls with recorded arguments, equal ones together, by time, then by name and arguments."""
    texts = dict(source.store.rows("select id, text from string"))
    sums: dict[int, list[int]] = {}
    for (worker,) in source.store.rows("select id from worker order by id"):
        found = tree(source.activity(worker), texts)
        said, place, number = np.unique(
            np.where(found.args >= 0, found.args, found.text), return_inverse=True, return_counts=True
        )
        time = np.zeros(len(said), np.int64)
        np.add.at(time, place, found.own["device" if source.gpu else "host"])
        for text, count, length in zip(said.tolist(), number.tolist(), time.tolist()):
            total = sums.setdefault(text, [0, 0])
            total[0] += count
            total[1] += length
    out = []
    for text, (count, length) in sums.items():
        marker = decode(texts[text])
        if isinstance(marker, CallMarker) and marker.call.args:
            out.append((-length, texts[text], Replayed(marker.call, count, length)))
    return [one for _, _, one in sorted(out, key=lambda row: row[:2])]


def listed(found: list[Replayed], gpu: bool) -> list[str]:
    """Return the rows with the most time, for a terminal."""
    rows = [("row", "operator", "calls", f"{'GPU' if gpu else 'CPU'} time (ns)", "shapes")]
    for number, one in enumerate(found[:_ROWS]):
        rows.append((str(number), one.call.op, f"{one.calls:,}", f"{one.time:,}", shapes(one.call) or "-"))
    shown = [[visible(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in shown) for i in range(4)]
    lines = [
        f"{row:>{widths[0]}}  {name:{widths[1]}}  {count:>{widths[2]}}  {time:>{widths[3]}}  {said}"
        for row, name, count, time, said in shown
    ]
    more = len(found) - _ROWS
    return [*lines, *([f"{more} more rows; --name shows those of one operator."] if more > 0 else [])]
