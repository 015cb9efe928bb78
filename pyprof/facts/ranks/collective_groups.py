# SPDX-License-Identifier: Apache-2.0
"""The same collective on several ranks: match the kernels that belong together, and measure how long each waited.

A rank is a device of a worker. Kernels are matched by process group and sequence number where both are recorded.
Else they are matched by order: the i-th collective of each rank, within the process group or, without groups, of
all. Order proves nothing by itself. It counts only if every rank has the same number of collectives, of the same
kinds and sizes, and if, on one clock, they end together: a collective in which all ranks exchange data ends on no
rank before the last one has arrived. Ranks on several hosts, whose clocks differ, need process groups and the same
marked steps. Collectives that fail these tests are not aligned, and `how` says why. Transfers between two ranks
(send, recv) are never aligned: no recorder stores the peer.

The kernel of a collective waits on the device until all ranks are there. The shortest kernel is that of the rank
that came last: it waits for nobody. Its length is the transfer; the excess of any other kernel is the time its rank
waited. Lengths are differences on one clock each, so clocks of different hosts may disagree. Times are in ns.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.core.model import Bools
from pyprof.store.files import Store
from pyprof.store.ids import worker_of

TOLERANCE_NS = 100_000  # by which ends of one collective may differ on one clock: its last hops, errors of clocks
MUTUAL = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")  # every rank needs data of every other
_ONE_SIZE = ("all_reduce", "broadcast", "reduce")  # a rank sends as much as any other
_PAIRWISE = ("send_recv", "send", "recv", "isend", "irecv")

BY_SEQUENCE = "process group and sequence number"
BY_ORDER_IN_GROUP = "order in the process group"
BY_ORDER = "order"
_ONE_RANK = "no: one rank recorded"
_PAIR = "no: between two ranks"
_COUNTS = "no: ranks have unequal counts and no sequence numbers"
_NOT_EVERYWHERE = "no: not recorded on every rank"
_KINDS = "no: ranks have different collectives at one place"
_ENDS = "no: kernels at one place do not end together"
_CLOCKS = "no: clocks of several hosts and no process groups"
_STEPS = "no: ranks recorded different steps"
_RANK = ["worker", "device"]


def collectives(store: Store) -> pd.DataFrame:
    """Return one row per kernel of a collective of the whole recording, by worker and launch.

    Columns: `event` (its id), worker, device, start_ns, duration_ns, name, dtype, group, size, seq, sent_bytes,
    received_bytes as in the table; `instance`: one number for the kernels that belong together, -1 where that is
    unknown; `ranks`: the number of these kernels; `transfer`: the duration of the shortest of them; `how`: how they
    were matched, or why not.
    """
    return store.cached("collectives", lambda: _collectives(store))


def _collectives(store: Store) -> pd.DataFrame:
    names, rows = store.named(
        """select c.event, e.device, e.start_ns, e.duration_ns, c.name, c.dtype, c.process_group as "group", c.size,
                  c.seq, c.sent_bytes, c.received_bytes
           from collective c join event e on e.id = c.event order by c.event"""
    )
    table = pd.DataFrame(rows, columns=names)
    whole = ["event", "device", "start_ns", "duration_ns", "size", "seq", "sent_bytes", "received_bytes"]
    table = table.astype(dict.fromkeys(whole, "Int64")).astype(
        dict.fromkeys(["event", "start_ns", "duration_ns"], np.int64)
    )
    table["device"] = table["device"].fillna(-1).astype(np.int64)
    table.insert(1, "worker", worker_of(table["event"].to_numpy()))
    table["instance"], table["how"] = np.int64(-1), _ONE_RANK
    pairwise = table["name"].isin(_PAIRWISE)
    table.loc[pairwise, "how"] = _PAIR
    clock, steps = one_clock(store), _steps(store)
    last = 0
    for group, members in table[~pairwise].groupby(table["group"].fillna(""), sort=True):
        numbered = members["seq"].notna() & (group != "")
        for part, by_number in ((members[numbered], True), (members[~numbered], False)):
            if not len(part):
                continue
            number, how = _by_number(part) if by_number else _by_order(part, str(group), clock, steps)
            aligned = number >= 0
            table.loc[part.index, "instance"] = np.where(aligned, number + last, -1)
            table.loc[part.index, "how"] = how
            last += int(number.max(initial=-1)) + 1
    return _with_transfer(table)


def _with_transfer(table: pd.DataFrame) -> pd.DataFrame:
    aligned = table[table["instance"] >= 0].groupby("instance")["duration_ns"].agg(["size", "min"])
    table["ranks"] = table["instance"].map(aligned["size"]).astype("Int64")
    table["transfer"] = table["instance"].map(aligned["min"]).astype("Int64")
    return table


def _ranks(table: pd.DataFrame) -> int:
    return len(table[_RANK].drop_duplicates())


def _by_number(table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Match kernels of one group by sequence number, those of equal number (replays of a graph) by their order."""
    table = table.sort_values(["start_ns", "event"], kind="stable")
    table = table.assign(nth=table.groupby([*_RANK, "seq", "name"]).cumcount())
    number = table.groupby(["seq", "name", "nth"], sort=True).ngroup().to_numpy()
    ranks = _ranks(table)
    # A number that one rank has more often than another says nothing of which is which.
    counts = table.groupby(["seq", "name", *_RANK])["nth"].size().groupby(level=["seq", "name"])
    same = (counts.min() == counts.max()) & (counts.size() == ranks)
    keys = pd.MultiIndex.from_frame(table[["seq", "name"]])
    aligned = same.reindex(keys).to_numpy(bool) & (ranks > 1)
    how = np.where(aligned, BY_SEQUENCE, _NOT_EVERYWHERE if ranks > 1 else _ONE_RANK)
    back = np.argsort(table.index.to_numpy(), kind="stable")
    return np.where(aligned, number, -1)[back], how[back]


