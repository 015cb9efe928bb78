# SPDX-License-Identifier: Apache-2.0
"""Operators by the module of the model that called them, as a tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof.core.model import Ints
from pyprof.facts.steps.source import Source
from pyprof.measures.queries import operators
from pyprof.reports import Column, View, report
from pyprof.reports.group_node import add_up, tree

_HOST = "Time of executions on the CPU with their API calls, minus that of executions inside them"
_DEVICE = "Time with work on the device, summed over executions"


@report(
    "module",
    "Modules",
    (
        Column("module", "Module", "", "Path of the module, from the model; empty outside of modules.", str),
        Column("depth", "Depth", "", "Number of modules above it."),
        Column(
            "occurrences",
            "Occurrences",
            "count",
            "Executions of operators, forward and backward, called by this module itself, not by a module inside it.",
        ),
        Column("operators", "Operators", "count", "Operators in it and in the modules inside it: docs/columns.md."),
        Column("host_total_ns", "Host Total (ns)", "ns", f"{_HOST}; for it and the modules inside it."),
        Column("host_self_ns", "Host Self incl. API (ns)", "ns", f"{_HOST}; for calls by this module itself."),
        Column("device_total_ns", "Device Busy Total (ns)", "ns", f"{_DEVICE}; for it and the modules inside it."),
        Column("device_self_ns", "Device Busy Self (ns)", "ns", f"{_DEVICE}; for calls by this module itself."),
    ),
    of_summary=True,
    view=View("Operators"),
)
def module(source: Source) -> pd.DataFrame:
    """One row per module, outer modules before those inside, otherwise as they first run. A backward operation counts
    for the module of its forward. What is outside all modules, including events without an operator, is the row
    without a name. Self times thus add up to the total of the detail report, and the total of a module is its own time
    plus the totals of the modules directly inside it. Values of several workers are summed. Without a GPU, device
    times are empty."""
    rows = operators(source, by_id=True)
    paths = [path or "" for path in rows["module"]]
    names, at, parent, level = tree(paths, ".")
    own = {
        "operators": np.ones(len(rows), np.int64),
        "occurrences": _integers(rows["calls"]),
        "host": _integers(rows["cpu"].fillna(0)),
        "timed": _integers(rows["timed"]),
        "device": _integers(rows["gpu"]),
    }
    inner: dict[str, Ints] = {name: add_up("sum", values, at, parent, level) for name, values in own.items()}
    direct: dict[str, Ints] = {}
    for name, values in own.items():
        direct[name] = np.zeros(len(names), np.int64)
        np.add.at(direct[name], at, values)
        inner[name][0] = direct[name][0]  # work outside modules is not their parent
    out: dict[str, Any] = {
        "module": names, "depth": np.maximum(level - 1, 0), "occurrences": direct["occurrences"],
        "operators": inner["operators"], "host_total_ns": _host_times(inner), "host_self_ns": _host_times(direct),
        "device_total_ns": inner["device"] if source.gpu else None,
        "device_self_ns": direct["device"] if source.gpu else None,
    }  # fmt: skip
    table = pd.DataFrame(out)
    return table if "" in paths else table.iloc[1:]


def _host_times(sums: dict[str, Ints]) -> Any:
    """Return times on the CPU, missing for modules without a known time."""
    host, missing = sums["host"], (sums["timed"] == 0) & (sums["occurrences"] > 0)
    return pd.arrays.IntegerArray(host, missing) if missing.any() else host


def _integers(values: pd.Series[Any]) -> Ints:
    """Return a column of integers as an array."""
    return np.array(values.to_list(), np.int64)
