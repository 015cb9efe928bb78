# SPDX-License-Identifier: Apache-2.0
"""Attribution of costs from calls to rows: the choice of the kernel that carries the cost of a call.

The cost belongs to the call and is computed once per distinct call. Among the kernels of one call and direction:

* the *principal* carries the whole cost, the others carry 0. It is the kernel whose kind fits the operator (a GEMM
  kernel for `linear`), otherwise the longest. Several that fit share in proportion to their time; the shares are
  integers and add up to the cost. So share the fill with zeros and the additions of a gradient that is gathered.
* in the backward of a product (matrix product, convolution) the two gradients are two products: each kernel that fits
  carries one. A kernel whose name gives it (dgrad, wgrad) carries that one. The longest reduction carries the bias
  gradient. dgrad and wgrad touch the same three operands and cost the same; more kernels than products share. If no
  name decides, the shapes of the operators around the launches do: a fused one (`convolution_backward` with its
  output_mask) carries what it computes, of two different ones each is one gradient. Order and time decide nothing.
* in a product under autocast, whose call has operands in float32, the product counts with those of the kernel, 16 bits,
  and each cast with its own. In a backward that the formula lacks, each operator counts with its own.
* without a GPU the rows are operator events with shapes of their own. The innermost events that account for the work
  carry: the call's cost in forward, their own cost in backward (their shapes are the evidence), and their own cost
  if the call has no formula (`multi_head_attention_forward`, an optimizer's step).

A row of an unknown operator has unknown cost; a row around or beside the one that carries the cost has 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.core.model import KERNEL, MEMCPY, MEMSET, OPERATOR, Bools, Call, Column, Ints, Rows
from pyprof.costs import kernels
from pyprof.costs.attribution import cpu_rows, gpu_rows
from pyprof.costs.attribution.work import ALGORITHMS, Work, add, family, share, signature

USED, NOT_USED, NOT_APPLICABLE, TC_UNKNOWN = 1, 0, 2, 3


class Costs(NamedTuple):
    """Per row: FLOPs, bytes, their basis (index in model.BASES), tensor cores, and the call they belong to.

    `call` indexes `calls`, -1 for a row without arguments. `principal` marks the rows that carry a cost. `algorithm`
    (index in ALGORITHMS) marks a convolution by Winograd or FFT, whose FLOPs are those of the definition; the number
    that it executes is unknown.
    """

    flops: Column
    bytes: Column
    basis: Ints
    tensor_cores: Ints
    call: Ints
    calls: list[Call]
    principal: Bools
    algorithm: Ints

    @property
    def executed(self) -> Column:
        """Return the FLOPs that the row's kernel executes: unknown if the algorithm differs from the definition."""
        exact = self.flops.mask() & ((self.algorithm == 0) | (self.flops.values == 0))
        return Column(self.flops.values, exact)


def attribute(rows: Rows) -> Costs:
    """Return the cost of every row. The sum over the rows of a call and direction is the cost of the call."""
    cpu = rows.kind == OPERATOR
    signatures = [signature(site, not cpu.any()) for site in rows.sites]
    n = len(rows)
    work = Work(rows, signatures)
    if cpu.any():
        cpu_rows.fill(work, np.flatnonzero(cpu))
    gpu = np.flatnonzero(rows.kind == KERNEL)
    if len(gpu):
        gpu_rows.fill(work, gpu)
    work.flops[(rows.kind == MEMCPY) | (rows.kind == MEMSET)] = (
        0  # a copy computes nothing; its bytes are not in the row
    )
    return Costs(
        Column(work.flops, work.flops >= 0),
        Column(work.bytes, work.bytes >= 0),
        work.basis,
        _tensor_cores(rows, work),
        work.call_of_site[rows.site] if n else np.empty(0, np.int64),
        work.calls,
        work.principal,
        work.algorithm,
    )


def _tensor_cores(rows: Rows, work: Work) -> Ints:
    """Return per row: used, not used although the kernel's kind could, not applicable, unknown."""
    out = np.full(len(rows), TC_UNKNOWN, np.int8)
    verdicts = []
    for name in rows.names:
        used, kind = kernels.tensor_core(name), kernels.kind(name)
        could = kind in kernels.PRODUCTS
        verdicts.append(USED if used else (NOT_USED if used is False else TC_UNKNOWN) if could else NOT_APPLICABLE)
    gpu = rows.kind == KERNEL
    if gpu.any():
        out[gpu] = np.array(verdicts, np.int8)[rows.name[gpu]]
        # A kernel of unknown kind may use them if it carries a product, or if its operator is unknown too.
        nameless = [kernels.kind(name) == "other" and kernels.tensor_core(name) is None for name in rows.names]
        families = [family(sign.owner or sign.event) for sign in work.signatures]
        product = np.array([bool(kernels.FITS.get(name, frozenset()) & kernels.PRODUCTS) for name in families], bool)[
            rows.site
        ]
        idle = np.array([name == "" for name in families], bool)[rows.site]
        out[gpu & np.array(nameless, bool)[rows.name] & (product & work.principal | idle)] = TC_UNKNOWN
    out[(rows.kind == MEMCPY) | (rows.kind == MEMSET)] = NOT_APPLICABLE
    return out


__all__ = [
    "ALGORITHMS", "NOT_APPLICABLE", "NOT_USED", "TC_UNKNOWN", "USED", "Costs", "add", "attribute", "family",
    "share",
]  # fmt: skip
