# SPDX-License-Identifier: Apache-2.0
"""The same collective on several ranks: which kernels of theirs belong together, and how long each waited for others.

A rank is a device of a worker. Kernels belong together by process group and sequence number where both are recorded.
Else by order: the i-th of each rank's, within the process group or, without groups, of all. Order is proof of nothing
by itself; it counts only if every rank has as many collectives, of the same kinds and sizes, and if, on one clock,
they end together: a collective of all with all ends on no rank before the last has come. Ranks of several hosts,
whose clocks differ, need process groups and the same marks of steps. What fails this is not aligned, and `how` says
why. Transfers between two ranks (send, recv) are never aligned: nobody records with whom.

The kernel of a collective waits on the device until all ranks are there. The shortest of the kernels is the one of the
rank that came last: it waits for nobody. Its length is the transfer; what another kernel is longer, its rank waited.
Lengths are differences on one clock each, so that clocks of different hosts may be off. Times in ns.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.model import Bools
from pyprof.store.files import Store

TOLERANCE_NS = (
    100_000  # by which ends of one collective may differ on one clock: its last hops, errors of clocks
)
MUTUAL = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")  # every rank needs data of every other
_ONE_SIZE = ("all_reduce", "broadcast", "reduce")  # a rank sends as much as any other
_PAIRWISE = ("send_recv", "send", "recv", "isend", "irecv")

BY_SEQUENCE = "process group and sequence number"
BY_ORDER_IN_GROUP = "order in the process group"
BY_ORDER = "order"
_ALONE = "no: one rank recorded"
_PAIR = "no: between two ranks"
_COUNTS = "no: ranks have unequal counts and no sequence numbers"
_NOT_EVERYWHERE = "no: not recorded on every rank"
_KINDS = "no: ranks have different collectives at one place"
_ENDS = "no: kernels at one place do not end together"
_CLOCKS = "no: clocks of several hosts and no process groups"
_STEPS = "no: ranks recorded different steps"
_RANK = ["worker", "device"]


def collectives(store: Store) -> pd.DataFrame:
    """One row per kernel of a collective of the whole recording, by worker and launch: `event` (its id), worker,
    device, start, dur, name, dtype, group, size, seq, sent, received as in the table; `instance`: one number for the
    kernels that belong together, -1 where that is unknown; `ranks`: how many they are; `transfer`: the shortest of
    them; `how`."""
    return store.once("collectives", lambda: _collectives(store))


def _collectives(store: Store) -> pd.DataFrame:
    names, rows = store.named(
        """select c.event, e.device, e.start, e.dur, c.name, c.dtype, c.process_group as "group", c.size, c.seq, c.sent,
                  c.received
           from collective c join event e on e.id = c.event order by c.event"""
    )
    found = pd.DataFrame(rows, columns=names)
    whole = ["event", "device", "start", "dur", "size", "seq", "sent", "received"]
    found = found.astype(dict.fromkeys(whole, "Int64")).astype(
        dict.fromkeys(["event", "start", "dur"], np.int64)
    )
    found["device"] = found["device"].fillna(-1).astype(np.int64)
    found.insert(1, "worker", found["event"].to_numpy() >> 40)
    found["instance"], found["how"] = np.int64(-1), _ALONE
    pairwise = found["name"].isin(_PAIRWISE)
    found.loc[pairwise, "how"] = _PAIR
    clock, steps = _one_clock(store), _steps(store)
    last = 0
    for group, some in found[~pairwise].groupby(found["group"].fillna(""), sort=True):
        numbered = some["seq"].notna() & (group != "")
        for part, by_number in ((some[numbered], True), (some[~numbered], False)):
            if not len(part):
                continue
            number, how = _by_number(part) if by_number else _by_order(part, str(group), clock, steps)
            known = number >= 0
            found.loc[part.index, "instance"] = np.where(known, number + last, -1)
            found.loc[part.index, "how"] = how
            last += int(number.max(initial=-1)) + 1
    return _measured(found)


def _measured(found: pd.DataFrame) -> pd.DataFrame:
    aligned = found[found["instance"] >= 0].groupby("instance")["dur"].agg(["size", "min"])
    found["ranks"] = found["instance"].map(aligned["size"]).astype("Int64")
    found["transfer"] = found["instance"].map(aligned["min"]).astype("Int64")
    return found


def _ranks(found: pd.DataFrame) -> int:
    return len(found[_RANK].drop_duplicates())


def _by_number(found: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Kernels of one group by sequence number; those of equal number (replays of a graph) by their order."""
    found = found.sort_values(["start", "event"], kind="stable")
    found = found.assign(nth=found.groupby([*_RANK, "seq", "name"]).cumcount())
    number = found.groupby(["seq", "name", "nth"], sort=True).ngroup().to_numpy()
    every = _ranks(found)
    # A number that one rank has more often than another says nothing of which is which.
    counts = found.groupby(["seq", "name", *_RANK])["nth"].size().groupby(level=["seq", "name"])
    same = (counts.min() == counts.max()) & (counts.size() == every)
    keys = pd.MultiIndex.from_frame(found[["seq", "name"]])
    good = same.reindex(keys).to_numpy(bool) & (every > 1)
    how = np.where(good, BY_SEQUENCE, _NOT_EVERYWHERE if every > 1 else _ALONE)
    back = np.argsort(found.index.to_numpy(), kind="stable")
    return np.where(good, number, -1)[back], how[back]


