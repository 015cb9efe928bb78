# SPDX-License-Identifier: Apache-2.0
"""Rules about a CPU that does not keep the GPU busy: late launches, small kernels, waits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pyprof.core.intervals import groups
from pyprof.core.model import Ints
from pyprof.core.units import duration, percent
from pyprof.facts.device.partition import Union
from pyprof.facts.host.gaps import launch_bound as launch_bound_gaps
from pyprof.facts.host.places import user_line
from pyprof.facts.path.what_if import Edit
from pyprof.rules import RULES, Finding, Rows, rule
from pyprof.rules.context import Run
from pyprof.rules.evaluation import judge
from pyprof.rules.event_sample import Sample, kind
from pyprof.rules.premises import LAUNCHES
from pyprof.rules.thresholds import limit
from pyprof.store import reads

_COPY = re.compile(
    r"unassociated_\w*mem(cpy|set)", re.IGNORECASE
)  # of copies and sets that no operator launched
_CAUSES = ("R07", "R08", "R09", "R21", "R30", "R32", "R33", "R49")  # of late launches
_ZEROING = ("zero_", "zero", "fill_")  # operators that zero_grad may call


@rule("R05", "launch_bound", LAUNCHES, rows=Rows("idle", "Idle time"))
def launch_bound(run: Run) -> Finding | None:
    """The GPU waits for the CPU to launch kernels. Waits for data and files do not count, nor do kernels that a graph's
    replay launches together, and the wait before them. The finding divides the time of the waits by what the CPU did:
    CUDA calls of any thread, else operators and ranges, else neither. The saving is what is left after causes that
    have findings of their own: work in one place of the program (R49), garbage collection (R33), waits for the GPU
    (R07) and for data (R08, R09), an optimizer's many kernels (R21), a slow host (R30), memory of the GPU (R32). What
    to do depends on the number of kernels and their length: fusing helps against many short ones.

    Fires: kernels of 4 us, launched every 10 us; kernels of 40 us, launched every 100 us.
    Silent: kernels of 40 us launched every 10 us, a GPU that waits for the DataLoader, or for the replay of a graph.
    """
    durations = _durations(run)
    replayed = sum(len(sample.kernel) for sample in run.samples) - len(durations)
    if len(durations) <= replayed:
        return None
    middle = float(np.median(durations))
    waits = _waits(run)
    waited, alone = (int(part["waited"].sum()) for part in (waits, waits[waits["alone"]]))
    late = int(run.late * alone / waited) if waited else 0
    if run.share(late) <= limit("R05.late"):
        return None
    causes = [rule for rule in _CAUSES if judge(RULES[rule], run).finding is not None]
    rest = run.beyond(causes, late)
    if run.share(rest) <= limit("R05.late"):
        return None
    launches = np.concatenate([sample.of("launch_duration_ns")[_launched(sample)] for sample in run.samples])
    per_step = int(run.kernels["calls"].sum()) / max(run.steps * run.workers, 1)
    own = per_step * len(durations) / (len(durations) + replayed)
    which = f", {own:.0f} of them with a recorded launch of their own" if replayed else ""
    cost = f"launching {'these' if replayed else 'them'} takes {run.time(run.scaled(int(launches.sum())), False)}"
    move = (
        "move Python code and other work of the CPU out of the step (the report idle has its lines), and do more in "
        "each step."
    )
    if middle >= limit("R05.median"):
        fewer = f"The kernels are long enough for the launches: {move}"
    elif per_step < limit("R05.kernels") and run.cut:
        fewer = f"With {per_step:.0f} kernels{run.per_step}, fusing them saves little: {move}"
    else:
        fewer = _less_launches(run)
    rows = _by_operator(run, waits[waits["alone"]])
    apart = (
        f" Without what {' and '.join(causes)} found, {run.time(rest, False)} of it are left."
        if causes
        else ""
    )
    if rows and rows[0]["operator"] in _ZEROING:
        fewer = f"Where zero_grad calls it: zero_grad(set_to_none=True) launches nothing. {fewer}"
    return run.finding(
        f"The GPU waits for kernel launches for {run.time(late, False)} of {run.time(run.wall)}, "
        f"{percent(run.share(late))}.{_meanwhile(run, late)} {_number(per_step)}{run.per_step}{which}; "
        f"{cost}, and the median runs for {duration(middle)}.{_where(rows, alone)}{apart}",
        f"{fewer} Larger batches make each kernel longer. Recording makes the CPU slower: without it, "
        "such a step is shorter, and so is the wait.",
        rest,
        rows,
        "The launch-bound time of the report idle falls, and a step gets shorter.",
    )


def _where(rows: Sequence[Mapping[str, Any]], waited: int) -> str:
    """Name the operator before whose kernels the GPU waits longest, if that is a good part of `waited`."""
    if not rows or not isinstance(rows[0]["operator"], str):
        return ""
    share = rows[0]["waited_ns"] / max(waited, 1)
    if share < limit("R05.operator"):
        return f" The waits are spread over the step: no operator has more than {percent(share)} of them."
    source = rows[0]["source"]
    at = f" ({source})" if isinstance(source, str) and source else ""
    operator = rows[0]["operator"]
    work = "copies and sets of" if _COPY.match(operator) else "kernels of"
    return f" Of the waits, {percent(share)} are before {work} {operator}{at}."


def _number(kernels: float) -> str:
    """Return how many kernels there are.

    >>> _number(1.0), _number(12.4)
    ('There is 1 kernel', 'There are 12 kernels')
    """
    text = f"{kernels:.0f}"
    return "There is 1 kernel" if text == "1" else f"There are {text} kernels"


def _calls(run: Run) -> str:
    """Return the words for the API calls of a recording, by the names that they have."""
    names = run.store.rows("select distinct s.text from api a join string s on s.id = a.name limit 1000")
    spaces = {str(name)[:3].lower() for (name,) in names}
    if "hip" in spaces:
        return "HIP calls"
    return "CUDA calls" if any(one.startswith("cu") for one in spaces) else "API calls"


def _meanwhile(run: Run, late: int) -> str:
    """Say what the CPU did in the waits for launches: the parts add up to them."""
    parts = run.meanwhile
    whole = sum(parts)
    if not whole:
        return ""
    calls, operators, rest = (run.time(part * late / whole, False) for part in parts)
    if not reads.has_operators(run.store):
        return f" Meanwhile the CPU is in {_calls(run)} for {calls}; its operators were not recorded."
    return (
        f" Meanwhile the CPU is in {_calls(run)} for {calls}, elsewhere in operators and named ranges for {operators}, "
        f"and in neither (Python between operators, for example) for {rest}."
    )


def _less_launches(run: Run) -> str:
    """Return advice by what the program does not use yet."""
    graphs = (
        "record the step as a CUDA graph (torch.compile(model, mode='reduce-overhead'), torch.cuda.graph)"
    )
    if any(sample.event["graph"].mask()[sample.kernel].any() for sample in run.samples):
        return "Move more of the step into CUDA graphs: everything outside them is launched kernel by kernel."
    if run.facts.get("compile.regions", "0") != "0":
        return f"The model is compiled: {graphs}, which requires static shapes."
    return f"Fuse kernels with torch.compile(model), or {graphs}, which requires static shapes."


def _durations(run: Run) -> Any:
    """Return the durations of kernels that were launched one by one."""
    parts = [sample.of("duration_ns")[_launched(sample)] for sample in run.samples]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _launched(sample: Sample) -> Ints:
    return sample.kernel[sample.alone[sample.kernel]]


def _waits(run: Run) -> pd.DataFrame:
    """Return the launch-bound idle times of the sample: operator of the launch, length, and whether it launched one
    event alone."""
    parts = [pd.DataFrame({"operator": [], "waited": [], "alone": []}).astype({"alone": bool})]
    for sample in run.samples:
        if not len(sample.kernel):
            continue
        ids = sample.of("id")
        activity = run.source.activity(sample.worker)
        gaps, length = launch_bound_gaps(activity, int(ids[0]), int(ids[-1]) + 1, sample.start)
        place = np.searchsorted(ids, gaps.event)
        parts.append(
            pd.DataFrame({
                "operator": sample.of("operator")[place], "waited": length, "alone": sample.alone[place],
            })
        )  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def _by_operator(run: Run, waits: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the operators for whose launches the GPU waited longest in the sample."""
    named = waits.join(run.operators[["name", "source"]], on="operator")
    sums = named.groupby(["name", "source"], dropna=False)["waited"].agg(["sum", "size"]).reset_index()
    return run.top(sums, "sum", operator="name", source="source", waited_ns="sum", launches="size")


