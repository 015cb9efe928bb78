# SPDX-License-Identifier: Apache-2.0
"""The rule about Python loops over short operators."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from pyprof.core.intervals import groups
from pyprof.core.model import OPTIMIZER
from pyprof.facts.device.partition import Union
from pyprof.facts.device.timeline import Excerpt
from pyprof.rules import Finding, Rows, rule
from pyprof.rules.context import Run
from pyprof.rules.thresholds import limit

_PLACE = re.compile(r"(?P<file>.*):(?P<line>\d+)")
_OF_CALL = ["thread", "frames", "type", "module", "direction"]  # equal in each turn of a loop
_COLUMNS = ["place", "turns", "operator", "calls", "time", "saving"]
_MOST = 0.8  # of a loop: an operator that is called for so much of it is called once a turn
# Cells, and the modules that run them over a sequence.
_WHOLE = {"lstm_cell": "LSTM", "gru_cell": "GRU", "rnn_tanh_cell": "RNN", "rnn_relu_cell": "RNN"}


@rule("R56", "python_loop", rows=Rows("source_line", "Source lines"))
def python_loop(run: Run) -> Finding | None:
    """Nothing runs on a GPU, and a line of the program calls the same operator of the same module again and again in a
    step, so that much of the time goes to calling operators and to Python between them; or a custom autograd function
    does so, whose own lines are not recorded. Loops of the optimizer and of the data loader have rules of their own
    (R21, R09). The saving is that of one turn in place of all: of operators at most 5 us each, of the work in them
    nothing, but for gradients that are added up, and for products of so few rows that reading the weights takes their
    time (R46); of the time between them what is shorter than R49 counts. It is unknown for cells of recurrent networks:
    one call over the sequence runs their operators too. Of several loops the one that takes longest is told.

    Fires: a model called for each of 64 samples; LSTMCell for each of 200 time steps; an accuracy worked out row by
    row; a backward that loops over slices.
    Silent: 12 layers in a loop, which are different modules; a loop over products that take 1 ms each; inference
    without steps.
    """
    if not run.on_cpu:
        return None
    run.need_steps()
    if not run.excerpts:
        return None
    by_step = pd.concat([_in_lines(run, excerpt) for excerpt in run.excerpts])
    sums = by_step.groupby("place", as_index=False).agg(
        steps=("time", "size"), turns=("turns", "median"), operator=("operator", "first"), calls=("calls", "sum"),
        time=("time", "sum"), saving=("saving", "sum"),
    )  # fmt: skip
    sums = pd.concat([sums[2 * sums["steps"] >= run.steps], _in_functions(run)], ignore_index=True)
    cell = sums["operator"].isin(list(_WHOLE))
    part = sums["time"].where(cell, sums["saving"]).map(lambda time: run.share(run.per_worker(time)))
    sums["saving"] = sums["saving"].where(~cell)
    sums = sums[part > np.where(cell, limit("R46.share"), limit("R56.share"))]
    if not len(sums):
        return None
    first = run.top(sums, "time", "place operator turns calls time_ns=time saving_ns=saving")
    worst = first[0]
    each, time = run.rate(worst["calls"]), run.per_worker(worst["time_ns"])
    whole = _WHOLE.get(worst["operator"])
    return run.finding(
        f"{worst['place']} runs {worst['turns']:,.0f} turns of a loop over short operators: {each:,.0f} calls of "
        f"operators{run.per_step} take {run.cost(time)}.",
        f"Call torch.nn.{whole} for the whole sequence in place of {whole}Cell for each step of it, which saves the "
        "Python in between; a larger batch, or shorter sequences, make each turn worth more."
        if whole
        else "Replace the loop by operators over the whole tensor: a batch, an index or mask, torch.where, torch.vmap, "
        "torch._foreach_* for lists of tensors. Where a turn needs the one before, compile the function around the "
        "loop with torch.compile.",
        None if whole else run.per_worker(worst["saving_ns"]),
        first,
        "The line has a few calls a step in the report source_line.",
    )


def _in_functions(run: Run) -> pd.DataFrame:
    """Return the custom autograd functions that run many short operators in a call: _COLUMNS."""
    ops = run.ops
    kinds = run.operator_events.groupby("operator")["name"].nunique()
    ops = ops[ops["type"].fillna("").str.endswith(".apply") & (ops["calls"] > 0)]
    ops = ops.assign(turns=ops["kernels"] / ops["calls"] / ops["operator"].map(kinds).fillna(1))
    ops = ops[ops["turns"] >= limit("R56.turns")]
    way = np.where(ops["direction"] == 1, "backward", "forward")
    short = np.minimum(ops["cpu_ns"], ops["kernels"] * limit("R46.event"))
    return pd.DataFrame({
        "place": [f"The {each} of {name} ({line})" for each, name, line in zip(way, ops["type"], ops["source"])],
        "turns": ops["turns"], "operator": ops["type"], "calls": ops["kernels"], "time": ops["cpu_ns"],
        "saving": short * (1 - 1 / ops["turns"]),
    })  # fmt: skip


def _in_lines(run: Run, excerpt: Excerpt) -> pd.DataFrame:
    """Return the loops of each step of an excerpt."""
    calls = _calls(run, excerpt)
    keys = ["step", *_OF_CALL]
    same = calls.groupby(keys, dropna=False, sort=False)
    calls["count"] = same["start"].transform("size")
    calls = calls.assign(next=same["start"].shift(-1))
    often = calls[(calls["count"] >= limit("R56.turns")) & calls["frames"].fillna("").ne("")].copy()
    gap = often["next"] - often["start"]
    usual = gap.groupby([often[key] for key in keys], dropna=False, sort=False).transform("median")
    goes_on = gap <= 8 * usual + limit("R49.length")
    often["until"] = often["next"].where(goes_on, often["end"]).astype(np.int64)
    rows, known = list[tuple[Any, ...]](), dict[str, str]()
    for thread, repeated in often.groupby("thread", sort=False):
        union = Union(repeated["start"].to_numpy(), repeated["until"].to_numpy())
        rows += _sums(calls[calls["thread"] == thread], repeated, union, known)
    return pd.DataFrame(rows, columns=_COLUMNS)


def _calls(run: Run, excerpt: Excerpt) -> pd.DataFrame:
    """Return the calls of operators outside of the optimizer and of the data loader, by start."""
    first, last = excerpt.ids("op")
    columns = run.store.columns(
        f"""select id, thread, operator, start_ns as start, end_ns as end, cpu_ns as cpu, kernels from op
            where id >= {first} and id < {last} and cpu_ns is not null order by id"""
    )
    calls = pd.DataFrame({name: column.values for name, column in columns.items()})
    calls["step"] = run.step_of(calls.pop("id").to_numpy(), "first_op")
    calls = calls[~excerpt.dataloader.covers(calls["start"].to_numpy(), calls["end"].to_numpy())]
    calls = calls.join(run.operators[[*_OF_CALL[1:], "params", "phase", "unassociated"]], on="operator")
    calls = calls[(calls["phase"] != OPTIMIZER) & (calls["unassociated"] == 0)]
    return calls.sort_values("start", kind="stable")


def _sums(calls: pd.DataFrame, repeated: pd.DataFrame, loops: Union, known: dict[str, str]) -> list[tuple[Any, ...]]:
    """Return the loops of a thread: _COLUMNS. `calls`: all of it; `repeated`: those that make the loops; `known`: the
    loops of call stacks, to which it adds: the backward of a loop is told by the lines of its forward."""
    start, end, kernels, cpu = (calls[name].to_numpy(np.int64) for name in ("start", "end", "kernels", "cpu"))
    reached = np.maximum.accumulate(end)
    between = np.r_[0, np.maximum(start[1:] - reached[:-1], 0)]
    at = np.searchsorted(loops.start, start, side="right") - 1
    inside = (at >= 0) & (start < loops.end[at])
    first = np.r_[True, at[1:] != at[:-1]]
    idle = np.where(first | (between >= limit("R49.length")), 0, between)
    rows_of = calls["params"].astype(str).str.extract(r"\bM=(\d+)", expand=False).astype(float)
    again = np.where(calls["type"] == "accumulate_grad", 1, 1 - rows_of.fillna(np.inf) / limit("R46.rows"))
    cost = idle + np.maximum(np.minimum(cpu, np.maximum(kernels, 1) * limit("R46.event")), cpu * again)
    costs, sizes = (np.bincount(at[inside], weights) for weights in (cost[inside], None))
    rows = []
    numbers = np.searchsorted(loops.start, repeated["start"].to_numpy(np.int64), side="right") - 1
    for number, own in groups(numbers):
        calls = repeated.iloc[own]
        by = calls.assign(time=calls["until"] - calls["start"]).groupby(_OF_CALL, dropna=False)
        covered, count = by["time"].sum(), by["count"].first()
        turns = int(count[covered >= _MOST * covered.max()].min())
        length = int(loops.end[number] - loops.start[number])
        saving = min(costs[number] * (1 - 1 / turns), length)
        operator = calls.groupby("type")["cpu"].sum().idxmax()
        stacks = sorted(set(calls["frames"]))
        of_forward = [known[one] for one in stacks if one in known and (calls["direction"] == 1).all()]
        name = next(filter(None, of_forward), "") or _named(stacks)
        known |= {one: known.get(one, name) for one in stacks}
        rows.append((name, turns, operator, int(sizes[number]), length, saving))
    return rows


def _named(stacks: list[str]) -> str:
    """Return the lines of a loop, from the call stacks of what it calls.

    >>> _named(["train.py:9", "train.py:11"])
    'train.py:9 to 11'
    >>> _named(["train.py:9\\nnet.py:3", "train.py:9\\nnet.py:4\\nnet.py:30"])
    'net.py:3 to 4'
    >>> _named(["train.py:9\\nnet.py:3", "train.py:9\\nloss.py:4"])
    'train.py:9'
    """
    frames = [stack.split("\n") for stack in stacks]
    depth = 0
    while all(len(one) > depth for one in frames) and len({one[depth] for one in frames}) == 1:
        depth += 1
    if all(len(one) > depth for one in frames):
        places = [_PLACE.fullmatch(one[depth]) for one in frames]
        files = {place["file"] if place else None for place in places}
        if len(files) == 1 and None not in files:
            lines = sorted({int(place["line"]) for place in places if place})
            return f"{files.pop()}:{lines[0]} to {lines[-1]}"
    return frames[0][depth - 1] if depth else frames[0][0]
