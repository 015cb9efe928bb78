# SPDX-License-Identifier: Apache-2.0
"""Operator events at every depth, counted as torch.profiler and its TensorBoard plugin count them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof.core.marker import CallMarker, OperatorMarker, announces_collective, decode
from pyprof.facts.device.timeline import Activity
from pyprof.facts.host.operator_tree import DEVICE_TIMES, callers, operator_name, tree, weights
from pyprof.facts.steps.source import Source
from pyprof.measures import efficiency, launches
from pyprof.measures.launches import eligible
from pyprof.measures.queries import spans, started
from pyprof.reports import Column, Option, View, report
from pyprof.store import reads
from pyprof.store.ids import worker_of
from pyprof.store.write.operators import IN_RANGE, UNASSOCIATED, shapes

_SHARE = "as a share of the time of kernels for which it is known; empty without such kernels"
_SUMS = (
    "calls",
    "timed",
    *(f"{kind}_{which}" for which in ("own", "total") for kind in ("host", *DEVICE_TIMES)),
)


@report(
    "operator",
    "Operators",
    (
        Column("name", "Name", "", "Name of the operator in the dispatcher or autograd.", str),
        Column("shapes", "Input Shapes", "", "Shapes of the tensors of the call; empty if not recorded.", str),
        Column(
            "stack", "Stack Trace", "",
            "Source lines of the call, one per line, outermost first; if none, those of the enclosing operator, of a "
            "backward operator those of its forward.", str,
        ),
        Column("calls", "Calls", "count", "Operator events; an event and its only child of the same name count once."),
        Column(
            "device_self_ns", "Device Self (ns)", "ns",
            "Sum of the times of kernels, copies and sets launched by it directly, not by a nested operator.",
        ),
        Column("device_total_ns", "Device Total (ns)", "ns", "As device self, including nested operators."),
        Column(
            "host_self_ns", "Host Self (ns)", "ns",
            "Its time on the CPU, minus that of its direct child operators and API calls.",
        ),
        Column("host_total_ns", "Host Total (ns)", "ns", "Its time on the CPU, from its start to its end."),
        Column("tc_eligible", "Tensor Cores Eligible", "", "Whether tensor cores could do it, by its name.", bool),
        Column("tc_self", "Tensor Cores Self (%)", "%", f"Device self of kernels using tensor cores, {_SHARE}.", float),
        Column("tc_total", "Tensor Cores Total (%)", "%", f"The same for device total, {_SHARE}.", float),
        *efficiency.columns("the kernels of device self"),
    ),
    options=(
        Option(
            "by",
            "What each row covers: calls of one name, of one name and shapes, or of one name, shapes and call stack.",
            {"name": ("shapes", "stack"), "shapes": ("stack",), "stack": ()},
        ),
    ),
    view=View("Operators", sort="-device_self_ns", sums="device_self_ns host_self_ns"),
)  # fmt: skip
def operator(source: Source, by: str) -> pd.DataFrame:
    """One row per name of an operator event that starts in the aggregated iterations, nested ones included, sorted by
    device self time. Events nest by their times on a thread; a GPU event belongs to the innermost operator event
    around the start of its launch. What no operator launched is under the innermost of the user's ranges around it,
    else in the row unassociated, so that device self times add up to the total. Totals of nested operators overlap.
    Recordings without operator events show the marked calls. Values of several workers are summed. Without a GPU,
    device times are empty."""
    texts = reads.texts(source.store)
    frames = [
        _worker(source.activity(worker_of(low)), source, (low, high), texts, by == "stack")
        for low, high in spans(source)
    ]
    rows = pd.concat([sums for sums, _ in frames]) if frames else pd.DataFrame(columns=[*_KEYS, *_SUMS])
    table = rows.groupby(list(_KEYS), sort=True)[list(_SUMS)].sum().reset_index()
    texts |= {-2 - number: name for number, name in _ranges(source).items()}
    labels: dict[str, Any] = _labels(table["text"].tolist(), table["args"].tolist(), texts, by)
    if by == "stack":
        stacks = dict(source.store.rows("select id, frames from stack"))
        labels["stack"] = [
            stacks.get(code) if code >= -1 else _call_texts(texts[-2 - code])[1] for code in table["stack"].tolist()
        ]
    grouped = table.assign(**labels).groupby(list(labels), sort=True, dropna=False)
    row = table[list(_KEYS)].assign(row=grouped.ngroup())
    kernels = pd.concat([kernels for _, kernels in frames]).merge(row, on=list(_KEYS)) if frames else row.iloc[:0]
    table = grouped[list(_SUMS)].sum().reset_index()
    if len(kernels):
        table = table.join(efficiency.figures(source, kernels, ["row"]))
    return _table(source, table.reindex(columns=[*table, *(key for key in efficiency.KEYS if key not in table)]))


_KEYS = ("text", "args", "stack")  # distinguish events


def _worker(
    activity: Activity, source: Source, launched: tuple[int, int], texts: dict[int, str], stacks: bool
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return sums over a worker's events of equal texts and, if requested, stacks; and those over their kernels, for
    `efficiency.figures`.

    Text -1 stands for work that no operator launched, -2 - the id of an operator for work launched in that
    operator's range.
    """
    events = tree(activity, texts)
    if stacks:
        events = events._replace(stack=callers(activity, events, texts))
    inside = np.flatnonzero(started(source, activity.worker, activity.span[1], events.start))
    columns: dict[str, Any] = {key: getattr(events, key)[inside] for key in _KEYS}
    columns |= {"calls": 1, "timed": events.timed[inside].astype(np.int64)}
    for which, part in (("own", events.own), ("total", events.total)):
        columns |= {f"{kind}_{which}": values[inside] for kind, values in part.items()}
    outside = events.outside[
        slice(*np.searchsorted(activity.id[events.outside], launched))
    ]  # launched in the aggregated iterations
    operator_ids = activity.event["operator"].values[outside]
    in_range = list(_ranges(source))
    remaining: dict[str, Any] = dict.fromkeys(columns, -1) | {
        "text": np.where(np.isin(operator_ids, in_range), -2 - operator_ids, -1)
    }
    remaining |= {"calls": 1, "timed": 0, "host_own": 0, "host_total": 0}
    for name, values in weights(activity).items():
        remaining[f"{name}_own"] = remaining[f"{name}_total"] = values[outside]
    table = pd.concat([pd.DataFrame(columns), pd.DataFrame(remaining, columns=list(columns))])
    table = table.groupby(list(_KEYS), sort=True)[list(_SUMS)].sum().reset_index()
    counted = np.zeros(len(events.start) + 1, bool)
    counted[inside] = True
    own = np.flatnonzero(activity.kernel & counted[events.launcher])
    rest = np.flatnonzero(activity.kernel[outside])
    keys = {
        key: np.r_[getattr(events, key)[events.launcher[own]], np.broadcast_to(remaining[key], len(outside))[rest]]
        for key in _KEYS
    }
    at = np.r_[own, outside[rest]]
    work = {name: column.take(at) for name, column in activity.work().items()}
    return table, launches.added(keys, work).to_pandas()


