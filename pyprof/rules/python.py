# SPDX-License-Identifier: Apache-2.0
"""Rules about Python: garbage collection, operators that stay on the CPU, compilation."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd

from pyprof.core import intervals
from pyprof.core.marker import COLLECTION
from pyprof.core.units import duration, percent
from pyprof.facts.device.partition import NOTHING, Union
from pyprof.facts.device.timeline import Excerpt
from pyprof.facts.host.host_work import main_thread
from pyprof.facts.path.what_if import Edit
from pyprof.rules import Finding, NeedsFacts, rule
from pyprof.rules.context import Run
from pyprof.rules.host_places import collections, ranges_with, sums_by_place, texts_like
from pyprof.rules.thresholds import limit
from pyprof.store.ids import first_id
from pyprof.store.kinds import IS_FUNCTION, IS_OPERATOR_EVENT

# torch._dynamo's names of ranges that compile a frame, and of functions that resume after a graph break.
_COMPILATIONS = (
    "_compile.compile_inner (dynamo_timed)",
    "_compile.<locals>.compile_inner (dynamo_timed)",
    "entire_frame_compile (dynamo_timed)",
    "entire_frame_compile",
)
_COLLECTED = re.compile(rf"^in {COLLECTION} \(([^()]*)\)")
_RESUMED = "%: torch\\_dynamo\\_resume\\_in\\_%"


@rule("R33", "gc_or_cpu_python")
def gc_or_cpu_python(run: Run) -> Finding | None:
    """While the GPU does nothing, Python collects garbage, or the main thread is in an operator that uses no GPU at
    all. Without a GPU, Python collects garbage. Waits for the DataLoader belong to R08.

    Fires: 2 ms of garbage collection in each step of 100 ms, the GPU idle; 15 ms in an operator on tensors of the CPU.
    Silent: the same while kernels run; 0.9 ms; an operator that launches kernels.
    """
    if not run.on_cpu:
        run.need_gpu()
    collected, count, operators = 0, 0, [pd.DataFrame({"operator": [], "idle": []}, dtype=np.int64)]
    for one in run.excerpts:
        busy = NOTHING if run.on_cpu else Union(one.start, one.end.copy())
        union = collections(run, one)
        count += len(union.start)
        collected += len(union) - len(union.both(busy))
        if not run.on_cpu:
            operators.append(_operators(run, one, busy))
    rows = pd.concat(operators, ignore_index=True)
    rows["type"] = rows["operator"].map(run.operators["type"])
    by_type = rows.groupby("type")["idle"].sum().map(run.per_worker)
    slow = by_type[by_type.map(run.share) > limit("R33.operator")]
    garbage = run.per_worker(collected)
    much = run.share(garbage) > limit("R33.gc")
    if not much and not len(slow):
        ours = run.facts.get("format") == "capture"
        if not count and not ours and not run.store.rows(f"select 1 from range where {IS_FUNCTION} limit 1"):
            raise NeedsFacts(
                "needs calls of Python functions, to see garbage collection; record with "
                "torch.profiler(with_stack=True)"
            )
        return None
    return _python(run, (garbage, count) if much else None, slow, rows)


def _python(run: Run, garbage: tuple[int, int] | None, slow: pd.Series[int], own: pd.DataFrame) -> Finding:
    problems, advice, rows = [], [], list[dict[str, Any]]()
    idle = "" if run.on_cpu else " while the GPU does nothing"
    if garbage:
        time, count = garbage
        first = sums_by_place(run, collects=True).iloc[:1]
        if first["few"].any():
            run.late_ranks.add("R33")
        source = [_COLLECTED.sub(r"at \1", place) for place in first["place"]]
        problems.append(
            f"Python collects garbage for {percent(run.share(time))} of the time{idle}"
            f"{', ' + source[0] if source else ''}."
        )
        advice.append("Call gc.freeze() after building the model, and gc.disable() with gc.collect() every N steps.")
        rows.append({"what": "garbage collection", "calls": count, "time_ns": time})
    if len(slow):
        names = ", ".join(slow.sort_values(ascending=False).index[:3])
        problems.append(
            f"Operators that use no GPU ({names}) take {percent(run.share(int(slow.sum())))} of the time on the main "
            "thread while the GPU does nothing."
        )
        advice.append(
            "Move computation on CPU tensors to the GPU or to workers of the DataLoader, or do it less often than "
            "every step. Where operators only make views or handle many small tensors, use fewer, larger tensors."
        )
        own = own[own["type"].isin(slow.index)]
        rows += run.by_operator(own, "time_ns", calls=("idle", "size"), time_ns=("idle", "sum"))
    saving = int(slow.sum())
    if garbage:
        saving += run.without("R33", run.edit(lambda one: Edit(collections(run, one))), garbage[0])
    return run.finding(
        " ".join(problems),
        " ".join(advice),
        saving,
        rows,
        "A step gets shorter." if run.on_cpu else "The summary's GPU utilization rises.",
    )


def _operators(run: Run, excerpt: Excerpt, busy: Union) -> pd.DataFrame:
    """Return executions on the worker's main thread that call no API and have no GPU event: operator, and `idle`.

    `idle` is the time in them, without that in others inside them, in which the GPU did nothing.
    """
    first, last = excerpt.ids("op")
    columns = run.store.columns(
        f"""select o.operator, o.start_ns, o.end_ns, o.api_ns, o.kernels, o.gpu_ns, p.unassociated
            from op o join operator p on p.id = o.operator
            where o.id >= {first} and o.id < {last} and o.thread = {main_thread(run.store, excerpt.worker)}
            order by o.id"""
    )
    start, end = columns["start_ns"].values, columns["end_ns"].values
    order = intervals.order_by(start, -end, np.arange(len(start)))
    start, end = start[order], end[order]
    nesting, _ = intervals.nested(start, end)
    idle = end - start - busy.within(start, end)
    own = idle.copy()
    inner = np.flatnonzero(nesting.parent >= 0)
    np.subtract.at(own, nesting.parent[inner], idle[inner])
    plain = ~excerpt.dataloader.covers(start, end)
    for name in ("api_ns", "kernels", "gpu_ns", "unassociated"):
        plain &= columns[name].values[order] == 0
    return pd.DataFrame({"operator": columns["operator"].values[order], "idle": own})[plain]


@rule("R35", "recompiles")
def recompiles(run: Run) -> Finding | None:
    """torch.compile compiles again after the first iteration, or breaks the graph in every step. This rule looks at all
    iterations of the aggregation: those that compile are not steady. The saving is the time of compilations in steady
    ones, unknown where there is none.

    Fires: two compilations after the first iteration; one function a step that resumes after a graph break.
    Silent: compilations only in the first iteration; one later.
    """
    if not run.store.rows(f"select 1 from range where {IS_OPERATOR_EVENT} limit 1"):
        raise NeedsFacts("needs torch's operator events, which this recording lacks; record with torch.profiler")
    run.need_steps()
    compiling, resumed = texts_like(run, _COMPILATIONS), texts_like(run, (_RESUMED,))
    later = run.iterations[run.iterations["number"] > run.source.aggregation.first].groupby("worker")
    windows = later.agg(start=("host_start_ns", "min"), end=("host_end_ns", "max"), steps=("number", "size"))
    problems, rows, saving = list[str](), list[dict[str, Any]](), 0
    for worker, start, end, steps in windows.itertuples():
        union = _compilations(run, compiling, worker, start, end)
        count = len(union.start)
        breaks = ranges_with(run, resumed, worker, start, end)["text"]
        if count >= limit("R35.compiles"):
            problems.append(f"{count} compilations after the first iteration take {duration(len(union))}")
            rows += [{"compilation_at_ns": int(a), "time_ns": int(b - a)} for a, b in zip(union.start, union.end)][:3]
        if len(breaks) >= limit("R35.breaks") * steps:
            problems.append(f"{len(breaks) / steps:.1f} functions a step resume after a graph break")
            most = Counter(breaks.tolist()).most_common(3)
            rows += [{"resumed": resumed[code], "calls": calls} for code, calls in most]
        if problems:
            saving = sum(len(union.cut(begin, until)) for number, begin, until, *_ in run.ids if number == worker)
            break  # other workers run the same program
    if not problems:
        return None
    return run.finding(
        f"torch.compile: {', and '.join(problems)}.",
        "TORCH_LOGS=recompiles,graph_breaks names the causes. Recompilation: sizes that change "
        "(torch.compile(dynamic=True), torch._dynamo.mark_dynamic), Python numbers as arguments (make them tensors). "
        "Graph breaks: no .item(), print or branches on data inside; torch.compile(fullgraph=True) finds them.",
        saving or None,
        rows,
        "No compilation after the first iteration.",
    )


def _compilations(run: Run, texts: dict[int, str], worker: int, start: int, end: int) -> Union:
    """Return the time that torch.compile compiles in: torch's own ranges with these texts, and PyProf's."""
    ranges = ranges_with(run, texts, worker, start, end)
    own = run.store.columns(
        f"""select e.start_ns, e.end_ns from op e join operator o on o.id = e.operator
            where o.mod = 'torch' and o.type = 'compile' and e.start_ns >= {start} and e.start_ns < {end}
            and e.id >= {first_id(worker)} and e.id < {first_id(worker + 1)} order by e.id"""
    )
    begin, until = own["start_ns"].values, own["end_ns"].values
    return Union(np.r_[ranges["start_ns"], begin], np.r_[ranges["start_ns"] + ranges["duration_ns"], until])
