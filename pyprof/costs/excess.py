# SPDX-License-Identifier: Apache-2.0
"""Reasons for an efficiency above 100 %, or for none: a row that is faster than its roofline.

The roofline takes the FLOPs of the definition and reads every operand from memory. A convolution by Winograd or FFT
computes less (by the kernel's name); how much is unknown, so it has no efficiency. Operands that the L2 cache holds
need not come from memory (by the row's bytes and the GPU's L2): all of them, or so many that memory moves the rest in
the row's time. Anything else is reported as not explained: a clock above the data sheet's, caches behind L2, FLOPs or
bytes that the formula overestimates.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.core.model import Bools, Ints, Rows
from pyprof.costs.attribution.attribute import ALGORITHMS, Costs
from pyprof.costs.hardware.roofline import Cases, Floats, Roofline

_MIB = float(1 << 20)
_ALGORITHM = "{}: fewer multiplications than the definition counts"


def efficiency(rows: Rows, costs: Costs, roofline: Roofline) -> Floats:
    """Return the roofline time as a share of the row's time, %; nan is unknown, or no work of its own. Of Winograd and
    FFT it is unknown: the roofline of the definition is no limit of theirs."""
    timed = (rows.duration > 0) & (roofline.time != 0) & ~_other(costs)
    return np.where(timed, 100 * roofline.time / np.where(timed, rows.duration, 1), np.nan)


def reasons(rows: Rows, costs: Costs, cases: Cases, roofline: Roofline) -> tuple[Ints, list[str | None]]:
    """Return a text per row as a code and the distinct texts: "-" up to 100.0 % or without work, None if the
    efficiency, or the L2, is unknown."""
    share = efficiency(rows, costs, roofline)
    over = np.flatnonzero(np.round(share, 1) > 100)
    texts: list[str | None] = [None, "-", *(_ALGORITHM.format(name) for name in ALGORITHMS[1:])]
    codes = np.where(np.isnan(share) & (roofline.time != 0), 0, 1).astype(np.int64)
    codes = np.where(_other(costs), costs.algorithm + 1, codes)
    if not len(over):
        return codes, texts
    time, memory, size = rows.duration[over], roofline.memory[over], costs.bytes.values[over]
    l2_sizes = [case.gpu.l2 if case.gpu is not None else None for case in cases.cases]
    cache = np.array([np.nan if l2 is None else l2 for l2 in l2_sizes])[cases.codes[over]]
    table = pd.DataFrame({
        "case": cases.codes[over], "bytes": size,
        "computes": roofline.compute[over] > time, "moves": memory > time,
        "remainder_fits": memory * (1 - cache / np.maximum(size, 1)) <= time,
    })  # fmt: skip
    distinct = table.drop_duplicates()
    code = table.groupby(list(table), sort=False).ngroup().to_numpy(np.int64)
    messages = []
    for case, moved, computes, moves, remainder_fits in distinct.itertuples(index=False):
        explanations: list[str | None] = (
            [f"not explained: more FLOP/s than the peak of {roofline.maths[case]}"] if computes else []
        )
        explanations += [_memory(moved, l2_sizes[case], remainder_fits)] if moves else []
        messages.append(None if None in explanations else "; ".join(map(str, explanations)))
    codes[over] = code + len(texts)
    return codes, texts + messages


def _other(costs: Costs) -> Bools:
    """Return which rows have FLOPs of the definition, and execute fewer."""
    return costs.flops.mask() & ~costs.executed.mask()


def _memory(size: int, cache: int | None, remainder_fits: bool) -> str | None:
    """Explain a memory time above the row's. `remainder_fits`: memory could move in the row's time what L2 does not
    hold."""
    if cache is None:
        return None
    if size <= cache:
        return f"working set fits in L2 ({_mib(size)} of {_mib(cache)} MiB)"
    if remainder_fits:
        return f"part of the working set fits in L2 ({_mib(cache)} of its {_mib(size)} MiB)"
    return f"not explained: {_mib(size)} MiB, L2 has {_mib(cache)}"


def _mib(size: float) -> str:
    """Format bytes as MiB.

    >>> _mib(41943040), _mib(3 << 19), _mib(1000)
    ('40', '1.5', '0.001')
    """
    value = size / _MIB
    return f"{value:.1f}".removesuffix(".0") if value >= 0.1 else f"{value:.1g}"
