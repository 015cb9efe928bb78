# SPDX-License-Identifier: Apache-2.0
"""Costs beside torch: the bytes that its operators move, promotion, views, argument order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import prod
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

from pyprof.capture.instrument.arguments import arguments, key_of
from pyprof.core.model import Arg, Call, Cost, Tensor
from pyprof.costs.cost import find, lookup
from pyprof.costs.ops.shapes import CATEGORY, broadcast, result_dtype

SEED = random.randrange(10**6)
F_ = "torch.nn.functional"
shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


def real(function: str, *args: Any, mod: str = "torch", **keywords: Any) -> Cost:
    """The cost of a call with real arguments, described as capture does."""
    return lookup(Call(mod, function, arguments(key_of(args, keywords))))


@given(st.integers(1, 3), st.integers(1, 4), *[st.integers(1, 20)] * 4)
def test_attention_agrees_with_torch(b: int, h: int, sq: int, skv: int, d: int, dv: int) -> None:
    q, k, v = (b, h, sq, d), (b, h, skv, d), (b, h, skv, dv)
    found = lookup(Call(F_, "scaled_dot_product_attention", tuple(Arg("", Tensor(s, "float16")) for s in (q, k, v))))
    assert found.flops == sdpa_flop_count(q, k, v)
    assert found.dgrad is not None
    assert found.dgrad.flops == sdpa_backward_flop_count((b, h, sq, dv), q, k, v)


class Moved(TorchDispatchMode):
    """What the outermost operator reads and returns: each storage once, as large as what it stores of the tensor."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        read = {(t.data_ptr(), t.shape): t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        wrote = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        self.bytes = sum(map(_stored, [*read.values(), *wrote]))
        return out


def _stored(t: torch.Tensor) -> int:
    return t.element_size() * prod(1 if s == 0 else n for n, s in zip(t.shape, t.stride()))


