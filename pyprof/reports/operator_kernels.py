# SPDX-License-Identifier: Apache-2.0
"""Kernels, copies and sets by the operator events that launched them, those of nested operators included.

The sums of a name are its device self and total of the report operator: an operator that launches nothing itself, as
aten::convolution does, has the kernels of those inside it.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.facts.device.timeline import Activity
from pyprof.facts.host.operator_tree import Tree, operator_name, tree
from pyprof.facts.steps.source import Source
from pyprof.measures.queries import spans, started
from pyprof.reports import Column, View, report
from pyprof.store import reads
from pyprof.store.ids import worker_of

_KEYS = ["text", "kernel"]
_SUMS = ["calls", "device_self_ns", "device_total_ns"]


@report(
    "operator_kernels",
    "Kernels of Operators",
    (
        Column("name", "Name", "", "Name of the operator in the dispatcher or autograd.", str),
        Column("kernel", "Kernel", "", "Name of the kernel, copy or set.", str),
        Column(
            "tc",
            "Tensor Cores Used",
            "",
            "Whether it uses tensor cores; empty if the name does not show it.",
            bool,
        ),
        Column("calls", "Launches", "count", "Kernels of this name that it or a nested operator launched."),
        Column("device_self_ns", "Device Self (ns)", "ns", "Time of those that it launched directly."),
        Column("device_total_ns", "Device Total (ns)", "ns", "Time of all of them."),
    ),
    needs="operators of torch, and kernels on a GPU",
    view=View("Operators", sort="-device_total_ns", sums="device_self_ns"),
)
def operator_kernels(source: Source) -> pd.DataFrame:
    """One row per name of an operator event that starts in the aggregated iterations and per kernel that it or an
    operator inside it launched, sorted by device total time. A kernel of a nested operator counts for each of those
    around it, as device total of the report operator has it. What no operator launched has no row."""
    texts = reads.texts(source.store)
    parts = [
        _sums(activity, tree(activity, texts), source)
        for low, _ in spans(source)
        for activity in [source.activity(worker_of(low))]
    ]
    table = pd.concat([pd.DataFrame(columns=[*_KEYS, *_SUMS], dtype=np.int64), *parts])
    names = {code: operator_name(texts[code]) for code in table["text"].unique().tolist()}
    table = table.assign(name=table["text"].map(names).astype(object))
    table = table.groupby(["name", "kernel"], sort=True)[_SUMS].sum().reset_index()
    kernels = {row[0]: row[1:] for row in source.store.rows("select id, name, tc from kernel_name")}
    table["tc"] = [None if kernels[code][1] is None else bool(kernels[code][1]) for code in table["kernel"].tolist()]
    table["kernel"] = [kernels[code][0] for code in table["kernel"].tolist()]
    return table.sort_values(
        ["device_total_ns", "name", "kernel"], ascending=[False, True, True], kind="stable", ignore_index=True
    )


def _sums(activity: Activity, events: Tree, source: Source) -> pd.DataFrame:
    """Return the sums by text of the operator event and kernel: of those that launched the kernels, then of those
    around these, and so on."""
    inside = started(source, activity.worker, activity.span[1], events.start)
    kernel, time = activity.event["name"].values, activity.event["duration_ns"].values
    place = np.flatnonzero(events.launcher >= 0)
    above = events.launcher[place]
    out: list[pd.DataFrame] = []
    while len(place):
        counted = inside[above]
        level = pd.DataFrame({
            "text": events.text[above[counted]], "kernel": kernel[place[counted]],
            "device_total_ns": time[place[counted]], "calls": 1,
        })  # fmt: skip
        level["device_self_ns"] = 0 if out else level["device_total_ns"]
        out.append(level.groupby(_KEYS)[_SUMS].sum().reset_index())
        above = events.parent[above]
        place, above = place[above >= 0], above[above >= 0]
    return pd.concat(out) if out else pd.DataFrame(columns=[*_KEYS, *_SUMS], dtype=np.int64)
