# SPDX-License-Identifier: Apache-2.0
"""A tensor that a call gets twice is read once: its memory decides, not how it is passed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import pyprof
from pyprof.capture.instrument.arguments import arguments, key_of
from pyprof.core.marker import decode, encode
from pyprof.core.model import Call, Tensor

X, Y = torch.ones(4, 8), torch.ones(4, 8)
Q, KV = torch.ones(1, 2, 16, 8), torch.ones(1, 2, 16, 8)
ONE, HEADS = 4 * X.numel(), 4 * Q.numel()

# What is called, its name, and the bytes that it reads and writes.
CASES: list[tuple[str, Callable[[], torch.Tensor], int]] = [
    ("__add__", lambda: X + X, 2 * ONE),
    ("__add__", lambda: X + Y, 3 * ONE),
    ("__add__", lambda: X + X[:], 2 * ONE),
    ("__add__", lambda: X.t() + X.t(), 2 * ONE),
    ("__add__", lambda: X[:2] + X[2:], 3 * ONE // 2),  # one storage, other places
    ("mul_", lambda: X.clone().mul_(Y), 3 * ONE),
    ("mul_", lambda: Y.mul_(Y), 2 * ONE),
    ("add", lambda: torch.add(Y, Y, out=Y), 2 * ONE),  # what is written counts
    ("__matmul__", lambda: X @ X.t(), ONE + 4 * 16),
    ("linear", lambda: F.linear(X, X), ONE + 4 * 16),
    ("cat", lambda: torch.cat((X, X)), 3 * ONE),
    ("einsum", lambda: torch.einsum("ij,kj->ik", X, X), ONE + 4 * 16),
    ("scaled_dot_product_attention", lambda: F.scaled_dot_product_attention(Q, Q, Q), 2 * HEADS),
    ("scaled_dot_product_attention", lambda: F.scaled_dot_product_attention(Q, KV, KV), 3 * HEADS),
    ("addcmul", lambda: torch.addcmul(X, X, X), 2 * ONE),
    ("copy_", lambda: Y.copy_(Y), 2 * ONE),
]


@pytest.mark.parametrize(("name", "function", "size"), CASES)
def test_a_tensor_that_is_passed_twice_is_read_once(name: str, function: Callable[[], torch.Tensor], size: int) -> None:
    calls = pyprof.estimate(function)
    assert calls.loc[calls["op"] == name, "bytes"].tolist() == [size]


def test_a_recording_has_the_same(tmp_path: Path) -> None:
    with pyprof.profile(tmp_path / "net.sqlite"):
        for _, function, _ in CASES:
            function()
    kernels = pyprof.load(tmp_path / "net.sqlite").kernels
    sizes = kernels.groupby("op", observed=True)["bytes"].sum()
    for name in ("linear", "einsum", "scaled_dot_product_attention", "addcmul"):
        assert sizes[name] == sum(size for other, _, size in CASES if other == name)


def test_the_marker_keeps_it() -> None:
    call = Call("torch", "add", arguments(key_of((X, X), {})))
    assert [arg.value for arg in call.args] == [
        Tensor((4, 8), "float32"),
        Tensor((4, 8), "float32", again=True),
    ]
    assert decode(encode(call)).call == call


def test_a_list_of_many_is_not_compared_with_each_other() -> None:
    """Each tensor would be, with all others: a quarter of a million comparisons for 512 of them."""
    many = [torch.ones(2) for _ in range(512)]
    (arg,) = arguments(key_of((many,), {}))
    assert not any(tensor.again for tensor in arg.value)


def test_a_lazy_copy_stays_one() -> None:
    lazy = torch._lazy_clone(X)
    assert torch._C._is_cow_tensor(lazy)
    key_of((lazy, torch.ones(8, 4)), {"alpha": 1})
    assert torch._C._is_cow_tensor(lazy)
