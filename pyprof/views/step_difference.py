# SPDX-License-Identifier: Apache-2.0
"""Differences of a step in two recordings, for the timeline: by execution, where the base runs it.

Operators are matched as the report diff matches them (`pyprof.reports.diff`), among those of the step. A step has the
executions that begin in it, on one worker of each recording. Device time is that of the report detail: of an execution
the union of its events, without a GPU the operator's own time. The n-th execution of a matched operator in the base and
the n-th in the other are one piece; one that the other does not have is a piece of its own, and so is one that only the
other has. Each execution is in one piece, so that the pieces of a lane add up to the difference of the step.

A piece of which the base ran nothing on a device has no place in the base: it is in the lane `only`, where the other
runs it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.model import DIRECTIONS, NO_DIRECTION, Column, Ints
from pyprof.facts.ranks import rank_moments
from pyprof.facts.ranks.rank_moments import Stretch
from pyprof.facts.steps.source import Source
from pyprof.reports import diff
from pyprof.reports.complete import Iterations
from pyprof.store.files import Store
from pyprof.store.ids import first_id
from pyprof.store.kinds import NESTS, ON_GPU
from pyprof.views.problems import Trouble

_WAY = diff.WAYS["operator"]
_PIECES = 20_000  # of a lane
_ROWS = 1000  # of a table
_TEXTS = ("module", "shapes", "direction", "matched_by")
NO_MODULE = "outside of modules"
_ABSENT = -1  # an execution, event or time that is not there


class Chosen(NamedTuple):
    """A step of a recording on one of its workers."""

    source: Source
    number: int
    worker: int
    step: Stretch

    @property
    def start(self) -> int:
        """Start on the host, ns: the step's executions begin there or later."""
        return self.step.start

    @property
    def end(self) -> int:
        """End on the host, ns."""
        return self.step.end


def difference(
    base: Source, other: Source, number: int, other_number: int, worker: int | None = None
) -> dict[str, Any]:
    """Return the fields of `models.StepDifference`. `worker`: of the base; by default the first that has a step of this
    number and whose rank has one in the other. Raises Trouble without the step."""
    sides, note = _choose(base, other, number, other_number, worker)
    executions = [_executions(one) for one in sides]
    rows, row = _matched(sides)
    pieces = _pieces(sides, executions, row)
    notes = [*note, *_cautions(base, other)]
    operators, place = _table(pieces, "row", rows)
    modules, module_place = _table(pieces, "module", None)
    pieces = pieces.assign(key=pieces["row"]).sort_values("start", kind="stable")
    placed = pieces[pieces["placed"]]
    lanes = [
        _lane("module", _runs(placed), module_place),
        _lane("operator", placed, place),
        _lane("only", pieces[~pieces["placed"]], place),
    ]
    totals = [int(one["time"].sum()) for one in executions]
    names = [dict(one.source.store.rows("select id, name from worker")) for one in sides]
    described = [
        {"number": one.number, "worker": one.worker, "worker_name": name[one.worker],
         "start": one.step.device_start, "end": one.step.device_end, "time": total, "executions": len(table),
         "kind": "launch" if one.source.gpu else "range"}
        for one, name, total, table in zip(sides, names, totals, executions)
    ]  # fmt: skip
    return {
        "base": described[0], "other": described[1], "delta": totals[1] - totals[0], "notes": notes,
        "operators": operators, "modules": modules, "lanes": lanes,
    }  # fmt: skip


