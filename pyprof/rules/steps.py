# SPDX-License-Identifier: Apache-2.0
"""Rules about the window itself: missing or uneven iterations, distortion by recording."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof.core.units import duration, percent
from pyprof.facts.device.timeline import Excerpt
from pyprof.facts.host.host_work import PLACE, HostWork, main_thread
from pyprof.facts.host.operator_tree import operator_name
from pyprof.facts.steps.coverage import impossible, is_missing
from pyprof.facts.steps.device_steps import marked_numbers
from pyprof.facts.steps.steady_state import LONG, LONG_STEP, SPREAD, spread, steady
from pyprof.rules import Finding, NeedsFacts, Rows, rule
from pyprof.rules.context import STEPS, Run
from pyprof.rules.host_places import named
from pyprof.rules.thresholds import limit
from pyprof.store import reads
from pyprof.store.ids import first_id

_OPS = 300_000  # executions that are searched for a key operator
_LEAST = 3


@rule("R01", "no_iterations", rows=Rows("iterations", "Iterations"))
def no_iterations(run: Run) -> Finding | None:
    """The run could not be cut into iterations, so that all figures are of the whole recording.

    Fires: a recording of one forward pass.
    Silent: one with pyprof.step(), or two executions of Optimizer.step.
    """
    if run.cut:
        return None
    keys = _repeated(run)
    return Finding(
        "",
        "No steps were found: the figures may include one-time work such as initialization.",
        "If the program repeats a step, call pyprof.step() at the end of each, or name an operator that runs once a "
        "step as the key (--key_op).",
        None,
        tuple(keys),
        "The report of iterations has one row per step.",
    )


def _repeated(run: Run) -> list[dict[str, Any]]:
    """Return operators that ran several times over at least half of the run: one of them may be the key."""
    columns = run.store.columns(
        f"""select op.operator, op.end_ns from op join operator o on o.id = op.operator
            where o.unassociated = 0 and op.id < (select min(id) + {_OPS} from op) order by op.id"""
    )
    frame = pd.DataFrame({name: column.values for name, column in columns.items()})
    stats = frame.groupby("operator")["end_ns"].agg(["size", "min", "max"])
    stats = stats[(stats["size"] >= _LEAST) & (stats["max"] > stats["min"])].copy()
    stats["reach"] = stats["max"] - stats["min"]
    stats = stats[stats["reach"] * 2 >= frame["end_ns"].max() - frame["end_ns"].min()]
    stats = stats.sort_values(["reach", "size"], ascending=False, kind="stable").head(5)
    rows = zip(stats.index.tolist(), stats["size"].tolist(), stats["reach"].tolist())
    return [{"operator": run.operators["name"][n], "executions": count, "reach_ns": reach} for n, count, reach in rows]


@rule("R02", "unstable_range", STEPS, rows=Rows("iterations", "Iterations"))
def unstable_range(run: Run) -> Finding | None:
    """Iterations of the aggregation differ widely in length; names the longest steady stretch. Single long ones do not
    count (R48).

    Fires: 5 iterations of 100 ms after 5 of 150 ms.
    Silent: the same without the first five, as the finding proposes.
    """
    lengths = run.lengths[run.lengths <= LONG * run.lengths.median()]
    if len(lengths) < _LEAST:
        raise NeedsFacts(f"needs at least {_LEAST} whole iterations, there are {len(lengths)}; record more steps")
    varies = spread(lengths.to_numpy(np.int64))
    if varies is None or varies <= limit("R02.spread"):
        return None
    stretch = steady(lengths.to_numpy(np.int64))
    if stretch is None:
        advice = (
            f"No {_LEAST} consecutive iterations are within {percent(SPREAD)} of each other: check the longest ones "
            "for evaluation, checkpoints, compilation or input of different sizes, and record more steps."
        )
    else:
        first, last = (int(lengths.index[place]) for place in stretch)
        advice = (
            f"Iterations {first} to {last} are similar: aggregate them with --iter_start={first} --iter_stop={last}. "
            f"The other rules look at {run.steady[0]} to {run.steady[1]}."
        )
    middle = float(lengths.median())
    off = (lengths - middle).abs().sort_values(ascending=False, kind="stable").index[:5].tolist()
    return Finding(
        "",
        f"The length of the {len(lengths)} iterations varies: mean {duration(lengths.mean())}, standard deviation "
        f"{percent(varies)} of that.",
        advice,
        None,
        tuple({"iteration": int(n), "length_ns": int(lengths[n]), "median_ns": int(middle)} for n in off),
        "The standard deviation in the report of the narrower range is small.",
    )


_RECORD_ALL = (
    "Where kernels are missing: allow all users to read GPU counters, warm the profiler up for a step, synchronize "
    "before it stops, and record again. "
)


@rule("R38", "profiler_overhead")
def profiler_overhead(run: Run) -> Finding | None:
    """Recording itself took a large part of the CPU's time in operators, or much is missing from the recording.

    Fires: 2 ms for markers in 12 ms of operators; 500 of 10,000 operators dropped because of the limit of events; 1 of
    100 launches without a kernel; a kernel of 1 s over later ones of its stream.
    Silent: 0.1 ms in 12 ms; one missing event of 10,000; events that were repaired and kept.
    """
    lost = [row for row in run.store.rows("select reason, count from lost order by count desc") if is_missing(row[0])]
    launches, every = run.missing_launches
    impossible_times = impossible(run.store)
    unknown = launches > 0 and launches >= limit("R38.launches") * every
    missing = sum(int(count) for _, count in lost)
    much = missing > limit("R38.lost") * (_recorded(run) + missing)
    cost = run.facts.get("overhead.sites_ns", "")
    if not (much or unknown or impossible_times) and not cost.isdigit():
        raise NeedsFacts("needs the measured cost of a recorded call, which only pyprof's own recordings have")
    total = run.store.rows("select coalesce(sum(cpu_ns), 0) from op where thread is not null")[0][0]
    share = int(cost) / total if cost.isdigit() and total else 0.0
    slow = share > limit("R38.share")
    problems: list[str] = []
    rows: list[dict[str, object]] = []
    if slow:
        problems.append(
            f"Recording calls and modules took about {duration(int(cost))}, {percent(share)} of the CPU's time in "
            "operators: CPU times and gaps between kernels are too long by that much."
        )
        rows.append({"what": "recorded calls", "count": run.facts.get("overhead.calls"), "time_ns": int(cost)})
    if unknown:
        problems.append(missing_work(launches, every))
    if impossible_times:
        problems.append(
            f"GPU events with impossible times, as recorders write them now and then: {impossible_times:,}. They were "
            "cut or left out."
        )
    if much and missing > launches + impossible_times:
        problems.append(f"{missing} events or their details are missing from the recording: figures are too small.")
    if problems[slow:]:
        rows += [{"what": reason, "count": count, "time_ns": None} for reason, count in lost[:4]]
    if not problems:
        return None
    return Finding(
        "",
        " ".join(problems),
        (_RECORD_ALL if unknown else "")
        + "Record fewer steps (--steps), raise --max-events if that limit was reached, and compare the length of a "
        "step with one that was not recorded.",
        None,
        tuple(rows),
        "A run without a profiler has the same length of a step.",
    )


def missing_work(launches: int, every: int) -> str:
    """Return the sentence about launches whose work is not in the recording.

    >>> missing_work(6, 6)
    'The work of 6 of 6 launches is not in the recording: time on the GPU is too short by it, or all unknown.'
    """
    return (
        f"The work of {launches:,} of {every:,} launches is not in the recording: time on the GPU is too short by it, "
        "or all unknown."
    )


def _recorded(run: Run) -> int:
    """Return the number of events, API calls and ranges of the recording: their ids count them."""
    total = 0
    for (worker,) in run.store.rows("select id from worker"):
        for table in ("event", "api", "range"):
            bounds = first_id(worker), first_id(worker + 1)
            last = run.store.rows(f"select max(id) from {table} where id >= ? and id < ?", bounds)[0][0]
            total += 0 if last is None else int(last) - bounds[0] + 1
    return total


@rule("R48", "long_steps", STEPS, rows=Rows("iterations", "Iterations"))
def long_steps(run: Run) -> Finding | None:
    """Single steps take more than twice as long as the median; names where the program was in the longest one for the
    time that it took more. Where that is an operator of every step, why it took longer is not known, and no saving.

    Fires: one of 10 steps of 100 ms takes 900 ms, 790 ms of which are in one line.
    Silent: the first step is the long one, which is warm-up; steps of 100 ms and of 150 ms.
    """
    rows = run.iterations[run.iterations["why"] == LONG_STEP]
    rows = rows.sort_values("length_ns", ascending=False, kind="stable")
    if not len(rows):
        return None
    usual = int(run.lengths.reindex(run.numbers).median())
    if not usual:  # no device work in most of the steps: there is no usual length to be longer than
        return None
    steps = {int(n): int(run.lengths[n]) for n in rows["number"] if n in run.lengths}
    excess = sum(length - usual for length in steps.values())
    names = ["number", "worker", "host_start_ns", "host_end_ns", "length_ns"]
    number, worker, start, end, length = (int(cell) for cell in rows[names].iloc[0])
    name, first = marked_numbers(run.source, worker, np.array([number, run.numbers[0]]))
    many = "One step takes" if len(steps) == 1 else f"{len(steps)} steps take"
    where, time, why = _longer(run, worker, (start, end))
    most = 2 * time > length - usual
    known = most and why
    cause = (
        f"Of that, {duration(time)} more than in step {first} is {where}{'' if known else '; why is not known'}."
        if most
        else "No single line or operator has most of that time."
    )
    finding = run.finding(
        f"{many} far longer than the others: step {name} takes {duration(length)}, {length / usual:.1f} times the "
        f"median of {duration(usual)}. {cause}",
        "Run it less often, outside of the loop, or in another thread or process."
        if known
        else "Check that step for evaluation, checkpoints, compilation, input of another size, or another program on "
        "the machine.",
        excess / len(run.lengths) * run.steps if known else None,
        [{"iteration": n, "length_ns": one, "median_ns": usual} for n, one in list(steps.items())[:5]],
        "The overview names no long step.",
    )
    return finding._replace(apart=True)


def _longer(run: Run, worker: int, long: tuple[int, int]) -> tuple[str, int, bool]:
    """Return where a worker's main thread was longer, in an interval, than in the first steady step, how much, and
    whether that says why: an operator that is in other steps too was interrupted, or had more to do."""
    own = run.iterations[(run.iterations["worker"] == worker) & (run.iterations["number"] == run.numbers[0])]
    usual = list(own[["host_start_ns", "host_end_ns"]].itertuples(index=False, name=None))
    thread, times = np.array([main_thread(run.store, worker)]), []
    works = [HostWork(Excerpt(run.store, worker, window)) for window in (long, *usual)]
    for work, (low, high) in zip(works, (long, *usual)):
        table = work.times(thread, np.array([low]), np.array([high]))
        times.append(table.groupby(list(PLACE)).agg(time=("time", "sum"), low=("low", "min")))
    both = times[0].join(times[1]["time"].rename("usual")) if len(times) > 1 else times[0].assign(usual=0)
    more = (both["time"] - both["usual"].fillna(0)).sort_values(ascending=False, kind="stable")
    if not len(more):
        return "", 0, False
    operator, text, function = more.index[0]
    stack = works[0].stacks(thread, np.array([both["low"].loc[more.index[0]]]))
    frames = works[0].stack(int(stack[0])).frames
    line = frames[-1] if frames else run.operators["source"].get(operator) if operator >= 0 else None
    texts = reads.texts_of(run.store, np.array([text, function]))
    if operator < 0 <= function:
        place = named(operator_name(texts[function]), None, "\n".join(frames), around=True)
        return place, int(more.iloc[0]), True
    names = [run.operators["name"].get(operator), texts.get(max(function, text))]
    words = ", ".join(str(name) for name in [*[name for name in names if name][:1], line] if name)
    again = operator >= 0 and both["usual"].loc[more.index[0]] > 0
    place = f"in {words}" if words else "outside of operators and ranges"
    return place, int(more.iloc[0]), bool(words) and not again