def moving(rng: random.Random) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Calls that are one operator, on random shapes and dtypes."""
    n, m = rng.randint(1, 9), rng.randint(2, 9)
    dtypes = (torch.float16, torch.float32, torch.bfloat16, torch.int32, torch.int64, torch.bool)
    a = torch.ones(n, m, dtype=rng.choice(dtypes))
    b = torch.ones(rng.choice([(m,), (n, m), (n, 1), (3, n, m), ()]), dtype=rng.choice(dtypes))
    f = torch.rand(n, m)
    for op in (
        "add",
        "mul",
        "div",
        "pow",
        "eq",
        "lt",
        "logical_and",
        "maximum",
        "atan2",
        "bitwise_or",
        "where",
    ):
        if op == "bitwise_or" and (a.is_floating_point() or b.is_floating_point()):
            continue
        if not (op == "pow" and a.dtype == b.dtype == torch.bool):
            yield op, (f > 0, a, b) if op == "where" else (a, b), {}
    for op in ("exp", "neg", "sigmoid", "isnan", "abs", "sqrt", "logical_not"):
        if not (op in ("neg", "abs") and a.dtype == torch.bool):
            yield op, (a,), {}
    yield from (
        ("add", (a, 1), {}),
        ("mul", (a, 2.5), {}),
        ("rsub", (f, 1), {}),
        ("clamp", (f, 0.1, 0.9), {}),
    )
    yield from (
        ("sum", (a, rng.choice((0, 1, -1, (0, 1)))), {"keepdim": rng.random() < 0.5}),
        ("amax", (f, 1), {}),
    )
    yield from (("argmax", (f, 1), {}), ("max", (f, 0), {}), ("var", (f, 1), {}), ("cumsum", (a, 0), {}))
    yield from (
        ("any", (a, 1), {}),
        ("logsumexp", (f, 1), {}),
        ("softmax", (f, 1), {}),
        ("mean", (f, (0,)), {}),
    )
    yield from (
        ("cat", ([a, a[:1].clone()], 0), {}),
        ("clone", (f.expand(2, n, m),), {}),
        ("addcmul", (f, f + 1, f + 2), {}),
    )
    yield from (
        ("masked_fill", (f, f > 0.5, 0.0), {}),
        ("lerp", (f, f + 1, 0.5), {}),
        ("flip", (a, (0,)), {}),
    )


@pytest.mark.parametrize("repeat", range(20))
def test_bytes_agree_with_what_torch_reads_and_returns(repeat: int) -> None:
    seed = SEED + repeat
    print("seed", seed)
    torch.manual_seed(seed)
    for op, args, keywords in moving(random.Random(seed)):
        with Moved() as moved:
            getattr(torch, op)(*args, **keywords)
        assert real(op, *args, **keywords).bytes == moved.bytes, (
            op,
            [getattr(x, "dtype", x) for x in args],
            seed,
        )


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dims", [(1, 1), (1, 0), (0, 1)])
def test_promotion_is_torchs(dims: tuple[int, int]) -> None:
    for a in CATEGORY:
        for b in (*CATEGORY, True, 1, 1.5):
            x = torch.empty((1,) * dims[0], dtype=getattr(torch, a))
            y: Any = torch.empty((1,) * dims[1], dtype=getattr(torch, b)) if isinstance(b, str) else b
            other = Tensor((1,) * dims[1], b) if isinstance(b, str) else b
            try:
                expected = str(torch.result_type(x, y)).removeprefix("torch.")
            except RuntimeError:
                continue  # torch refuses the pair
            assert result_dtype(Tensor((1,) * dims[0], a), other) in (expected, None), (a, b)
            if not ({a, str(b)} & {"uint16", "uint32", "uint64"} or "float8" in a + str(b)):
                assert result_dtype(Tensor((1,) * dims[0], a), other) == expected, (a, b)


@given(shapes, st.randoms(use_true_random=False))
def test_a_reshape_is_a_view_where_torch_makes_one(shape: tuple[int, ...], rng: random.Random) -> None:
    base = torch.zeros([n + rng.randint(0, 1) for n in shape])[tuple(slice(n) for n in shape)]
    x = base.permute(rng.sample(range(len(shape)), len(shape)))
    wanted = sorted(x.shape, key=lambda _: rng.random())
    if len(wanted) > 1 and rng.random() < 0.7:
        wanted = [wanted[0] * wanted[1], *wanted[2:]]
    elif wanted and rng.random() < 0.5:
        wanted = [1, *wanted]
    same = x.numel() == 0 or x.reshape(wanted).data_ptr() == x.data_ptr()
    tensor = Tensor(tuple(x.shape), "float32", x.stride())
    assert (lookup(Call("Tensor", "reshape", (Arg("", tensor), Arg("", tuple(wanted))))).basis == "view") == same
    contiguous = lookup(Call("Tensor", "contiguous", (Arg("", tensor),)))
    assert (contiguous.basis == "view") == (x.numel() == 0 or x.is_contiguous())


@given(shapes, shapes)
def test_broadcasting_is_torchs(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    try:
        expected = tuple(torch.broadcast_shapes(a, b))
    except RuntimeError:
        with pytest.raises(ValueError, match="broadcast"):
            broadcast(a, b)
    else:
        assert broadcast(a, b) == expected


@given(st.randoms(use_true_random=False), st.integers(1, 3), st.booleans(), st.booleans())
def test_windows_of_pooling_are_torchs(rng: random.Random, n: int, ceil: bool, averages: bool) -> None:
    """Sizes, strides, padding, dilation and ceil_mode at random: as many results as torch has, a window each, of which
    only what lies in the padded input counts."""
    window = [rng.randint(1, 7 if averages else 4) for _ in range(n)]
    options: dict[str, Any] = {"stride": [rng.randint(1, 4) for _ in range(n)], "ceil_mode": ceil}
    options["padding"] = [rng.randint(0, k // 2) for k in window]
    if not averages:
        options["dilation"] = [rng.randint(1, 2) for _ in range(n)]
    x = torch.rand(2, *(rng.randint(7, 9) for _ in range(n)))
    name = f"{'avg' if averages else 'max'}_pool{n}d"
    result = getattr(torch.nn.functional, name)(x, window, **options)
    results, elements = result.numel(), 2
    for along in range(n):
        size = x.shape[1 + along] + 2 * options["padding"][along]
        apart = options["dilation"][along] if not averages else 1
        places = [
            i * options["stride"][along] + k * apart
            for i in range(result.shape[1 + along])
            for k in range(window[along])
        ]
        elements *= sum(place < size for place in places)
    found = real(name, x, window, mod=F_, **options)
    assert found.flops == elements
    assert found.bytes == 4 * (x.numel() + results)


@given(st.integers(1, 12), st.integers(1, 12))
def test_adaptive_windows_are_torchs(size: int, wanted: int) -> None:
    """A window begins at floor(i·size/wanted) and ends at ceil((i + 1)·size/wanted): what a result depends on."""
    x = torch.rand(1, size, requires_grad=True)
    out = torch.nn.functional.adaptive_avg_pool1d(x, wanted)
    seen = 0
    for i in range(wanted):
        (gradient,) = torch.autograd.grad(out[0, i], x, retain_graph=True)
        seen += int(torch.count_nonzero(gradient))
    assert real("adaptive_avg_pool1d", x, wanted, mod=F_).flops == seen


@given(st.randoms(use_true_random=False), st.integers(1, 3))
def test_sizes_of_resized_images_are_torchs(rng: random.Random, n: int) -> None:
    x = torch.rand(1, 2, *(rng.randint(3, 9) for _ in range(n)))
    mode = rng.choice(("nearest", "area", {1: "linear", 2: "bicubic", 3: "trilinear"}[n]))
    factor = rng.choice((0.5, 1.5, 2.3, 3))
    results = torch.nn.functional.interpolate(x, scale_factor=factor, mode=mode).numel()
    assert real("interpolate", x, scale_factor=factor, mode=mode, mod=F_).bytes == 4 * (x.numel() + results)


# Operators whose forms disagree about a place, or have another name for it: the formula sorts that out.
SHIFTED = (
    "_native_batch_norm_legit.no_stats", "addmm.dtype", "baddbmm.dtype",
    "max", "min", "std", "var", "norm.ScalarOpt_dtype", "linalg_norm", "linalg_vector_norm", "take_along_dim",
    "scatter", "index_fill", "constant_pad_nd", "dropout", "alpha_dropout", "feature_",
    "margin_ranking_loss", "hinge_embedding_loss", "cosine_embedding_loss", "triplet_margin_loss", "poisson_nll_loss",
    "multilabel_margin_loss", "conv_tbc_backward", "polygamma", "stft.center", "trapezoid.dx", "trapz.dx",
    "cumulative_trapezoid.dx", "normal",
    "rand_like.generator", "randn_like.generator", "randint_like.low", "repeat_interleave.Tensor",
)  # fmt: skip


def test_parameters_stand_where_torchs_schemas_have_them() -> None:
    wrong = []
    for schema in torch._C._jit_get_all_schemas():
        found = find("aten", schema.name)
        if not schema.name.startswith("aten::") or found is None or "Dimname" in str(schema):
            continue
        code = found[0].function.__code__
        ours = [name for name in code.co_varnames[: code.co_argcount] if name != "out"]
        theirs = [a.name.replace("self", "input", a.name == "self") for a in schema.arguments]
        name = ".".join(filter(None, (schema.name[6:], schema.overload_name)))
        wrong += [
            (name, p) for i, p in enumerate(theirs) if p in ours and ours.index(p) != i and not name.startswith(SHIFTED)
        ]
    assert not wrong
