# SPDX-License-Identifier: Apache-2.0
"""Operator events of every depth, as torch.profiler and its TensorBoard plugin count them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof.analysis.operator_tree import DEVICE, callers, operator_name, tree, weights
from pyprof.analysis.source import Source
from pyprof.analysis.timeline import Activity
from pyprof.marker import CallMarker, OperatorMarker, announces_collective, decode
from pyprof.reports import Column, Option, View, report
from pyprof.reports.operator_queries import spans, started
from pyprof.store.write.operators import IN_RANGE, UNASSOCIATED, product, shapes

_SHARE = "as a share of the time of kernels of which it is known; empty without such kernels"
_SUMS = ("calls", "timed", *(f"{kind}_{which}" for which in ("own", "total") for kind in ("host", *DEVICE)))


@report(
    "operator",
    "Operators",
    (
        Column("name", "Name", "", "The operator, as the dispatcher or autograd names it.", str),
        Column("shapes", "Input Shapes", "", "Shapes of the tensors of the call; empty if not recorded.", str),
        Column(
            "stack", "Stack Trace", "",
            "Source lines of the call, one a line, outermost first; where it has none those of what is around it.", str,
        ),
        Column("calls", "Calls", "count", "Operator events; one and the only one inside it, of its name, are one."),
        Column(
            "device_self_ns", "Device Self (ns)", "ns",
            "Sum of the times of kernels, copies and sets that it launched itself, not an operator inside it.",
        ),
        Column("device_total_ns", "Device Total (ns)", "ns", "As device self, with the operators inside it."),
        Column(
            "host_self_ns", "Host Self (ns)", "ns",
            "Its time on the CPU, less that of operators and API calls directly inside it.",
        ),
        Column("host_total_ns", "Host Total (ns)", "ns", "Its time on the CPU, from its start to its end."),
        Column("tc_eligible", "Tensor Cores Eligible", "", "Whether tensor cores could do it, by its name.", bool),
        Column("tc_self", "Tensor Cores Self (%)", "%", f"Device self of those using tensor cores, {_SHARE}.", float),
        Column("tc_total", "Tensor Cores Total (%)", "%", f"As self, of device total, {_SHARE}.", float),
    ),
    options=(
        Option(
            "group_by",
            "What a row is of: calls of one name, of one name and shapes, or of one name, shapes and call stack.",
            {"name": ("shapes", "stack"), "shapes": ("stack",), "stack": ()},
        ),
    ),
    view=View("Operators", sort="-device_self_ns", bar="device_self_ns"),
)  # fmt: skip
def operator(source: Source, group_by: str) -> pd.DataFrame:
    """One row per name of an operator event that starts in the aggregated iterations, nested ones too, by device self
    time. Events nest by their times on a thread; a GPU event belongs to the innermost operator event around the start
    of its launch. What none launched is under the innermost of the user's ranges around it, else the row
    unassociated: so device self times add up to everything. Totals of operators inside each other overlap. Recordings
    without operator events show the calls that were marked. Rows of several workers are added up. Without a GPU
    device times are empty."""
    texts = dict(source.store.rows("select id, text from string"))
    frames = [
        _worker(source.activity(low >> 40), source, (low, high), texts, group_by == "stack")
        for low, high in spans(source)
    ]
    rows = pd.concat(frames) if frames else pd.DataFrame(columns=[*_KEYS, *_SUMS])
    found = rows.groupby(list(_KEYS), sort=True)[list(_SUMS)].sum().reset_index()
    texts |= {-2 - number: name for number, name in _ranges(source).items()}
    said: dict[str, Any] = _said(found["text"].tolist(), found["args"].tolist(), texts, group_by)
    if group_by == "stack":
        stacks = dict(source.store.rows("select id, frames from stack"))
        said["stack"] = [
            stacks.get(code) if code >= -1 else _described(texts[-2 - code])[1]
            for code in found["stack"].tolist()
        ]
    found = found.drop(columns=list(_KEYS)).assign(**said)
    found = found.groupby(list(said), sort=True, dropna=False)[list(_SUMS)].sum().reset_index()
    return _table(source, found)


_KEYS = ("text", "args", "stack")  # what tells events apart


def _worker(
    activity: Activity, source: Source, launched: tuple[int, int], texts: dict[int, str], stacks: bool
) -> pd.DataFrame:
    """Sums of a worker's events of equal texts and, if they matter, stacks.

    Text -1 is what no operator launched, -2 - the id of an operator what was launched in the range it stands for.
    """
    found = tree(activity, texts)
    if stacks:
        found = found._replace(stack=callers(activity, found, texts))
    inside = np.flatnonzero(started(source, activity.worker, activity.span[1], found.start))
    columns: dict[str, Any] = {key: getattr(found, key)[inside] for key in _KEYS}
    columns |= {"calls": 1, "timed": found.timed[inside].astype(np.int64)}
    for which, part in (("own", found.own), ("total", found.total)):
        columns |= {f"{kind}_{which}": values[inside] for kind, values in part.items()}
    outside = found.outside[
        slice(*np.searchsorted(activity.id[found.outside], launched))
    ]  # launched in the aggregated iterations
    of = activity.event["operator"].values[outside]
    in_range = list(_ranges(source))
    rest: dict[str, Any] = dict.fromkeys(columns, -1) | {"text": np.where(np.isin(of, in_range), -2 - of, -1)}
    rest |= {"calls": 1, "timed": 0, "host_own": 0, "host_total": 0}
    for name, values in weights(activity).items():
        rest[f"{name}_own"] = rest[f"{name}_total"] = values[outside]
    table = pd.concat([pd.DataFrame(columns), pd.DataFrame(rest, columns=list(columns))])
    return table.groupby(list(_KEYS), sort=True)[list(_SUMS)].sum().reset_index()


def _ranges(source: Source) -> dict[int, str]:
    """The operators that ranges stand for, which are no operator events: those of the user's, and those that announce a
    collective outside of every operator."""
    rows = source.store.rows("select id, type, unassociated from operator")
    return {number: name for number, name, what in rows if what == IN_RANGE or announces_collective(name)}


def _said(text: list[int], args: list[int], texts: dict[int, str], group_by: str) -> dict[str, list[Any]]:
    """Name and shapes of events with these texts, as far as they are asked for, and whether no operator is one."""
    names = {
        one: UNASSOCIATED if one == -1 else texts[one] if one < 0 else operator_name(texts[one])
        for one in text
    }
    out: dict[str, list[Any]] = {"name": [names[one] for one in text], "outside": [one < 0 for one in text]}
    if group_by != "name":
        out["shapes"] = [
            None if one < 0 else _described(texts.get(more, texts[one]))[0] for one, more in zip(text, args)
        ]
    return out


def _described(text: str) -> tuple[str | None, str | None]:
    """Shapes and stack that a text tells."""
    marker = decode(text)
    if isinstance(marker, CallMarker):
        return shapes(marker.call), "\n".join(marker.trace) or None
    if isinstance(marker, OperatorMarker) and marker.sizes:
        return "; ".join(map(str, marker.sizes)), None
    return None, None


def eligible(name: str) -> bool:
    """Whether tensor cores could do an operator of a recording, by its name."""
    mod, _, op = name.rpartition(".") if "::" not in name else ("aten", "", name)
    return bool(product(mod, op))


def _table(source: Source, found: pd.DataFrame) -> pd.DataFrame:
    """The columns of the report, by device time, then host time."""
    for which in ("own", "total"):
        known = found[f"kernel_{which}"].where(found[f"kernel_{which}"] > 0)
        found[f"tc_{which}"] = 100 * found[f"tc_{which}"].astype(float) / known.astype(float)
    outside = found.pop("outside").astype(bool)
    timed = found.pop("timed") > 0
    for name, known in (("calls", ~outside), ("host_own", timed), ("host_total", timed)):
        found[name] = found[name].astype("Int64").where(known)  # nobody called what is outside
    found["tc_eligible"] = [None if no else eligible(one) for one, no in zip(found["name"], outside)]
    found = found.sort_values(
        ["device_own", "host_own", "name"], ascending=[False, False, True], kind="stable", ignore_index=True
    )
    shown = {f"{kind}_{which}": f"{kind}_{to}_ns" for kind in ("host", "device")
             for which, to in (("own", "self"), ("total", "total"))}  # fmt: skip
    found = found.rename(columns=shown | {"tc_own": "tc_self"})
    if not source.gpu:
        found = found.assign(device_self_ns=None, device_total_ns=None)
    return found
