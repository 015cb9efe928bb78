# SPDX-License-Identifier: Apache-2.0
"""Calls of a recording that can run again: operators with their arguments, by time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.core.marker import CallMarker, decode
from pyprof.core.model import Call
from pyprof.core.terminal import visible
from pyprof.facts.host.operator_tree import tree
from pyprof.facts.steps.source import Source
from pyprof.store import reads
from pyprof.store.write.operators import shapes

_ROWS = 30  # of the list


class Replayed(NamedTuple):
    """A call with its arguments. `time`: ns on the device without operators inside it, summed over all `calls`; on the
    CPU without a GPU."""

    call: Call
    calls: int
    time: int


def calls(source: Source) -> list[Replayed]:
    """Return calls with recorded arguments, equal ones merged, by time, then by name and arguments."""
    texts = reads.texts(source.store)
    sums: dict[int, list[int]] = {}
    for worker in reads.worker_names(source.store):
        operators = tree(source.activity(worker), texts)
        markers, place, number = np.unique(
            np.where(operators.args >= 0, operators.args, operators.text),
            return_inverse=True,
            return_counts=True,
        )
        time = np.zeros(len(markers), np.int64)
        np.add.at(time, place, operators.own["device" if source.gpu else "host"])
        for text, count, length in zip(markers.tolist(), number.tolist(), time.tolist()):
            total = sums.setdefault(text, [0, 0])
            total[0] += count
            total[1] += length
    out = []
    for text, (count, length) in sums.items():
        marker = decode(texts[text])
        if isinstance(marker, CallMarker) and marker.call.args:
            out.append((-length, texts[text], Replayed(marker.call, count, length)))
    return [replayed for _, _, replayed in sorted(out, key=lambda row: row[:2])]


def listed(replayed: list[Replayed], gpu: bool) -> list[str]:
    """Return the rows with the most time, for a terminal."""
    rows = [("row", "operator", "calls", f"{'GPU' if gpu else 'CPU'} time (ns)", "shapes")]
    for number, item in enumerate(replayed[:_ROWS]):
        rows.append((str(number), item.call.op, f"{item.calls:,}", f"{item.time:,}", shapes(item.call) or "-"))
    visible_rows = [[visible(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in visible_rows) for i in range(4)]
    lines = [
        f"{row:>{widths[0]}}  {name:{widths[1]}}  {count:>{widths[2]}}  {time:>{widths[3]}}  {shape}"
        for row, name, count, time, shape in visible_rows
    ]
    extra = len(replayed) - _ROWS
    return [*lines, *([f"{extra} more rows; use --name for those of one operator."] if extra > 0 else [])]
