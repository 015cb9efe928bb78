# SPDX-License-Identifier: Apache-2.0
"""Changes that `--mode=simple` and `--domains` make to a recording before it is aggregated."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from pyprof.core.errors import FormatError, UsageError
from pyprof.core.model import PUSH_POP, Column, Trace
from pyprof.parse.trace_builder import empty_ops
from pyprof.profiles import Change

SIMPLE = "simple_mode_global_node_name"  # DLProf's name for the one operator of --mode=simple
DEFAULT_DOMAIN = "default"


def simple(trace: Trace) -> Trace:
    """Return a trace in which each thread's work on the GPU is one operator. Raises FormatError without such work."""
    from pyprof.core.marker import encode
    from pyprof.core.model import Call

    launches = trace.launches
    if not len(trace.gpu):
        raise FormatError(f"{trace.path} has no GPU events, but --mode=simple uses only those; use --mode=pytorch.")
    threads = np.unique(launches.thread)
    code = trace.strings.code(encode(Call(mod="", op=SIMPLE, args=())))
    start = np.array([launches.start[launches.thread == t].min() for t in threads], np.int64)
    end = np.array([launches.end[launches.thread == t].max() for t in threads], np.int64)
    count = len(threads)
    ranges = dataclasses.replace(
        trace.ranges, thread=threads, start=start, end=Column(end), text=np.full(count, code, np.int32),
        operator=np.zeros(count, bool), kind=np.full(count, PUSH_POP, np.int8), seq=Column.missing(count),
        domain=np.zeros(count, np.int32),
    )  # fmt: skip
    return dataclasses.replace(trace, ranges=ranges, ops=empty_ops())


def domains(trace: Trace) -> list[str]:
    """Return the NVTX domains of a recording; ranges without a domain are in `default`."""
    return sorted(trace.strings[code] or DEFAULT_DOMAIN for code in np.unique(trace.ranges.domain).tolist())


def of_domain(name: str) -> Change:
    """Return a change that keeps only the ranges of one domain. It raises UsageError if the recording has no such
    domain."""

    def changed(trace: Trace) -> Trace:
        names = domains(trace)
        if name not in names:
            available = f"it has {', '.join(names)}" if names else "it has no NVTX ranges"
            raise UsageError(f"--domains={name}: {trace.path} has no such NVTX domain; {available}.")
        code = trace.strings.code("" if name == DEFAULT_DOMAIN else name)
        index = np.flatnonzero(trace.ranges.domain == code)
        columns: dict[str, Any] = {}
        for field in dataclasses.fields(trace.ranges):
            column = getattr(trace.ranges, field.name)
            columns[field.name] = column.take(index) if isinstance(column, Column) else column[index]
        return dataclasses.replace(trace, ranges=dataclasses.replace(trace.ranges, **columns))

    return changed
