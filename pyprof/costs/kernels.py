# SPDX-License-Identifier: Apache-2.0
"""Interpretation of kernel names: kind, use of tensor cores and in which type, gradient.

The tables are in kernel_table.py. "Tensor cores" are the matrix units of any maker (NVIDIA's MMA, AMD's MFMA). Each
distinct name is examined once.

>>> name = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4"
>>> kind(name), tensor_core(name), part(name)
('gemm', False, None)
>>> kind("volta_fp16_s884cudnn_fp16_128x64_relu_interior_nn"), tensor_core("volta_h884gemm_128x64_ldg8_nn")
('conv', True)
>>> part("void wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>(int)")
'wgrad'
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from pyprof.costs import kernel_table
from pyprof.costs.kernel_table import Pattern

# Kinds whose work tensor cores could do.
PRODUCTS = frozenset({"gemm", "conv", "attention"})
# Kinds of collectives, messages and copies between devices; and of an all-reduce fused with the norm of its result:
# communication whose FLOPs and bytes are those of the norm.
COMMUNICATION = frozenset({"communication", "allreduce_norm"})

# Kernel kinds that can carry the cost of a family of formulas (a file of ops/); its other kernels are helpers.
FITS: dict[str, frozenset[str]] = {
    "activation": frozenset({"pointwise"}),
    "attention": frozenset({"attention", "gemm"}),
    "batchnorm": frozenset({"norm"}),
    "cast": frozenset({"copy", "layout", "memory", "pointwise"}),
    "collective": COMMUNICATION,
    "concat": frozenset({"copy"}),
    "contraction": frozenset({"gemm"}),
    "conv": frozenset({"conv", "gemm"}),
    "creation": frozenset({"memory", "pointwise", "rng"}),
    "distance": frozenset({"reduction", "pointwise", "gemm"}),
    "dropout": frozenset({"rng", "pointwise"}),
    "embedding": frozenset({"embedding", "copy", "memory"}),  # the backward fills a table with zeros
    "fft": frozenset({"other"}),
    "fusedlinear": frozenset({"gemm", "conv"}),
    "gemm": frozenset({"gemm"}),
    "grouped": frozenset({"gemm"}),
    "indexing": frozenset({"copy", "embedding", "memory", "pointwise"}),  # as does that of a gather
    "inductor": frozenset({"pointwise", "reduction", "norm", "softmax", "loss", "copy"}),
    "linalg": frozenset({"other", "gemm"}),
    "loss": frozenset({"loss", "softmax", "reduction", "pointwise"}),
    "lowprecision": frozenset({"gemm"}),
    "masked": frozenset({"copy", "pointwise"}),
    "moe": frozenset({"gemm"}),
    "norm": frozenset({"norm"}),
    "optimizer": frozenset({"optimizer", "pointwise"}),
    "padding": frozenset({"copy", "pointwise"}),
    "paged": frozenset({"attention"}),
    "pointwise": frozenset({"pointwise", "copy"}),
    "pooling": frozenset({"pooling"}),
    "quantize": frozenset({"pointwise", "reduction"}),
    "quantized": frozenset({"gemm", "conv", "pointwise"}),
    "ranking_losses": frozenset({"loss", "reduction", "pointwise"}),
    "reduction": frozenset({"reduction"}),
    "rnn": frozenset({"gemm"}),
    "rnn_backends": frozenset({"pointwise", "gemm"}),
    "sampling": frozenset({"pointwise", "layout"}),
    "serving": frozenset({"norm", "allreduce_norm", "pointwise", "copy", "reduction", "sort"}),
    "signal_windows": frozenset({"pointwise"}),
    "slicing": frozenset({"copy", "pointwise"}),
    "softmax": frozenset({"softmax"}),
    "solvers": frozenset({"other", "gemm"}),
    "sorting": frozenset({"sort"}),
    "special": frozenset({"pointwise"}),
    "spectral": frozenset({"other", "gemm"}),
    "statistics": frozenset({"reduction", "sort", "pointwise"}),
    "syncbatchnorm": frozenset({"norm"}),
    "transformer": frozenset({"gemm", "attention"}),
    "unpooling": frozenset({"pooling", "copy", "pointwise"}),
    "upsampling": frozenset({"pointwise"}),
    "views": frozenset({"copy"}),
}


def _compile(rows: list[Pattern]) -> list[tuple[re.Pattern[str], str | bool]]:
    return [(re.compile(row.regex), row.value) for row in rows]


_KINDS, _TENSOR_CORES = _compile(kernel_table.KINDS), _compile(kernel_table.TENSOR_CORES)
_PARTS, _ARCHITECTURES = _compile(kernel_table.PARTS), _compile(kernel_table.ARCHITECTURES)
_MATHS, _ALGORITHMS = _compile(kernel_table.MATHS), _compile(kernel_table.ALGORITHMS)


_FUNCTIONS, _WORDS = _compile(kernel_table.FUNCTIONS), _compile(kernel_table.WORDS)
_TERMS = _compile(kernel_table.TERMS)
_GENERIC, _VAGUE = re.compile(kernel_table.GENERIC), re.compile(kernel_table.VAGUE)
_MAX_LENGTH = 4_000  # characters; the rest of a longer name is nested template arguments
_LENGTH = re.compile(r"[1-9]\d{0,3}")  # of a piece of a mangled name
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")  # between the words of camel case
_NAMELESS = re.compile(r"\(anonymous namespace\)|<unnamed>|\(anonymous\)")


def _demangle(name: str) -> str:
    """Return the qualified name at the start of a mangled name, which has pieces prefixed by their lengths."""
    pieces: list[str] = []
    position = 3 if name.startswith("_ZN") else 2
    while length := _LENGTH.match(name, position):
        position = length.end() + int(length[0])
        piece = name[length.end() : position]
        if not piece.startswith("_GLOBAL__N"):
            pieces.append(piece)
    qualified = "::".join(pieces)
    return qualified if pieces and not qualified.endswith("kentry") else name


def function(name: str) -> str:
    """Return the qualified name of a kernel's function, without its type, template arguments and parameters.

    >>> function("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 4>(float*, int)")
    'at::native::CatArrayBatchedCopy'
    >>> function("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float>(P)"), function("sgemm_nn")
    ('internal::gemvx::kernel', 'sgemm_nn')
    >>> function("_ZN5cudnn3ops20convertTensor_kernelI6__halfffLi0EEEvT1_PKT_S3_")
    'cudnn::ops::convertTensor_kernel'
    """
    if name.startswith("_Z"):
        return _demangle(name)
    chars: list[str] = []
    depth = 0
    for char in _NAMELESS.sub("", name):
        if char == "<":
            depth += 1
        elif char == ">":
            depth = max(depth - 1, 0)
        elif not depth:
            if char == "(" and chars:
                break
            chars.append(char)
    words = "".join(chars).replace("::::", "::").split()
    qualified = words[-1] if words else name
    return name if qualified.endswith("kentry") else qualified  # composable_kernel: the argument is the kernel


def words(qualified: str) -> str:
    """Return the words of a function's last part in lower case, an underscore before and after each.

    >>> words("dali::SliceNormalizeKernel"), words("max_kernel_2"), words("MIOpenLRNFwd")
    ('_slice_normalize_kernel_', '_max_kernel_2_', '_miopen_lrn_fwd_')
    """
    last = qualified.rsplit("::", 1)[-1].strip("_")
    if last.startswith("MIOpen"):
        last = "Miopen" + last[6:]
    elif last[:1] == "k" and last[1:2].isupper():
        last = last[1:]  # bitsandbytes: kDequantize
    return f"_{_HUMP.sub('_', last).lower()}_"


def _first(rows: list[tuple[re.Pattern[str], str | bool]], name: str) -> str | bool | None:
    return next((value for pattern, value in rows if pattern.search(name)), None)


def _text(rows: list[tuple[re.Pattern[str], str | bool]], name: str) -> str | None:
    value = _first(rows, name)
    return value if isinstance(value, str) else None


class Kernel(NamedTuple):
    """Properties derived from a kernel's name; None for those that the name does not reveal."""

    kind: str
    tensor_core: bool | None
    architecture: str | None  # target, such as "Hopper"; None: any, or unknown
    math: str | None  # the type in which a product multiplies
    part: str | None  # the gradient in its name
    algorithm: str | None  # Winograd, FFT: for a convolution, less work than the definition


