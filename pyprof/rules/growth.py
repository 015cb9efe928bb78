# SPDX-License-Identifier: Apache-2.0
"""A rule about memory that each step leaves behind."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.model import Ints
from pyprof.core.units import size
from pyprof.facts.allocations import CPU, Allocations, allocations, pairs
from pyprof.facts.device.timeline import Excerpt
from pyprof.facts.host.host_work import HostWork
from pyprof.rules import Finding, NeedsFacts, Rows, rule
from pyprof.rules.context import STEPS, Run
from pyprof.rules.graphs import common_lines
from pyprof.rules.thresholds import limit


class _Growth(NamedTuple):
    """Memory of a device that each step of a worker leaves behind: `per_step`, bytes; `retained`: places of the
    allocations in `events`; `steps`: start and end of the steps, ns."""

    events: Allocations
    per_step: int
    retained: Ints
    steps: tuple[int, int]


@rule("R55", "growing_memory", STEPS, rows=Rows("memory", "Memory"))
def growing_memory(run: Run) -> Finding | None:
    """Each step leaves memory behind: what most of the first half of the steps allocated, in operators or outside of
    them, is still in use after all of them. It saves no time until the memory is full, which ends the run. A
    recording without allocations does not tell.

    Fires: outputs.append(output) of 1 MB; total = total + loss, where the loss has a graph that no backward frees.
    Silent: losses.append(loss.item()); a cache that the first two steps fill; batches that a loader has in advance.
    """
    if not run.store.rows("select 1 from memory limit 1"):
        raise NeedsFacts(
            "needs allocations; record with pyprof run --memory, or with torch.profiler(profile_memory=True)"
        )
    growths = [growth for events in allocations(run.source) if (growth := _growth(run, events))]
    most = max(growths, key=lambda growth: growth.per_step, default=None)
    if most is None or most.per_step < limit("R55.bytes"):
        return None
    device = most.events.device
    table = _by_operator(run, most)
    lines = common_lines(table["frames"])
    name = table.sort_values("bytes", kind="stable")["name"].iloc[-1]
    total = run.facts.get("cpu.memory_bytes" if device == CPU else f"gpu.{device}.memory_bytes", "")
    full = ""
    if total.isdigit():
        full = f", which fills {size(int(total))} in {int(total) // most.per_step:,} steps"
    memory = "the CPU" if device == CPU else f"GPU {device}"
    at = f" called at {lines[-1]}" if lines else ""
    return run.finding(
        f"Memory in use on {memory} grows by {size(most.per_step)} a step{full}. It is kept from operators{at}, mostly "
        f"{name if isinstance(name, str) else 'outside of operators'}.",
        "The program still has these tensors, in a list, or in the graph of a loss that it keeps: append loss.item() "
        "or output.detach().cpu(), add up total += loss.item(), and run evaluations under torch.no_grad().",
        None,
        run.top(table, "bytes", "operator=name source allocations=count bytes"),
        "Memory in use returns to the same bytes after each step (report memory, --show=curve).",
    )


def _growth(run: Run, events: Allocations) -> _Growth | None:
    rows = run.iterations
    rows = rows[(rows["worker"] == events.worker) & (rows["partial"] == 0)]
    if len(rows) < limit("R55.steps") or not events.address.mask().all():
        return None
    starts, ends = rows[["host_start_ns", "host_end_ns"]].to_numpy(np.int64).T
    half = len(rows) // 2
    born, freed = pairs(events)
    born, freed = born[born >= 0], freed[born >= 0]
    time = events.time[born]
    retained = (freed < 0) | (events.time[freed] > ends[-1])
    retained &= (time >= starts[0]) & (time < ends[half - 1])
    left = np.zeros(half, np.int64)
    np.add.at(left, np.searchsorted(ends, time[retained], side="right"), events.bytes[born[retained]])
    return _Growth(events, int(np.median(left)), born[retained], (int(starts[0]), int(ends[-1])))


def _by_operator(run: Run, growth: _Growth) -> pd.DataFrame:
    """Return the operators that allocated what is kept, with its bytes and the number of allocations."""
    events, retained = growth.events, growth.retained
    work = HostWork(Excerpt(run.store, events.worker, growth.steps))
    operator, _ = work.executions(events.thread[retained], events.time[retained])
    table = pd.DataFrame({"operator": operator, "bytes": events.bytes[retained]})
    table = table.groupby("operator", as_index=False).agg(bytes=("bytes", "sum"), count=("bytes", "size"))
    return table.join(run.operators[["name", "source", "frames"]], on="operator")