@rule("R06", "small_kernels", LAUNCHES, rows=Rows("short_kernels", "Kernels by their time"))
def small_kernels(run: Run) -> Finding | None:
    """Most launches are of kernels so short that the launch dominates, while the GPU waits for launches. The saving is,
    for each, its launch time as far as the GPU waited for it.

    Fires: 80 % of the kernels take 2 us and together 10 % of the GPU's time, and the GPU waits for them.
    Silent: the same kernels when the GPU does not wait; the same work in few kernels.
    """
    durations = _durations(run)
    if not len(durations):
        return None
    short = durations < limit("R06.short")
    many = short.mean() >= limit("R06.launches")
    if not many or durations[short].sum() >= limit("R06.time") * durations.sum():
        return None
    launches = run.events(
        ("operator", "duration_ns", "launch_duration_ns", "late"),
        lambda sample: _launched(sample)[sample.of("duration_ns")[_launched(sample)] < limit("R06.short")],
    )
    launches["owed"] = np.minimum(launches["late"], launches["launch_duration_ns"])
    api = int(launches["launch_duration_ns"].sum())
    grouped = launches.groupby("operator").agg(
        launches=("duration_ns", "size"), gpu=("duration_ns", "sum"), api=("launch_duration_ns", "sum")
    )
    grouped = grouped.join(run.operators[["name", "source"]])
    return run.finding(
        f"{percent(short.mean())} of the kernels are shorter than {duration(limit('R06.short'))} and take "
        f"{percent(durations[short].sum() / max(durations.sum(), 1))} of the kernels' time; launching them takes "
        f"{percent(run.share(run.scaled(api)))} of the CPU's time.",
        _less_launches(run)
        + " Many small tensors: one call on a stacked tensor, or torch._foreach_ functions.",
        min(run.late, run.scaled(int(launches["owed"].sum()))),
        run.top(
            grouped,
            "launches",
            operator="name",
            source="source",
            launches="launches",
            gpu_ns="gpu",
            launch_ns="api",
        ),
        "Fewer kernels a step in the report of iterations.",
    )


