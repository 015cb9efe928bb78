# SPDX-License-Identifier: Apache-2.0
"""Costs: numbers derived by hand, one number for every spelling, and arguments that make no sense."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyprof.core.model import Arg, Call, Cost, Other, Tensor, Value
from pyprof.costs.cost import UNKNOWN, formulas, lookup
from pyprof.costs.kernel_table import KINDS
from pyprof.costs.kernels import FITS

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


def half(*shape: int) -> Tensor:
    return Tensor(shape, "float16")


def single(*shape: int) -> Tensor:
    return Tensor(shape, "float32")


def long(*shape: int) -> Tensor:
    return Tensor(shape, "int64")


def cost(name: str, *args: Value, mod: str = "aten", **keywords: Value) -> Cost:
    return lookup(Call(mod, name, (*(Arg("", a) for a in args), *(Arg(k, v) for k, v in keywords.items()))))


# Rows that the page of pyprof2 prints (ResNet-50, batch 64, float16); docs/flop_counter.md has the arithmetic.
# Bytes of batch_norm and of __iadd__ are ours: 4 passes over the elements were printed for two, on each of two kernels;
# and 8 for an int64 that is read and written.
@pytest.mark.parametrize(
    ("call", "flops", "size"),
    [
        # 1x1 convolutions of layer1: 64 -> 64 and 64 -> 256 channels at 56x56.
        (("conv2d", half(64, 64, 56, 56), half(64, 64, 1, 1)), 1644167168, 51388416),
        (("conv2d", half(64, 64, 56, 56), half(256, 64, 1, 1)), 6576668672, 128483328),
        (("relu", half(64, 64, 112, 112)), 51380224, 205520896),
        (("relu", half(64, 64, 56, 56)), 12845056, 51380224),
        (
            ("batch_norm", half(64, 64, 112, 112), *[single(64)] * 4, True, 0.1, 1e-5, True),
            411041792,
            2 * 2 * 51380224 + 4 * 4 * 64 + 2 * 4 * 64,
        ),
        (("add_", long(), 1), 1, 8 + 8),
    ],
)
def test_the_printed_rows_of_the_original(call: Any, flops: int, size: int) -> None:
    found = cost(f"aten::{call[0]}", *call[1:])
    assert (found.flops, found.bytes) == (flops, size)


F_, T = "torch.nn.functional", "Tensor"
BY_HAND: list[tuple[tuple[Any, ...], Cost]] = [
    (("aten::mm", single(7, 33), single(33, 9)), Cost(4158, 4 * (231 + 297 + 63))),
    (("aten::conv2d", single(2, 8, 19, 23), single(12, 8, 3, 5)), Cost(1860480, 64736)),  # P, Q = 17, 19
    (("aten::conv1d", half(3, 4, 10), half(6, 2, 3), half(6), (2,), (1,), (1,), 2),  # Q = 5; 2·3·6·5·2·3
     Cost(1080, 2 * (120 + 36 + 6 + 90), bgrad=Cost(90, 2 * (90 + 6)))),
    (("aten::convolution_backward", half(1, 6, 5), half(1, 4, 10), half(6, 4, 3), (6,), (2,), (1,), (1,), False, (0,),
      1, (False, True, True)), Cost(2 * 6 * 5 * 4 * 3, 2 * (40 + 72 + 30) + 2 * (30 + 6))),
    (("aten::addmm", half(5), half(2, 3), half(3, 5), 0, 1), Cost(60, 2 * (6 + 15 + 10))),  # beta 0: C is not read
    (("aten::_softmax", single(4, 8), -1, False), Cost(160, 256, dgrad=Cost(128, 384))),
    (("aten::sum", half(4, 8), (0,), False, None), Cost(32, 2 * (32 + 8))),
    (("aten::sum", Tensor((4, 8), "bool"), None), Cost(32, 32 + 8)),  # an int64
    (("aten::mean", single(4, 8), (1,), True, None), Cost(32 + 4, 4 * (32 + 4))),
    (("aten::max", single(4, 8), 1, False), Cost(32, 4 * 36 + 8 * 4)),
    (("aten::add_", half(4, 8), half(8), 1), Cost(32, 2 * (32 + 8 + 32), dgrad=Cost(32, 2 * (32 + 8)))),
    (("aten::mul", half(4, 1), single(3)), Cost(12, 4 * 2 + 3 * 4 + 12 * 4)),
    (("aten::gt", single(4), 0), Cost(4, 16 + 4)),
    (("aten::embedding", single(1000, 16), long(4, 8), -1, False, False), Cost(0, 32 * 8 + 2 * 512 * 4)),
    (("aten::cat", (half(2, 3), half(2, 5)), 1), Cost(0, 2 * 2 * 16)),
    (("aten::copy_", single(4, 8), half(8), False), Cost(0, 2 * 8 + 4 * 32)),
    (("aten::native_layer_norm", half(4, 8), (8,), half(8), half(8), 1e-5), Cost(256, 2 * (32 + 8 + 8 + 32))),
    (("aten::_foreach_add_", (single(4), single(2, 3)), (single(4), single(2, 3)), 1), Cost(10, 3 * 40)),
    (("aten::_fused_sgd_", (single(8),), (single(8),), (single(8),), 0.0, 0.9, 0.1, 0.0, False, False, False),
     Cost(32, 4 * (3 * 8 + 2 * 8))),
    (("aten::max_pool2d", single(1, 4, 9, 9), (3, 3), (2, 2), (1, 1), (1, 1), False), Cost(100 * 9, 4 * (324 + 100))),
    (("aten::nll_loss_forward", single(4, 8), long(4), None, 1, -100), Cost(5, 4 * 4 + 4 * 8 + 4)),
    (("aten::add", Tensor((5, 4), "float32", (0, 1)), single(5, 4), 1), Cost(20, 16 + 80 + 80)),  # expanded
]  # fmt: skip


@pytest.mark.parametrize(("call", "expected"), BY_HAND, ids=lambda v: v[0] if isinstance(v, tuple) else "")
def test_a_cost_derived_by_hand(call: Any, expected: Cost) -> None:
    found = cost(*call)
    assert (found.flops, found.bytes) == (expected.flops, expected.bytes)
    for part in ("dgrad", "bgrad"):
        if getattr(expected, part) is not None:
            assert getattr(found, part) == getattr(expected, part)


SPELLINGS = [
    [cost("linear", half(4, 8), half(5, 8), mod=F_), cost("aten::linear", half(4, 8), half(5, 8), None)],
    [cost("__add__", half(4), half(4), mod=T), cost("add", half(4), half(4), mod="torch"),
     cost("__iadd__", half(4), half(4), mod=T), cost("aten::add.Tensor", half(4), half(4), 1)],
    [cost("cat", half(4), half(4), 0, mod="torch"), cost("cat", (half(4), half(4)), mod="torch"),
     cost("aten::cat", (half(4), half(4)), 0)],
    [cost("softmax", half(4, 8), -1, 3, mod=F_), cost("softmax", half(4, 8), dim=1, mod=T),
     cost("aten::_softmax", half(4, 8), 1, False)],
    [cost("sum", half(4, 8), 0, mod=T), cost("sum", half(4, 8), axis=0, mod="torch"),
     cost("aten::sum.dim_IntList", half(4, 8), (0,), False, None)],
    [cost("batch_norm", half(4, 8), single(8), single(8), None, None, True, mod=F_),
     cost("aten::native_batch_norm", half(4, 8), None, None, single(8), single(8), True, 0.1, 1e-5)],
    [cost("embedding", long(4), half(9, 8), mod=F_), cost("embedding", half(9, 8), long(4), mod="torch")],
    [cost("half", single(4, 8), mod=T), cost("to", single(4, 8), Other("dtype", "float16"), mod=T),
     cost("to", single(4, 8), dtype="torch.half", mod=T), cost("aten::to", single(4, 8), 5, False, False, None),
     cost("aten::_to_copy", single(4, 8), 5, None, None, None, False, None)],
    [cost("zeros", 4, 8, mod="torch"), cost("zeros", (4, 8), mod="torch"),
     cost("aten::zeros", (4, 8), 6, None, None, False)],
    [cost("mse_loss", half(4), half(4), mod=F_), cost("aten::mse_loss", half(4), half(4), 1)],
    [cost("norm", single(4, 8), 2, mod=T), cost("aten::linalg_vector_norm", single(4, 8), 2, None, False, None)],
    [cost("lstm", single(5, 2, 8), single(1, 2, 4), single(1, 2, 4), single(16, 8), single(16, 4), False, 1, 0.0, True,
          False, False, mod="torch"),
     cost("aten::lstm", single(5, 2, 8), (single(1, 2, 4),) * 2, (single(16, 8), single(16, 4)), False, 1, 0.0, True,
          False, False)],
]  # fmt: skip


@pytest.mark.parametrize("same", SPELLINGS)
def test_one_operator_costs_the_same_in_every_spelling(same: list[Cost]) -> None:
    assert same[0].bytes is not None
    assert all(other == same[0] for other in same)


values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-3, 70), st.floats(), st.text(max_size=3), st.just("inf"),
        st.builds(Other, st.sampled_from(("dtype", "slice", "ellipsis", "?")), st.text(max_size=4)),
        st.builds(Tensor, shapes, st.sampled_from(("float16", "int64", "bool", "float3", None))),
        st.builds(Tensor, st.lists(st.integers(-2, 10**9), max_size=5).map(tuple), st.just("float32")),
    ),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)  # fmt: skip


@settings(max_examples=150)
@given(
    st.sampled_from(sorted(formulas())),
    st.lists(values, max_size=7),
    st.dictionaries(st.sampled_from(("dim", "input", "inplace", "x")), values),
)
def test_nonsense_ends_in_unknown_never_in_an_exception(name: str, args: list[Any], keywords: dict[str, Any]) -> None:
    found = cost(name, *args, **keywords)
    assert isinstance(found, Cost)
    assert found.flops is None or found.flops >= 0


def test_every_formula_survives_a_tensor_alone() -> None:
    for name in formulas():
        for args in (
            (),
            (half(4, 8),),
            (half(4, 8),) * 3,
            ("x",),
            ((),),
            (None, None),
            (half(0),) * 4,
            (2**70,),
        ):
            assert isinstance(cost(name, *args), Cost)


def test_what_is_not_known_is_not_zero() -> None:
    assert cost("aten::mm", single(2, 3), single(4, 5)) == UNKNOWN
    assert cost("aten::mm", Tensor((2, 3), None), Tensor((3, 5), None)).bytes is None
    assert cost("aten::add", Tensor((2,), "float7"), 1)[:2] == (2, None)
    for composite in ("multi_head_attention_forward", "transformer_encoder_layer", "Optimizer.step"):
        assert cost(composite, half(4, 8), mod=F_) is UNKNOWN


def test_calls_that_compare_equal_are_told_apart() -> None:
    assert cost("var", single(4, 8), True, mod=T) != cost("var", single(4, 8), 1, mod=T)


def test_every_family_says_which_kernels_fit_it() -> None:
    assert {formula.family for formula in formulas().values()} == set(FITS)
    assert set().union(*FITS.values()) <= {row.value for row in KINDS}
