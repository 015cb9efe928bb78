# SPDX-License-Identifier: Apache-2.0
"""What an event's device needs at least for its work, as integers, in pieces of rows."""

from __future__ import annotations

import numpy as np

from pyprof.model import Column, Ints, Rows
from pyprof.prof.attribution.attribute import Costs
from pyprof.prof.hardware import roofline
from pyprof.prof.hardware.machine import Hardware
from pyprof.prof.modelflops import model_flops

_PS = 1000  # in a ns


class Peaks:
    """Of all rows; asked for some at a time. `dense`: FLOPs as papers count them. `which` of `hardware` ran a row."""

    def __init__(self, rows: Rows, costs: Costs, hardware: list[Hardware], which: Ints):
        self._codes = np.full(len(rows), -1, np.int32)
        peaks, bandwidths, base = [], [], 0
        for number, one in enumerate(hardware):
            found = roofline.cases(rows, costs, one)
            peak, bandwidth = roofline.limits(found, [roofline.math(c, one) for c in found.cases])
            place = np.where(found.codes < 0, len(found.cases), found.codes) + base  # the last is of no case
            self._codes = np.where(which == number, place, self._codes).astype(np.int32)
            peaks.append(peak)
            bandwidths.append(bandwidth)
            base += len(peak)
        self._peak, self._bandwidth = np.concatenate(peaks), np.concatenate(bandwidths)
        self._costs, self._executed = costs, costs.executed
        self.dense = model_flops(rows, costs)

    def of(self, some: Ints) -> dict[str, Column]:
        """roofline in ns; hardware_ps and model_ps: FLOPs that are executed, that the model needs, at the peak.

        How many a convolution by Winograd or FFT executes is unknown: it has a roofline (of its definition) alone.
        """
        code = self._codes[some]
        flops, size, model = (
            _floats(each.take(some)) for each in (self._costs.flops, self._costs.bytes, self.dense)
        )
        peak, bandwidth = self._peak[code], self._bandwidth[code]
        compute, _, time = roofline.times(flops, size, peak, bandwidth)
        needed = np.where(np.isnan(time), np.nan, roofline.times(model, size, peak, bandwidth)[0])
        compute = np.where(np.isnan(time) | ~self._executed.take(some).mask(), np.nan, compute)
        return {
            "roofline": _whole(time),
            "hardware_ps": _whole(compute * _PS),
            "model_ps": _whole(needed * _PS),
        }


def _floats(column: Column) -> roofline.Floats:
    return np.where(column.mask(), column.values, np.nan)


def _whole(values: roofline.Floats) -> Column:
    known = ~np.isnan(values)
    return Column(np.rint(np.where(known, values, 0)).astype(np.int64), known)