@rule("R07", "sync_stall", LAUNCHES, rows=Rows("idle", "Idle time"))
def sync_stall(run: Run) -> Finding | None:
    """The program waits for the GPU, and the GPU is then idle until the next launch. The saving is that idle time, for
    each wait at most as long as the wait.

    Fires: `loss.item()` in every step, after which the GPU idles for 5 % of the step.
    Silent: the same every 100 steps; a wait at the end, after which nothing is launched.
    """
    stalls = pd.concat([_stalls(one) for one in run.samples], ignore_index=True) if run.samples else None
    if stalls is None or not len(stalls):
        return None
    lost = run.scaled(int(stalls["lost"].sum()))
    per_step = len(stalls) / max(run.sampled_steps * len(run.samples), 1e-9)
    often = run.cut and per_step >= limit("R07.per_step")
    if run.share(lost) <= limit("R07.share") and not often:
        return None
    edits = {
        sample.worker: Edit(waits=Union(*rows[["begin", "finish"]].to_numpy(np.int64, copy=True).T))
        for sample in run.samples
        for rows in [stalls[stalls["worker"] == sample.worker]]
    }
    saving = run.without("R07", edits, lost)
    stalls = stalls.join(run.operators[["name", "source"]], on="operator")
    stalls["source"] = _lines(run, stalls)
    grouped = stalls.groupby(["name", "source", "call"], as_index=False, dropna=False).agg(
        waits=("lost", "size"), waited=("waited", "sum"), idle=("lost", "sum")
    )
    texts = reads.texts(run.store)
    grouped["call"] = [texts.get(code) for code in grouped["call"].tolist()]
    rate = f", {per_step:.1f} times a step" if run.cut else ""
    shorter = f"{'a step' if run.cut else 'the run'} would be {run.time(saving, False)} shorter"
    return run.finding(
        f"The program waits for the GPU and leaves it idle afterwards{rate}{_mostly(grouped)}: {shorter}, "
        f"{percent(run.share(saving))} of the time.",
        "Keep values on the GPU: no .item(), .cpu(), print, `if tensor`, nonzero or boolean index in the step; log "
        "every N steps; copy with non_blocking=True; no torch.cuda.synchronize() outside of measurements.",
        saving,
        run.top(
            grouped, "idle", operator="name", source="source", call="call", waits="waits", waited_ns="waited",
            idle_ns="idle",
        ),
        "torch.cuda.set_sync_debug_mode('warn') no longer names a line of the step.",
    )  # fmt: skip


