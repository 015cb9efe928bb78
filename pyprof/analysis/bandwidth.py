# SPDX-License-Identifier: Apache-2.0
"""Sizes of collectives and factors of their bandwidths, as nccl-tests has them (pyprof.prof.ops.collective)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof.prof.ops.collective import FACTORS, bus_factor


def sizes(found: pd.DataFrame) -> pd.Series[Any]:
    """nccl-tests' S of each collective, missing where the recording does not tell it."""
    sent, received = found["sent"], found["received"]
    larger = sent.where(sent >= received, received)
    one = sent.fillna(received)
    kind = found["name"]
    out = larger.where(sent.notna() & received.notna())
    out = out.fillna(one.where(kind.isin(["all_reduce", "broadcast"])))
    out = out.fillna(sent.where(kind.isin(["reduce_scatter", "all_to_all", "reduce"])))
    out = out.fillna(received.where(kind == "all_gather"))
    out = out.fillna((sent * found["size"]).where(kind == "all_gather"))
    filled: pd.Series[Any] = out.fillna((received * found["size"]).where(kind == "reduce_scatter"))
    return filled


def factors(name: pd.Series[Any], size: pd.Series[Any]) -> pd.Series[Any]:
    """Bus bandwidth divided by algorithm bandwidth, missing where the kind or the number of ranks is unknown."""
    found = [
        bus_factor(one, int(ranks)) if one in FACTORS and not pd.isna(ranks) and ranks > 0 else np.nan
        for one, ranks in zip(name, size)
    ]
    return pd.Series(found, name.index, dtype="Float64")
