# SPDX-License-Identifier: Apache-2.0
"""Tables of events of devices: rows of equal keys, with any measures.

    table(source, ("operator", "line"), "calls total_ns mfu".split())

Rows are sorted by their time on the device. What is unknown is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.model import KERNELS
from pyprof.facts.device import launch_stats
from pyprof.facts.steps.source import Source
from pyprof.measures import efficiency, launches
from pyprof.measures.columns import Column
from pyprof.measures.launches import KEYS

_LAUNCH = ("geometry", "worker", "device")  # what decides how much of the device a launch could fill


class Measure(NamedTuple):
    """A figure of any group. `value`: of the sums by group, which are those of `launches`, of _FILLED, and `used` and
    `unknown`: whether tensor cores were used, and may have been. `needs`: columns of `event` that it depends on."""

    column: Column
    value: Callable[[pd.DataFrame], Any]
    needs: tuple[str, ...] = ()


def _known(sums: pd.DataFrame, name: str) -> pd.Series[Any]:
    """Return the time of the events whose FLOPs or bytes are known, missing if it is 0."""
    known = sums["gpu_ns"] - sums[f"{name}_unknown_ns"]
    return known.where(known > 0)


def _intensity(sums: pd.DataFrame) -> pd.Series[Any]:
    flops, size = (sums[name].where(_known(sums, name).notna()) for name in ("flops", "bytes"))
    return flops / size.where(size > 0)


MEASURES = {
    measure.column.key: measure
    for measure in (
        Measure(
            Column(
                "tc", "Tensor Cores Used", "",
                "Whether it used tensor cores; empty if the name does not show it.", bool,
            ),
            lambda sums: np.where(sums["used"], True, np.where(sums["unknown"], None, False)),  # type: ignore[call-overload]
        ),
        Measure(Column("calls", "Calls", "count", "Kernels that ran."), lambda sums: sums["calls"]),
        Measure(
            Column("total_ns", "Total (ns)", "ns", "Sum of their times on the device."), lambda sums: sums["gpu_ns"]
        ),
        Measure(
            Column("mean_ns", "Mean (ns)", "ns", "Total divided by calls.", float),
            lambda sums: sums["gpu_ns"] / sums["calls"],
        ),
        Measure(Column("max_ns", "Max (ns)", "ns", "Longest."), lambda sums: sums["gpu_max_ns"]),
        Measure(Column("min_ns", "Min (ns)", "ns", "Shortest."), lambda sums: sums["gpu_min_ns"]),
        Measure(
            Column(
                "blocks_per_sm", "Mean Blocks Per SM", "",
                "Blocks of the grid divided by the device's multiprocessors: mean weighted by the kernels' times, over "
                "kernels for which it is known.", float,
            ),
            lambda sums: sums["blocks"] / sums["blocks_ns"].where(sums["blocks_ns"] > 0),
            _LAUNCH,
        ),
        Measure(
            Column(
                "occupancy", "Mean Est. Achieved Occupancy (%)", "%",
                "Share of a multiprocessor's threads that the blocks could fill, recorded, else estimated from the "
                "launch: mean weighted by the kernels' times, over kernels for which it is known.", float,
            ),
            lambda sums: sums["occupied"] / 100 / sums["occupied_ns"].where(sums["occupied_ns"] > 0),
            _LAUNCH,
        ),
        Measure(
            Column(
                "flops_per_s", "FLOP Rate (FLOP/s)", "FLOP/s",
                "FLOPs of these kernels divided by the device time of those whose FLOPs are known.", float,
            ),
            lambda sums: sums["flops"] * 1e9 / _known(sums, "flops"),
        ),
        Measure(
            Column(
                "bandwidth", "Bandwidth (GB/s)", "GB/s",
                "Bytes of these kernels divided by the device time of those whose bytes are known.", float,
            ),
            lambda sums: sums["bytes"] / _known(sums, "bytes"),
        ),
        Measure(
            Column(
                "intensity", "Intensity (FLOP/B)", "FLOP/B",
                "Known FLOPs divided by known bytes: with the FLOP rate, the place in the roofline.", float,
            ),
            _intensity,
        ),
    )
}  # fmt: skip


def columns(names: Iterable[str]) -> tuple[Column, ...]:
    """Return the columns of keys and measures."""
    return tuple((KEYS.get(name) or MEASURES[name]).column for name in names)


def table(source: Source, by: Sequence[str], measures: Sequence[str], kinds: Iterable[int] = KERNELS) -> pd.DataFrame:
    """Return one row per group of events of equal keys, by total time: its keys, its measures, and the columns of
    `efficiency`."""
    needed = [KEYS[name].of for name in by]
    sums = launches.rows(source, [*needed, *(name for one in measures for name in MEASURES[one].needs)], kinds)
    if "geometry" in sums and "worker" in sums:
        sums = sums.assign(**_filled(source, sums))
    sums = sums.assign(used=sums["tc"] == 1, unknown=sums["tc"] == launches.UNKNOWN)
    group, keys = launches.grouped(source, sums, by)
    how = {name: "sum" for name in sums if name in (*launches.SUMS, *_FILLED)}
    added = sums.groupby(group).agg({**how, "gpu_min_ns": "min", "gpu_max_ns": "max", "used": "any", "unknown": "any"})
    out = keys.assign(**{name: MEASURES[name].value(added) for name in measures})
    out = out.join(efficiency.figures(source, sums.assign(row=group), ["row"]))
    order = added["gpu_ns"].sort_values(ascending=False, kind="stable").index
    return out.loc[order].reset_index(drop=True)


_FILLED = ("blocks", "blocks_ns", "occupied", "occupied_ns")


def _filled(source: Source, sums: pd.DataFrame) -> dict[str, Any]:
    """Return, of each row, its time times the blocks per multiprocessor and the occupancy in 0.01 %, and the time for
    which each is known."""
    shapes = launch_stats.shapes(source.store)
    geometry, time = sums["geometry"].to_numpy(np.int64), sums["gpu_ns"].to_numpy(np.int64)
    blocks, occupied = np.full(len(sums), -1.0), np.full(len(sums), -1, np.int64)
    for worker, number, count, capability in source.store.rows(
        "select worker, number, sm_count, compute_capability from device where events > 0"
    ):
        own = np.flatnonzero((sums["worker"] == worker) & (sums["device"] == number))
        occupied[own] = launch_stats.filled(shapes, count, capability)[1][geometry[own]]
        if count:
            blocks[own] = np.where(shapes.blocks[geometry[own]] < 0, -1, shapes.blocks[geometry[own]] / count)
    return {
        "blocks": np.where(blocks < 0, 0, time * blocks),
        "blocks_ns": np.where(blocks < 0, 0, time),
        "occupied": np.where(occupied < 0, 0, time * occupied),
        "occupied_ns": np.where(occupied < 0, 0, time),
    }