def _by_order(
    table: pd.DataFrame, group: str, clock: bool, steps: dict[int, tuple[int, ...]]
) -> tuple[np.ndarray, np.ndarray]:
    """Match kernels of one group, or without any, by their order on each rank."""
    table = table.sort_values(["start_ns", "event"], kind="stable")
    number = table.groupby(_RANK).cumcount().to_numpy()
    reason = _order_fault(table.assign(nth=number), group, clock, steps)
    how = np.full(len(table), reason or (BY_ORDER_IN_GROUP if group else BY_ORDER), object)
    back = np.argsort(table.index.to_numpy(), kind="stable")
    return (np.full(len(table), -1) if reason else number)[back], how[back]


def _order_fault(table: pd.DataFrame, group: str, clock: bool, steps: dict[int, tuple[int, ...]]) -> str | None:
    """Return why the order on each rank does not prove which kernels belong together; None if it does."""
    counts = table.groupby(_RANK).size()
    if len(counts) < 2:
        return _ONE_RANK
    if counts.nunique() > 1:
        return _COUNTS
    if not clock and not group:
        return _CLOCKS
    if len({steps.get(worker, ()) for worker in table["worker"].unique().tolist()}) > 1:
        return _STEPS
    place = table["nth"]
    sized = table["sent_bytes"].where(table["name"].isin(_ONE_SIZE))
    for key in (table["name"], table["dtype"], sized):
        if key.fillna(-1).groupby(place).nunique().max() > 1:
            return _KINDS
    if clock:
        mutual = table["name"].isin(MUTUAL)
        end = (table["start_ns"] + table["duration_ns"])[mutual].groupby(place[mutual])
        spread = end.max() - end.min()
        if (spread > TOLERANCE_NS).any() or not (len(spread) or group):
            return _ENDS
    return None


def one_clock(store: Store) -> bool:
    """Return whether all workers share one clock: one recording, or files of one host with absolute times."""
    hosts = store.rows("select count(distinct host) from worker")[0][0]
    return bool(store.meta.get("run.clock", "unix") == "unix" and hosts <= 1)


def _steps(store: Store) -> dict[int, tuple[int, ...]]:
    """Return first, last and count of the steps that each worker marked."""
    rows = store.rows("select worker, min(number), max(number), count(*) from step group by worker")
    return {row[0]: row[1:] for row in rows}


def within(table: pd.DataFrame, spans: list[tuple[int, int]]) -> Bools:
    """Return which rows are events of given ranges of ids [low, high), which are in order."""
    low = np.array([span[0] for span in spans] or [0])
    high = np.array([span[1] for span in spans] or [0])
    event = table["event"].to_numpy()
    place = np.searchsorted(low, event, side="right") - 1
    return np.asarray((place >= 0) & (event < high[np.maximum(place, 0)]))
