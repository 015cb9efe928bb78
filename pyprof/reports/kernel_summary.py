# SPDX-License-Identifier: Apache-2.0
"""Kernels by name, or by name, operator and launch configuration."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.model import KERNELS, Ints
from pyprof.core.model import Column as Values
from pyprof.facts.device import launch_stats
from pyprof.facts.steps.dataframes import category
from pyprof.facts.steps.source import Source
from pyprof.reports import Column, Option, View, efficiency, report
from pyprof.reports.operator_queries import codes, distinct, launched_parts
from pyprof.reports.operators import eligible
from pyprof.store.ids import worker_of

_OPERATOR, _LAUNCH = ("operator", "tc_eligible"), ("grid", "block", "registers", "shared_memory")


@report(
    "kernel_summary",
    "Kernel Summary",
    (
        Column("name", "Name", "", "Full name of the kernel.", str),
        Column(
            "operator", "Operator", "",
            "Operator of the call that launched it, of a backward kernel that of its forward; empty if none did.", str,
        ),
        Column("grid", "Grid", "", "Blocks of the grid, in x, y and z.", str),
        Column("block", "Block", "", "Threads of a block, in x, y and z.", str),
        Column("registers", "Registers Per Thread", "count", "Registers of a thread."),
        Column("shared_memory", "Shared Memory (B)", "B", "Shared memory of a block."),
        Column(
            "tc", "Tensor Cores Used", "",
            "Whether it used tensor cores; empty if the name does not show it.", bool,
        ),
        Column("calls", "Calls", "count", "Kernels that ran."),
        Column("total_ns", "Total (ns)", "ns", "Sum of their times on the device."),
        Column("mean_ns", "Mean (ns)", "ns", "Total divided by calls.", float),
        Column("max_ns", "Max (ns)", "ns", "Longest."),
        Column("min_ns", "Min (ns)", "ns", "Shortest."),
        Column(
            "blocks_per_sm", "Mean Blocks Per SM", "",
            "Blocks of the grid divided by the device's multiprocessors: mean weighted by the kernels' times, over "
            "kernels for which it is known.", float,
        ),
        Column(
            "occupancy", "Mean Est. Achieved Occupancy (%)", "%",
            "Share of a multiprocessor's threads that the blocks could fill, recorded, else estimated from the launch: "
            "mean weighted by the kernels' times, over kernels for which it is known.", float,
        ),
        Column(
            "tc_eligible", "Op Tensor Cores Eligible", "",
            "Whether tensor cores could do the operator, by its name; empty without an operator.", bool,
        ),
        Column(
            "flops_per_s", "FLOP Rate (FLOP/s)", "FLOP/s",
            "FLOPs of these kernels divided by the device time of those whose FLOPs are known.", float,
        ),
        Column(
            "bandwidth", "Bandwidth (GB/s)", "GB/s",
            "Bytes of these kernels divided by the device time of those whose bytes are known.", float,
        ),
        Column(
            "intensity", "Intensity (FLOP/B)", "FLOP/B",
            "Known FLOPs divided by known bytes: with the FLOP rate, the place in the roofline.", float,
        ),
        *efficiency.columns("these kernels"),
    ),
    options=(
        Option(
            "group_by",
            "What each row covers: kernels of one name; of one name and operator; or of one name, operator, launch "
            "geometry, registers and shared memory.",
            {"name": (*_OPERATOR, *_LAUNCH), "operator": _LAUNCH, "properties": ()},
        ),
    ),
    needs="kernels on a GPU",
    view=View("Kernels", sort="-total_ns", sums="calls total_ns"),
)  # fmt: skip
def kernel_summary(source: Source, group_by: str) -> pd.DataFrame:
    """One row per name of a kernel launched in the aggregated iterations, sorted by total time; with
    --group-by=operator, one per name and operator; with --group-by=properties, one per name, operator and launch
    configuration. Values of several workers and devices are summed. Copies and sets are not kernels. A recording
    without a GPU has no rows."""
    of_site, of_geometry, cells_of = _properties(source) if group_by != "name" else (None, None, {})
    shapes = launch_stats.shapes(source.store)
    operators = efficiency.operators_of(source)
    parts = []
    for event in launched_parts(source, _NEEDED, KERNELS):
        keys = {"name": event["name"].values}
        if of_site is not None:
            keys["site"] = of_site[codes(event["site"])]
        if of_geometry is not None and group_by == "properties":
            keys["geometry"] = of_geometry[codes(event["geometry"])]
        parts.append(_sums(pd.DataFrame(keys), event, _launches(source, shapes, event), operators))
    by = list(keys)
    sums = _added(pd.concat(parts), [*by, *_APART])
    work = efficiency.figures(source, sums, by)
    sums["used"], sums["unknown"] = sums["tc"] == 1, sums["tc"] < 0
    sums["blocks_per_sm"] /= sums["sm_count"].where(sums["sm_count"] > 0, 1)
    table = _added(sums, by, used="any", unknown="any").drop(columns=[*efficiency.SUMS[1:]])
    table = table.rename(columns={"gpu_ns": "total_ns"}).join(work, on=by)
    table = table.join(_rates(table))
    table["occupancy"] /= 100
    table["mean_ns"] = table["total_ns"] / table["calls"]
    table["tc"] = np.where(table["used"], True, np.where(table["unknown"], None, False))  # type: ignore[call-overload]
    for name in ("blocks_per_sm", "occupancy"):
        table[name] = table[name] / table[f"{name}_of"]  # 0 / 0: missing
    table = table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
    texts = dict(source.store.rows("select id, name from kernel_name"))
    for name, cells in cells_of.items():
        key = "site" if name in _OPERATOR else "geometry"
        if key in by:
            table[name] = [cells[code] for code in table[key]]
    return table.assign(name=category(table["name"].to_numpy(), texts))


_NEEDED = (
    "name", "site", "device", "duration_ns", "geometry", "tc", "verdict", "roofline_ns", "hardware_ps", "model_ps",
    "flops", "bytes", "operator",
)  # fmt: skip
# Keys of sums besides those of the rows. Sums of whole numbers are exact in parts of any size, so blocks are divided by
# the multiprocessors at the end.
_APART = (*efficiency.APART, "sm_count")
_SUMMED = (
    *efficiency.SUMS, "calls", "flops", "flops_ns", "bytes", "bytes_ns", "blocks_per_sm", "blocks_per_sm_of",
    "occupancy", "occupancy_of",
)  # fmt: skip


def _added(table: pd.DataFrame, keys: list[str], **how: str) -> pd.DataFrame:
    """Return the sums of rows of equal keys, with the longest and the shortest kernel."""
    how = {**dict.fromkeys(_SUMMED, "sum"), "max_ns": "max", "min_ns": "min", **how}
    out: pd.DataFrame = table.groupby(keys, sort=True).agg(how).reset_index()
    return out


def _sums(
    keys: pd.DataFrame, event: dict[str, Values], launches: _Launches, operators: efficiency.Operators
) -> pd.DataFrame:
    """Return sums over some kernels of equal keys."""
    time = event["duration_ns"].values
    columns: dict[str, Any] = efficiency.amounts({**event, "gpu_ns": event["duration_ns"]}, operators)
    columns |= {"calls": 1, "max_ns": time, "min_ns": time, "sm_count": launches.sm_count}
    for name in ("flops", "bytes"):
        known = event[name].mask()
        columns[name] = np.where(known, event[name].values, 0).astype(float)
        columns[f"{name}_ns"] = np.where(known, time, 0)
    for name, values, known in (
        ("blocks_per_sm", launches.blocks, (launches.blocks >= 0) & (launches.sm_count > 0)),
        ("occupancy", launches.occupancy, launches.occupancy >= 0),
    ):
        columns[name] = np.where(known, time * values.astype(float), 0.0)
        columns[f"{name}_of"] = np.where(known, time, 0)
    return _added(keys.assign(**columns), [*keys, *_APART])


def _rates(sums: pd.DataFrame) -> pd.DataFrame:
    """Return FLOPs per second, GB per second and FLOPs per byte, as a point of the roofline has them."""
    flops, size = (sums[name].where(sums[f"{name}_ns"] > 0) for name in ("flops", "bytes"))
    return pd.DataFrame(
        {
            "flops_per_s": flops * 1e9 / sums["flops_ns"],
            "bandwidth": size / sums["bytes_ns"],
            "intensity": flops / size.where(size > 0),
        }
    )


class _Launches(NamedTuple):
    """Of each kernel: blocks of its grid, multiprocessors of its device, and occupancy in 0.01 %; -1 where unknown."""

    blocks: Ints
    sm_count: Ints
    occupancy: Ints


def _launches(source: Source, shapes: launch_stats.Shapes, event: dict[str, Values]) -> _Launches:
    geometry, device, worker = (
        codes(event["geometry"]),
        codes(event["device"]),
        worker_of(event["id"].values),
    )
    blocks, sm_count, occupancy = (np.full(len(worker), -1, np.int64) for _ in _Launches._fields)
    for owner, number, count, capability in source.store.rows(
        "select worker, number, sm_count, compute_capability from device where events > 0"
    ):
        own = np.flatnonzero((worker == owner) & (device == number))
        occupancy[own] = launch_stats.filled(shapes, count, capability)[1][geometry[own]]
        if count:
            blocks[own], sm_count[own] = shapes.blocks[geometry[own]], count
    return _Launches(blocks, sm_count, occupancy)


def _properties(source: Source) -> tuple[Ints, Ints, dict[str, list[Any]]]:
    """Return the key of each site, its innermost operator, that of each launch geometry, and the cells for each key."""
    operators, of_site = distinct(source.store.rows("select id, op from site"), (None,))
    shapes, of_geometry = distinct(
        source.store.rows(
            """select id, grid_x, grid_y, grid_z, block_x, block_y, block_z, registers, shared_memory_bytes
               from geometry"""
        ),
        (None,) * 8,
    )
    cells = {
        "operator": [row[0] for row in operators],
        "tc_eligible": [None if row[0] is None else eligible(row[0]) for row in operators],
        "grid": [_axes(row[:3]) for row in shapes],
        "block": [_axes(row[3:6]) for row in shapes], "registers": [row[6] for row in shapes],
        "shared_memory": [row[7] for row in shapes],
    }  # fmt: skip
    return of_site, of_geometry, cells


def _axes(axes: tuple[int | None, ...]) -> str | None:
    """Return sizes along axes as a text, None if one is unknown."""
    return None if None in axes else ", ".join(map(str, axes))
