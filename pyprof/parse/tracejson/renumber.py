# SPDX-License-Identifier: Apache-2.0
"""Numbers that do not depend on the order of events in a file, which no version of torch promises.

Names, signatures, stacks and threads are numbered as they come, then anew by what they are, and events stand in the
order of their times. Of events at one time the recorder's count decides, then length and name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyprof.model import Ints, Strings
from pyprof.parse.tracejson.columns import Collector


def settle(found: Collector) -> None:
    """Number anew all that was numbered by its first event."""
    texts, name = _sorted(found.strings.texts)
    found.strings = Strings()
    for text in texts:
        found.strings.code(text)
    for parts in (found.operators, found.annotations, found.launches, found.functions, found.devices):
        parts.renumber("name", name)
    found.launches.renumber("kernel", np.r_[name, -1])  # -1 stays: none
    keys, signature = _sorted([*found.signatures])
    found.signatures = {key: i for i, key in enumerate(keys)}
    found.operators.renumber("signature", signature)
    stacks, stack = _sorted([*found.call_stacks])
    found.call_stacks = {text: i for i, text in enumerate(stacks)}
    found.operators.renumber("stack", np.r_[stack, -1])
    threads, thread = _sorted([*found.threads])
    found.threads = {key: i for i, key in enumerate(threads)}
    for parts in (
        found.operators,
        found.annotations,
        found.launches,
        found.functions,
        found.allocations,
        found.flows,
    ):
        parts.renumber("thread", thread)
    for parts in (found.operators, found.annotations, found.launches, found.functions):
        parts.sort("start", "thread", "order", "end", "name", "correlation", "signature")
    found.allocations.sort("time", "thread", "bytes", "address", "device", "allocated", "reserved")
    found.devices.sort("start", "device", "stream", "end", "name", "correlation", "kind", "node")
    told = found.devices.values("told", np.int32)
    gpu = np.full(len(found.told), -1, np.int64)
    here = np.flatnonzero(told >= 0)
    gpu[told[here]] = here
    found.collectives = sorted(
        (
            (event, int(thread[on]) if event < 0 else 0, start, end, name, place, args)
            for event, (on, start, end, name, place, args) in zip(gpu.tolist(), found.told)
        ),
        key=lambda each: each[:6],
    )


def _sorted(values: Sequence[Any]) -> tuple[list[Any], Ints]:
    """Values in order, and the new place of each old one."""
    order = sorted(range(len(values)), key=values.__getitem__)
    place = np.empty(len(values), np.int32)
    place[order] = np.arange(len(values), dtype=np.int32)
    return [values[i] for i in order], place
