# SPDX-License-Identifier: Apache-2.0
"""HFU and MFU: the share of what the device could have computed, per row, call, step and time bin.

    HFU = executed FLOPs / (time · peak)        MFU = model FLOPs / (time · peak)

Executed FLOPs are those of the column `flops`; model FLOPs those of `flops_dense`: a causal mask's whole rectangle, and
nothing twice. All FLOPs that are known count, those of products as well as of elementwise operators; papers count
products alone, which are nearly all of them.

The peak is the dense one of the type in which a row computes (column `peak`). Where types mix, FLOPs of each type are
divided by that type's peak:

    utilisation = sum over types (FLOPs of the type / peak of the type) / time

which is the part of the time for which the device, at its peaks, would have had work. With one type it is the formula
above. Figures are fractions (1.0 is the peak), times integer ns, FLOPs integers, peaks FLOP/s.

Unknown is nan. A sum covers the rows whose FLOPs and peak are known; `hfu_known` and `mfu_known` say which share of the
rows' own time these have. A row of 0 FLOPs needs no peak. Where only zeros are known and not everything is, nan.

Sources: MFU: A. Chowdhery et al., "PaLM", arXiv 2204.02311, section 4.1 and appendix B. HFU: V. Korthikanti et al.,
"Reducing Activation Recomputation in Large Transformer Models", arXiv 2205.05198, section 6.3: "hardware FLOPs".

>>> ns = np.array([0, 100]), np.array([100, 200])  # two rows: 50 FLOPs, then 100 that were needed once, computed twice
>>> executed, model = Column(np.array([50, 200])), Column(np.array([50, 100]))
>>> work = Work(*ns, np.array([100, 100]), executed, model, np.array([1e9, 4e9]))
>>> per_row(work).hfu, per_row(work).mfu  # 50 / (100 ns · 1 per ns), 200 / (100 · 4)
(array([0.5, 0.5]), array([0.5 , 0.25]))
>>> found = per_interval(work, np.array([0]), np.array([400]))  # (50 / 1 + 200 / 4) / 400 ns
>>> found.hfu, found.mfu, found.hfu_known
(array([0.25]), array([0.1875]), array([1.]))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.model import Bools, Column, Ints

Floats = npt.NDArray[np.float64]
_NS = 1e9
_MOST = 2**62  # sums above are made with Python's integers
_EXACT = 3_000_000_000  # ns: the square of a shorter time fits in 64 bits


class Work(NamedTuple):
    """Per row: its interval, the device's time that it took (of an operator event its self time), FLOPs, peak."""

    start: Ints
    end: Ints
    time: Ints
    executed: Column
    model: Column
    peak: Floats  # nan: unknown


class Utilisation(NamedTuple):
    """Per row, call, step or bin, as fractions; and how much of the rows' time they cover."""

    hfu: Floats
    mfu: Floats
    hfu_known: Floats
    mfu_known: Floats


_Sum = Callable[[Ints], Ints]  # an amount per row -> its sum per call, step or bin, exactly


def per_row(work: Work) -> Utilisation:
    """Each row by itself. Time: its own on the device; a row that took none has nan."""
    found = []
    for flops in (work.executed, work.model):
        known = _known(flops, work.peak) & (work.time > 0)
        needed = np.where(flops.values == 0, 0.0, flops.values / work.peak * _NS)
        found.append(
            (np.where(known, needed / np.where(work.time > 0, work.time, 1), np.nan), known.astype(float))
        )
    (hfu, hfu_known), (mfu, mfu_known) = found
    return Utilisation(hfu, mfu, hfu_known, mfu_known)


def per_group(work: Work, group: Ints, count: int, time: Ints | None = None, devices: int = 1) -> Utilisation:
    """Rows by membership: `group` numbers each row's call or step from 0 to `count` - 1, -1 for none.

    Time: `time` ns per group times `devices`, idle time included (a step's length); without it the time of the
    group's rows (a call's).

    >>> half = Column(np.array([50, 50]))
    >>> work = Work(np.zeros(2, int), np.array([100, 100]), np.array([100, 100]), half, half, np.array([1e9, np.nan]))
    >>> per_group(work, np.array([0, 0]), 1)[::2]  # 50 FLOPs of one row in 200 ns; half of the time is known
    (array([0.25]), array([0.5]))
    """
    chosen = group >= 0
    member = group[chosen]

    def total(amount: Ints) -> Ints:
        out = np.zeros(count, amount.dtype)
        np.add.at(out, member, amount[chosen])
        return out

    length = total(work.time) if time is None else time * devices
    return _of(work, total, length)


