# SPDX-License-Identifier: Apache-2.0
"""Root causes: the rank that the steps waited for, what it did meanwhile, and what the steps would be without it."""

from __future__ import annotations

import pandas as pd

from pyprof.facts.path.root_causes import NAMES, root_causes
from pyprof.facts.steps.source import Source
from pyprof.measures.queries import spans
from pyprof.reports import Column, View, report
from pyprof.reports.communication import DEVICE
from pyprof.reports.step_time import WORKER
from pyprof.store import reads

_THERE = "Place in which the rank spent the most extra time compared with the median rank"
_COLUMNS = (
    WORKER,
    DEVICE,
    Column("part", "Part", "", f"What the rank did longer: {', '.join(NAMES.values())}.", str),
    Column("kernel", "Kernel", "", f"{_THERE}: its kernel or copy.", str),
    Column("call", "API Call", "", "The same: API call.", str),
    Column("host", "Host", "", "The same: innermost range or Python function.", str),
    Column(
        "where", "Where", "",
        "in: the thread was in the operator; before: it was in none, and this is the next; kernel of: the operator "
        "launched the kernel.", str,
    ),
    Column("operator", "Operator", "", "The same: path of the operator.", str),
    Column("module", "Module", "", "The same: path of the module.", str),
    Column("line", "Source Line", "", "The same: last line of the stack trace.", str),
    Column("stack", "Stack Trace", "", "The same: source lines, one per line, outermost first.", str),
    Column("collectives", "Collectives", "count", "Collectives at which it was last, and longer in this part."),
    Column(
        "caused_ns", "Late (ns)", "ns",
        "By how much longer than the median rank it was in this part before these collectives, since the collective "
        "before: what is positive of that part in stragglers, where it was late by its own. For what is before the "
        "recording: by how much its step began later.",
    ),
    Column(
        "there_ns", "At This Place (ns)", "ns",
        "Its excess over the median rank in the place of this row, at these collectives.",
    ),
    Column(
        "saving_ns", "Saving (ns)", "ns",
        "By how much all steps together would be shorter without it: the difference to a replay of all ranks in which "
        "all else takes as long and waits for the same (docs/causes.md). Empty for what is before the recording.",
    ),
    Column("share", "Saving (%)", "%", "Saving as a share of the steps.", float),
    Column("step_avg", "Avg. Step (ns)", "ns", "Mean length of the steps: on the rank that ends each last.", float),
    Column("without_avg", "Avg. Step Without (ns)", "ns", "The same less the saving.", float),
    Column("note", "Note", "", "What is not known, or that nobody is late; in a row of its own.", str),
)  # fmt: skip


@report("root_cause", "Root Causes", _COLUMNS, view=View("Communication", sort="-saving_ns"))
def root_cause(source: Source) -> pd.DataFrame:
    """One row per rank and part of its work for which the steps of all ranks waited, sorted by what they would save
    without it; less than 1 % of the steps is left out. How late a rank is by its own, and in which part, is as in
    stragglers: against the median rank, since the collective before. The place is the one with the largest excess over
    the median rank in that part. What is before the first collective of a recording, because the rank's step began
    later, has a row of its own: its cause is not recorded, and it blames nobody. Rows without a worker say what is not
    known, or that nobody is late."""
    causes = root_causes(source, spans(Source(source.store, source.aggregation)))
    table = causes.rows
    if source.worker is not None:
        table = table[table["worker"] == source.worker]
    names, total = reads.worker_names(source.store), causes.step * causes.steps
    saving = pd.to_numeric(table["saving"])
    table = table.assign(
        worker=table["worker"].map(names), device=table["device"].where(table["device"] >= 0),
        part=table["part"].map(NAMES), caused_ns=table["caused"], there_ns=table["there"],
        saving_ns=table["saving"], share=100 * saving / total if total else None, step_avg=causes.step,
        without_avg=(total - saving) / causes.steps if causes.steps else None, note=None,
    )  # fmt: skip
    notes = pd.DataFrame({"note": causes.notes}, columns=table.columns)
    parts = [part.astype(object) for part in (table, notes) if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else table