def _ranges(source: Source) -> dict[int, str]:
    """Return the operators that stand for ranges and not for operator events: the user's ranges, and those that
    announce a collective outside all operators."""
    rows = source.store.rows("select id, type, unassociated from operator")
    return {number: name for number, name, kind in rows if kind == IN_RANGE or announces_collective(name)}


def _labels(text: list[int], args: list[int], texts: dict[int, str], by: str) -> dict[str, list[Any]]:
    """Return name and, if requested, shapes of events with these texts, and whether they are outside all operators."""
    names = {
        code: UNASSOCIATED if code == -1 else texts[code] if code < 0 else operator_name(texts[code]) for code in text
    }
    out: dict[str, list[Any]] = {
        "name": [names[code] for code in text],
        "outside": [code < 0 for code in text],
    }
    if by != "name":
        out["shapes"] = [
            None if code < 0 else _call_texts(texts.get(args_code, texts[code]))[0]
            for code, args_code in zip(text, args)
        ]
    return out


def _call_texts(text: str) -> tuple[str | None, str | None]:
    """Return shapes and stack contained in a text."""
    marker = decode(text)
    if isinstance(marker, CallMarker):
        return shapes(marker.call), "\n".join(marker.trace) or None
    if isinstance(marker, OperatorMarker) and marker.sizes:
        return "; ".join(map(str, marker.sizes)), None
    return None, None


def _table(source: Source, table: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of the report, sorted by device time, then host time."""
    for which in ("own", "total"):
        time = table[f"kernel_{which}"].where(table[f"kernel_{which}"] > 0)
        table[f"tc_{which}"] = 100 * table[f"tc_{which}"].astype(float) / time.astype(float)
    outside = table.pop("outside").astype(bool)
    timed = table.pop("timed") > 0
    for name, mask in (("calls", ~outside), ("host_own", timed), ("host_total", timed)):
        table[name] = table[name].astype("Int64").where(mask)  # work outside operators was not called
    table["tc_eligible"] = [None if excluded else eligible(label) for label, excluded in zip(table["name"], outside)]
    table = table.sort_values(
        ["device_own", "host_own", "name"], ascending=[False, False, True], kind="stable", ignore_index=True
    )
    headings = {f"{kind}_{which}": f"{kind}_{to}_ns" for kind in ("host", "device")
             for which, to in (("own", "self"), ("total", "total"))}  # fmt: skip
    table = table.rename(columns=headings | {"tc_own": "tc_self"})
    if not source.gpu:
        table = table.assign(device_self_ns=None, device_total_ns=None)
    return efficiency.explained(source, table)
