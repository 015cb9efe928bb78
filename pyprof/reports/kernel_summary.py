# SPDX-License-Identifier: Apache-2.0
"""Kernels by name, or by name, operator and launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof.analysis import launch_stats
from pyprof.analysis.dataframes import category
from pyprof.analysis.source import Source
from pyprof.model import Bools, Ints
from pyprof.model import Column as Values
from pyprof.reports import Column, Option, View, report
from pyprof.reports.operator_queries import distinct, launched
from pyprof.reports.operators import eligible

_OPERATOR, _LAUNCH = ("operator", "tc_eligible"), ("grid", "block", "registers", "shared_memory")


@report(
    "kernel_summary",
    "Kernel Summary",
    (
        Column("name", "Name", "", "Whole name of the kernel.", str),
        Column("operator", "Operator", "", "Innermost operator that launched it; empty if none did.", str),
        Column("grid", "Grid", "", "Blocks of the grid, in x, y and z.", str),
        Column("block", "Block", "", "Threads of a block, in x, y and z.", str),
        Column("registers", "Registers Per Thread", "count", "Registers of a thread."),
        Column("shared_memory", "Shared Memory (B)", "B", "Shared memory of a block."),
        Column("tc", "Tensor Cores Used", "", "Whether it used tensor cores; empty if its name does not tell.", bool),
        Column("calls", "Calls", "count", "Kernels that ran."),
        Column("total_ns", "Total (ns)", "ns", "Sum of their times on the device."),
        Column("mean_ns", "Mean (ns)", "ns", "Total divided by calls.", float),
        Column("max_ns", "Max (ns)", "ns", "The longest."),
        Column("min_ns", "Min (ns)", "ns", "The shortest."),
        Column(
            "blocks_per_sm", "Mean Blocks Per SM", "",
            "Blocks of the grid divided by the device's multiprocessors: mean weighted with the kernels' times, over "
            "those of which it is known.", float,
        ),
        Column(
            "occupancy", "Mean Est. Achieved Occupancy (%)", "%",
            "Share of a multiprocessor's threads that the blocks could fill, recorded, else estimated from the launch: "
            "mean weighted with the kernels' times, over those of which it is known.", float,
        ),
        Column(
            "tc_eligible", "Op Tensor Cores Eligible", "",
            "Whether tensor cores could do the operator, by its name; empty without an operator.", bool,
        ),
    ),
    options=(
        Option(
            "group_by",
            "What a row is of: kernels of one name; of one name and operator; or of one name, operator, launch "
            "geometry, registers and shared memory.",
            {"name": (*_OPERATOR, *_LAUNCH), "operator": _LAUNCH, "properties": ()},
        ),
    ),
    needs="kernels on a GPU",
    view=View("Kernels", sort="-total_ns", bar="total_ns"),
)  # fmt: skip
def kernel_summary(source: Source, group_by: str) -> pd.DataFrame:
    """One row per name of a kernel that was launched in the aggregated iterations, by total time; with
    --group-by=operator per name and operator, with --group-by=properties per name, operator and launch. Rows of several
    workers and devices are added up. Copies and sets are not kernels. None in a recording without a GPU."""
    event = launched(source, "name, site, device, dur, geometry, tc", "kind = 0")
    keys = {"name": event["name"].values}
    more, said = _properties(source, event) if group_by != "name" else ({}, {})
    keys |= more if group_by == "properties" else {key: more[key] for key in more if key == "site"}
    frame = pd.DataFrame(keys | {"dur": event["dur"].values})
    frame["unknown"], frame["used"] = ~event["tc"].mask(), event["tc"].mask() & (event["tc"].values == 1)
    for name, values, known in _launches(source, event):
        frame[name], frame[f"{name}_of"] = (
            np.where(known, frame["dur"] * values, 0.0),
            np.where(known, frame["dur"], 0),
        )
    found = frame.groupby(list(keys), sort=True).agg(
        calls=("dur", "size"), total_ns=("dur", "sum"), max_ns=("dur", "max"), min_ns=("dur", "min"),
        used=("used", "any"), unknown=("unknown", "any"),
        **{name: (name, "sum") for name in ("blocks_per_sm", "blocks_per_sm_of", "occupancy", "occupancy_of")},
    ).reset_index()  # fmt: skip
    found["mean_ns"] = found["total_ns"] / found["calls"]
    found["tc"] = np.where(found["used"], True, np.where(found["unknown"], None, False))  # type: ignore[call-overload]
    for name in ("blocks_per_sm", "occupancy"):
        found[name] = found[name] / found[f"{name}_of"]  # of nothing: missing
    found = found.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
    texts = dict(source.store.rows("select id, name from kernel_name"))
    for name, cells in said.items():
        key = "site" if name in _OPERATOR else "geometry"
        if key in keys:
            found[name] = [cells[one] for one in found[key]]
    return found.assign(name=category(found["name"].to_numpy(), texts))


def _plain(column: Values) -> Ints:
    return np.where(column.mask(), column.values, -1)


def _launches(source: Source, event: dict[str, Values]) -> list[tuple[str, Any, Bools]]:
    """Blocks per multiprocessor and occupancy of each event, and where each is known."""
    shapes = launch_stats.shapes(source.store)
    geometry, device, worker = _plain(event["geometry"]), _plain(event["device"]), event["id"].values >> 40
    blocks, occupancy = np.zeros(len(worker)), np.full(len(worker), -1)
    with_blocks = np.zeros(len(worker), bool)
    for one, number, count, capability in source.store.rows(
        "select worker, number, sm_count, compute_capability from device where events > 0"
    ):
        mine = np.flatnonzero((worker == one) & (device == number))
        occupancy[mine] = launch_stats.filled(shapes, count, capability)[1][geometry[mine]]
        if count:
            blocks[mine] = shapes.blocks[geometry[mine]] / count
            with_blocks[mine] = shapes.blocks[geometry[mine]] >= 0
    return [("blocks_per_sm", blocks, with_blocks), ("occupancy", occupancy / 100, occupancy >= 0)]


def _properties(source: Source, event: dict[str, Values]) -> tuple[dict[str, Ints], dict[str, list[Any]]]:
    """Keys of events: innermost operator, launch geometry; and what these say."""
    operators, of_site = distinct(source.store.rows("select id, op from site"), (None,))
    shapes, of_geometry = distinct(
        source.store.rows(
            """select id, grid_x, grid_y, grid_z, block_x, block_y, block_z, registers, shared_memory from geometry"""
        ),
        (None,) * 8,
    )
    keys = {"site": of_site[_plain(event["site"])], "geometry": of_geometry[_plain(event["geometry"])]}
    said = {
        "operator": [one[0] for one in operators],
        "tc_eligible": [None if one[0] is None else eligible(one[0]) for one in operators],
        "grid": [_axes(one[:3]) for one in shapes],
        "block": [_axes(one[3:6]) for one in shapes], "registers": [one[6] for one in shapes],
        "shared_memory": [one[7] for one in shapes],
    }  # fmt: skip
    return keys, said


def _axes(axes: tuple[int | None, ...]) -> str | None:
    return None if None in axes else ", ".join(map(str, axes))
