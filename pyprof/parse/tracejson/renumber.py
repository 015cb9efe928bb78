# SPDX-License-Identifier: Apache-2.0
"""Numbers that do not depend on the order of events in a file, which no version of torch guarantees.

Names, signatures, stacks and threads are first numbered in order of appearance, then renumbered in sorted order, and
events are sorted by time. Among events at the same time the recorder's count decides, then length and name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyprof.core.model import Ints, Strings
from pyprof.parse.tracejson.columns import Collector


def renumber(collector: Collector) -> None:
    """Renumber everything that was numbered in order of appearance."""
    texts, name = _sort(collector.strings.texts)
    collector.strings = Strings()
    for text in texts:
        collector.strings.code(text)
    for parts in (
        collector.operators,
        collector.annotations,
        collector.launches,
        collector.functions,
        collector.devices,
    ):
        parts.renumber("name", name)
    collector.launches.renumber("kernel", np.r_[name, -1])  # -1 stays: none
    keys, signature = _sort([*collector.signatures])
    collector.signatures = {key: i for i, key in enumerate(keys)}
    collector.operators.renumber("signature", signature)
    stacks, stack = _sort([*collector.call_stacks])
    collector.call_stacks = {text: i for i, text in enumerate(stacks)}
    collector.operators.renumber("stack", np.r_[stack, -1])
    threads, thread = _sort([*collector.threads])
    collector.threads = {key: i for i, key in enumerate(threads)}
    for parts in (
        collector.operators,
        collector.annotations,
        collector.launches,
        collector.functions,
        collector.allocations,
        collector.flows,
    ):
        parts.renumber("thread", thread)
    for parts in (collector.operators, collector.annotations, collector.launches, collector.functions):
        parts.sort("start", "thread", "order", "end", "name", "correlation", "signature")
    collector.allocations.sort("time", "thread", "bytes", "address", "device", "allocated", "reserved")
    collector.devices.sort("start", "device", "stream", "end", "name", "correlation", "kind", "node")
    communication = collector.devices.values("communication", np.int32)
    gpu = np.full(len(collector.communications), -1, np.int64)
    rows = np.flatnonzero(communication >= 0)
    gpu[communication[rows]] = rows
    collector.collectives = sorted(
        (
            (event, int(thread[owner]) if event < 0 else 0, start, end, name, place, args)
            for event, (owner, start, end, name, place, args) in zip(gpu.tolist(), collector.communications)
        ),
        key=lambda entry: entry[:6],
    )


def _sort(values: Sequence[Any]) -> tuple[list[Any], Ints]:
    """Return the values in order, and the new position of each old one."""
    order = sorted(range(len(values)), key=values.__getitem__)
    place = np.empty(len(values), np.int32)
    place[order] = np.arange(len(values), dtype=np.int32)
    return [values[i] for i in order], place