def _by_order(
    found: pd.DataFrame, group: str, clock: bool, steps: dict[int, tuple[int, ...]]
) -> tuple[np.ndarray, np.ndarray]:
    """Kernels of one group, or of none, by their order on each rank."""
    found = found.sort_values(["start", "event"], kind="stable")
    number = found.groupby(_RANK).cumcount().to_numpy()
    why = _objection(found.assign(nth=number), group, clock, steps)
    how = np.full(len(found), why or (BY_ORDER_IN_GROUP if group else BY_ORDER), object)
    back = np.argsort(found.index.to_numpy(), kind="stable")
    return (np.full(len(found), -1) if why else number)[back], how[back]


def _objection(found: pd.DataFrame, group: str, clock: bool, steps: dict[int, tuple[int, ...]]) -> str | None:
    """Why the order on each rank does not tell what belongs together; None if it does."""
    counts = found.groupby(_RANK).size()
    if len(counts) < 2:
        return _ALONE
    if counts.nunique() > 1:
        return _COUNTS
    if not clock and not group:
        return _CLOCKS
    if len({steps.get(worker, ()) for worker in found["worker"].unique().tolist()}) > 1:
        return _STEPS
    place = found["nth"]
    sized = found["sent"].where(found["name"].isin(_ONE_SIZE))
    for key in (found["name"], found["dtype"], sized):
        if key.fillna(-1).groupby(place).nunique().max() > 1:
            return _KINDS
    if clock:
        mutual = found["name"].isin(MUTUAL)
        end = (found["start"] + found["dur"])[mutual].groupby(place[mutual])
        spread = end.max() - end.min()
        if (spread > TOLERANCE_NS).any() or not (len(spread) or group):
            return _ENDS
    return None


def _one_clock(store: Store) -> bool:
    """Whether times of all workers are on one clock: one recording, or files of one host with absolute times."""
    hosts = store.rows("select count(distinct host) from worker")[0][0]
    return bool(store.meta.get("run.clock", "unix") == "unix" and hosts <= 1)


def _steps(store: Store) -> dict[int, tuple[int, ...]]:
    """First, last and count of the steps that each worker marked."""
    rows = store.rows("select worker, min(number), max(number), count(*) from step group by worker")
    return {row[0]: row[1:] for row in rows}


def within(found: pd.DataFrame, spans: list[tuple[int, int]]) -> Bools:
    """Which rows are events of some ranges of ids [low, high), in order."""
    low = np.array([span[0] for span in spans] or [0])
    high = np.array([span[1] for span in spans] or [0])
    event = found["event"].to_numpy()
    place = np.searchsorted(low, event, side="right") - 1
    return np.asarray((place >= 0) & (event < high[np.maximum(place, 0)]))
