# SPDX-License-Identifier: Apache-2.0
"""Equal calls of operators on a CPU that take unequal times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pyprof.core.model import OPERATOR, Ints
from pyprof.rules.thresholds import limit
from pyprof.rules.wording import which

if TYPE_CHECKING:
    from pyprof.rules.context import Run

_COLUMNS = ["id", "op", "operator", "name", "start_ns", "duration_ns", "flops", "bytes"]  # of events
_WORK = ["type", "shapes", "dtype", "params", "direction", "phase"]  # of a call: what it does, wherever it is
_BY_PLACE = 4  # steps from which a call is compared with those of its own place alone
# Operators of torch itself: their inputs determine their work. Others may wait, or run any Python code.
_OF_TORCH = ("aten::", "mkldnn::", "quantized::")


def slow_calls(run: Run) -> pd.DataFrame:
    """Return the events of operators that take far longer than equal ones: operator, name, step, start_ns,
    duration_ns, `usual_ns`, `equals` (the number of equal calls, itself included) and `first` (of them).
    `attrs["repeated"]` has the number of all calls that have an equal.

    Equal are calls of one operator of torch in the same place of calls of equal type, shapes, parameters, FLOPs and
    bytes; with enough steps only those of one line and module, since strides may differ elsewhere. The usual time is
    the median, of an even number the lower one.
    """
    parts = [_slow(run, frame) for frame in _of_workers(run)]
    out = (
        pd.concat(parts, ignore_index=True)
        if parts
        else _slow(run, pd.DataFrame({name: np.empty(0, np.int64) for name in (*_COLUMNS, "step")}))
    )
    out.attrs["repeated"] = sum(part.attrs["repeated"] for part in parts)
    return out


def _of_workers(run: Run) -> list[pd.DataFrame]:
    parts = []
    for sample in run.samples:
        rows = np.flatnonzero(
            (sample.of("kind") == OPERATOR) & sample.event["operator"].mask() & sample.event["op"].mask()
        )
        frame = pd.DataFrame({name: sample.of(name)[rows] for name in _COLUMNS})
        frame["step"] = _steps(run, sample.worker, sample.of("start_ns")[rows])
        for name in ("flops", "bytes"):
            frame.loc[~sample.event[name].mask()[rows], name] = -1
        parts.append(frame)
    return parts


def _steps(run: Run, worker: int, start: Ints) -> Ints:
    """Return the place of each event's step among the steps of its worker."""
    rows = run.store.rows(
        "select host_start_ns from iteration where iteration_set = ? and worker = ? order by host_start_ns",
        (run.source.aggregation.iteration_set, worker),
    )
    bounds = np.array([row[0] for row in rows], np.int64)
    return np.searchsorted(bounds, start, side="right")


def _slow(run: Run, frame: pd.DataFrame) -> pd.DataFrame:
    kernel = run.kernel_names["kernel"]
    of_torch = which(kernel, lambda name: name.startswith(_OF_TORCH))
    operators = run.operators
    by_place = run.steps >= _BY_PLACE
    work = operators.groupby(_WORK, dropna=False, sort=False).ngroup()
    if by_place:
        work = pd.Series(np.arange(len(operators)), index=operators.index)
    # Without shapes only the FLOPs and bytes tell that two calls do the same.
    known = operators["shapes"].notna()
    frame = frame.sort_values("id", kind="stable")
    frame["turn"] = frame.groupby(["op", "name"], sort=False).cumcount()
    frame = frame[of_torch.reindex(frame["name"], fill_value=False).to_numpy()]
    frame = frame[known.reindex(frame["operator"], fill_value=False).to_numpy() | (frame["bytes"] > 0)]
    frame["work"] = work.reindex(frame["operator"]).to_numpy()
    groups = frame.groupby(["work", "name", "turn", "flops", "bytes"], sort=False)
    frame["group"], frame["first"] = groups.ngroup(), groups.cumcount() == 0
    frame["equals"] = groups["name"].transform("size")
    frame = frame[frame["equals"] >= (limit("R47.equal") if by_place else 2)]
    order = frame.sort_values(["group", "duration_ns"], kind="stable")
    begin = np.flatnonzero(np.r_[True, np.diff(order["group"].to_numpy()) != 0][: len(order)])
    sizes = np.diff(np.r_[begin, len(order)])
    usual = order["duration_ns"].to_numpy()[begin + (sizes - 1) // 2]
    frame["usual_ns"] = pd.Series(np.repeat(usual, sizes), index=order.index).reindex(frame.index)
    far = frame["duration_ns"] > limit("R47.times") * frame["usual_ns"]
    slow = frame[far & (frame["duration_ns"] - frame["usual_ns"] >= limit("R47.length"))]
    slow = slow.drop(columns=["turn", "work", "group", "flops", "bytes", "op", "id"]).copy()
    slow.attrs["repeated"] = len(frame)
    return slow


def noise(run: Run) -> pd.DataFrame:
    """Return those calls where they are few and cost much of the time; otherwise none."""
    slow = slow_calls(run)
    repeated = slow.attrs["repeated"]
    few = len(slow) <= limit("R47.few") * repeated
    if few and run.share(run.scaled(excess(slow))) > limit("R47.share"):
        return slow
    none = slow.iloc[:0].copy()
    none.attrs["repeated"] = repeated
    return none


def excess(slow: pd.DataFrame) -> int:
    """Return the time of slow calls beyond the usual time of their equals."""
    return int((slow["duration_ns"] - slow["usual_ns"]).sum())
