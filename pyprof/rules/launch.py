# SPDX-License-Identifier: Apache-2.0
"""Rules about a CPU that does not keep the GPU busy: late launches, small kernels, waits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pyprof.core.api_names import API_KINDS
from pyprof.core.intervals import at_places, groups
from pyprof.core.model import GRAPH, Bools, Ints
from pyprof.core.units import duration, percent
from pyprof.facts.device.timeline import Excerpt
from pyprof.facts.host.places import user_line
from pyprof.facts.path.what_if import Edit
from pyprof.rules import RULES, Finding, Rows, rule
from pyprof.rules.context import LAUNCHES, Run, unions
from pyprof.rules.evaluation import judge
from pyprof.rules.thresholds import limit
from pyprof.rules.wording import located
from pyprof.store import reads

# Of copies and sets that no operator launched.
_COPY = re.compile(r"unassociated_\w*mem(cpy|set)", re.IGNORECASE)
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
    launches, every = run.once(_launches), int(run.kernels["calls"].sum())
    if 2 * len(launches) <= every:
        return None
    waits = _waits(run)
    waited, alone = (int(part["waited"].sum()) for part in (waits, waits[waits["alone"]]))
    late = int(run.late * alone / waited) if waited else 0
    if run.share(late) <= limit("R05.late"):
        return None
    causes = [rule for rule in _CAUSES if judge(RULES[rule], run).finding is not None]
    rest = run.beyond(causes, late)
    if run.share(rest) <= limit("R05.late"):
        return None
    middle, per_step, own = launches["duration_ns"].median(), run.rate(every), run.rate(len(launches))
    which = f", {own:.0f} of them with a recorded launch of their own" if own < per_step else ""
    length = run.time(run.per_worker(launches["launch_ns"].sum()), False)
    cost = f"launching {'these' if which else 'them'} takes {length}"
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
    sums = run.named(waits[waits["alone"]]).groupby(["operator", "source"], dropna=False)["waited"]
    table = sums.agg(waited_ns="sum", launches="size").reset_index()
    rows = run.top(table, "waited_ns", "operator source waited_ns launches")
    apart = f" Without what {' and '.join(causes)} found, {run.time(rest, False)} of it are left."
    if rows and rows[0]["operator"] in _ZEROING:
        fewer = f"Where zero_grad calls it: zero_grad(set_to_none=True) launches nothing. {fewer}"
    return run.finding(
        f"The GPU waits for kernel launches for {run.time(late, False)} of {run.time(run.wall)}, "
        f"{percent(run.share(late))}.{_meanwhile(run, late)} {_number(per_step)}{run.per_step}{which}; "
        f"{cost}, and the median runs for {duration(middle)}.{_where(rows, alone)}{apart if causes else ''}",
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
    work = "copies and sets of" if _COPY.match(rows[0]["operator"]) else "kernels of"
    operator = located(rows[0]["operator"], rows[0]["source"])
    return f" Of the waits, {percent(share)} are before {work} {operator}."


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
    graphs = "record the step as a CUDA graph (torch.compile(model, mode='reduce-overhead'), torch.cuda.graph)"
    if any((one.of_events("graph").mask() & one.kernel).any() for one in run.excerpts):
        return "Move more of the step into CUDA graphs: everything outside them is launched kernel by kernel."
    if run.facts.get("compile.regions", "0") != "0":
        return f"The model is compiled: {graphs}, which requires static shapes."
    return f"Fuse kernels with torch.compile(model), or {graphs}, which requires static shapes."


def _alone(excerpt: Excerpt) -> Bools:
    """Return which events were launched alone: a replay of a graph launches many."""
    events = np.bincount(excerpt.launch + 1)  # of each launch; first those without one
    single = events[excerpt.launch + 1] == 1
    out: Bools = excerpt.launched & single & (excerpt.event["kind"].values != GRAPH)
    return out


def _late(excerpt: Excerpt) -> Ints:
    """Return the gap before each event on its device, 0 where its launch returned before the previous event ended."""
    start, end, place = excerpt.start, excerpt.end, excerpt.launch
    returned = at_places(excerpt.of_calls("start_ns").values + excerpt.of_calls("duration_ns").values, place)
    out = np.zeros(len(start), np.int64)
    for _, places in groups(excerpt.event["device"].values):
        order = places[np.argsort(start[places], kind="stable")]
        before = np.r_[start[order[:1]], np.maximum.accumulate(end[order])[:-1]]
        out[order] = np.where(returned[order] > before, np.maximum(start[order] - before, 0), 0)
    return out


def _launches(run: Run) -> pd.DataFrame:
    """Return the kernels that were launched one by one: operator, duration_ns, launch_ns, the time that launching took,
    and how long the device waited for it, `late`."""
    parts = [pd.DataFrame({name: np.empty(0, np.int64) for name in ("operator", "duration_ns", "launch_ns", "late")})]
    for one in run.excerpts:
        own = one.kernel & _alone(one)
        parts.append(pd.DataFrame({
            "operator": one.of_events("operator").values[own], "duration_ns": (one.end - one.start)[own],
            "launch_ns": one.of_calls("duration_ns").values[one.launch[own]], "late": _late(one)[own],
        }))  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def _waits(run: Run) -> pd.DataFrame:
    """Return the launch-bound idle times: operator of the launch, length, and whether it launched one event alone."""
    parts = [pd.DataFrame({"operator": [], "waited": [], "alone": []}).astype({"alone": bool})]
    for one in run.excerpts:
        gaps, length = run.late_gaps(one)
        place = np.searchsorted(one.id, gaps.event)
        operator = one.of_events("operator").values[place]
        parts.append(pd.DataFrame({"operator": operator, "waited": length, "alone": _alone(one)[place]}))
    return pd.concat(parts, ignore_index=True)


@rule("R06", "small_kernels", LAUNCHES, rows=Rows("short_kernels", "Kernels by their time"))
def small_kernels(run: Run) -> Finding | None:
    """Most launches are of kernels so short that the launch dominates, while the GPU waits for launches. The saving is,
    for each, its launch time as far as the GPU waited for it.

    Fires: 80 % of the kernels take 2 us and together 10 % of the GPU's time, and the GPU waits for them.
    Silent: the same kernels when the GPU does not wait; the same work in few kernels.
    """
    launches = run.once(_launches)
    short = launches[launches["duration_ns"] < limit("R06.short")]
    part = short["duration_ns"].sum() / max(launches["duration_ns"].sum(), 1)
    if not len(short) or len(short) < limit("R06.launches") * len(launches) or part >= limit("R06.time"):
        return None
    owed = np.minimum(short["late"], short["launch_ns"])
    return run.finding(
        f"{percent(len(short) / len(launches))} of the kernels are shorter than {duration(limit('R06.short'))} and "
        f"take {percent(part)} of the kernels' time; launching them takes "
        f"{percent(run.share(run.per_worker(short['launch_ns'].sum())))} of the CPU's time.",
        _less_launches(run) + " Many small tensors: one call on a stacked tensor, or torch._foreach_ functions.",
        min(run.late, run.per_worker(owed.sum())),
        run.by_operator(
            short,
            "launches",
            launches=("late", "size"),
            gpu_ns=("duration_ns", "sum"),
            launch_ns=("launch_ns", "sum"),
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
    stalls = pd.concat([_stalls(run, one) for one in run.excerpts], ignore_index=True)
    if not len(stalls):
        return None
    lost, per_step = run.per_worker(stalls["lost"].sum()), run.rate(len(stalls))
    often = run.cut and per_step >= limit("R07.per_step")
    if run.share(lost) <= limit("R07.share") and not often:
        return None
    edits = {worker: Edit(waits=union) for worker, union in unions(stalls).items()}
    saving = run.without("R07", edits, lost)
    stalls = run.named(stalls)
    stalls["source"] = _lines(run, stalls)
    grouped = stalls.groupby(["operator", "source", "call"], as_index=False, dropna=False).agg(
        waits=("lost", "size"), waited_ns=("waited", "sum"), idle_ns=("lost", "sum")
    )
    grouped["call"] = grouped["call"].map(reads.texts(run.store))
    rate = f", {per_step:.1f} times a step" if run.cut else ""
    shorter = f"{'a step' if run.cut else 'the run'} would be {run.time(saving, False)} shorter"
    return run.finding(
        f"The program waits for the GPU and leaves it idle afterwards{rate}{_mostly(grouped)}: {shorter}, "
        f"{percent(run.share(saving))} of the time.",
        "Keep values on the GPU: no .item(), .cpu(), print, `if tensor`, nonzero or boolean index in the step; log "
        "every N steps; copy with non_blocking=True; no torch.cuda.synchronize() outside of measurements.",
        saving,
        run.top(grouped, "idle_ns", "operator source call waits waited_ns idle_ns"),
        "torch.cuda.set_sync_debug_mode('warn') no longer names a line of the step.",
    )


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
    most = waits.sort_values("idle_ns", ascending=False, kind="stable").iloc[0]
    if 2 * most["idle_ns"] < waits["idle_ns"].sum():
        return ""
    name = most["operator"] if isinstance(most["operator"], str) else most["call"]
    return f", above all in {located(name.removeprefix('unassociated_'), most['source'])}"


def _stalls(run: Run, excerpt: Excerpt) -> pd.DataFrame:
    """Return waits after which the device was idle: operator, call, length of the wait, idle time caused by it, the
    worker, the thread, and the bounds of the wait."""
    late = _late(excerpt)
    names = ("kind", "thread", "name", "start_ns", "duration_ns")
    kind, thread, name, start, length = (excerpt.of_calls(name).values for name in names)
    waits = np.flatnonzero((kind == API_KINDS.index("sync")) & (length > 0))
    launched = np.flatnonzero(excerpt.launched)
    launched = launched[np.argsort(start[excerpt.launch[launched]], kind="stable")]
    of_thread = {key: launched[rows] for key, rows in groups(thread[excerpt.launch[launched]])}
    pairs = [np.empty((2, 0), np.int64)]
    for key, rows in groups(thread[waits]):
        own, launches = waits[rows], of_thread.get(key, launched[:0])
        place = np.searchsorted(start[excerpt.launch[launches]], (start + length)[own])
        # The next launch on the thread of each wait; of several waits before one launch the last counts.
        last = np.r_[place[1:] != place[:-1], True] & (place < len(launches))
        pairs.append(np.stack([own[last], launches[place[last]]]))
    wait, event = np.concatenate(pairs, axis=1)
    lost = np.minimum(late[event], length[wait])
    wait, lost = wait[lost > 0], lost[lost > 0]
    return pd.DataFrame({
        "operator": run.operator_of(excerpt.of_calls("op").take(wait)), "call": name[wait], "waited": length[wait],
        "lost": lost, "worker": excerpt.worker, "thread": thread[wait], "begin": start[wait],
        "finish": (start + length)[wait],
    })  # fmt: skip