def _choose(
    base: Source, other: Source, number: int, other_number: int, worker: int | None
) -> tuple[list[Chosen], list[str]]:
    """Return the step of both, and in sentences what to know of the choice."""
    steps_of = []
    for name, source, own in (("base", base, number), ("other", other, other_number)):
        of = rank_moments.stretches(source.store, own)
        if not of:
            raise Trouble(
                "missing", f"The {name} has no step {own}.", "number" if source is base else "other_number"
            )
        steps_of.append(of)
    ranks = [
        dict(source.store.rows("select id, coalesce(rank, id) from worker order by id"))
        for source in (base, other)
    ]
    of_rank = {ranks[1][one]: one for one in reversed(steps_of[1])}
    candidates = [one for one in steps_of[0] if worker in (None, one)]
    if not candidates:
        raise Trouble("missing", f"Worker {worker} of the base has no step {number}.", "worker")
    first = next((one for one in candidates if ranks[0][one] in of_rank), candidates[0])
    second = of_rank.get(ranks[0][first], next(iter(steps_of[1])))
    steps = [
        Chosen(source, own, one, of[one])
        for source, own, one, of in zip((base, other), (number, other_number), (first, second), steps_of)
    ]
    notes = []
    counts = [len(of) for of in ranks]
    if max(counts) > 1:
        which = [f"rank {of[one]}" for of, one in zip(ranks, (first, second))]
        both = (
            f"{which[0]} in both"
            if which[0] == which[1]
            else f"{which[0]} of the base and {which[1]} of the other"
        )
        several = "" if counts[0] == counts[1] else f"The base has {counts[0]} ranks, the other {counts[1]}. "
        notes.append(f"{several}Differences are of {both}.")
    return steps, notes


def _cautions(base: Source, other: Source) -> list[str]:
    chips = [
        sorted(
            {
                name
                for (name,) in source.store.rows(
                    "select name from device where events > 0 and name is not null"
                )
            }
        )
        for source in (base, other)
    ]
    out = diff.cautions(base, other)
    if all(chips) and chips[0] != chips[1]:
        out.append(f"The base ran on {', '.join(chips[0])}, the other on {', '.join(chips[1])}.")
    return out


# --- executions


def _first(store: Store, worker: int, time: int, query: str) -> int:
    """Return the id of the first row of a worker that begins at a time or later. `query`: the beginning of a row by its
    id; ids follow one another in the order of the beginnings."""
    low = first_id(worker)
    high = first_id(worker + 1)
    while low < high:
        middle = (low + high) // 2
        rows = store.rows(query, (middle,))
        if rows and rows[0][0] < time:
            low = middle + 1
        else:
            high = middle
    return low


_OP = "select start_ns from op where id = ?"
_EVENT = "select coalesce(a.start_ns, e.start_ns) from event e left join api a on a.id = e.api where e.id = ?"
_RANGE = "select start_ns from range where id = ?"


def _bounds(one: Chosen) -> tuple[int, int]:
    """Return the ids of the executions of a step, low <= id < high."""
    store = one.source.store
    return tuple(_first(store, one.worker, time, _OP) for time in (one.start, one.end))  # type: ignore[return-value]


def _executions(one: Chosen) -> pd.DataFrame:
    """Return the executions of a step: their operator, device time, and, where they have events, the stretch of these
    and the id of the longest (without a GPU: their own stretch, and the id of their range); -1 where they have none."""
    store, (low, high) = one.source.store, _bounds(one)
    table = _frame(
        store,
        f"""select id, operator, thread, start_ns, end_ns, gpu_ns as time from op where id >= {low} and id < {high}
            order by id""",
    )
    if not one.source.gpu:
        return _on_cpu(one, table)
    last = max(one.end, int(table["end_ns"].max()) + 1 if len(table) else one.end)
    bounds = [_first(store, one.worker, time, _EVENT) for time in (one.start, last)]
    events = _frame(
        store,
        f"""select id as event, op, start_ns as start, duration_ns as length from event
            where id >= {bounds[0]} and id < {bounds[1]} and {ON_GPU} order by id""",
    )
    events = events[(events["op"] >= low) & (events["op"] < high)]
    events = events.assign(end=events["start"] + events["length"])
    grouped = events.groupby("op")
    longest = events.loc[grouped["length"].idxmax()].set_index("op")["event"]
    place = pd.DataFrame({"start": grouped["start"].min(), "end": grouped["end"].max(), "event": longest})
    return (
        table.join(place, on="id").fillna(dict.fromkeys(place, _ABSENT)).astype(dict.fromkeys(place, "int64"))
    )