@cache
def describe(name: str) -> Kernel:
    """Derive all properties from a kernel's name.

    >>> describe("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>")
    Kernel(kind='gemm', tensor_core=True, architecture='Ampere', math='tf32', part=None, algorithm=None)
    """
    name = (
        name.removesuffix("[clone .kd]").removesuffix(".kd").rstrip()[:_MAX_LENGTH]
    )  # suffixes of the code object in rocprof's names
    qualified = function(name)
    function_name = qualified.lower()
    name = name.lower()  # five times as fast as a case-insensitive search
    kind_ = None
    if not _GENERIC.search(function_name):
        kind_ = _text(_FUNCTIONS, function_name) or _text(_KINDS, function_name) or _text(_WORDS, function_name)
        if kind_ is None:
            terms = words(qualified)
            kind_ = _text(_FUNCTIONS, terms) or _text(_KINDS, terms)
            if kind_ is None and not _VAGUE.fullmatch(terms):
                kind_ = _text(_TERMS, terms)
    kind_ = kind_ or _text(_KINDS, name) or _text(_WORDS, function_name)
    tensor_core: bool | None = None if kind_ is None else False  # only products use tensor cores
    if kind_ in PRODUCTS:
        value = _first(_TENSOR_CORES, name)
        tensor_core = value if isinstance(value, bool) else None
    math = _text(_MATHS, name) if kind_ in PRODUCTS else None
    algorithm = _text(_ALGORITHMS, name) if kind_ in ("conv", "gemm") else None
    helps = kind_ in ("other", "memory")  # of a row of the table: what prepares a gradient is none
    part_ = None if helps else _text(_PARTS, name)
    return Kernel(kind_ or "other", tensor_core, _text(_ARCHITECTURES, name), math, part_, algorithm)


