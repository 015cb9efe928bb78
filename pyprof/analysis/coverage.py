# SPDX-License-Identifier: Apache-2.0
"""The ledger: how much of the device time is explained, line by line, and what was dropped.

The time is that of kernels or, without a GPU, of operator events. The parts of a line add up to all of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from pyprof.metrics import share
from pyprof.model import BASES
from pyprof.store.files import EVENTS_OF_SPANS, Store
from pyprof.store.write.operators import IN_OPERATOR, IN_RANGE

_UNKNOWN, _KNOWN, _RANGE = "unknown", "known", "range only"


def is_missing(reason: str) -> bool:
    """Return whether a reason of the table `lost` means that something is missing, not that it was repaired and kept.

    >>> is_missing("API calls with an end before their start"), is_missing("GPU events without a launch record (kept)")
    (True, False)
    """
    return "kept" not in reason and "taken to" not in reason


def ledger(
    store: Store, spans: Sequence[tuple[int, int]] | None = None, by_worker: bool = True
) -> pd.DataFrame:
    """Return one row per worker (its number), line and part with `time`, `count` and `share` of the worker's time.

    `spans`: restrict to events of these ids, [first, last). `by_worker` False: combine all workers, without a
    number. Lines of dropped events belong to no worker.
    """
    facts = _facts(store, spans)
    if not by_worker:
        facts["worker"] = 0
    parts = _parts(store, facts)
    rows: list[pd.DataFrame] = []
    for line, part in parts.items():
        sums = facts.assign(part=part).groupby(["worker", "part"], sort=True)[["time", "count"]].sum()
        rows.append(sums.reset_index().assign(line=line, place=len(rows)))
    table = pd.concat(rows).sort_values(["worker", "place", "part"], kind="stable", ignore_index=True)
    total = table.groupby(["worker", "line"])["time"].transform("sum")
    table["share"] = [share(int(time), int(whole)) for time, whole in zip(table["time"], total)]
    lost = store.rows("select reason, count from lost order by reason")
    dropped = pd.DataFrame(lost, columns=["part", "count"]).assign(
        line="dropped", worker=None, time=None, share=None
    )
    keys = ["worker", "line", "part", "time", "count", "share"]
    table = pd.concat([table[keys].astype(object), dropped[keys].astype(object)], ignore_index=True)
    if not by_worker:
        table["worker"] = None
    return table.astype({"worker": "Int64", "time": "Int64", "count": "Int64", "share": "float64"})


def _facts(store: Store, spans: Sequence[tuple[int, int]] | None) -> pd.DataFrame:
    """Return sums over events that are equal in everything that the lines distinguish."""
    table = "event" if spans is None else EVENTS_OF_SPANS
    columns = store.columns(
        f"""select id >> 40 as worker, operator, site, basis, flops is null as no_flops, bytes is null as no_bytes,
                   api is null and kind < 3 as no_launch, dur
            from {table} where kind in (0, 3)""",
        () if spans is None else (json.dumps(spans),),
    )
    frame = pd.DataFrame({name: column.values for name, column in columns.items()})
    keys = [name for name in frame if name != "dur"]
    return frame.groupby(keys, sort=True)["dur"].agg(time="sum", count="size").reset_index()


def _parts(store: Store, facts: pd.DataFrame) -> dict[str, pd.Series[Any]]:
    """Return, by line, the part that each row of facts belongs to."""
    operator = {
        row[0]: row[1:] for row in store.rows("select id, unassociated, shapes is not null from operator")
    }
    where = {IN_OPERATOR: _KNOWN, IN_RANGE: _RANGE}
    site = {
        row[0]: row[1:]
        for row in store.rows(
            """select s.id, coalesce(k.frames, '') <> '', s.module is not null
               from site s left join stack k on k.id = s.stack"""
        )
    }
    basis = facts["basis"].map(dict(enumerate(BASES)))

    def known_if(has: pd.Series[Any]) -> pd.Series[Any]:
        return pd.Series(np.where(has.astype(bool), _KNOWN, _UNKNOWN), index=facts.index)

    return {
        "operator": facts["operator"].map(lambda number: where.get(operator[number][0], _UNKNOWN)),
        "operator shapes": known_if(facts["operator"].map(lambda number: operator[number][1])),
        "source line": known_if(facts["site"].map(lambda number: site[number][0])),
        "module": known_if(facts["site"].map(lambda number: site[number][1])),
        "launch record": known_if(facts["no_launch"] == 0),
        "FLOPs": basis.where(facts["no_flops"] == 0, _UNKNOWN),
        "bytes": basis.where(facts["no_bytes"] == 0, _UNKNOWN),
    }
