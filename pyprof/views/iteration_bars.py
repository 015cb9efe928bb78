# SPDX-License-Identifier: Apache-2.0
"""Iterations as the bars of a chart: means over workers, and over neighbours if there are many."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pyprof.core.model import Bools, Ints
from pyprof.metrics import PART_HEADINGS, PARTS
from pyprof.views import models
from pyprof.views.column_table import Frame

Floats = npt.NDArray[np.float64]


def bars(frame: Frame, first: int, last: int, most: int | None) -> models.Bars:
    """Return the iterations of `iteration_tables.iterations` as at most `most` bars. A number is one bar, whichever
    workers have it. A bar of several numbers covers only those from `first` to `last` if it has any, with equal
    weights."""
    numbers, at = np.unique(frame.numbers("iteration")[0], return_inverse=True)
    columns = {key: _means(*frame.numbers(key), at, len(numbers)) for key in ("duration", *PARTS)}
    inside: Bools = (numbers >= first) & (numbers <= last)
    width = 1 if most is None else max(1, -(-len(numbers) // most))
    bin: Ints = np.arange(len(numbers)) // width
    count = -(-len(numbers) // width)
    any_inside: Bools = np.bincount(bin, inside, count) > 0
    counted: Bools = inside | ~any_inside[bin]
    binned = {
        key: _means(values[counted], ~np.isnan(values[counted]), bin[counted], count) for key, values in columns.items()
    }
    starts = np.arange(count) * width
    return models.Bars(
        number=numbers[starts].tolist(),
        until=numbers[np.minimum(starts + width, len(numbers)) - 1].tolist(),
        count=np.bincount(bin[counted], minlength=count).tolist(),
        outside=(~any_inside).tolist(),
        duration=[value or 0.0 for value in _to_list(binned["duration"])],
        parts={key: _to_list(binned[key]) for key in PARTS},
        headings=PART_HEADINGS,
        total=len(numbers),
        first=first,
        last=last,
    )


def _means(values: npt.NDArray[np.generic], mask: Bools, at: Ints, count: int) -> Floats:
    """Return the mean of the known values of each group; NaN without any."""
    sums = np.bincount(at[mask], values[mask].astype(np.float64), count)
    number = np.bincount(at[mask], minlength=count)
    out: Floats = np.where(number > 0, sums / np.maximum(number, 1), np.nan)
    return out


def _to_list(values: Floats) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]
