# SPDX-License-Identifier: Apache-2.0
"""Operators as a tree of groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof.core import model
from pyprof.core.model import Ints
from pyprof.facts.steps.dataframes import integer
from pyprof.facts.steps.source import Source
from pyprof.measures.queries import SPREADS, counted, operators
from pyprof.reports import Column, View, figure, report, spread
from pyprof.reports.detail import TC_UNKNOWN
from pyprof.store.write.operators import OUTSIDE

_OUTSIDE = "unassociated"
_ENDS = (("", "sum"), ("_min", "min"), ("_max", "max"))
_BOUNDS = np.iinfo(np.int64)
_TC = ("tc", "tc_unknown")
_FUNCTIONS: dict[str, tuple[np.ufunc, int]] = {
    "sum": (np.add, 0),
    "min": (np.minimum, _BOUNDS.max),
    "max": (np.maximum, _BOUNDS.min),
}


@report(
    "group_node",
    "Group Op Report",
    (
        Column("name", "Name", "", "Path of the group; / stands for everything.", str),
        figure("calls", heading="Num Calls Aggregated"),
        Column("eligible", "Num TC Eligible Ops", "count", "Operators in it that tensor cores could do."),
        Column("using_tc", "Num Ops Using TC", "count", "Operators in it with a kernel that used tensor cores."),
        *(column for name in SPREADS for column in spread(name)),
        Column("level", "Level", "", "Depth in the tree; / is 0.", int, True),
        Column("ops", "Num Ops", "count", "Operators in it.", int, True),
        figure("tc", extra=True),
        TC_UNKNOWN,
    ),
    of_summary=True,
    view=View("Operators"),
)
def group_node(source: Source) -> pd.DataFrame:
    """One row per group of the model, parents before children, otherwise as they first run: sums over the operators in
    it and in the groups inside it. What is outside all operators is in the group of the user's range around it, else
    in unassociated/. A group is thus the sum of the groups and operators directly inside it, and / is the total of the
    summary."""
    table = operators(source, by_id=True)
    table = table.sort_values("unassociated", key=lambda kind: kind == OUTSIDE, kind="stable")  # at the end
    paths = [
        _OUTSIDE if outside == OUTSIDE else name.rpartition("/")[0]
        for name, outside in zip(table["name"], table["unassociated"])
    ]
    names, at, parent, level = tree(paths)
    sums = {
        "calls": table["calls"],
        "ops": np.ones(len(table)),
        "eligible": table["eligible"],
        "using_tc": table["tc_kernels"].astype("Int64").fillna(0) > 0,
        **{name: table[name].astype("Int64").fillna(0) for name in _TC},
    }
    out: dict[str, Any] = {name: add_up("sum", np.asarray(v, np.int64), at, parent, level) for name, v in sums.items()}
    for name in SPREADS:
        known = table[name].notna().to_numpy(bool)
        executions = add_up("sum", np.where(known, table[counted(name)], 0).astype(np.int64), at, parent, level)
        for end, how in _ENDS:
            values = table[name + end].where(known, _FUNCTIONS[how][1]).to_numpy(np.int64)
            total = add_up(how, values, at, parent, level)
            out[name + end] = integer(model.Column(total, executions > 0)) if known.any() else None
            if end == "":
                out[f"{name}_avg"] = _mean(total, executions) if known.any() else None
    if not source.gpu:
        out |= dict.fromkeys(("using_tc", *_TC))
    labels = [f"{path}/" if number else "/" for number, path in enumerate(names)]
    return pd.DataFrame({"name": labels, **out, "level": level})


def _mean(total: Ints, calls: Ints) -> Any:
    """Return the mean, missing where there are no calls."""
    return np.divide(total, calls, out=np.full(len(total), np.nan), where=calls > 0)


def tree(paths: list[str], separator: str = "/") -> tuple[list[str], Ints, Ints, Ints]:
    """Return the groups of paths and of all their ancestors, parents first, siblings as they come first: their paths,
    the group of each given path, and the parent (-1 for the root) and depth of each group.

    >>> names, at, parent, level = tree(["b/9", "", "a", "b/10", "b/9"])
    >>> names, at.tolist(), parent.tolist(), level.tolist()
    (['', 'b', 'b/9', 'b/10', 'a'], [2, 0, 4, 3, 2], [-1, 0, 1, 1, 0], [0, 1, 2, 2, 1])
    """
    above: dict[str, str] = {}
    order: dict[str, tuple[int, ...]] = {"": ()}
    for place, path in enumerate(dict.fromkeys(paths)):
        missing = []
        while path not in order:
            missing.append(path)
            above[path] = path = path.rpartition(separator)[0]
        for inner in reversed(missing):
            order[inner] = (*order[above[inner]], place)
    names = sorted(order, key=order.__getitem__)
    number = {path: i for i, path in enumerate(names)}
    parent = np.array([-1] + [number[above[path]] for path in names[1:]], np.int64)
    level = np.zeros(len(names), np.int64)
    for i, up in enumerate(parent.tolist()):
        if up >= 0:
            level[i] = level[up] + 1
    return names, np.array([number[path] for path in paths], np.int64), parent, level


def add_up(how: str, values: Ints, at: Ints, parent: Ints, level: Ints) -> Ints:
    """Return the sum, min or max over everything in each group. `values` belong to the groups `at`."""
    function, first = _FUNCTIONS[how]
    out = np.full(len(parent), first, np.int64)
    function.at(out, at, values)
    for depth in range(int(level.max()), 0, -1):
        groups = np.flatnonzero(level == depth)
        function.at(out, parent[groups], out[groups])
    return out
