# SPDX-License-Identifier: Apache-2.0
"""Which thread ran the forward of a backward event.

A trace numbers threads twice: events carry the system's numbers, but "Fwd thread id" is a count of torch's own that
stands nowhere else. The arrows from forward to backward (`fwdbwd`) tell which thread it is; without arrows it is the
thread whose operators have the sequence numbers, and names, of the backwards.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.intervals import groups
from pyprof.model import Column, Ints, Strings
from pyprof.parse.backward_links import node_name, operator_name


def threads(
    thread: Ints,
    start: Ints,
    name: Ints,
    seq: Column,
    forward: Column,
    process: Ints,
    strings: Strings,
    flows: pd.DataFrame,
) -> Column:
    """Index of the thread of each operator's forward; missing for forwards, and where nothing or two threads fit.

    `process` is that of each thread; `flows` has thread, time, number and begins, a row for each end of an arrow.
    """
    backward = np.flatnonzero(forward.mask() & (forward.values > 0) & seq.mask() & (seq.values >= 0))
    out, present = np.zeros(len(thread), np.int32), np.zeros(len(thread), bool)
    if not len(backward):
        return Column(out, present)
    identity = process[thread[backward]].astype(np.int64) << 40 | forward.values[backward]
    votes = pd.concat([
        _by_flow(thread[backward], start[backward], identity, flows),
        _by_number(thread, name, seq, forward, process, backward, identity, strings),
    ])  # fmt: skip
    chosen: dict[int, int] = {}
    for one, found in votes.groupby("identity"):
        total = found.groupby("thread")["votes"].sum().sort_values(ascending=False)
        if len(total) == 1 or total.iloc[0] > total.iloc[1]:
            chosen[int(one)] = int(total.index[0])  # type: ignore[arg-type]
    values = [chosen.get(one, -1) for one in identity.tolist()]
    out[backward], present[backward] = values, np.array(values) >= 0
    return Column(np.where(present, out, 0), present)


def _by_flow(thread: Ints, start: Ints, identity: Ints, flows: pd.DataFrame) -> pd.DataFrame:
    """An arrow is a vote: it ends where a backward begins, or inside it."""
    begin, end = flows[flows["begins"]], flows[~flows["begins"]]
    arrows = end.merge(begin, on="number", suffixes=("", "_forward"))
    order = np.lexsort((start, thread))
    votes = []
    of_thread = {number: order[places] for number, places in groups(thread[order])}
    for number, places in groups(arrows["thread"].to_numpy()):
        if number in of_thread:
            mine, some = of_thread[number], arrows.iloc[places]
            place = np.searchsorted(start[mine], some["time"].to_numpy(), side="right") - 1
            fits = place >= 0
            votes.append(pd.DataFrame({
                "identity": identity[mine[place[fits]]], "thread": some["thread_forward"].to_numpy()[fits],
            }))  # fmt: skip
    return _counted(votes, 2)


def _by_number(
    thread: Ints,
    name: Ints,
    seq: Column,
    forward: Column,
    process: Ints,
    backward: Ints,
    identity: Ints,
    strings: Strings,
) -> pd.DataFrame:
    """An operator of the same process and number is a vote, two if the names agree."""
    is_forward = np.flatnonzero(seq.mask() & (seq.values >= 0) & ~(forward.mask() & (forward.values > 0)))
    nodes = [node_name(text) for text in strings.texts]
    operators = [operator_name(text) for text in strings.texts]
    ops = pd.DataFrame({
        "process": process[thread[is_forward]], "seq": seq.values[is_forward], "thread": thread[is_forward],
        "operator": [operators[code] for code in name[is_forward].tolist()],
    }).drop_duplicates()  # fmt: skip
    found = pd.DataFrame({
        "process": process[thread[backward]], "seq": seq.values[backward], "identity": identity,
        "node": [nodes[code] for code in name[backward].tolist()],
    }).drop_duplicates()  # fmt: skip
    pairs = found.merge(ops, on=["process", "seq"])
    agree = pairs[pairs["node"] == pairs["operator"]]
    return pd.concat([_counted([pairs], 1), _counted([agree], 1)])


def _counted(found: list[pd.DataFrame], weight: int) -> pd.DataFrame:
    frame = pd.concat(found) if found else pd.DataFrame({"identity": [], "thread": []})
    counts = frame.groupby(["identity", "thread"]).size().mul(weight)
    return counts.rename("votes").reset_index()
