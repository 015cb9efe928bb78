# SPDX-License-Identifier: Apache-2.0
"""Events of a Chrome trace on devices, the flows to them, and the flows between executions of operators."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pyprof.core.model import Column
from pyprof.export import dimensions
from pyprof.export.events import MASK, Events, event, flow
from pyprof.export.json_text import line, number, optional, select
from pyprof.store.kinds import ON_GPU


def events(trace: Events, worker: int) -> Iterator[pa.Array]:
    """Yield kernels, copies and sets, with the flows from their launches: one start per call, one end per event."""
    query = f"""select event.id, event.kind, event.device, event.stream, event.name, event.operator, event.op,
                      event.site, event.api, event.start_ns, event.duration_ns, event.geometry, event.flops,
                      event.bytes, event.copied_bytes, event.graph, api.thread, api.start_ns as launch_ns,
                      api.duration_ns as launch_duration_ns
               from event left join api on api.id = event.api where event.{ON_GPU} and"""
    names, shapes = dimensions.kernels(trace.store), dimensions.geometries(trace.store)
    started = np.zeros(0, bool)  # by API call: whether its flow has begun
    for rows in trace.pieces("event", worker, query, "event.start_ns", "event.duration_ns"):
        pids, tids = trace.tracks.of_event(worker, rows["device"], rows["stream"])
        place = line(',"pid":', number(pids), ',"tid":', number(tids))
        common = line(
            select(names, rows["name"].values),
            select(dimensions.CATEGORIES, rows["kind"].values),
            place,
        )
        api = rows["api"]
        correlation = number(Column(trace.number_of("api", api.values), api.mask()))
        args = line(
            ',"args":{"device":', number(np.where(rows["device"].mask(), rows["device"].values, -1)),
            ',"stream":', number(tids), optional(',"correlation":', correlation),
            optional(',"External id":', trace.external(rows["op"])),
            optional("", select(shapes, rows["geometry"])),
            optional(',"bytes":', number(rows["copied_bytes"])), optional(',"flops":', number(rows["flops"])),
            optional(',"algorithmic bytes":', number(rows["bytes"])),
            optional(',"graph node id":', number(rows["graph"])),
            optional("", select(trace.operators, rows["operator"])),
            optional("", select(trace.sites, rows["site"])), "}}",
        )  # fmt: skip
        start = rows["start_ns"].values
        yield event("X", common, start, rows["duration_ns"].values, args)
        joined = api.mask() & trace.inside(rows["launch_ns"].values, rows["launch_duration_ns"].values)
        if joined.any():
            call = api.values & MASK
            if len(started) <= int(call[joined].max()):
                started = np.r_[started, np.zeros(int(call[joined].max()) + 1 - len(started), bool)]
            starts = np.flatnonzero(joined & ~started[np.where(joined, call, 0)])
            starts = starts[np.unique(call[starts], return_index=True)[1]]
            started[call[starts]] = True
            pid, tid = trace.on_thread(rows["thread"].values[starts])
            yield flow("s", "ac2g", correlation.take(pa.array(starts)), pid, tid, rows["launch_ns"].values[starts])
            ends = np.flatnonzero(joined)
            yield flow(
                "f",
                "ac2g",
                correlation.take(pa.array(ends)),
                number(pids[ends]),
                number(tids[ends]),
                start[ends],
            )


def backward(trace: Events, worker: int) -> Iterator[pa.Array]:
    """Yield flows from forward to backward executions of operators."""
    both = f"{trace.window.sql('op.start_ns', 'op.length')}"
    query = f"""select op.id, op.thread, op.start_ns, f.thread as from_thread, f.start_ns as from_start
                from (select *, end_ns - start_ns as length from op) op
                join (select *, end_ns - start_ns as length from op) f on f.id = op.forward
                where op.thread is not null and f.thread is not null and {both.replace("op.", "f.")} and"""
    for rows in trace.pieces("op", worker, query, "op.start_ns", "op.length"):
        identity = number(trace.number_of("op", rows["id"].values))
        for phase, thread, start in (("s", "from_thread", "from_start"), ("f", "thread", "start_ns")):
            pid, tid = trace.on_thread(rows[thread].values)
            yield flow(phase, "fwdbwd", identity, pid, tid, rows[start].values)
