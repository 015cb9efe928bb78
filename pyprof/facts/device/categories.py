# SPDX-License-Identifier: Apache-2.0
"""Categories of work: what a kernel or an operator computes, in a word ("gemm", "reduction").

A kernel has the category of its kind, which its name gives (`costs/kernels.py`). Of kernels that only move, order or
add up elements, the name also tells the routing of mixtures of experts, gathers and scatters. A kernel whose name does
not give a kind has the category of its operator's family: the module of `costs/ops/` with the operator's formula. If
that is unknown too, the category is "other". Without a GPU, operators have the category of their family.

>>> of_kernel("copy", "void at::native::vectorized_gather_kernel<16, long>(char*)"), of_kernel("other", "mine")
('indexing', None)
>>> of_operator("aten", "aten::addmm"), of_operator("autograd", "ConvolutionBackward0"), of_operator("mine", "mine::f")
('gemm', 'convolution', None)
"""

from __future__ import annotations

import re
from functools import cache

from pyprof.core.marker import EVALUATE, is_node
from pyprof.core.model import Call
from pyprof.costs import kernel_table
from pyprof.costs.attribution.work import family
from pyprof.costs.kernels import function

# Each category, and its text in docs/reports.md.
CATEGORIES = {
    "gemm": "Matrix products, the products of mixtures of experts among them.",
    "attention": "Fused attention; of attention in pieces the products are gemm, the softmax reduction and so on.",
    "convolution": "Convolutions.",
    "normalization": "Batch, layer, group and RMS norms.",
    "elementwise": "Arithmetic element by element, activations, casts, resizing.",
    "reduction": "Sums, means, scans, softmax, losses, pooling.",
    "indexing": "Embeddings, gathers and scatters.",
    "sort": "Sorts, top-k, unique.",
    "random": "Random numbers and fused dropout; the multiplication of dropout in pieces is elementwise.",
    "moe": "Routing of tokens to experts and back, without communication and products.",
    "optimizer": "Fused and multi-tensor optimizers; what an optimizer does operator by operator is in its categories.",
    "communication": "Collectives, and messages between devices.",
    "copy": "Copies and sets, by kernels too; concatenations, changes of layout, padding.",
    "other": "What neither the kernel's name nor the operator tells; FFTs and solvers.",
}
# Kind of a kernel (docs/roofline.md) -> its category.
CATEGORY_OF_KIND = {
    "allreduce_norm": "communication", "attention": "attention",
    "communication": "communication", "conv": "convolution", "copy": "copy",
    "embedding": "indexing", "gemm": "gemm", "layout": "copy", "loss": "reduction", "memory": "copy",
    "norm": "normalization", "optimizer": "optimizer", "pointwise": "elementwise", "pooling": "reduction",
    "reduction": "reduction", "rng": "random", "softmax": "reduction", "sort": "sort",
}  # fmt: skip
# Family of an operator, a module of costs/ops/ -> its category.
CATEGORY_OF_FAMILY = {
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
# Families of no single category: transforms, solvers, and operators that servers of language models fuse.
FAMILIES_WITHOUT_CATEGORY = frozenset({"fft", "linalg", "serving", "solvers", "spectral"})
_ROUTING_PATTERNS = [(re.compile(row.regex), str(row.value)) for row in kernel_table.ROUTING]
# Kinds of kernels that only move, order or add up elements.
_MOVING_KINDS = frozenset({"copy", "layout", "memory", "other", "pointwise", "reduction", "sort"})
_GENERIC = re.compile(kernel_table.GENERIC)
# Operators whose work is random numbers, whichever family their formula is in.
_RANDOM = frozenset([
    "bernoulli", "binomial", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "poisson",
    "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "random", "randperm", "uniform",
])  # fmt: skip
_BEFORE_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


@cache
def of_kernel(kind: str, name: str) -> str | None:
    """Return the category of a kernel of this kind and name; None if neither gives one.

    >>> of_kernel("sort", "void vllm::moe::moe_align_block_size_kernel<int>(int*)"), of_kernel("sort", "radixSort")
    ('moe', 'sort')
    """
    if kind in _MOVING_KINDS:
        function_name = function(name).lower()
        # A generic function runs what its template arguments say, which only the full name has.
        searched = name.lower() if _GENERIC.search(function_name) else function_name
        category = next((value for pattern, value in _ROUTING_PATTERNS if pattern.search(searched)), None)
        if category == "moe" or (category and kind == "copy"):
            return category
    return CATEGORY_OF_KIND.get(kind)


@cache
def of_operator(mod: str, op: str) -> str | None:
    """Return the category of an operator, or of the backward of one; None if it has no formula or no category.

    >>> of_operator("torch.nn.functional", "linear"), of_operator("aten", "aten::convolution_backward")
    ('gemm', 'convolution')
    >>> of_operator("aten", "aten::bernoulli_.float"), of_operator("aten", "aten::empty_like")
    ('random', 'copy')
    """
    name = op.removeprefix(EVALUATE)
    if name.rpartition("::")[2].partition(".")[0].rstrip("_") in _RANDOM:
        return "random"
    if is_node(name):  # of autograd: ConvolutionBackward0 is of the family of aten::convolution
        mod, name = "aten", "aten::" + _BEFORE_CAPITAL.sub("_", name.partition("Backward")[0]).lower()
    family_name = family(Call(mod, name, ())) or family(Call(mod, name.partition("_backward")[0], ()))
    return CATEGORY_OF_FAMILY.get(family_name)
