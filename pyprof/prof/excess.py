# SPDX-License-Identifier: Apache-2.0
"""Why a row is faster than its roofline: an efficiency above 100 %.

The roofline takes the FLOPs of the definition and reads every operand from memory. A convolution by Winograd or FFT
computes less (by the kernel's name). Operands that the L2 cache holds need not come from memory (by the row's bytes and
the GPU's L2): all of them, or so many that memory moves the rest in the row's time. What neither explains is said to be
not explained: a clock above the data sheet's, caches behind L2, FLOPs or bytes that the formula counts too high.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyprof.model import Ints, Rows
from pyprof.prof.attribution.attribute import ALGORITHMS, Costs
from pyprof.prof.hardware.roofline import Cases, Floats, Roofline

_MIB = float(1 << 20)
_ALGORITHM = "{}: fewer multiplications than the definition counts"


def efficiency(rows: Rows, found: Roofline) -> Floats:
    """Roofline time as a share of the row's time, %; nan is unknown."""
    known = rows.duration > 0
    return np.where(known, 100 * found.time / np.where(known, rows.duration, 1), np.nan)


def reasons(rows: Rows, costs: Costs, cases: Cases, found: Roofline) -> tuple[Ints, list[str | None]]:
    """A text per row as a code and the distinct texts: "-" up to 100.0 %, None where the efficiency, or the L2, is
    unknown."""
    share = efficiency(rows, found)
    over = np.flatnonzero(np.round(share, 1) > 100)
    codes = np.where(np.isnan(share), 0, 1).astype(np.int64)
    texts: list[str | None] = [None, "-"]
    if not len(over):
        return codes, texts
    time, memory, size = rows.duration[over], found.memory[over], costs.bytes.values[over]
    known = [case.gpu.l2 if case.gpu is not None else None for case in cases.cases]
    cache = np.array([np.nan if each is None else each for each in known])[cases.codes[over]]
    parts = pd.DataFrame({
        "case": cases.codes[over], "algorithm": costs.algorithm[over], "bytes": size,
        "computes": found.compute[over] > time, "moves": memory > time,
        "rest": memory * (1 - cache / np.maximum(size, 1)) <= time,
    })  # fmt: skip
    distinct = parts.drop_duplicates()
    code = parts.groupby(list(parts), sort=False).ngroup().to_numpy(np.int64)
    said = []
    for case, algorithm, moved, computes, moves, rest in distinct.itertuples(index=False):
        why: list[str | None] = [_arithmetic(found.maths[case], ALGORITHMS[algorithm])] if computes else []
        why += [_memory(moved, known[case], rest)] if moves else []
        said.append(None if None in why else "; ".join(map(str, why)))
    codes[over] = code + len(texts)
    return codes, texts + said


def _arithmetic(math: str | None, algorithm: str) -> str:
    return (
        _ALGORITHM.format(algorithm) if algorithm else f"not explained: more FLOP/s than the peak of {math}"
    )


def _memory(size: int, cache: int | None, rest: bool) -> str | None:
    """`rest`: memory could move in the row's time what L2 does not hold."""
    if cache is None:
        return None
    if size <= cache:
        return f"working set fits in L2 ({_mib(size)} of {_mib(cache)} MiB)"
    if rest:
        return f"part of the working set fits in L2 ({_mib(cache)} of its {_mib(size)} MiB)"
    return f"not explained: {_mib(size)} MiB, L2 has {_mib(cache)}"


def _mib(size: float) -> str:
    """
    >>> _mib(41943040), _mib(3 << 19), _mib(1000)
    ('40', '1.5', '0.001')
    """
    value = size / _MIB
    return f"{value:.1f}".removesuffix(".0") if value >= 0.1 else f"{value:.1g}"
