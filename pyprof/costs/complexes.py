# SPDX-License-Identifier: Apache-2.0
"""Complex numbers: real operations are counted, whatever the operator.

(a + bi) + (c + di) is 2, times (c + di) is 6 (four products, two sums), a multiply-add is 8: four times that of real
numbers, of which matrix products, convolutions and LAPACK's algorithms consist. Elementwise operators and reductions
have a row here; formulas of Fourier transforms, absolute values and angles handle complex numbers themselves.
Without a row, FLOPs are unknown: counting them as real would be too low. What counts nothing (copies, views) stays
0.

>>> real_operations(Cost(10, 80), "linalg", "cholesky", ())
Cost(flops=40, bytes=80)
>>> real_operations(Cost(8, 192), "pointwise", "mul", [Arg("", Tensor((8,), "complex64"))] * 2).flops
48
"""

from __future__ import annotations

from collections.abc import Iterable

from pyprof.core.model import Arg, Cost, Other, Tensor

# Families of multiply-adds, which count 8 for 2; families and operators that handle complex numbers themselves.
MULTIPLY_ADDS = frozenset({"conv", "grouped", "linalg", "solvers", "spectral"})
OWN_FAMILIES = frozenset({"contraction", "fft", "gemm"})
OWN = frozenset({"abs", "absolute", "angle", "complex", "polar", "view_as_real", "real", "imag", "isreal", "where"})

# Elementwise: FLOPs per element of real numbers, and of complex ones.
_SUM, _PRODUCT, _RATIO = {1: 2, 2: 8}, {1: 6}, {1: 11}
ELEMENTWISE: dict[str, dict[int, int]] = {
    "add": _SUM, "sub": _SUM, "subtract": _SUM, "rsub": _SUM,  # 2 with alpha: a product and a sum
    "mul": _PRODUCT, "multiply": _PRODUCT, "square": _PRODUCT,
    "div": _RATIO, "divide": _RATIO, "true_divide": _RATIO, "rdiv": _RATIO,  # times conjugate 6, |d|² 3, 2 divisions
    "neg": {1: 2}, "negative": {1: 2},
    "conj_physical": {1: 1},  # the imaginary part is negated
    "exp": {1: 5},  # exp, sin, cos, two products
    "eq": {1: 3}, "ne": {1: 3}, "not_equal": {1: 3},  # two comparisons, and
    "lerp": {3: 10},  # start + weight·(end - start)
    "addcmul": {3: 14},  # input + value·a·b
    "addcdiv": {3: 19},  # input + value·a/b
}  # fmt: skip
# Reductions: FLOPs per element and per result, of real numbers and of complex ones.
REDUCTIONS = {
    "sum": ((1, 0), (2, 0)),
    "mean": ((1, 1), (2, 2)),  # divided by a real number
    "prod": ((1, 0), (6, 0)),
    "var": ((4, 1), (8, 1)),  # mean 2, subtract 2, |z|² 3, add
    "norm": ((2, 1), (4, 1)),  # |z|² 3, add; root
    "vector_norm": ((2, 1), (4, 1)),
    "cumsum": ((1, 0), (2, 0)),
    "cumprod": ((1, 0), (6, 0)),
}


def is_complex(value: object) -> bool:
    """Return whether an argument is or contains a complex number or tensor.

    >>> is_complex((Tensor((2,), "complex64"),)), is_complex(Other("complex", "1j")), is_complex(Tensor((2,), "int8"))
    (True, True, False)
    """
    if isinstance(value, Tensor):
        return value.dtype is not None and value.dtype.startswith("complex")
    if isinstance(value, Other):
        return value.type == "complex"
    return isinstance(value, tuple) and any(map(is_complex, value))


def real_operations(cost: Cost, family: str, name: str, args: Iterable[Arg]) -> Cost:
    """Return the cost of an operator on complex numbers, from its cost on real ones."""
    if family in OWN_FAMILIES or name in OWN:
        return cost
    if family in MULTIPLY_ADDS:
        return _times(cost, 4)
    flops = cost.flops
    if flops:
        tensors = [arg.value for arg in args if isinstance(arg.value, Tensor)]
        flops = _elementwise(flops, name, tensors) if name in ELEMENTWISE else _reduction(flops, name, tensors)
    return cost._replace(
        flops=flops,
        dense=None,
        dgrad=_unknown(cost.dgrad),
        wgrad=_unknown(cost.wgrad),
        bgrad=_unknown(cost.bgrad),
    )


def _times(cost: Cost, factor: int) -> Cost:
    def scaled(flops: int | None) -> int | None:
        return None if flops is None else factor * flops

    def part(cost_part: Cost | None) -> Cost | None:
        return None if cost_part is None else _times(cost_part, factor)

    return cost._replace(
        flops=scaled(cost.flops), dense=scaled(cost.dense), dgrad=part(cost.dgrad), wgrad=part(cost.wgrad),
        bgrad=part(cost.bgrad),
    )  # fmt: skip


def _elementwise(flops: int, name: str, tensors: list[Tensor]) -> int | None:
    """Return the FLOPs of an elementwise operator. `flops` is a multiple of the result's elements, of which there are
    at least as many as in the largest operand."""
    shape: list[int] = []
    for i in range(max((len(t.shape) for t in tensors), default=0)):
        sizes = [t.shape[-1 - i] for t in tensors if i < len(t.shape)]
        shape.append(next((n for n in sizes if n != 1), 1))
    elements = Tensor(tuple(shape), None).numel
    per_element = ELEMENTWISE[name].get(flops // elements) if elements and flops % elements == 0 else None
    return None if per_element is None else per_element * elements


def _reduction(flops: int, name: str, tensors: list[Tensor]) -> int | None:
    row = REDUCTIONS.get(name)
    if row is None or not tensors:
        return None
    (real, real_result), (complex_, complex_result) = row
    elements = tensors[0].numel
    results = (flops - real * elements) // real_result if real_result else 0
    return complex_ * elements + complex_result * results


def _unknown(part: Cost | None) -> Cost | None:
    return part._replace(flops=None, dense=None) if part is not None and part.flops else part
