# SPDX-License-Identifier: Apache-2.0
"""Categories of work: the kind of computation of a kernel or an operator.

The kind that a kernel's name gives decides. Among kernels that only move, order or add up elements, the name also
identifies the routing of mixtures of experts, and gathers and scatters. Where the name gives nothing, the operator's
family does (a file of ops/). If neither is known, the category is "other". Operators of a recording without a GPU go
by their family.

>>> of_kernel("copy", "void at::native::vectorized_gather_kernel<16, long>(char*)"), of_kernel("other", "mine")
('indexing', None)
>>> of_operator("aten", "aten::addmm"), of_operator("autograd", "ConvolutionBackward0"), of_operator("mine", "mine::f")
('gemm', 'convolution', None)
"""

from __future__ import annotations

import re
from functools import cache

from pyprof.marker import EVALUATE, is_node
from pyprof.model import Call
from pyprof.prof import kernel_table
from pyprof.prof.attribution.work import family
from pyprof.prof.kernels import function

# What each says on the page of reports.
CATEGORIES = {
    "gemm": "Matrix products, the products of mixtures of experts among them.",
    "attention": "Fused attention.",
    "convolution": "Convolutions.",
    "normalization": "Batch, layer, group and RMS norms.",
    "elementwise": "Arithmetic element by element, activations, casts, resizing.",
    "reduction": "Sums, means, scans, softmax, losses, pooling.",
    "indexing": "Embeddings, gathers and scatters.",
    "sort": "Sorts, top-k, unique.",
    "random": "Random numbers and dropout.",
    "moe": "Routing of tokens to experts and back, without communication and products.",
    "optimizer": "Fused and multi-tensor optimizers; what an optimizer does operator by operator is in its categories.",
    "communication": "Collectives, and messages between devices.",
    "copy": "Copies and sets, by kernels too; concatenations, changes of layout, padding.",
    "other": "What neither the kernel's name nor the operator tells; FFTs and solvers.",
}
KINDS = {
    "allreduce_norm": "communication", "attention": "attention",
    "communication": "communication", "conv": "convolution", "copy": "copy",
    "embedding": "indexing", "gemm": "gemm", "layout": "copy", "loss": "reduction", "memory": "copy",
    "norm": "normalization", "optimizer": "optimizer", "pointwise": "elementwise", "pooling": "reduction",
    "reduction": "reduction", "rng": "random", "softmax": "reduction", "sort": "sort",
}  # fmt: skip
FAMILIES = {
    "activation": "elementwise", "attention": "attention", "batchnorm": "normalization", "cast": "copy",
    "collective": "communication", "concat": "copy", "contraction": "gemm", "conv": "convolution", "creation": "copy",
    "distance": "reduction", "dropout": "random", "embedding": "indexing", "fusedlinear": "gemm", "gemm": "gemm",
    "grouped": "gemm", "indexing": "indexing", "inductor": "elementwise", "loss": "reduction", "lowprecision": "gemm",
    "masked": "elementwise", "moe": "gemm", "norm": "normalization", "optimizer": "optimizer", "padding": "copy",
    "paged": "attention", "pointwise": "elementwise", "pooling": "reduction", "quantize": "elementwise",
    "quantized": "gemm", "ranking_losses": "reduction", "reduction": "reduction", "rnn": "gemm",
    "rnn_backends": "elementwise", "sampling": "indexing", "signal_windows": "elementwise", "slicing": "copy",
    "softmax": "reduction", "sorting": "sort", "special": "elementwise", "statistics": "reduction",
    "syncbatchnorm": "normalization", "transformer": "gemm", "unpooling": "indexing", "upsampling": "elementwise",
    "views": "copy",
}  # fmt: skip
# Families that are no category: transforms and solvers, what servers fuse.
NO_CATEGORY = frozenset({"fft", "linalg", "serving", "solvers", "spectral"})
_ROUTING = [(re.compile(row.regex), str(row.value)) for row in kernel_table.ROUTING]
_ROUTED = frozenset({"copy", "layout", "memory", "other", "pointwise", "reduction", "sort"})
_GENERIC = re.compile(kernel_table.GENERIC)
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


@cache
def of_kernel(kind: str, name: str) -> str | None:
    """Return the category of a kernel of this kind and name; None if neither gives one.

    >>> of_kernel("sort", "void vllm::moe::moe_align_block_size_kernel<int>(int*)"), of_kernel("sort", "radixSort")
    ('moe', 'sort')
    """
    if kind in _ROUTED:
        called = function(name).lower()
        whole = name.lower() if _GENERIC.search(called) else called
        category = next((value for pattern, value in _ROUTING if pattern.search(whole)), None)
        if category == "moe" or (category and kind == "copy"):
            return category
    return KINDS.get(kind)


@cache
def of_operator(mod: str, op: str) -> str | None:
    """Return the category of an operator, or of the backward of one; None if it has no formula or no category.

    >>> of_operator("torch.nn.functional", "linear"), of_operator("aten", "aten::convolution_backward")
    ('gemm', 'convolution')
    """
    name = op.removeprefix(EVALUATE)
    if is_node(name):
        mod, name = "aten", "aten::" + _CAPITAL.sub("_", name.partition("Backward")[0]).lower()
    family_name = family(Call(mod, name, ())) or family(Call(mod, name.partition("_backward")[0], ()))
    return FAMILIES.get(family_name)
