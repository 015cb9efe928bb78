# SPDX-License-Identifier: Apache-2.0
"""Sizes of collectives and factors of their bandwidths, as nccl-tests defines them (pyprof.costs.ops.collective)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof.costs.ops.collective import FACTORS, bus_factor


def sizes(collectives: pd.DataFrame) -> pd.Series[Any]:
    """Return nccl-tests' S of each collective, missing where the recording lacks it."""
    sent, received = collectives["sent_bytes"], collectives["received_bytes"]
    larger = sent.where(sent >= received, received)
    either = sent.fillna(received)
    kind = collectives["name"]
    out = larger.where(sent.notna() & received.notna())
    out = out.fillna(either.where(kind.isin(["all_reduce", "broadcast"])))
    out = out.fillna(sent.where(kind.isin(["reduce_scatter", "all_to_all", "reduce"])))
    out = out.fillna(received.where(kind == "all_gather"))
    out = out.fillna((sent * collectives["size"]).where(kind == "all_gather"))
    filled: pd.Series[Any] = out.fillna((received * collectives["size"]).where(kind == "reduce_scatter"))
    return filled


def has_factor(name: pd.Series[Any]) -> pd.Series[bool]:
    """Return whether nccl-tests has a factor for each kind of collective."""
    return name.isin(list(FACTORS))


def factors(name: pd.Series[Any], size: pd.Series[Any]) -> pd.Series[Any]:
    """Return bus bandwidth divided by algorithm bandwidth, missing where the kind or the number of ranks is unknown."""
    ratios = [
        bus_factor(kind, int(ranks)) if kind in FACTORS and not pd.isna(ranks) and ranks > 0 else np.nan
        for kind, ranks in zip(name, size)
    ]
    return pd.Series(ratios, name.index, dtype="Float64")
