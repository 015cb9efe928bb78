# SPDX-License-Identifier: Apache-2.0
"""What a kernel's name tells: its kind, whether it uses tensor cores and in which type, which gradient it computes.

The tables are in kernel_table.py. "Tensor cores" are the matrix units of any maker (NVIDIA's MMA, AMD's MFMA).
Each distinct name is looked at once.

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

from pyprof.prof import kernel_table
from pyprof.prof.kernel_table import Pattern

# Kinds whose work could be done by tensor cores.
PRODUCTS = frozenset({"gemm", "conv", "attention"})
# Kinds of collectives, messages and copies between devices; and of an all-reduce with the norm of its result, which is
# communication of which FLOPs and bytes are those of the norm, too.
COMMUNICATION = frozenset({"communication", "allreduce_norm"})

# Kernel kinds that can carry the cost of a family of formulas (a file of ops/); its other kernels are helpers.
FITS: dict[str, frozenset[str]] = {
    "activation": frozenset({"pointwise"}),
    "attention": frozenset({"attention", "gemm"}),
    "batchnorm": frozenset({"norm"}),
    "cast": frozenset({"copy", "layout", "memory", "pointwise"}),
    "collective": COMMUNICATION,
    "contraction": frozenset({"gemm"}),
    "conv": frozenset({"conv", "gemm"}),
    "counting": frozenset({"reduction", "sort", "pointwise"}),
    "distance": frozenset({"reduction", "pointwise", "gemm"}),
    "dropout": frozenset({"rng", "pointwise"}),
    "embedding": frozenset({"embedding", "copy"}),
    "fft": frozenset({"other"}),
    "fill": frozenset({"memory", "pointwise", "rng"}),
    "fusedlinear": frozenset({"gemm", "conv"}),
    "gemm": frozenset({"gemm"}),
    "grouped": frozenset({"gemm"}),
    "inductor": frozenset({"pointwise", "reduction", "norm", "softmax", "loss", "copy"}),
    "indexing": frozenset({"copy", "embedding", "pointwise"}),
    "joining": frozenset({"copy"}),
    "linalg": frozenset({"other", "gemm"}),
    "loss": frozenset({"loss", "softmax", "reduction", "pointwise"}),
    "lowprecision": frozenset({"gemm"}),
    "margin": frozenset({"loss", "reduction", "pointwise"}),
    "masking": frozenset({"copy", "pointwise"}),
    "norm": frozenset({"norm"}),
    "moe": frozenset({"gemm"}),
    "paged": frozenset({"attention"}),
    "serving": frozenset({"norm", "allreduce_norm", "pointwise", "copy", "reduction", "sort"}),
    "optimizer": frozenset({"optimizer", "pointwise"}),
    "padding": frozenset({"copy", "pointwise"}),
    "parts": frozenset({"copy", "pointwise"}),
    "pointwise": frozenset({"pointwise", "copy"}),
    "pooling": frozenset({"pooling"}),
    "quantize": frozenset({"pointwise", "reduction"}),
    "quantized": frozenset({"gemm", "conv", "pointwise"}),
    "reduction": frozenset({"reduction"}),
    "rnn": frozenset({"gemm"}),
    "rnnkernels": frozenset({"pointwise", "gemm"}),
    "sampling": frozenset({"pointwise", "layout"}),
    "softmax": frozenset({"softmax"}),
    "solvers": frozenset({"other", "gemm"}),
    "sorting": frozenset({"sort"}),
    "special": frozenset({"pointwise"}),
    "spectral": frozenset({"other", "gemm"}),
    "syncbatchnorm": frozenset({"norm"}),
    "transformer": frozenset({"gemm", "attention"}),
    "unpooling": frozenset({"pooling", "copy", "pointwise"}),
    "upsampling": frozenset({"pointwise"}),
    "views": frozenset({"copy"}),
    "window": frozenset({"pointwise"}),
}


def _compiled(rows: list[Pattern]) -> list[tuple[re.Pattern[str], str | bool]]:
    return [(re.compile(row.regex), row.value) for row in rows]


_KINDS, _TENSOR_CORES = _compiled(kernel_table.KINDS), _compiled(kernel_table.TENSOR_CORES)
_PARTS, _ARCHITECTURES = _compiled(kernel_table.PARTS), _compiled(kernel_table.ARCHITECTURES)
_MATHS, _ALGORITHMS = _compiled(kernel_table.MATHS), _compiled(kernel_table.ALGORITHMS)


_FUNCTIONS, _WORDS = _compiled(kernel_table.FUNCTIONS), _compiled(kernel_table.WORDS)
_GENERIC = re.compile(kernel_table.GENERIC)
_LONGEST = 4_000  # characters; what follows in a longer name are arguments of arguments
_LENGTH = re.compile(r"[1-9]\d{0,3}")  # of a piece of a mangled name
_NAMELESS = re.compile(r"\(anonymous namespace\)|<unnamed>|\(anonymous\)")


def _mangled(name: str) -> str:
    """The qualified name at the start of a mangled one: pieces, each behind its length."""
    pieces: list[str] = []
    at = 3 if name.startswith("_ZN") else 2
    while length := _LENGTH.match(name, at):
        at = length.end() + int(length[0])
        piece = name[length.end() : at]
        if not piece.startswith("_GLOBAL__N"):
            pieces.append(piece)
    called = "::".join(pieces)
    return called if pieces and not called.endswith("kentry") else name


def function(name: str) -> str:
    """The qualified name of a kernel's function, without its type, template arguments and parameters.

    >>> function("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 4>(float*, int)")
    'at::native::CatArrayBatchedCopy'
    >>> function("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float>(P)"), function("sgemm_nn")
    ('internal::gemvx::kernel', 'sgemm_nn')
    >>> function("_ZN5cudnn3ops20convertTensor_kernelI6__halfffLi0EEEvT1_PKT_S3_")
    'cudnn::ops::convertTensor_kernel'
    """
    if name.startswith("_Z"):
        return _mangled(name)
    kept: list[str] = []
    depth = 0
    for char in _NAMELESS.sub("", name):
        if char == "<":
            depth += 1
        elif char == ">":
            depth = max(depth - 1, 0)
        elif not depth:
            if char == "(" and kept:
                break
            kept.append(char)
    words = "".join(kept).replace("::::", "::").split()
    called = words[-1] if words else name
    return name if called.endswith("kentry") else called  # of composable_kernel, whose argument is the kernel


def _first(rows: list[tuple[re.Pattern[str], str | bool]], name: str) -> str | bool | None:
    return next((value for pattern, value in rows if pattern.search(name)), None)


def _text(rows: list[tuple[re.Pattern[str], str | bool]], name: str) -> str | None:
    value = _first(rows, name)
    return value if isinstance(value, str) else None


class Kernel(NamedTuple):
    """What a name tells. None: it does not."""

    kind: str
    tensor_core: bool | None
    architecture: str | None  # the one it was written for, "Hopper"; None: any, or not said
    math: str | None  # the type in which a product multiplies
    part: str | None  # the gradient it speaks of
    algorithm: str | None  # Winograd, FFT: less than the definition computes, if it is of a convolution


@cache
def describe(name: str) -> Kernel:
    """All that a kernel's name tells.

    >>> describe("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>")
    Kernel(kind='gemm', tensor_core=True, architecture='Ampere', math='tf32', part=None, algorithm=None)
    """
    name = (
        name.removesuffix("[clone .kd]").removesuffix(".kd").rstrip()[:_LONGEST]
    )  # of the code object, as rocprof has it
    called = function(name).lower()
    name = name.lower()  # five times as fast as a search that ignores case
    known = None
    if not _GENERIC.search(called):
        known = _text(_FUNCTIONS, called) or _text(_KINDS, called)
    known = known or _text(_KINDS, name) or _text(_WORDS, called)
    tensor_core: bool | None = None if known is None else False  # what is no product uses none
    if known in PRODUCTS:
        value = _first(_TENSOR_CORES, name)
        tensor_core = value if isinstance(value, bool) else None
    math = _text(_MATHS, name) if known in PRODUCTS else None
    algorithm = _text(_ALGORITHMS, name) if known in ("conv", "gemm") else None
    return Kernel(
        known or "other", tensor_core, _text(_ARCHITECTURES, name), math, _text(_PARTS, name), algorithm
    )


def kind(name: str) -> str:
    """What a kernel does; "other" if no row knows its name.

    >>> kind("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int)")
    'memory'
    """
    return describe(name).kind


def copy_kind(name: str) -> str:
    """The kind of a copy or set: memory, or communication if it is between devices.

    >>> copy_kind("memcpy PtoP"), copy_kind("[CUDA memcpy Peer-to-Peer]"), copy_kind("CopyPeerToPeer")
    ('communication', 'communication', 'communication')
    >>> copy_kind("memcpy DtoD"), copy_kind("memset"), copy_kind("hipMemcpyPeerAsync")
    ('memory', 'memory', 'communication')
    """
    return "communication" if kind(name) in COMMUNICATION else "memory"


def tensor_core(name: str) -> bool | None:
    """Whether a kernel uses tensor cores; None if its name does not tell.

    >>> tensor_core("nvjet_tst_128x64_64x8_1x2_h_bz_NNT"), tensor_core("ampere_sgemm_32x128_nt"), tensor_core("mine")
    (True, False, None)
    """
    return describe(name).tensor_core


def part(name: str) -> str | None:
    """The gradient that a kernel's name speaks of: "dgrad", "wgrad", "bgrad" or None.

    >>> part("igemm_wrw_gtcx3_nhwc_bf16_bx0"), part("sm80_xmma_dgrad_implicit_gemm_tf32f32"), part("volta_sgemm_nn")
    ('wgrad', 'dgrad', None)
    """
    return describe(name).part
