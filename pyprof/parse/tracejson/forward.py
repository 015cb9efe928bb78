# SPDX-License-Identifier: Apache-2.0
"""The thread that ran the forward of a backward event.

A trace numbers threads twice: events carry the system's numbers, but "Fwd thread id" is torch's own count, which
occurs nowhere else. The arrows from forward to backward (`fwdbwd`) reveal which thread it is; without arrows it is
the thread whose operators have the sequence numbers, and names, of the backwards.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.core.intervals import groups
from pyprof.core.model import Column, Ints, Strings
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
    """Return the index of the thread of each operator's forward; missing for forwards, and if no thread or two threads
    fit.

    `process` is that of each thread; `flows` has thread, time, number and begins, a row for each end of an arrow.
    """
    backward = np.flatnonzero(forward.mask() & (forward.values > 0) & seq.mask() & (seq.values >= 0))
    out, present = np.zeros(len(thread), np.int32), np.zeros(len(thread), bool)
    if not len(backward):
        return Column(out, present)
    identity = process[thread[backward]].astype(np.int64) << 40 | forward.values[backward]
    votes = pd.concat(
        [
            _by_flow(thread[backward], start[backward], identity, flows),
            _by_number(thread, name, seq, forward, process, backward, identity, strings),
        ]
    )
    winners: dict[int, int] = {}
    for number, ballots in votes.groupby("identity"):
        total = ballots.groupby("thread")["votes"].sum().sort_values(ascending=False)
        if len(total) == 1 or total.iloc[0] > total.iloc[1]:
            winners[int(number)] = int(total.index[0])  # type: ignore[arg-type]
    values = [winners.get(number, -1) for number in identity.tolist()]
    out[backward], present[backward] = values, np.array(values) >= 0
    return Column(np.where(present, out, 0), present)


def _by_flow(thread: Ints, start: Ints, identity: Ints, flows: pd.DataFrame) -> pd.DataFrame:
    """Return a vote per arrow: it ends where a backward begins, or inside it."""
    begin, end = flows[flows["begins"]], flows[~flows["begins"]]
    arrows = end.merge(begin, on="number", suffixes=("", "_forward"))
    order = np.lexsort((start, thread))
    votes = []
    of_thread = {number: order[places] for number, places in groups(thread[order])}
    for number, places in groups(arrows["thread"].to_numpy()):
        if number in of_thread:
            events, ends = of_thread[number], arrows.iloc[places]
            position = np.searchsorted(start[events], ends["time"].to_numpy(), side="right") - 1
            fits = position >= 0
            votes.append(pd.DataFrame({
                "identity": identity[events[position[fits]]], "thread": ends["thread_forward"].to_numpy()[fits],
            }))  # fmt: skip
    return _count_votes(votes, 2)


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
    """Return a vote for each operator of the same process and number, two if the names agree."""
    is_forward = np.flatnonzero(seq.mask() & (seq.values >= 0) & ~(forward.mask() & (forward.values > 0)))
    nodes = [node_name(text) for text in strings.texts]
    operators = [operator_name(text) for text in strings.texts]
    ops = pd.DataFrame({
        "process": process[thread[is_forward]], "seq": seq.values[is_forward], "thread": thread[is_forward],
        "operator": [operators[code] for code in name[is_forward].tolist()],
    }).drop_duplicates()  # fmt: skip
    backwards = pd.DataFrame({
        "process": process[thread[backward]], "seq": seq.values[backward], "identity": identity,
        "node": [nodes[code] for code in name[backward].tolist()],
    }).drop_duplicates()  # fmt: skip
    pairs = backwards.merge(ops, on=["process", "seq"])
    agree = pairs[pairs["node"] == pairs["operator"]]
    return pd.concat([_count_votes([pairs], 1), _count_votes([agree], 1)])


def _count_votes(votes: list[pd.DataFrame], weight: int) -> pd.DataFrame:
    frame = pd.concat(votes) if votes else pd.DataFrame({"identity": [], "thread": []})
    counts = frame.groupby(["identity", "thread"]).size().mul(weight)
    return counts.rename("votes").reset_index()