def per_interval(work: Work, begin: Ints, finish: Ints, devices: int = 1) -> Utilisation:
    """Intervals of time: steps as the device saw them, a selection, the whole recording. They may overlap.

    A row's FLOPs spread evenly over its interval. Time: `finish` - `begin`, times `devices`, idle time included.
    """

    def total(amount: Ints) -> Ints:
        return within(amount, work.start, work.end, begin, finish)

    return _of(work, total, (finish - begin) * devices)


def per_bin(work: Work, edges: Ints, devices: int = 1) -> Utilisation:
    """Time bins between consecutive edges, which ascend. FLOPs are exact integers per bin and type: bins that cover
    all rows add up to all FLOPs, and the halves of a bin to the bin."""
    return per_interval(work, edges[:-1], edges[1:], devices)


def within(amount: Ints, start: Ints, end: Ints, begin: Ints, finish: Ints) -> Ints:
    """How much of all rows' amounts lies in each interval [begin, finish), in integers that add up.

    A row has spent floor(amount · elapsed / duration) by a time, all at its end; one without duration at its start.

    >>> within(np.array([10]), np.array([0]), np.array([3]), np.array([0, 1, 2, 0]), np.array([1, 2, 3, 3])).tolist()
    [3, 3, 4, 10]
    """
    times = np.unique(np.concatenate([begin, finish]))
    spent = _spent(amount, start, end, times)
    found: Ints = spent[np.searchsorted(times, finish)] - spent[np.searchsorted(times, begin)]
    return found


def _spent(amount: Ints, start: Ints, end: Ints, times: Ints) -> Any:
    """How much of all amounts is spent before each of the times, which ascend."""
    kind = object if float(np.abs(amount).astype(float).sum()) > _MOST else np.int64
    amount = amount.astype(kind)
    first = np.searchsorted(times, start, side="right")  # the first time after the row's start
    over = np.where(
        end > start, np.searchsorted(times, end, side="left"), first
    )  # the first one that has all of it
    out = np.zeros(len(times) + 1, kind)
    np.add.at(out, over, amount)
    out = np.cumsum(out)[:-1]
    begun = np.maximum(over - first, 0)  # how many times fall inside of the row
    row = np.repeat(np.arange(len(amount)), begun)
    place = np.repeat(first, begun) + np.arange(len(row)) - np.repeat(np.cumsum(begun) - begun, begun)
    np.add.at(out, place, _part(amount[row], times[place] - start[row], (end - start)[row]))
    return out


def _part(amount: Ints, elapsed: Ints, duration: Ints) -> Ints:
    """floor(amount · elapsed / duration), without overflow."""
    if len(duration) and int(duration.max()) >= _EXACT:
        amount = amount.astype(object)
    whole, rest = amount // np.maximum(duration, 1), amount % np.maximum(duration, 1)
    return whole * elapsed + rest * elapsed // np.maximum(duration, 1)


def _known(flops: Column, peak: Floats) -> Bools:
    known: Bools = flops.mask() & (~np.isnan(peak) | (flops.values == 0))
    return known


def _of(work: Work, total: _Sum, length: Ints) -> Utilisation:
    """Both figures of sums over a length of time in ns."""
    time = total(work.time).astype(float)
    found = []
    for flops in (work.executed, work.model):
        known = _known(flops, work.peak)
        needed = np.zeros(len(length))
        for peak in np.unique(work.peak[known & (flops.values > 0)]).tolist():
            of_type = total(np.where(known & (work.peak == peak), flops.values, 0))
            needed += of_type.astype(float) / peak * _NS
        covered = total(np.where(known, work.time, 0)).astype(float)
        share = np.where(time > 0, covered / np.where(time > 0, time, 1), 1.0)
        says = (length > 0) & ((needed > 0) | (covered == time))
        found.append((np.where(says, needed / np.where(length > 0, length, 1), np.nan), share))
    (hfu, hfu_known), (mfu, mfu_known) = found
    return Utilisation(hfu, mfu, hfu_known, mfu_known)
