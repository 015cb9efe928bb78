# SPDX-License-Identifier: Apache-2.0
"""Clocks of ranks, as the ends of collectives show them."""

from __future__ import annotations

import pandas as pd

from pyprof.facts.ranks.rank_clocks import clocks as rank_clocks
from pyprof.facts.steps.source import Source
from pyprof.reports import Column, View, report
from pyprof.reports.step_time import WORKER
from pyprof.store import reads

_COLUMNS = (
    WORKER,
    Column(
        "collectives", "Collectives", "count",
        "Collectives whose ends were compared; of the reference, all in which every rank needs data of every other.",
    ),
    Column(
        "offset_ns", "Offset (ns)", "ns",
        "What the reference's clock shows more, in the middle of the compared time: it is added to the worker's times. "
        "0 for the reference; empty if nothing could be compared.",
    ),
    Column(
        "error_ns", "Error (ns)", "ns",
        "Three standard errors of the offset at the ends of the compared time, from the scatter; empty for fewer than "
        "three collectives. A rank that gets its data later every time has that in its offset, and not in this.",
    ),
    Column(
        "drift_ppm", "Drift (ppm)", "ppm",
        "By how many us the offset grows in a second; 0 if it is smaller than five standard errors, or there are "
        "fewer than eight collectives.", float,
    ),
    Column("scatter_ns", "Scatter (ns)", "ns", "Median distance of the differences between the ends from the line."),
    Column(
        "begin", "Begin (ns)", "ns", "Start of the worker's first marked step, else of its recording, by its clock."
    ),
    Column("begin_common", "Begin, Common Clock (ns)", "ns", "The same by the reference's clock."),
)  # fmt: skip


@report(
    "clocks",
    "Clocks of Ranks",
    _COLUMNS,
    needs="collectives on the GPUs of at least two ranks, recorded together",
    of_summary=True,
    view=View("Communication"),
)
def clocks(source: Source) -> pd.DataFrame:
    """One row per worker: the offset of its clock from that of the reference, the worker with the most collectives, and
    its drift, of the whole recording. The ends of aligned collectives (see communication) in which every rank needs
    data of every other are the same moment on all ranks. A line is fitted through their differences by the method of
    Theil and Sen. Workers that share no collective with the reference are compared with those that do. There are no
    rows if one rank was recorded, or if nothing could be aligned."""
    known = rank_clocks(source.store)
    if sum(clock.line is not None for clock in known.values()) < 2:
        return pd.DataFrame(columns=[column.key for column in _COLUMNS], dtype=object)
    names, begin = reads.worker_names(source.store), reads.begins(source.store)
    rows = []
    for number, clock in known.items():
        if source.worker not in (None, number):
            continue
        line = clock.line
        cells = (
            (line.points, round(line.offset(line.at)), None if line.error is None else round(line.error),
             1e6 * line.drift, None if line.scatter is None else round(line.scatter))
            if line else (0, None, None, None, None)
        )  # fmt: skip
        common = round(clock.forward(begin[number])) if line else None
        rows.append((names[number], *cells, begin[number], common))
    return pd.DataFrame(rows, columns=[column.key for column in _COLUMNS], dtype=object)
