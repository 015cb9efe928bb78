# SPDX-License-Identifier: Apache-2.0
"""Chrome trace JSON, as torch.profiler writes it, for Perfetto and other tools that read such traces.

Threads of processes and streams of devices are rows. Launches and what they started are connected by `ac2g` flows,
forward and backward executions of operators by `fwdbwd` flows; iterations are ranges ProfilerStep#N. Additional
arguments contain what the profile knows: op, module, stack, flops, bytes. "External id" is the execution of an
operator that an event belongs to. Events are written in pieces: memory does not grow with their number.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa

import pyprof
from pyprof.export import Window, dimensions, exporter, gpu, host
from pyprof.export.events import Events
from pyprof.export.json_text import line, put
from pyprof.parse.merge import unix_start
from pyprof.store.files import Store

_LEVEL = 5  # of gzip


@exporter("chrome")
def chrome(store: Store, window: Window, path: str, compress: bool) -> None:
    """Write Chrome trace JSON, compressed if the name ends in .gz."""
    with open(path, "wb") as raw:
        if not compress:
            _write(store, window, raw)
            return
        with gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as file:
            _write(store, window, file)  # type: ignore[arg-type]


def _write(store: Store, window: Window, file: BinaryIO) -> None:
    head: dict[str, Any] = {
        "schemaVersion": 1, "pyprof": pyprof.__version__, "deviceProperties": dimensions.devices(store),
        "displayTimeUnit": "ms", "traceName": store.meta.get("source", ""),
    }  # fmt: skip
    if group := dimensions.distributed(store):
        head["distributedInfo"] = group
    begin = unix_start(int(store.meta.get("t0", 0)), store.meta)
    if begin is not None:
        head["baseTimeNanoseconds"] = begin
    file.write(json.dumps(head)[:-1].encode() + b', "traceEvents": [\n')
    trace = Events(store, window)
    file.write(",\n".join(trace.tracks.lines()).encode())
    for part in _parts(trace):
        put(line(",\n", part), file)
    file.write(b"\n]}\n")


def _parts(trace: Events) -> Iterator[pa.Array]:
    """Yield all events."""
    yield from host.steps(trace)
    for worker in trace.tracks.pid:
        yield from host.ranges(trace, worker)
        yield from host.calls(trace, worker)
        if trace.gpu:
            yield from gpu.events(trace, worker)
        yield from gpu.backward(trace, worker)
        yield from host.memory(trace, worker)
