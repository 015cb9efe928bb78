# SPDX-License-Identifier: Apache-2.0
"""Contractions over any indices: einsum and tensordot. A fused multiply-add is 2 FLOPs."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from pyprof.core.model import Cost, Other, Tensor, Value
from pyprof.costs.complexes import is_complex
from pyprof.costs.cost import VIEW, bytes_of, cost
from pyprof.costs.ops.gemm import product
from pyprof.costs.ops.shapes import as_int, require, tensors_in


class Counts(NamedTuple):
    """Real operations of a product, a sum, and both."""

    multiply: int
    add: int
    multiply_add: int


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
REAL, COMPLEX = Counts(1, 1, 2), Counts(6, 2, 8)


@cost("einsum")
def einsum(equation: Value, *operands: Value, path: Value = None) -> Cost:
    """Contraction, two operands at a time: 2·(product of all index sizes) if an index is summed, otherwise 1·.

    An index of one operand only is summed first, one addition per element. Three operands or more are contracted along
    the recorded path (the dispatcher's argument: pairs of positions, each result goes to the end), otherwise from left
    to right, as torch does without opt_einsum; intermediate results are not counted as moved. The gradients of two
    operands are such contractions too; those of more are unknown. One operand whose indices change their order, or
    occur twice (a diagonal), is a view. Source: torch.einsum; Linear.cpp.

    >>> t = lambda *shape: Tensor(shape, "float32")
    >>> einsum("bij,bjk->bik", t(4, 2, 3), t(4, 3, 5))
    Cost(flops=240, bytes=496)
    >>> einsum("i,j->ij", t(4), t(3)), einsum("i,j->ij", t(4), t(3)).dgrad  # 12 products; the gradient sums over j
    (Cost(flops=12, bytes=76), Cost(flops=24, bytes=76))
    >>> einsum("ij,jk,kl->il", t(2, 3), t(3, 4), t(4, 5))  # (ij,jk) 2·24, (ik,kl) 2·40; (6 + 12 + 20 + 10)·4
    Cost(flops=128, bytes=192)
    >>> einsum("ij,jk,kl->il", t(2, 3), t(3, 4), t(4, 5), path=(1, 2, 0, 1)).flops  # (jk,kl) 2·60, (ij,jl) 2·30
    180
    >>> einsum(t(2, 3), (0, 1), t(3, 4), (1, 2), (0, 2)) == einsum("ab,bc->ac", t(2, 3), t(3, 4))
    True
    >>> einsum("ij->ji", t(2, 3)).basis, einsum("ij->i", t(2, 3))
    ('view', Cost(flops=6, bytes=32))
    """
    if isinstance(equation, Tensor):  # einsum(a, [0, 1], b, [1, 2], [0, 2])
        equation, operands = _from_lists((equation, *operands))
    parts = tensors_in(operands)
    terms, output, size = _indices(str(equation), [t.shape for t in parts])
    return _contraction(terms, output, size, parts, (*operands, path))


def _contraction(
    terms: list[list[str]],
    output: list[str],
    size: dict[str, int],
    parts: list[Tensor],
    paths: tuple[Value, ...],
) -> Cost:
    """Return the cost of a contraction with named indices. `paths` holds the dispatcher's path, if there is one."""
    result = Tensor(tuple(size[i] for i in output), parts[0].dtype)
    moved = bytes_of(*parts, result)
    left = [set(term) for term in terms]
    counts = COMPLEX if any(map(is_complex, parts)) else REAL
    if len(left) == 1:
        flops = _pair(left[0], set(), set(output), size, counts)[0]
        if not flops:  # indices in another order, or a diagonal
            return VIEW._replace(dgrad=VIEW)
        return Cost(flops, moved)
    if len(left) == 2:
        flops, _ = _pair(left[0], left[1], set(output), size, counts)
        back = (_pair(set(output), left[1 - i], left[i], size, counts)[0] for i in range(2))
        dgrad, wgrad = (Cost(first, moved) for first in back)
        return Cost(flops, moved, dgrad=dgrad, wgrad=wgrad)
    path = next((value for value in paths if _is_path(value, len(parts))), ())
    order = [as_int(i) for i in path] if isinstance(path, tuple) else []
    total = 0
    while len(left) > 1:
        i, j = (order.pop(0), order.pop(0)) if order else (0, 1)
        require(i != j and max(i, j) < len(left) and min(i, j) >= 0, "the path does not fit")
        first, second = left[i], left[j]
        remaining = [term for at, term in enumerate(left) if at not in (i, j)]
        flops, indices = _pair(first, second, set(output).union(*remaining), size, counts)
        total += flops
        left = [*remaining, indices] if path else [indices, *remaining]
    return Cost(total, moved)


def _from_lists(arguments: tuple[Value, ...]) -> tuple[str, tuple[Value, ...]]:
    """Convert the form with a list of numbers after each operand to an equation: 0 is A, 26 is a. Source:
    torch.functional.

    >>> _from_lists((Tensor((2, 3), None), (0, 26), Tensor((3,), None), (26,)))[0]
    'Aa,a'
    """

    def text(indices: Value) -> str:
        require(
            isinstance(indices, tuple) and not isinstance(indices, (Tensor, Other)),
            "a list of indices is expected",
        )
        assert isinstance(indices, tuple)
        return "".join("..." if isinstance(i, Other) else _LETTERS[as_int(i)] for i in indices)

    terms = ",".join(text(indices) for indices in arguments[1::2])
    return (f"{terms}->{text(arguments[-1])}" if len(arguments) % 2 else terms), arguments[
        : len(arguments) // 2 * 2 : 2
    ]


def _is_path(value: Value, operands: int) -> bool:
    """Return whether an argument is the dispatcher's path: two positions per contraction."""
    return isinstance(value, tuple) and len(value) == 2 * (operands - 1) and all(type(i) is int for i in value)


def _pair(
    first: set[str], second: set[str], requested: set[str], size: dict[str, int], counts: Counts
) -> tuple[int, set[str]]:
    """Return the FLOPs of the contraction of two operands to the requested indices, and the remaining indices."""
    flops, left = 0, []
    for term, other in ((first, second), (second, first)):
        indices = {index for index in term if index in requested or index in other}
        flops += counts.add * prod(size[index] for index in term) if indices != term else 0
        left.append(indices)
    shared = left[0] | left[1]
    if second:
        flops += (counts.multiply_add if shared - requested else counts.multiply) * prod(
            size[index] for index in shared
        )
    return flops, shared & requested


def _indices(equation: str, shapes: list[tuple[int, ...]]) -> tuple[list[list[str]], list[str], dict[str, int]]:
    """Return the index names of each operand and of the output, and their sizes. "..." becomes numbered names."""
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
    if isinstance(out, tuple) and not isinstance(out, Tensor):  # the dispatcher gives the two lists by themselves
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
    pairs = [(a.shape[x], b.shape[y]) for x, y in zip(first, second, strict=True)]
    require(all(m == n for m, n in pairs), "shapes do not fit")
    shape = [n for d, n in enumerate(a.shape) if d not in inside_a] + [
        n for d, n in enumerate(b.shape) if d not in inside_b
    ]
    output = Tensor(tuple(shape), a.dtype)
    return product(2 * output.numel * k, a, b, output)
