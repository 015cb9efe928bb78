# SPDX-License-Identifier: Apache-2.0
"""The wider set of operators beside torch, on fresh random shapes: bytes against what the operator reads and returns,
FLOPs against brute force.

Where ours differ by convention the case is not here: operators that read a part of their input (trace, slice_copy,
diagonal_copy: the part counts), masks and statistics kept for the backward (native_dropout, _weight_norm_interface,
attention's log-sum-exp), and composites, of which only the outermost call is seen (kron, vander).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyprof.capture.instrument.arguments import arguments, key_of
from pyprof.core.model import Arg, Call, Cost, Tensor
from pyprof.costs.cost import lookup
from pyprof.costs.ops.attention import pairs
from pyprof.costs.ops.grouped import multi_dot
from tests.costs.test_costs_torch import Moved

SEED = random.randrange(10**6)
pytestmark = pytest.mark.filterwarnings("ignore")


def dispatched(op: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> Cost:
    return lookup(Call("aten", f"aten::{op}", arguments(key_of(args, keywords))))


def linear_algebra(n: int, m: int, k: int) -> Iterator[tuple[Any, ...]]:
    r = torch.rand
    a, b = r(n, m), r(n, k)
    s = r(n, n) + n * torch.eye(n)
    p = s @ s.T
    c = torch.view_as_complex(r(n, m, 2))
    yield from (("fft_fft", c), ("_fft_c2c", c, [1], 0, True), ("_fft_r2c", a, [1], 0, True))
    yield from (("_fft_r2c", a, [0, 1], 0, True), ("_fft_c2r", c, [1], 0, 2 * m - 1))
    yield from (
        ("linalg_cholesky_ex", p),
        ("linalg_inv_ex", s),
        ("_linalg_solve_ex", s, b),
        ("_linalg_det", s),
    )
    yield from (("linalg_lu_factor_ex", a), ("linalg_ldl_factor_ex", p), ("linalg_qr", a), ("geqrf", a))
    yield from (("linalg_qr", a, "complete"), ("_linalg_svd", a, False, True), ("_linalg_svd", a, True, True))
    yield from (
        ("_linalg_eigh", p),
        ("linalg_eig", s),
        ("triangular_solve", b, s.triu()),
        ("cholesky_solve", b, p),
    )
    yield from (
        ("cholesky_inverse", p),
        ("addr", a, r(n), r(m)),
        ("linalg_householder_product", r(6, 3), r(3)),
    )
    yield from (("ormqr", r(6, 3), r(3), r(6, k)), ("linalg_cross", r(n, 3), r(n, 3)), ("dot", r(n), r(n)))


def elementwise(n: int, m: int, k: int) -> Iterator[tuple[Any, ...]]:
    r = torch.rand
    a = r(n, m)
    yield from (("frexp", a), ("complex", a, a + 1), ("polar", a, a + 1), ("polygamma", 2, a))
    names = "i0e i1 ndtri erfcx entr log_ndtr bessel_j0 airy_ai spherical_bessel_j0"
    yield from ((f"special_{name}", a) for name in names.split())
    yield from (("igamma", a, r(1, m)), ("special_xlog1py", a, r(m)), ("special_zeta", a, r(m) + 1))
    yield from (
        ("special_chebyshev_polynomial_t", a, torch.tensor(3.0)),
        ("_add_relu", a, a + 1),
        ("glu", r(n, 4)),
    )
    yield from (("quantize_per_tensor", a, 0.1, 0, torch.quint8), ("poisson", a), ("multinomial", a, 1))
    yield ("fake_quantize_per_tensor_affine_cachemask", a, 0.1, 0, 0, 255)


def moving(n: int, m: int, k: int, offset: int) -> Iterator[tuple[Any, ...]]:
    r = torch.rand
    a, index = r(n, m), torch.arange(k) % n
    yield from (("histc", a, 10, 0, 1), ("bucketize", a, r(n).sort()[0]), ("searchsorted", r(n).sort()[0], a))
    yield from (("mode", a, 1), ("_cdist_forward", r(n, m), r(k, m), 2.0, None), ("_pdist_forward", a))
    yield from (("grid_sampler_2d", r(2, k, n, m), r(2, 4, n, 2), 0, 0, False), ("renorm", a, 2, 0, 1.0))
    yield ("im2col", r(n, k, 8, 8), [3, 3], [1, 1], [1, 1], [2, 2])
    yield ("col2im", r(n, 9 * k, 16), [8, 8], [3, 3], [1, 1], [1, 1], [2, 2])
    yield from (
        ("select_scatter", a, r(m), 0, 1),
        ("slice_scatter", a, r(1, m), 0, 0, 1),
        ("diag_embed", a, 1),
    )
    yield from (("unfold_copy", r(n, 9), 1, 4, 2), ("multi_margin_loss", a, torch.zeros(n, dtype=torch.long)))
    yield ("max_unpool2d", r(n, k, 2, 2), torch.zeros(n, k, 2, 2, dtype=torch.long), [4, 4])
    yield from (
        ("adaptive_max_pool2d", r(n, k, 7, 7), [3, 3]),
        ("reflection_pad3d", r(n, k, 4, 4, 4), [1] * 6),
    )
    yield ("fractional_max_pool2d", r(n, k, 8, 8), [2, 2], [4, 4], r(n, k, 2))
    yield from (("tril_indices", n, m, offset), ("triu_indices", n, m, offset), ("put", a, index, r(k)))
    yield from (
        ("index_reduce", a, 0, index, r(k, m), "prod"),
        ("_upsample_bilinear2d_aa", r(n, k, 9, 9), [4, 5], False),
    )
    yield ("_weight_int8pack_mm", r(n, 32).bfloat16(), torch.ones(16, 32, dtype=torch.int8), r(16).bfloat16())
    yield from (
        ("conv_tbc", r(6, n, m), r(2, m, k), r(k)),
        ("hann_window", n),
        ("_softmax_backward_data", a, a + 1, 1, a.dtype),
    )


@pytest.mark.parametrize("repeat", range(5))
def test_bytes_agree_with_what_the_operator_reads_and_returns(repeat: int) -> None:
    seed = SEED + repeat
    print("seed", seed)
    rng = random.Random(seed)
    torch.manual_seed(seed)
    n, m, k = (rng.randint(2, 6) for _ in range(3))
    cases = [*linear_algebra(n, m, k), *elementwise(n, m, k), *moving(n, m, k, rng.randint(-4, 4))]
    for op, *args in cases:
        with Moved() as moved:
            getattr(torch.ops.aten, op)(*args)
        assert dispatched(op, tuple(args), {}).bytes == moved.bytes, (op, seed, (n, m, k))


small = st.integers(1, 7)


@given(small, small, st.booleans(), st.booleans(), st.integers(-1, 4), st.integers(-1, 4))
def test_pairs_are_those_of_the_mask(
    queries: int, keys: int, causal: bool, bottom_right: bool, left: int, right: int
) -> None:
    shift = keys - queries if bottom_right else 0
    right = 0 if causal else right
    seen = sum(
        (left < 0 or j >= i + shift - left) and (right < 0 or j <= i + shift + right)
        for i in range(queries)
        for j in range(keys)
    )
    assert pairs(queries, keys, causal, bottom_right, (left, right)) == seen


@given(st.integers(1, 3), small, small, st.booleans())
def test_executed_flops_are_at_most_the_dense_ones(heads: int, queries: int, keys: int, causal: bool) -> None:
    q, k = Tensor((1, 2 * heads, queries, 4), "float16"), Tensor((1, heads, keys, 4), "float16")
    found = lookup(
        Call("torch.nn.functional", "scaled_dot_product_attention",
             (Arg("", q), Arg("", k), Arg("", k), Arg("is_causal", causal)))
    )  # fmt: skip
    assert found.flops_dense == 2 * 2 * heads * queries * keys * 8
    assert found.flops == 2 * 2 * heads * pairs(queries, keys, causal) * 8
    assert found.dgrad is not None
    assert 2 * (found.dgrad.flops or 0) == 5 * (found.flops or 0)  # five products for two


@given(st.lists(st.integers(1, 9), min_size=3, max_size=6))
def test_a_chain_takes_the_cheapest_order(sides: list[int]) -> None:
    def best(i: int, j: int) -> int:
        if j - i < 2:
            return 0
        return min(best(i, k) + best(k, j) + 2 * sides[i] * sides[k] * sides[j] for k in range(i + 1, j))

    matrices = tuple(Tensor((a, b), "float32") for a, b in itertools.pairwise(sides))
    assert multi_dot(matrices).flops == best(0, len(sides) - 1)
