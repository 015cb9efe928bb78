# SPDX-License-Identifier: Apache-2.0
"""Costs derived by hand, apart from the code: rows of (call, FLOPs, bytes), and what is counted per element.

The arithmetic stands in the row, in the letters of the definition; nothing here was printed by the program. Element
sizes in bytes: f 4, h 2, d 8, i 4, l 8, b 1, z (complex64) 8, e (float8) 1, u 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyprof.core.model import Arg, Call, Other, Tensor

Row = tuple[Call, int | None, int | None]
F_, T, D_ = "torch.nn.functional", "Tensor", "torch.distributed"


def _maker(dtype: str) -> Any:
    return lambda *shape: Tensor(shape, dtype)


f, h, d, i, b, z, e, u = map(
    _maker, ("float32", "float16", "float64", "int32", "bool", "complex64", "float8_e4m3fn", "uint8")
)
n64, i8 = _maker("int64"), _maker("int8")


def call(name: str, *args: Any, mod: str = "aten", **keywords: Any) -> Call:
    named = (Arg(key, value) for key, value in keywords.items())
    return Call(mod, name, (*(Arg("", value) for value in args), *named))


def table(**rows: str) -> dict[int, tuple[str, ...]]:
    """`_3="a b"`: FLOPs per element, and the names."""
    return {int(each[1:]): tuple(names.split()) for each, names in rows.items()}


# FLOPs per element of functions of one operand: their definitions, a special function is one.
UNARY = table(
    _0="positive",
    _1="""exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan sinh cosh tanh asin acos atan arcsin
    arccos arctan asinh acosh atanh arcsinh arccosh arctanh erf erfc erfinv sigmoid expit digamma psi lgamma gammaln
    i0 i0e i1 i1e ndtri log_ndtr erfcx neg negative abs absolute sign sgn floor ceil round trunc fix square deg2rad
    rad2deg bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_i0 modified_bessel_i1 modified_bessel_k0
    modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0 airy_ai cbrt angle
    conj_physical relu threshold _threshold""",
    _2="frac relu6 hardtanh leaky_relu hardshrink tanhshrink silu rrelu softplus",  # x - trunc x; x·sigmoid; log1p exp
    _3="logit sinc nan_to_num softsign elu softshrink entr",  # log(x/(1 - x)); sin(πx)/πx; x/(1 + |x|); -x·log x
    _4="mish hardsigmoid celu selu ndtr",  # x·tanh(log1p(exp x)); min(max(x + 3, 0), 6)/6; (1 + erf(x/√2))·½
    _5="gelu hardswish",  # x·½·(1 + erf(x/√2)); x·min(max(x + 3, 0), 6)/6
    _6="logsigmoid log_sigmoid log_sigmoid_forward",  # min(x, 0) - log1p(exp(-|x|))
)
TRUTH = table(_1="isnan isinf isfinite isposinf isneginf isreal logical_not signbit")
# The backward, per element: what the derivative takes, times the gradient g.
UNARY_BACKWARD = table(
    _1="exp log relu threshold",  # g·y; g/x; selections
    _2="sqrt sin sinh cosh leaky_relu relu6 hardtanh expm1 log1p log2 square softplus abs",  # g/(2·y); g·cos x; ...
    _3="tanh sigmoid cos tan atan reciprocal rsqrt tanhshrink",  # g·(1 - y²); g·y·(1 - y); -g·sin x; g/(1 + x²)
    _4="asin asinh acosh softsign elu celu selu erfinv",  # g·rsqrt(1 - x²); g/(1 + |x|)²
    _5="acos hardswish erf erfc",  # -asin; 2/√π·exp(-x²)·g
    _6="silu",  # s = sigmoid x; g·s·(1 + x·(1 - s))
    _10="mish",  # t = tanh(log1p(exp x)); g·(t + x·s·(1 - t²))
    _11="gelu",  # Φ: x/√2, erf, +1, ·½; φ: x², ·-½, exp, ·c; g·(Φ + x·φ)
)
# Of two operands, per element of the result.
BINARY = table(
    _1="""add sub mul multiply subtract rsub div divide true_divide rdiv pow rpow atan2 arctan2 maximum minimum fmax
    fmin copysign nextafter igamma igammac gammainc gammaincc zeta clamp_min clamp_max""",
    _2="floor_divide floordiv rfloor_divide xlogy ldexp heaviside",  # divide, floor; x·log y; x·2^y
    _3="remainder fmod xlog1py",  # x - y·q, the quotient q counted with its rounding as one; x·log(1 + y)
    _4="hypot",  # two squares, a sum, a root
    _5="logaddexp logaddexp2",  # max, difference, exp, log1p, sum
)
COMPARISONS = table(
    _1="""eq ne lt le gt ge not_equal less less_equal greater greater_equal logical_and logical_or logical_xor""",
    _6="isclose",  # |a - b| <= atol + rtol·|b|
)
INTEGER = table(
    _1="""bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd lcm __and__ __or__ __xor__
    __lshift__ __rshift__"""
)
# Backward operators of activations (gradient, saved): FLOPs per element, as in UNARY_BACKWARD.
ACTIVATION_BACKWARD = table(
    _1="threshold_backward",
    _2="""hardtanh_backward leaky_relu_backward hardsigmoid_backward hardshrink_backward softshrink_backward
    softplus_backward rrelu_with_noise_backward""",
    _3="sigmoid_backward tanh_backward logit_backward",
    _5="hardswish_backward",
    _6="silu_backward",
    _10="mish_backward",
    _11="gelu_backward",
)
FOREACH = table(
    _1="""exp log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan sinh cosh tanh asin acos atan erf erfc expm1
    sigmoid lgamma neg abs sign floor ceil round trunc""",
    _2="frac",
    _0="clone",
)
FOREACH_BINARY = table(_1="add sub mul div maximum minimum clamp_min clamp_max pow")


def elementwise() -> Iterator[Row]:
    x, y = f(2, 3), f(3)
    lists = (f(2, 3), f(4))
    for each, names in UNARY.items():
        for name in names:
            yield call(f"aten::{name}", x), 6 * each, 48
            yield call(f"aten::{name}", h(2, 3)), 6 * each, 24
    for name in TRUTH[1]:
        yield call(f"aten::{name}", x), 6, 24 + 6
    for each, names in BINARY.items():
        for name in names:
            yield call(f"aten::{name}", x, y), 6 * each, 24 + 12 + 24
    for each, names in COMPARISONS.items():
        for name in names:
            yield call(f"aten::{name}", x, y), 6 * each, 24 + 12 + 6
    for name in INTEGER[1]:
        yield call(f"aten::{name}", i(2, 3), i(3)), 6, 24 + 12 + 24
    yield call("aten::bitwise_not", i(2, 3)), 6, 48
    for each, names in ACTIVATION_BACKWARD.items():
        for name in names:
            yield call(f"aten::{name}", x, x, 0), 6 * each, 72
    yield call("aten::log_sigmoid_backward", x, x, x), 18, 72  # sigmoid(-x)·g
    yield call("aten::gelu", x, "tanh"), 54, 48  # ½·x·(1 + tanh(c·(x + k·x³)))
    yield call("aten::gelu_backward", x, x, "tanh"), 18 * 6, 72
    yield call("aten::mvlgamma", x, 3), 48, 48  # three functions, two differences, two sums, a constant
    for name in ("rrelu_with_noise", "rrelu_with_noise_functional"):
        yield call(f"aten::{name}", x, x, 0.1, 0.3, True), 12, 48  # noise is a mask: not counted
    for each, names in FOREACH.items():
        for name in names:
            yield call(f"aten::_foreach_{name}", lists), 10 * each, 80
    for name in FOREACH_BINARY[1]:
        yield call(f"aten::_foreach_{name}_", lists, lists), 10, 120
        yield call(f"aten::_foreach_{name}", lists, 2.0), 10, 80
    yield call("aten::_foreach_add", lists, lists, 0.5), 20, 120  # a product with alpha more
    yield call("aten::_foreach_addcmul_", lists, lists, lists, 1), 30, 160
    yield call("aten::_foreach_addcdiv_", lists, lists, lists, 1), 30, 160
    yield call("aten::_foreach_lerp_", lists, lists, 0.1), 30, 120
    yield call("aten::_foreach_copy_", lists, lists), 0, 80
    yield call("aten::_foreach_zero_", lists), 0, 40


def mixed() -> Iterator[Row]:
    """Promotion, broadcasting, expansion, in place, widths."""
    yield call("aten::add", f(4, 1), h(3)), 12, 16 + 6 + 48
    yield call("aten::add", i(4), 1.5), 4, 16 + 16
    yield call("aten::add", b(4), b(4)), 4, 12
    yield call("aten::mul", z(4), f(4)), 6 * 4, 32 + 16 + 32
    yield call("aten::mul", z(4), d(4)), 6 * 4, 32 + 32 + 64  # complex128
    yield call("aten::mul_", h(4, 8), h(8)), 32, 64 + 16 + 64
    yield call("aten::add", f(4, 8), f(4, 8), alpha=2), 64, 384
    # num_batches_tracked += 1, an int64: read and written. The page of pyprof2 prints 1.0 and 8: it counts the number 1
    # like a float of 4 bytes, and the result as large.
    yield call("__iadd__", n64(), 1, mod=T), 1, 16
    yield call("aten::div", i(4), 2), 4, 32
    yield call("aten::float_power", f(4), 2), 4, 16 + 32
    yield call("aten::addcmul", f(4), f(4), f(4)), 12, 64
    yield call("aten::addcdiv", f(4), f(4), f(4)), 12, 64
    yield call("aten::lerp", f(4), f(4), f(4)), 12, 64
    yield call("aten::clamp", f(4), 0, 1), 8, 32
    yield call("aten::clamp", f(4), 0), 4, 32
    yield call("aten::where", b(4), f(4), f(1)), 4, 4 + 16 + 4 + 16
    yield call("where", f(4), b(4), 0.0, mod=T), 4, 36
    yield call("aten::glu", f(3, 8)), 24, 96 + 48
    yield call("aten::masked_fill", f(4), b(4), f()), 0, 16 + 4 + 4 + 16
    yield call("aten::abs", z(4)), 16, 32 + 16
    yield call("aten::prelu", f(2, 3, 4), f(3)), 48, 96 + 12 + 96
    widths = table(_1="byte char bool _cast_Byte _cast_Char", _2="bfloat16 short _cast_Short", _4="float int chalf")
    more = table(_4="_cast_Float _cast_Int", _8="double long cfloat _cast_Double _cast_Long", _16="cdouble")
    for width, names in (*widths.items(), *more.items()):
        for name in names:
            yield call(name, h(4), mod=T), 0, 8 + 4 * width
    yield call("aten::_cast_Half", f(4), False), 0, 16 + 8
    yield call("half", f(4), mod=T), 0, 16 + 8
    yield call("aten::to", f(4), 15, False, False, None), 0, 16 + 8  # ScalarType 15, bfloat16
    yield call("to", f(4), dtype=Other("dtype", "float8_e4m3fn"), mod=T), 0, 16 + 4
    yield call("aten::repeat", f(4), (3, 2)), 0, 16 + 96
    yield call("aten::expand_copy", f(4, 1), (4, 5)), 0, 16 + 80


def reductions() -> Iterator[Row]:
    x = f(4, 8)
    for name, each, per_result, result in (
        ("sum", 1, 0, 4), ("nansum", 2, 0, 4), ("mean", 1, 1, 4), ("prod", 1, 0, 4), ("amax", 1, 0, 4),
        ("amin", 1, 0, 4),
        ("all", 1, 0, 1), ("any", 1, 0, 1), ("argmax", 1, 0, 8), ("argmin", 1, 0, 8), ("count_nonzero", 2, 0, 8),
        ("logsumexp", 4, 1, 4), ("nanmean", 3, 1, 4),
    ):  # fmt: skip
        yield call(name, x, 1, mod="torch"), 32 * each + 4 * per_result, 128 + 4 * result
        yield call(name, x, dim=0, keepdim=True, mod=T), 32 * each + 8 * per_result, 128 + 8 * result
    for name in ("sum", "mean", "prod"):
        each = 32 + (4 if name == "mean" else 0)
        if name != "prod":
            yield call(f"aten::{name}.dim_IntList", x, (1,)), each, 144
            yield call(f"aten::{name}", x, (1,), True), each, 144
            yield call(f"aten::{name}", x, (1,), False, 7), each, 128 + 32  # float64
        yield call(f"aten::{name}", x, None), 32 + (name == "mean"), 132
    yield call("aten::prod.dim_int", x, 1), 32, 144
    yield call("aten::sum", i(4, 8), (0,)), 32, 128 + 64
    yield call("aten::sum", h(4, 8), (0,), dtype=6), 32, 64 + 32
    for name in ("var", "std"):
        yield call(f"aten::{name}", x, (1,)), 4 * 32 + 4, 144
        yield call(f"aten::{name}_mean", x, (1,)), 4 * 32 + 2 * 4, 160
    yield (
        call("aten::var", z(4, 8), (1,)),
        32 * (2 + 2 + 3 + 1) + 4,
        256 + 16,
    )  # mean, minus, |z|², sum; a root
    yield call("aten::linalg_vector_norm", x, 2, (1,)), 2 * 32 + 4, 144
    yield call("aten::linalg_vector_norm", z(4, 8), 2, (1,)), 32 * (3 + 1) + 4, 256 + 16
    for name in ("cumsum", "cumprod", "logcumsumexp"):
        yield call(f"aten::{name}", x, 1), 32, 256
    yield call("aten::cummax", x, 1), 32, 256 + 256
    yield call("aten::max", x, 1), 32, 128 + 16 + 32
    yield call("aten::min", x), 32, 132
    yield call("aten::aminmax", x), 64, 136
    for name in ("softmax", "log_softmax", "softmin"):
        yield call(name, x, -1, mod=F_), 160, 256  # max, subtract, exp, add, divide
        yield call(name, h(4, 8), 1, dtype=Other("dtype", "float32"), mod="torch"), 160, 64 + 128
    for name in ("_softmax", "_log_softmax"):
        yield call(f"aten::{name}", x, 1, False), 160, 256
        yield call(f"aten::{name}_backward_data", x, x, 1, 6), 128, 384


def normalisations() -> Iterator[Row]:
    """8 per element with weight and bias: mean 1, variance 3, normalise 2, scale, shift."""
    x, c, w = f(2, 3, 4), f(3), f(4)  # 24 elements, 96 bytes
    yield call("layer_norm", x, (4,), w, w, mod=F_), 192, 96 + 32 + 96
    yield call("layer_norm", x, (4,), w, mod=F_), 168, 96 + 16 + 96
    yield call("layer_norm", x, (4,), mod=F_), 144, 192
    yield call("aten::native_layer_norm", x, (4,), w, w, 1e-5), 192, 224
    yield call("aten::native_layer_norm_backward", x, x, (4,), f(2, 3, 1), f(2, 3, 1), w, w, (True,) * 3), 13 * 24, (
        96 + 96 + 16 + 96 + 16 + 16)  # fmt: skip
    yield call("group_norm", x, 3, c, c, mod=F_), 192, 96 + 24 + 96
    yield call("aten::native_group_norm", x, c, c, 2, 3, 4, 3, 1e-5), 192, 216
    yield call("rms_norm", x, (4,), w, mod=F_), 96, 96 + 16 + 96  # square, add, scale, weight
    yield (
        call("batch_norm", x, c, c, c, c, True, mod=F_),
        192,
        192 + 2 * 12 + 2 * 2 * 12,
    )  # statistics read, written
    yield call("batch_norm", x, c, c, c, c, mod=F_), 96, 192 + 4 * 12
    yield call("batch_norm", x, c, c, mod=F_), 48, 192 + 24
    yield call("aten::native_batch_norm", x, c, c, c, c, True, 0.1, 1e-5), 192, 264
    yield call("aten::cudnn_batch_norm", x, c, c, c, c, False, 0.1, 1e-5), 96, 240
    yield call("aten::_native_batch_norm_legit_no_training", x, c, c, c, c, 0.1, 1e-5), 96, 240
    yield call("aten::_batch_norm_with_update", x, c, c, c, c, 0.1, 1e-5), 192, 264
    for name, more in (("native_batch_norm_backward", (c, c, c, c, c, True, 1e-5, (True,) * 3)),
                       ("batch_norm_backward", (c, c, c, c, c, True, 1e-5, (True,) * 3, u(0)))):  # fmt: skip
        yield call(f"aten::{name}", x, x, *more), 9 * 24, 3 * 96 + 3 * 12
    yield call("instance_norm", x, mod=F_), 144, 192
    yield call("normalize", f(4, 8), mod=F_), 96, 256


def embeddings_and_indices() -> Iterator[Row]:
    """Rows that are read, not the table: 6 rows of 5 floats are 120 bytes."""
    index, table = n64(2, 3), f(100, 5)
    yield call("embedding", index, table, mod=F_), 0, 48 + 120 + 120
    yield call("aten::embedding", table, index), 0, 288
    yield call("aten::embedding_dense_backward", f(2, 3, 5), index, 100, -1, False), 30, 120 + 48 + 2000
    yield call("embedding_bag", index, table, mod=F_), 30, 48 + 120 + 2 * 20
    yield call("aten::_embedding_bag", table, n64(6), n64(2)), 30, 48 + 16 + 120 + 40
    yield call("aten::gather", table, 0, n64(6, 5)), 0, 240 + 120 + 120
    yield call("aten::index_select", table, 0, n64(6)), 0, 48 + 240
    yield call("aten::index", table, (n64(6),)), 0, 48 + 240
    yield call("aten::take", table, n64(6)), 0, 48 + 24 + 24
    yield call("aten::index_add_", table, 0, n64(6), f(6, 5)), 30, 48 + 120 + 120 + 120
    yield call("aten::index_copy_", table, 0, n64(6), f(6, 5)), 0, 48 + 120 + 120
    yield call("aten::scatter_add_", table, 0, n64(6, 5), f(6, 5)), 30, 240 + 120 + 120 + 120
    yield call("aten::scatter_", table, 0, n64(6, 5), f(6, 5)), 0, 240 + 120 + 120
    yield call("aten::scatter", table, 0, n64(6, 5), f(6, 5)), 0, 2000 + 240 + 120 + 2000
    yield call("aten::index_put_", table, (n64(6),), f(6, 5), True), 30, 48 + 120 + 120 + 120
    yield call("__getitem__", table, n64(6), mod=T), 0, 288
    yield call("__setitem__", table, n64(6), f(6, 5), mod=T), 0, 288
    yield call("aten::cat", (f(2, 3), f(4, 3)), 0), 0, 24 + 48 + 72
    yield call("aten::stack", (f(2, 3), f(2, 3)), 0), 0, 96
    yield call("pad", f(2, 3), (1, 2), mod=F_), 0, 24 + 2 * 6 * 4
    yield call("aten::topk", f(4, 8), 3), None, 128 + 48 + 96
    yield call("aten::sort", f(4, 8)), None, 128 + 128 + 256
    yield call("aten::copy_", f(4, 8), h(4, 8)), 0, 64 + 128
    yield call("aten::clone", f(4, 8)), 0, 256
    yield call("aten::fill_", f(4, 8), 1), 0, 128
    yield call("aten::zero_", f(4, 8)), 0, 128
    yield call("aten::arange", 10), 0, 80
    yield call("aten::normal", f(2, 1), f(3)), 0, 8 + 12 + 24
    yield call("aten::one_hot", n64(4), 10), 0, 32 + 320
    yield call("aten::flip", f(4, 8), (0,)), 0, 256
    yield call("aten::tril", f(4, 4)), 0, 128
    yield call("aten::bucketize", f(8), f(7)), 24, 32 + 28 + 64  # ceil(log2 8) comparisons each
    yield call("aten::segment_reduce", f(6, 4), "sum", offsets=n64(3)), 24, 96 + 24 + 32
