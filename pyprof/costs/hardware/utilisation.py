# SPDX-License-Identifier: Apache-2.0
"""HFU and MFU: computed FLOPs as a share of the device's peak, per row, call, step and time bin.

    HFU = executed FLOPs / (time · peak)        MFU = model FLOPs / (time · peak)

Executed FLOPs are those of the column `flops`; model FLOPs those of `flops_dense`: a causal mask's whole rectangle, and
nothing twice. All known FLOPs count, those of products as well as of elementwise operators; papers count only
products, which are nearly all of them.

The peak is the dense one of the type in which a row computes (column `peak`). Where types mix, FLOPs of each type are
divided by that type's peak:

    utilisation = sum over types (FLOPs of the type / peak of the type) / time

which is the part of the time for which the device, at its peaks, would have had work. With one type it equals the
formula above. Figures are fractions (1.0 is the peak), times integer ns, FLOPs integers, peaks FLOP/s.

Unknown is nan. A sum covers the rows whose FLOPs and peak are known; `hfu_known` and `mfu_known` are the share of
the rows' own time in these. A row of 0 FLOPs needs no peak. If only zeros are known but not all rows, nan.

Sources: MFU: A. Chowdhery et al., "PaLM", arXiv 2204.02311, section 4.1 and appendix B. HFU: V. Korthikanti et al.,
"Reducing Activation Recomputation in Large Transformer Models", arXiv 2205.05198, section 6.3: "hardware FLOPs".

>>> ns = np.array([0, 100]), np.array([100, 200])  # two rows: 50 FLOPs, then 100 that were needed once, computed twice
>>> executed, model = Column(np.array([50, 200])), Column(np.array([50, 100]))
>>> work = Work(*ns, np.array([100, 100]), executed, model, np.array([1e9, 4e9]))
>>> per_row(work).hfu, per_row(work).mfu  # 50 / (100 ns · 1 per ns), 200 / (100 · 4)
(array([0.5, 0.5]), array([0.5 , 0.25]))
>>> total = per_interval(work, np.array([0]), np.array([400]))  # (50 / 1 + 200 / 4) / 400 ns
>>> total.hfu, total.mfu, total.hfu_known
(array([0.25]), array([0.1875]), array([1.]))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.core.model import Bools, Column, Ints

Floats = npt.NDArray[np.float64]
_NS = 1e9
_MAX_INT64_SUM = 2**62  # larger sums use Python's integers
_EXACT = 3_000_000_000  # ns: the square of a shorter time fits in 64 bits


class Work(NamedTuple):
    """Columns per row: interval, time that it took on the device (for an operator event its self time), FLOPs, peak."""

    start: Ints
    end: Ints
    time: Ints
    executed: Column
    model: Column
    peak: Floats  # nan: unknown


# Of the peak at the boost clock. Beyond it a time, the FLOPs or the peak is wrong, and executed FLOPs are unknown;
# those that the model needs may be more than are executed.
MOST = 1.05


class Utilisation(NamedTuple):
    """Fractions per row, call, step or bin; and the share of the rows' time that they cover."""

    hfu: Floats
    mfu: Floats
    hfu_known: Floats
    mfu_known: Floats


_Sum = Callable[[Ints], Ints]  # an amount per row -> its sum per call, step or bin, exactly


def per_row(work: Work) -> Utilisation:
    """Return the utilisation of each row over its own time on the device; nan for a row that took none."""
    pairs = []
    for flops in (work.executed, work.model):
        valid = _known(flops, work.peak) & (work.time > 0)
        busy = np.where(flops.values == 0, 0.0, flops.values / work.peak * _NS)
        pairs.append((np.where(valid, busy / np.where(work.time > 0, work.time, 1), np.nan), valid.astype(float)))
    (hfu, hfu_known), (mfu, mfu_known) = pairs
    return Utilisation(np.where(hfu > MOST, np.nan, hfu), mfu, hfu_known, mfu_known)


def per_group(work: Work, group: Ints, count: int, time: Ints | None = None, devices: int = 1) -> Utilisation:
    """Return the utilisation of groups of rows. `group` is each row's call or step, 0 to `count` - 1, -1 for none.

    Time: `time` ns per group times `devices`, idle time included (a step's length); without it the time of the
    group's rows (a call's).

    >>> half = Column(np.array([50, 50]))
    >>> work = Work(np.zeros(2, int), np.array([100, 100]), np.array([100, 100]), half, half, np.array([1e9, np.nan]))
    >>> per_group(work, np.array([0, 0]), 1)[::2]  # 50 FLOPs of one row in 200 ns; half of the time is known
    (array([0.25]), array([0.5]))
    """
    mask = group >= 0
    member = group[mask]

    def total(amount: Ints) -> Ints:
        out = np.zeros(count, amount.dtype)
        np.add.at(out, member, amount[mask])
        return out

    length = total(work.time) if time is None else time * devices
    return _utilisation(work, total, length)