def _on_cpu(one: Chosen, table: pd.DataFrame) -> pd.DataFrame:
    store = one.source.store
    bounds = [_first(store, one.worker, time, _RANGE) for time in (one.start, one.end)]
    ranges = _frame(
        store,
        f"""select id as event, thread, start_ns from range where id >= {bounds[0]} and id < {bounds[1]} and {NESTS}
            order by id""",
    ).drop_duplicates(["thread", "start_ns"])
    table = table.merge(ranges, on=["thread", "start_ns"], how="left").fillna({"event": _ABSENT})
    return table.assign(start=table["start_ns"], end=table["end_ns"], event=table["event"].astype("int64"))


def _frame(store: Store, query: str) -> pd.DataFrame:
    """Return the columns of a query, -1 for NULL; a time that is unknown counts as none."""
    columns = store.columns(query)
    return pd.DataFrame(
        {name: _plain(column, 0 if name == "time" else _ABSENT) for name, column in columns.items()}
    )


def _plain(column: Column, absent: int) -> Ints:
    values = column.values if column.present is None else np.where(column.present, column.values, absent)
    return values.astype(np.int64)


# --- pieces


def _matched(sides: list[Chosen]) -> tuple[pd.DataFrame, list[dict[int, int]]]:
    """Return the texts of rows, and the row of each operator of both recordings."""
    parts = []
    for one in sides:
        low, high = _bounds(one)
        only = Iterations(pd.DataFrame({"low": [low], "high": [high]}), whole=False)
        parts.append(diff.rows_of(one.source, _WAY, only))
    rows = diff.matched([part.assign(side=side) for side, part in enumerate(parts)], _WAY)
    of_sides = [rows[rows["side"] == side] for side in (0, 1)]
    return diff.labels_of(rows), [dict(zip(own["key"].tolist(), own["row"].tolist())) for own in of_sides]


def _pieces(sides: list[Chosen], executions: list[pd.DataFrame], row: list[dict[int, int]]) -> pd.DataFrame:
    """Return a piece for each pair of executions. `base`, `other`: device times, NaN where there is none."""
    parts = []
    for one, table, rows in zip(sides, executions, row):
        modules = dict(one.source.store.rows("select id, module from operator"))
        directions = dict(one.source.store.rows("select id, direction from operator"))
        numbers = table["operator"].tolist()
        table = table.assign(
            row=[rows[number] for number in numbers],
            module=[_module(modules.get(number), directions.get(number)) for number in numbers],
        )
        table["turn"] = table.groupby("row").cumcount()
        parts.append(table[["row", "turn", "module", "time", "start", "end", "event"]])
    both = parts[0].merge(parts[1], on=["row", "turn"], how="outer", suffixes=("_base", "_other"))
    placed = (both["event_base"].fillna(_ABSENT) >= 0).to_numpy(bool)
    if not sides[0].source.gpu:
        placed = both["time_base"].notna().to_numpy(bool)
    times = {name: np.where(placed, both[f"{name}_base"], both[f"{name}_other"]) for name in ("start", "end")}
    out = pd.DataFrame(
        {
            "row": both["row"], "placed": placed, **times,
            "module": both["module_base"].where(both["module_base"].notna(), both["module_other"]),
            "base": both["time_base"], "other": both["time_other"],
            "base_event": both["event_base"].fillna(_ABSENT).astype("int64"),
            "other_event": both["event_other"].fillna(_ABSENT).astype("int64"),
        }
    )  # fmt: skip
    # What ran on no device in either, such as a synchronization, is nowhere in the picture.
    seen = (out["base_event"] >= 0) | (out["other_event"] >= 0) | out["base"].gt(0) | out["other"].gt(0)
    out = out[seen].fillna({"start": 0, "end": 0})
    return out.astype({"start": "int64", "end": "int64"}).reset_index(drop=True)


def _module(path: str | None, direction: int | None) -> str:
    if not path:
        return NO_MODULE
    return path if direction in (None, NO_DIRECTION) else f"{path} {DIRECTIONS[direction]}"


