# SPDX-License-Identifier: Apache-2.0
"""Contractions over any indices: einsum and tensordot. A fused multiply-add is 2 FLOPs."""

from __future__ import annotations

from math import prod

from pyprof.model import Cost, Tensor, Value
from pyprof.prof.cost import bytes_of, cost
from pyprof.prof.ops.gemm import product
from pyprof.prof.ops.shapes import as_int, require, tensors_in


@cost("einsum")
def einsum(equation: str, *operands: Value, path: Value = None) -> Cost:
    """Contraction of one or two operands: 2·(product of all index sizes) if an index is summed, else 1·.

    An index of one operand only is summed first, one addition per element. More operands: FLOPs depend on the order
    that torch picks and stay unknown. Source: torch.einsum.

    >>> einsum("bij,bjk->bik", Tensor((4, 2, 3), "float32"), Tensor((4, 3, 5), "float32"))
    Cost(flops=240, bytes=496)
    """
    parts = tensors_in(operands)
    terms, output, size = _indices(equation, [t.shape for t in parts])
    result = Tensor(tuple(size[i] for i in output), parts[0].dtype)
    moved = bytes_of(*parts, result)
    if len(parts) > 2:
        return Cost(None, moved)
    flops, left = 0, []
    for i, term in enumerate(terms):
        others = set(output).union(*(terms[:i] + terms[i + 1 :]))
        kept = [index for index in term if index in others]
        flops += prod(size[index] for index in set(term)) if len(kept) < len(set(term)) else 0
        left.append(set(kept))
    if len(parts) == 1:
        return Cost(flops, moved)
    shared = set.union(*left)
    contracted = shared - set(output)
    flops += (2 if contracted else 1) * prod(size[index] for index in shared)
    part = Cost(flops, moved)
    return Cost(flops, moved, dgrad=part, wgrad=part)


def _indices(
    equation: str, shapes: list[tuple[int, ...]]
) -> tuple[list[list[str]], list[str], dict[str, int]]:
    """The index names of each operand and of the output, and their sizes. "..." becomes numbered names."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    require(len(texts) == len(shapes), "as many terms as operands are expected")
    terms: list[list[str]] = []
    size: dict[str, int] = {}
    for text, shape in zip(texts, shapes):
        before, dots, after = text.partition("...")
        hidden = len(shape) - len(before) - len(after) if dots else 0
        term = [*before, *(f"...{hidden - i}" for i in range(hidden)), *after]
        require(hidden >= 0 and len(term) == len(shape), f"{text} does not fit {shape}")
        for name, n in zip(term, shape):
            require(n == size.get(name, n) or 1 in (n, size[name]), f"two sizes for {name}")
            size[name] = max(n, size.get(name, n)) if n else 0
        terms.append(term)
    every = [name for term in terms for name in term]
    dotted = sorted({name for name in every if name.startswith("...")}, reverse=True)
    if not arrow:
        return terms, dotted + sorted(n for n in set(every) if every.count(n) == 1 and n not in dotted), size
    before, dots, after = right.partition("...")
    output = [*before, *(dotted if dots else []), *after]
    require(set(output) <= set(every), "an index of the output is in no operand")
    return terms, output, size


@cost("tensordot")
def tensordot(a: Tensor, b: Tensor, dims: Value = 2, out: Value = None) -> Cost:
    """Contraction of the last `dims` dimensions of a with the first of b, or of two lists. Source: torch.tensordot.

    >>> tensordot(Tensor((2, 3, 4), "float32"), Tensor((3, 4, 5), "float32"))  # 2·2·5·12; (24 + 60 + 10)·4
    Cost(flops=240, bytes=376)
    """
    if isinstance(out, tuple) and not isinstance(
        out, Tensor
    ):  # the dispatcher gives the two lists by themselves
        dims = (dims, out)
    if isinstance(dims, tuple):
        first, second = (tuple(as_int(d) for d in side) for side in dims if isinstance(side, tuple))
    else:
        n = as_int(dims)
        require(0 <= n <= min(len(a.shape), len(b.shape)), "more dimensions than there are")
        first, second = tuple(range(len(a.shape) - n, len(a.shape))), tuple(range(n))
    inside_a = {d % len(a.shape) for d in first}
    inside_b = {d % len(b.shape) for d in second}
    k = prod(a.shape[d] for d in inside_a)
    require(k == prod(b.shape[d] for d in inside_b), "shapes do not fit")
    shape = [n for d, n in enumerate(a.shape) if d not in inside_a] + [
        n for d, n in enumerate(b.shape) if d not in inside_b
    ]
    output = Tensor(tuple(shape), a.dtype)
    return product(2 * output.numel * k, a, b, output)