def per_interval(work: Work, begin: Ints, finish: Ints, devices: int = 1) -> Utilisation:
    """Return the utilisation of intervals of time: steps as the device saw them, a selection, the whole recording. They
    may overlap.

    A row's FLOPs spread evenly over its interval. Time: `finish` - `begin`, times `devices`, idle time included.
    """

    def total(amount: Ints) -> Ints:
        return within(amount, work.start, work.end, begin, finish)

    return _utilisation(work, total, (finish - begin) * devices)


def per_bin(work: Work, edges: Ints, devices: int = 1) -> Utilisation:
    """Return the utilisation of time bins between consecutive, ascending edges. FLOPs are exact integers per bin and
    type: bins that cover all rows add up to all FLOPs, and the halves of a bin to the bin."""
    return per_interval(work, edges[:-1], edges[1:], devices)


def within(amount: Ints, start: Ints, end: Ints, begin: Ints, finish: Ints) -> Ints:
    """Return the part of all rows' amounts in each interval [begin, finish), in integers that add up.

    A row has spent floor(amount · elapsed / duration) by a time, all at its end; one without duration at its start.

    >>> within(np.array([10]), np.array([0]), np.array([3]), np.array([0, 1, 2, 0]), np.array([1, 2, 3, 3])).tolist()
    [3, 3, 4, 10]
    """
    times = np.unique(np.concatenate([begin, finish]))
    spent = _spent(amount, start, end, times)
    out: Ints = spent[np.searchsorted(times, finish)] - spent[np.searchsorted(times, begin)]
    return out


def _spent(amount: Ints, start: Ints, end: Ints, times: Ints) -> Any:
    """Return the part of all amounts that is spent before each of the ascending times."""
    kind = object if float(np.abs(amount).astype(float).sum()) > _MAX_INT64_SUM else np.int64
    amount = amount.astype(kind)
    first = np.searchsorted(times, start, side="right")  # the first time after the row's start
    over = np.where(end > start, np.searchsorted(times, end, side="left"), first)  # the first time that has all of it
    out = np.zeros(len(times) + 1, kind)
    np.add.at(out, over, amount)
    out = np.cumsum(out)[:-1]
    begun = np.maximum(over - first, 0)  # number of times inside the row
    row = np.repeat(np.arange(len(amount)), begun)
    position = np.repeat(first, begun) + np.arange(len(row)) - np.repeat(np.cumsum(begun) - begun, begun)
    np.add.at(out, position, _part(amount[row], times[position] - start[row], (end - start)[row]))
    return out


def _part(amount: Ints, elapsed: Ints, duration: Ints) -> Ints:
    """Return floor(amount · elapsed / duration), without overflow."""
    if len(duration) and int(duration.max()) >= _EXACT:
        amount = amount.astype(object)
    whole, remainder = amount // np.maximum(duration, 1), amount % np.maximum(duration, 1)
    return whole * elapsed + remainder * elapsed // np.maximum(duration, 1)


def _known(flops: Column, peak: Floats) -> Bools:
    out: Bools = flops.mask() & (~np.isnan(peak) | (flops.values == 0))
    return out


def _utilisation(work: Work, total: _Sum, length: Ints) -> Utilisation:
    """Return both figures of sums over a length of time in ns."""
    time = total(work.time).astype(float)
    pairs = []
    for flops in (work.executed, work.model):
        valid = _known(flops, work.peak)
        busy = np.zeros(len(length))
        for peak in np.unique(work.peak[valid & (flops.values > 0)]).tolist():
            of_type = total(np.where(valid & (work.peak == peak), flops.values, 0))
            busy += of_type.astype(float) / peak * _NS
        covered = total(np.where(valid, work.time, 0)).astype(float)
        share = np.where(time > 0, covered / np.where(time > 0, time, 1), 1.0)
        defined = (length > 0) & ((busy > 0) | (covered == time))
        pairs.append((np.where(defined, busy / np.where(length > 0, length, 1), np.nan), share))
    (hfu, hfu_known), (mfu, mfu_known) = pairs
    return Utilisation(np.where(hfu > MOST, np.nan, hfu), mfu, hfu_known, mfu_known)
