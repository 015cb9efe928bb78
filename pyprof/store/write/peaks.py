# SPDX-License-Identifier: Apache-2.0
"""Minimum device time of each event's work, as integers, and what limits it, in pieces of rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pyprof.core.model import OPERATOR, Column, Ints, Rows
from pyprof.costs.attribution.attribute import Costs
from pyprof.costs.hardware import roofline
from pyprof.costs.hardware.machine import Hardware
from pyprof.costs.modelflops import model_flops
from pyprof.costs.tensor_core_reasons import verdict
from pyprof.store.write import columns

_PS = 1000  # in a ns


class Peaks:
    """Peak times of all rows, computed in pieces. `dense`: FLOPs as papers count them. `which` of `hardware` ran each
    row. Every `place` is a case of one hardware."""

    def __init__(self, rows: Rows, costs: Costs, hardware: list[Hardware], which: Ints):
        self._codes = np.full(len(rows), -1, np.int32)
        peaks, bandwidths, rates, texts, base = [], [], [], list[str | None](), 0
        self._cpu = next((machine.cpu for machine in hardware), None)  # the recording's
        for number, machine in enumerate(hardware):
            cases = roofline.cases(rows, costs, machine)
            maths = [roofline.math(case, machine) for case in cases.cases]
            peak, bandwidth = roofline.limits(cases, maths)
            place = np.where(cases.codes < 0, len(cases.cases), cases.codes) + base  # the last is of no case
            self._codes = np.where(which == number, place, self._codes).astype(np.int32)
            peaks.append(peak)
            bandwidths.append(bandwidth)
            if self._cpu is not None:
                rates.append(roofline.cpu_peaks(cases, maths, self._cpu))
            texts += [*(None if case.on_cpu else verdict(case, machine) for case in cases.cases), "-"]
            base += len(peak)
        self._peak, self._bandwidth = np.concatenate(peaks), np.concatenate(bandwidths)
        self._rates = np.concatenate(rates) if rates else None
        self._on_cpu = rows.kind == OPERATOR
        distinct = dict.fromkeys(texts)
        self._texts, place_of = list(distinct), {text: place for place, text in enumerate(distinct)}
        self._text = np.array([place_of[text] for text in texts], np.int64)
        self._verdicts: dict[int, int] = {}
        self._costs, self._executed = costs, costs.executed
        self.dense = model_flops(rows, costs)

    def of(self, index: Ints) -> dict[str, Column | Ints]:
        """Return roofline in ns; hardware_ps and model_ps: time at the peak of the FLOPs executed, and of those of the
        model; the number of the verdict.

        The number of FLOPs that a convolution by Winograd or FFT executes is unknown: it only has a roofline (of its
        definition).
        """
        code = self._codes[index]
        flops, size, model = (
            _floats(column.take(index)) for column in (self._costs.flops, self._costs.bytes, self.dense)
        )
        peak, bandwidth = self._peak[code], self._bandwidth[code]
        compute, memory, time = roofline.times(flops, size, peak, bandwidth)
        bound = roofline.bounds(compute, memory, time)
        cpu = self._on_cpu[index]
        if cpu.any() and self._cpu is not None and self._rates is not None:
            bound[cpu] = roofline.cpu_bounds(flops, size, self._rates[code], self._cpu)[cpu]
        needed = np.where(np.isnan(time), np.nan, roofline.times(model, size, peak, bandwidth)[0])
        compute = np.where(np.isnan(time) | ~self._executed.take(index).mask(), np.nan, compute)
        return {
            "roofline_ns": _whole(time),
            "hardware_ps": _whole(compute * _PS),
            "model_ps": _whole(needed * _PS),
            "verdict": self._number(self._text[code] * len(roofline.BOUNDS) + bound),
        }

    def _number(self, pair: Ints) -> Ints:
        """Return the numbers of pairs of text and bound, from 1 in the order of first use; 0 if both are unknown."""
        distinct, inverse = np.unique(pair, return_inverse=True)
        for key in distinct.tolist():
            if self._pair(key) != (None, None):
                self._verdicts.setdefault(key, len(self._verdicts) + 1)
        numbers: Ints = np.array([self._verdicts.get(key, 0) for key in distinct.tolist()], np.int64)
        return numbers[inverse]

    def _pair(self, key: int) -> tuple[str | None, str | None]:
        text, bound = divmod(key, len(roofline.BOUNDS))
        return roofline.BOUNDS[bound], self._texts[text]

    def verdicts(self) -> pa.Table:
        """Return the verdicts of the rows that were asked for."""
        cells = [(0, None, None), *((number, *self._pair(key)) for key, number in self._verdicts.items())]
        return columns.rows({"id": int, "bound": str, "tensor_cores": str}, cells)


def _floats(column: Column) -> roofline.Floats:
    return np.where(column.mask(), column.values, np.nan)


def _whole(values: roofline.Floats) -> Column:
    present = ~np.isnan(values)
    return Column(np.rint(np.where(present, values, 0)).astype(np.int64), present)