def _delta(table: pd.DataFrame) -> Ints:
    return (table["other"].fillna(0) - table["base"].fillna(0)).to_numpy(np.int64)


def _runs(placed: pd.DataFrame) -> pd.DataFrame:
    """Return consecutive pieces of one module and direction as one; its events are those of the largest difference."""
    table = placed.reset_index(drop=True)
    number = (table["module"] != table["module"].shift()).cumsum()
    grouped = table.groupby(number)
    largest = table.assign(size=np.abs(_delta(table))).groupby(number)["size"].idxmax()
    return pd.DataFrame(
        {
            "key": grouped["module"].first(), "start": grouped["start"].min(), "end": grouped["end"].max(),
            "base": grouped["base"].sum(min_count=1), "other": grouped["other"].sum(min_count=1),
            **{name: table.loc[largest, name].to_numpy() for name in ("base_event", "other_event")},
        }
    )  # fmt: skip


def _lane(key: str, pieces: pd.DataFrame, place: dict[Any, int]) -> dict[str, Any]:
    """Return a lane, in the order of the starts; a piece ends where the next begins. Of more than 20,000 pieces those
    of the largest differences stay."""
    left_out = max(len(pieces) - _PIECES, 0)
    if left_out:
        order = np.argsort(-np.abs(_delta(pieces)), kind="stable")[:_PIECES]
        pieces = pieces.iloc[np.sort(order)]
    start, end = pieces["start"].to_numpy(np.int64), pieces["end"].to_numpy(np.int64)
    end = np.maximum(np.minimum(end, np.append(start[1:], np.iinfo(np.int64).max)), start)
    return {
        "key": key,
        "start": start.tolist(),
        "end": end.tolist(),
        **{side: _known(pieces[side]) for side in ("base", "other")},
        **{name: _known(pieces[name].where(pieces[name] >= 0)) for name in ("base_event", "other_event")},
        "row": [place[one] for one in pieces["key"].tolist()],
        "left_out": left_out,
    }


def _known(values: pd.Series[Any]) -> list[int | None]:
    return [None if pd.isna(value) else int(value) for value in values.tolist()]


def _table(
    pieces: pd.DataFrame, by: str, labels: pd.DataFrame | None
) -> tuple[list[dict[str, Any]], dict[Any, int]]:
    """Return the sums of pieces, the largest difference first, and the place of each key; the last row has those that
    are too many."""
    grouped = pieces.groupby(by, sort=True)
    sums = pd.DataFrame({side: grouped[side].sum() for side in ("base", "other")})
    counts = pd.DataFrame({side: grouped[side].count() for side in ("base", "other")})
    delta = _delta(sums)
    order = np.lexsort((np.arange(len(sums)), -sums["base"].to_numpy(float), -np.abs(delta)))
    rows: list[dict[str, Any]] = []
    place: dict[Any, int] = {}
    for number in order.tolist():
        key = sums.index[number]
        place[key] = min(len(rows), _ROWS)
        calls = counts.iloc[number]
        row: dict[str, Any] = {
            "name": str(key), **dict.fromkeys(_TEXTS),
            "base": int(sums["base"].iloc[number]) if calls["base"] else None,
            "other": int(sums["other"].iloc[number]) if calls["other"] else None,
            "base_calls": int(calls["base"]), "other_calls": int(calls["other"]),
        }  # fmt: skip
        if labels is not None:
            texts = labels.loc[key]
            row |= {
                name: str(texts[name]) if texts[name] and not pd.isna(texts[name]) else None
                for name in _TEXTS
            }
            row["name"] = str(texts["name"])
        if len(rows) <= _ROWS:
            rows.append(row)
            continue
        rest = rows[_ROWS]
        for side in ("base", "other"):
            rest[side] = (rest[side] or 0) + (row[side] or 0)
            rest[f"{side}_calls"] += row[f"{side}_calls"]
    if len(order) > _ROWS:
        rows[_ROWS] |= {"name": f"{len(order) - _ROWS:,} more", **dict.fromkeys(_TEXTS)}
    return rows, place
