# SPDX-License-Identifier: Apache-2.0
"""Events of a Chrome trace on devices, and the flows to them and between executions of operators."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pyprof.export import dimensions
from pyprof.export.events import MASK, Events, event, flow
from pyprof.export.json_text import chosen, line, number, optional
from pyprof.model import Column


def events(trace: Events, worker: int) -> Iterator[pa.Array]:
    """Kernels, copies and sets, with the flows from their launches: one beginning per call, an end per event."""
    query = """select event.id, event.kind, event.device, event.stream, event.name, event.operator, event.op,
                      event.site, event.api, event.start, event.dur, event.geometry, event.flops, event.bytes,
                      event.copied, event.graph, api.thread, api.start as launch, api.dur as launch_dur
               from event left join api on api.id = event.api where event.kind < 3 and"""
    names, shapes = dimensions.kernels(trace.store), dimensions.geometries(trace.store)
    drawn = np.zeros(0, bool)  # by API call: whether its flow has begun
    for found in trace.pieces("event", worker, query, "event.start", "event.dur"):
        pids, tids = trace.tracks.of_event(worker, found["device"], found["stream"])
        place = line(',"pid":', number(pids), ',"tid":', number(tids))
        common = line(
            chosen(names, found["name"].values),
            chosen(dimensions.CATEGORIES, found["kind"].values),
            place,
        )
        api = found["api"]
        correlation = number(Column(trace.number_of("api", api.values), api.mask()))
        args = line(
            ',"args":{"device":', number(np.where(found["device"].mask(), found["device"].values, -1)),
            ',"stream":', number(tids), optional(',"correlation":', correlation),
            optional(',"External id":', trace.external(found["op"])),
            optional("", chosen(shapes, found["geometry"])),
            optional(',"bytes":', number(found["copied"])), optional(',"flops":', number(found["flops"])),
            optional(',"algorithmic bytes":', number(found["bytes"])),
            optional(',"graph node id":', number(found["graph"])),
            optional("", chosen(trace.operators, found["operator"])),
            optional("", chosen(trace.sites, found["site"])), "}}",
        )  # fmt: skip
        start = found["start"].values
        yield event("X", common, start, found["dur"].values, args)
        joined = api.mask() & trace.inside(found["launch"].values, found["launch_dur"].values)
        if joined.any():
            call = api.values & MASK
            if len(drawn) <= int(call[joined].max()):
                drawn = np.r_[drawn, np.zeros(int(call[joined].max()) + 1 - len(drawn), bool)]
            fresh = np.flatnonzero(joined & ~drawn[np.where(joined, call, 0)])
            fresh = fresh[np.unique(call[fresh], return_index=True)[1]]
            drawn[call[fresh]] = True
            pid, tid = trace.on_thread(found["thread"].values[fresh])
            yield flow(
                "s", "ac2g", correlation.take(pa.array(fresh)), pid, tid, found["launch"].values[fresh]
            )
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
    """Flows from forward to backward executions of operators."""
    both = f"{trace.window.sql('op.start', 'op.length')}"
    query = f"""select op.id, op.thread, op.start, f.thread as from_thread, f.start as from_start
                from (select *, "end" - start as length from op) op
                join (select *, "end" - start as length from op) f on f.id = op.forward
                where op.thread is not null and f.thread is not null and {both.replace("op.", "f.")} and"""
    for found in trace.pieces("op", worker, query, "op.start", "op.length"):
        identity = number(trace.number_of("op", found["id"].values))
        for what, thread, start in (("s", "from_thread", "from_start"), ("f", "thread", "start")):
            pid, tid = trace.on_thread(found[thread].values)
            yield flow(what, "fwdbwd", identity, pid, tid, found[start].values)
