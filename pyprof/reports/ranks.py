# SPDX-License-Identifier: Apache-2.0
"""Ranks by step: how long, how late, waiting for what. Of many ranks only those that are not like the others."""

from __future__ import annotations

import pandas as pd

from pyprof.core.model import Bools
from pyprof.facts.ranks.collective_groups import collectives
from pyprof.facts.ranks.rank_steps import NEAR, apart, rank_steps
from pyprof.facts.steps.source import Source
from pyprof.measures.queries import spans
from pyprof.reports import Column, Option, View, report
from pyprof.reports.step_time import PARTIAL, START, STEP, TOTAL, WORKER
from pyprof.store import reads

_COLUMNS = (
    WORKER,
    STEP,
    START,
    TOTAL._replace(text=f"{TOTAL.text} As in step_time."),
    Column(
        "late_ns", "Late (ns)", "ns",
        "How much later than the median rank it arrived at collectives of the step, summed over those at which it was "
        "later; of several devices the latest counts. In stragglers it is late less median late, where the rank was "
        "last; what is from before the recording, or left from the collective before, is in it. Empty if no collective "
        "of the step is aligned.",
    ),
    Column(
        "times_last", "Times Last", "count", "Collectives of the step at which no rank arrived later."
    ),
    Column(
        "collectives", "Collectives", "count",
        "Aligned collectives of the step in which every rank needs data of every other, as in stragglers.",
    ),
    Column(
        "dataloader_ns", "DataLoader Waits (ns)", "ns",
        "Time in which the training loop waited for its data loader, whether a device worked meanwhile or not.",
    ),
    Column(
        "communication_ns", "All Communication (ns)", "ns",
        "Time with at least one kernel of a collective or copy between devices, on any device of the worker; waits for "
        "other ranks are included, so that the rank that comes last has the least. Empty without a GPU.",
    ),
    Column(
        "busy_ns", "Busy (ns)", "ns",
        "Time with at least one kernel, copy or set on any device of the worker. Empty without a GPU.",
    ),
    PARTIAL,
    Column("note", "Note", "", "What is not known, and which rows are not shown; in a row of its own.", str),
)  # fmt: skip


@report(
    "ranks",
    "Ranks by Step",
    _COLUMNS,
    options=(
        Option(
            "rows",
            f"apart: rows with a figure that is more than {100 * NEAR:.0f} % of the step from the median of the ranks "
            "in that step, and a row with the number of the others; all: every row.",
            {"apart": (), "all": ()},
        ),
    ),
    needs="steps: pyprof.step(), or step() of torch.profiler",
    view=View(
        "Communication",
        sort="-late_ns",
        wholes=dict.fromkeys(("dataloader_ns", "communication_ns", "busy_ns"), "total_ns"),
    ),
)
def ranks(source: Source, rows: str) -> pd.DataFrame:
    """One row per worker and step, sorted by how late the worker was. Of three ranks and more, rows that say nothing
    are left out, see --rows. Steps have the device's bounds, as in step_time."""
    table = rank_steps(source, spans(Source(source.store, source.aggregation)))
    visible = apart(table) | (rows == "all")
    own = table["worker"].eq(source.worker) if source.worker is not None else table["worker"].notna()
    notes = _notes(source, table[own], visible[own.to_numpy(bool)])
    names = reads.worker_names(source.store)
    table = table[own & visible].sort_values(
        ["late_ns", "step", "worker"], ascending=[False, True, True], kind="stable"
    )
    table = table.assign(worker=table["worker"].map(names), note=None)
    extra = pd.DataFrame({"note": notes}, columns=table.columns)
    parts = [part.astype(object) for part in (table, extra) if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else table


def _notes(source: Source, table: pd.DataFrame, visible: Bools) -> list[str]:
    """Return what is not known, and which of these rows are not shown."""
    out = []
    left = len(table) - int(visible.sum())
    if left:
        workers = table["worker"].nunique()
        silent = workers - table["worker"][visible].nunique()
        out.append(
            f"{left:,} of {len(table):,} rows are not shown: within {100 * NEAR:.0f} % of the step from the median of "
            f"the ranks in every figure, of {silent:,} of {workers:,} ranks in all of their steps. --rows=all shows "
            "them."
        )
    if len(table) and not table["late_ns"].notna().any():
        how = collectives(source.store)["how"].value_counts().index
        reason = str(how[0]).removeprefix("no: ") if len(how) else "no collective on a GPU was recorded"
        out.append(f"How late ranks were is not known: {reason}.")
    return out
