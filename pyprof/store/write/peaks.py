# SPDX-License-Identifier: Apache-2.0
"""Minimum device time of each event's work, as integers, in pieces of rows."""

from __future__ import annotations

import numpy as np

from pyprof.model import Column, Ints, Rows
from pyprof.prof.attribution.attribute import Costs
from pyprof.prof.hardware import roofline
from pyprof.prof.hardware.machine import Hardware
from pyprof.prof.modelflops import model_flops

_PS = 1000  # in a ns


class Peaks:
    """Peak times of all rows, computed in pieces. `dense`: FLOPs as papers count them. `which` of `hardware` ran each
    row."""

    def __init__(self, rows: Rows, costs: Costs, hardware: list[Hardware], which: Ints):
        self._codes = np.full(len(rows), -1, np.int32)
        peaks, bandwidths, base = [], [], 0
        for number, machine in enumerate(hardware):
            cases = roofline.cases(rows, costs, machine)
            peak, bandwidth = roofline.limits(cases, [roofline.math(c, machine) for c in cases.cases])
            place = np.where(cases.codes < 0, len(cases.cases), cases.codes) + base  # the last is of no case
            self._codes = np.where(which == number, place, self._codes).astype(np.int32)
            peaks.append(peak)
            bandwidths.append(bandwidth)
            base += len(peak)
        self._peak, self._bandwidth = np.concatenate(peaks), np.concatenate(bandwidths)
        self._costs, self._executed = costs, costs.executed
        self.dense = model_flops(rows, costs)

    def of(self, index: Ints) -> dict[str, Column]:
        """Return roofline in ns; hardware_ps and model_ps: time at the peak of the FLOPs executed, and of those of the
        model.

        The number of FLOPs that a convolution by Winograd or FFT executes is unknown: it only has a roofline (of its
        definition).
        """
        code = self._codes[index]
        flops, size, model = (
            _floats(column.take(index)) for column in (self._costs.flops, self._costs.bytes, self.dense)
        )
        peak, bandwidth = self._peak[code], self._bandwidth[code]
        compute, _, time = roofline.times(flops, size, peak, bandwidth)
        needed = np.where(np.isnan(time), np.nan, roofline.times(model, size, peak, bandwidth)[0])
        compute = np.where(np.isnan(time) | ~self._executed.take(index).mask(), np.nan, compute)
        return {
            "roofline_ns": _whole(time),
            "hardware_ps": _whole(compute * _PS),
            "model_ps": _whole(needed * _PS),
        }


def _floats(column: Column) -> roofline.Floats:
    return np.where(column.mask(), column.values, np.nan)


def _whole(values: roofline.Floats) -> Column:
    present = ~np.isnan(values)
    return Column(np.rint(np.where(present, values, 0)).astype(np.int64), present)
