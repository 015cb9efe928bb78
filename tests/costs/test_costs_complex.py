# SPDX-License-Identifier: Apache-2.0
"""Complex numbers: (a + bi)(c + di) is four products and two sums, a sum is two; derived by hand, and from the real
operators that do the same."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import pyprof
from pyprof.core.model import Arg, Call, Other, Tensor, Value
from pyprof.costs.cost import lookup


def z(*shape: int) -> Tensor:
    return Tensor(shape, "complex64")


def f(*shape: int) -> Tensor:
    return Tensor(shape, "float32")


def call(op: str, *args: Value, mod: str = "torch") -> Call:
    return Call(mod, op, tuple(Arg("", value) for value in args))


@pytest.mark.parametrize(
    ("made", "flops"),
    [
        (call("mm", z(16, 32), z(32, 8)), 8 * 16 * 32 * 8),
        (call("matmul", z(4, 16, 32), z(32, 8)), 8 * 4 * 16 * 32 * 8),
        (call("outer", z(4), z(3)), 6 * 12),  # nothing is added
        (call("einsum", "i,j->ij", z(4), z(3)), 6 * 12),
        (call("einsum", "ij,jk->ik", z(4, 5), z(5, 3)), 8 * 60),
        (call("einsum", "ij->i", z(4, 5)), 2 * 20),
        (call("conv1d", z(1, 2, 5), z(4, 2, 3), mod="torch.nn.functional"), 8 * 4 * 3 * 2 * 3),  # 3 places
        (call("__mul__", z(4, 8), z(4, 8), mod="Tensor"), 6 * 32),
        (call("__mul__", f(4, 8), Other("complex", "1j"), mod="Tensor"), 6 * 32),
        (call("add", z(4, 1), z(3)), 2 * 12),
        (call("sum", z(4, 8)), 2 * 32),
        (call("mean", z(4, 8), 1), 2 * 32 + 2 * 4),
        (call("cholesky", z(6, 6), mod="torch.linalg"), 4 * 72),  # 6³/3
        (call("abs", z(4)), 4 * 4),  # two squares, a sum, a root
        (call("view_as_real", z(4)), 0),
        (call("cat", (z(4), z(4))), 0),
    ],
)
def test_real_operations_count(made: Call, flops: int) -> None:
    assert lookup(made).flops == flops


def test_a_function_without_a_row_is_unknown() -> None:
    found = lookup(call("tan", z(4)))
    assert (found.flops, found.bytes) == (None, 64)
    assert lookup(call("tan", f(4))).flops == 4


def test_the_backward_of_a_product_counts_so_too() -> None:
    found = lookup(call("mm", z(16, 32), z(32, 8)))
    assert found.dgrad is not None
    assert found.dgrad.flops == 8 * 16 * 32 * 8
    part = lookup(call("mul", z(4), z(4))).dgrad
    assert part is not None
    assert part.flops is None


def test_a_product_is_four_products_of_real_parts() -> None:
    """The sums of the two pairs are the additions of multiply-adds: 2·M·N·K each, four times."""
    a, b = torch.randn(6, 5, dtype=torch.complex64), torch.randn(5, 7, dtype=torch.complex64)
    with FlopCounterMode(display=False) as counter:
        torch.complex(a.real @ b.real - a.imag @ b.imag, a.real @ b.imag + a.imag @ b.real)
    assert pyprof.estimate(torch.mm, a, b).flops.sum() == counter.get_total_flops() == 8 * 6 * 5 * 7
