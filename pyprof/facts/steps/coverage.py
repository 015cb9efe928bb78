# SPDX-License-Identifier: Apache-2.0
"""The coverage ledger of a profile database, for reports, the viewer and `Profile.coverage`: the explained share of the
device time, and what was dropped. `prof.coverage` prints the same lines below the table of `prof.py`.

The time is that of kernels or, without a GPU, of operator events. The parts of a line add up to all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from pyprof.core.api_names import STARTS_WORK
from pyprof.core.model import BASES, KEPT, KERNELS, OPERATOR
from pyprof.metrics import share
from pyprof.parse import impossible_times, missing_work
from pyprof.store import reads
from pyprof.store.files import Store
from pyprof.store.ids import LAST_ID, worker_of
from pyprof.store.write.operators import IN_OPERATOR, IN_RANGE

_UNKNOWN, _KNOWN, _RANGE = "unknown", "known", "range only"
_REASONS, _LETTERS = 3, 100  # of what a recording lacks, in a sentence


def is_missing(reason: str) -> bool:
    """Return whether events with this reason of the table `lost` are absent, rather than repaired and kept.

    >>> is_missing("API calls with an end before their start"), is_missing("GPU events without a launch record (kept)")
    (True, False)
    """
    return not reason.endswith(KEPT)


def missing(store: Store) -> str:
    """Return what a recording lacks, as counts with their reasons, the most frequent first; empty if it is whole."""
    lost = store.rows("select reason, count from lost order by count desc, reason")
    reasons = [f"{count} {reason[:_LETTERS].rstrip('.')}" for reason, count in lost if count and is_missing(reason)]
    more = f" and {len(reasons) - _REASONS} other reasons" if len(reasons) > _REASONS else ""
    return ", ".join(reasons[:_REASONS]) + more


def missing_launches(store: Store) -> tuple[int, int]:
    """Return the number of launches whose work is not in the recording, and that of all launches if it is not 0."""
    missing = missing_work.count(reads.lost(store))
    every = store.rows(f"select count(*) from api where kind in {STARTS_WORK}") if missing else [(0,)]
    return missing, max(int(every[0][0]), missing)


def impossible(store: Store) -> int:
    """Return the number of GPU events with impossible times, which were cut or left out."""
    return impossible_times.count(reads.lost(store))


def ledger(store: Store, spans: Sequence[tuple[int, int]] | None = None, by_worker: bool = True) -> pd.DataFrame:
    """Return a table with the columns worker (number), line (what is explained, as "module"), part ("known", "unknown"
    ...), time (ns), count (events) and share (percent of the worker's time).

    `spans`: restrict to events of these ids, [first, last). `by_worker` False: combine all workers, without a
    number. Rows of the line "dropped" have neither worker nor time.
    """
    facts = _facts(store, spans)
    if not by_worker:
        facts["worker"] = 0
    parts = _parts(store, facts)
    rows: list[pd.DataFrame] = []
    for position, (line, part_of_row) in enumerate(parts.items()):
        sums = facts.assign(part=part_of_row).groupby(["worker", "part"], sort=True)[["time", "count"]].sum()
        rows.append(sums.reset_index().assign(line=line, position=position))
    table = pd.concat(rows).sort_values(["worker", "position", "part"], kind="stable", ignore_index=True)
    total = table.groupby(["worker", "line"])["time"].transform("sum")
    table["share"] = [share(int(time), int(whole)) for time, whole in zip(table["time"], total)]
    lost = store.rows("select reason, count from lost order by reason")
    dropped = pd.DataFrame(lost, columns=["part", "count"]).assign(line="dropped", worker=None, time=None, share=None)
    keys = ["worker", "line", "part", "time", "count", "share"]
    table = pd.concat([table[keys].astype(object), dropped[keys].astype(object)], ignore_index=True)
    if not by_worker:
        table["worker"] = None
    return table.astype({"worker": "Int64", "time": "Int64", "count": "Int64", "share": "float64"})


def _facts(store: Store, spans: Sequence[tuple[int, int]] | None) -> pd.DataFrame:
    """Return sums over events that are equal in everything that the lines distinguish."""
    names = ("id", "kind", "operator", "site", "basis", "flops", "bytes", "api", "duration_ns")
    columns = ("worker", "operator", "site", "basis", "no_flops", "no_bytes", "no_launch", "time", "count")
    keys = list(columns[:-2])
    parts = [pd.DataFrame(columns=columns, dtype=np.int64)]
    for first, last in [(0, LAST_ID)] if spans is None else spans:
        for event in store.parts("event", names, first, last):
            kind = event["kind"].values
            lacks = {name: (~event[name].mask()).astype(np.int64) for name in ("flops", "bytes", "api")}
            cells = (
                worker_of(event["id"].values), event["operator"].values, event["site"].values, event["basis"].values,
                lacks["flops"], lacks["bytes"], lacks["api"] * (kind != OPERATOR), event["duration_ns"].values, 1,
            )  # fmt: skip
            computes = np.isin(kind, (*KERNELS, OPERATOR))
            parts.append(pd.DataFrame(dict(zip(columns, cells)))[computes].groupby(keys).sum().reset_index())
    return pd.concat(parts).groupby(keys, sort=True).sum().reset_index()


def _parts(store: Store, facts: pd.DataFrame) -> dict[str, pd.Series[Any]]:
    """Return, by line, the part that each row of facts belongs to."""
    operators = store.rows("select id, unassociated, shapes is not null from operator")
    sites = store.rows(
        """select s.id, coalesce(k.frames, '') <> '', s.module is not null
           from site s left join stack k on k.id = s.stack"""
    )
    part_of = {IN_OPERATOR: _KNOWN, IN_RANGE: _RANGE}
    operator_part = {number: part_of.get(kind, _UNKNOWN) for number, kind, _ in operators}
    has_shapes = {number: shapes for number, _, shapes in operators}
    has_line = {number: line for number, line, _ in sites}
    has_module = {number: module for number, _, module in sites}
    basis = facts["basis"].map(dict(enumerate(BASES)))

    def known_if(has: pd.Series[Any]) -> pd.Series[Any]:
        return pd.Series(np.where(has.astype(bool), _KNOWN, _UNKNOWN), index=facts.index)

    return {
        "operator": facts["operator"].map(operator_part),
        "operator shapes": known_if(facts["operator"].map(has_shapes)),
        "source line": known_if(facts["site"].map(has_line)),
        "module": known_if(facts["site"].map(has_module)),
        "launch record": known_if(facts["no_launch"] == 0),
        "FLOPs": basis.where(facts["no_flops"] == 0, _UNKNOWN),
        "bytes": basis.replace("recorded", "default").where(facts["no_bytes"] == 0, _UNKNOWN),
    }