_STALL = ("operator", "call", "waited", "lost", "worker", "thread", "begin", "finish")


def _lines(run: Run, stalls: pd.DataFrame) -> list[str | None]:
    """Return the line of the program that each wait is in: of its Python functions, else of its operator."""
    out = stalls["source"].tolist()
    for worker in stalls["worker"].unique().tolist():
        rows, work = stalls[stalls["worker"] == worker], run.host_work(worker)
        stacks = work.stacks(*(rows[name].to_numpy(np.int64) for name in ("thread", "begin")))
        for row, stack in zip(rows.index.tolist(), stacks.tolist()):
            out[row] = user_line("\n".join(work.stack(stack).frames)) or out[row]
    return out


def _mostly(waits: pd.DataFrame) -> str:
    """Return the operator or call, with its line, in which most of the idle time begins, if at least half does."""
    most = waits.sort_values("idle", ascending=False, kind="stable").iloc[0]
    if 2 * most["idle"] < waits["idle"].sum():
        return ""
    name = most["name"].removeprefix("unassociated_") if isinstance(most["name"], str) else most["call"]
    at = f" ({most['source']})" if isinstance(most["source"], str) else ""
    return f", above all in {name}{at}"


def _stalls(sample: Sample) -> pd.DataFrame:
    """Return waits after which the device was idle: operator, call, length of the wait, idle time caused by it, the
    worker, and the bounds of the wait."""
    empty = pd.DataFrame({name: np.empty(0, np.int64) for name in _STALL})
    api = {name: column.values for name, column in sample.api.items()}
    waits = (
        np.flatnonzero((api["kind"] == kind("sync")) & (api["duration_ns"] > 0))
        if api
        else np.empty(0, np.int64)
    )
    event = np.flatnonzero(sample.event["launch_ns"].mask() & (sample.late > 0))
    if not len(waits) or not len(event):
        return empty
    # The next launch on the thread of each wait; of several waits before one launch the last counts.
    launched = np.flatnonzero(sample.event["launch_ns"].mask())
    out = []
    of_thread = {thread: launched[places] for thread, places in groups(sample.of("thread")[launched])}
    for thread, places in groups(api["thread"][waits]):
        own, launches = waits[places], of_thread.get(thread, launched[:0])
        launches = launches[np.argsort(sample.of("launch_ns")[launches], kind="stable")]
        ends = api["start_ns"][own] + api["duration_ns"][own]
        place = np.searchsorted(sample.of("launch_ns")[launches], ends)
        inside = place < len(launches)
        last = np.r_[place[1:] != place[:-1], True] & inside
        own, next_ = own[last], launches[place[last]]
        lost = np.minimum(sample.late[next_], api["duration_ns"][own])
        positive = lost > 0
        out.append(
            pd.DataFrame({
                "operator": api["operator"][own][positive], "call": api["name"][own][positive],
                "waited": api["duration_ns"][own][positive], "lost": lost[positive],
                "worker": sample.worker, "thread": thread,
                "begin": api["start_ns"][own][positive], "finish": ends[last][positive],
            })
        )  # fmt: skip
    return pd.concat(out, ignore_index=True) if out else empty