def kind(name: str) -> str:
    """Return a kernel's kind; "other" if no row matches its name.

    >>> kind("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int)")
    'memory'
    """
    return describe(name).kind


def copy_kind(name: str) -> str:
    """Return the kind of a copy or set: memory, or communication if it is between devices.

    >>> copy_kind("memcpy PtoP"), copy_kind("[CUDA memcpy Peer-to-Peer]"), copy_kind("CopyPeerToPeer")
    ('communication', 'communication', 'communication')
    >>> copy_kind("memcpy DtoD"), copy_kind("memset"), copy_kind("hipMemcpyPeerAsync")
    ('memory', 'memory', 'communication')
    """
    return "communication" if kind(name) in COMMUNICATION else "memory"


def tensor_core(name: str) -> bool | None:
    """Return whether a kernel uses tensor cores; None if its name does not reveal it.

    >>> tensor_core("nvjet_tst_128x64_64x8_1x2_h_bz_NNT"), tensor_core("ampere_sgemm_32x128_nt"), tensor_core("mine")
    (True, False, None)
    """
    return describe(name).tensor_core


def part(name: str) -> str | None:
    """Return the gradient in a kernel's name: "dgrad", "wgrad", "bgrad" or None.

    >>> part("igemm_wrw_gtcx3_nhwc_bf16_bx0"), part("sm80_xmma_dgrad_implicit_gemm_tf32f32"), part("volta_sgemm_nn")
    ('wgrad', 'dgrad', None)
    """
    return describe(name).part
