# SPDX-License-Identifier: Apache-2.0
"""Operators by the module of the model that called them, as a tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof.analysis.source import Source
from pyprof.model import Ints
from pyprof.reports import Column, View, report
from pyprof.reports.group_node import add_up, tree
from pyprof.reports.operator_queries import operators

_HOST = "Time of executions on the CPU, less that of executions inside them"
_DEVICE = "Time with work on the device, added up over executions"


@report(
    "module",
    "Modules",
    (
        Column("module", "Module", "", "Path of the module, from the model; empty: operators outside of modules.", str),
        Column("depth", "Depth", "", "Number of modules above it."),
        Column(
            "occurrences", "Occurrences", "count",
            "Executions of operators, forward and backward, that this module called itself, not a module inside it.",
        ),
        Column("operators", "Operators", "count", "Operators in it and in the modules inside it: docs/columns.md."),
        Column("host_total_ns", "Host Total (ns)", "ns", f"{_HOST}; in it and in the modules inside it."),
        Column("host_self_ns", "Host Self (ns)", "ns", f"{_HOST}; that this module called itself."),
        Column("device_total_ns", "Device Total (ns)", "ns", f"{_DEVICE}; in it and in the modules inside it."),
        Column("device_self_ns", "Device Self (ns)", "ns", f"{_DEVICE}; that this module called itself."),
    ),
    view=View("Operators"),
)  # fmt: skip
def module(source: Source) -> pd.DataFrame:
    """One row per module, those around before those inside. A backward counts for the module of its forward. What is
    outside of modules, events without an operator among it, is the row without a name: so self times add up to all that
    the detail report has, and the total of a module is its own time and the totals of the modules directly inside it.
    Rows of several workers are added up. Without a GPU device times are empty."""
    found = operators(source, by_id=True)
    paths = [path or "" for path in found["module"]]
    names, at, parent, level = tree(paths, ".")
    own = {
        "operators": np.ones(len(found), np.int64), "occurrences": _integers(found["calls"]),
        "host": _integers(found["cpu"].fillna(0)), "timed": _integers(found["timed"]),
        "device": _integers(found["gpu"]),
    }  # fmt: skip
    inner: dict[str, Ints] = {name: add_up("sum", values, at, parent, level) for name, values in own.items()}
    mine: dict[str, Ints] = {}
    for name, values in own.items():
        mine[name] = np.zeros(len(names), np.int64)
        np.add.at(mine[name], at, values)
        inner[name][0] = mine[name][0]  # what has no module is not above the others
    out: dict[str, Any] = {
        "module": names, "depth": np.maximum(level - 1, 0), "occurrences": mine["occurrences"],
        "operators": inner["operators"], "host_total_ns": _known(inner), "host_self_ns": _known(mine),
        "device_total_ns": inner["device"] if source.gpu else None,
        "device_self_ns": mine["device"] if source.gpu else None,
    }  # fmt: skip
    table = pd.DataFrame(out)
    return table if "" in paths else table.iloc[1:]


def _known(sums: dict[str, Ints]) -> Any:
    """Times on the CPU, missing for modules of which none is known."""
    host, missing = sums["host"], (sums["timed"] == 0) & (sums["occurrences"] > 0)
    return pd.arrays.IntegerArray(host, missing) if missing.any() else host


def _integers(values: pd.Series[Any]) -> Ints:
    return np.array(values.to_list(), np.int64)
