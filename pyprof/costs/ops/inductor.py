# SPDX-License-Identifier: Apache-2.0
"""Kernels that torch's Inductor generates with Triton, by the operators that their names list.

A name, `triton_poi_fused_add_gelu_3`, has each fused operator once, whatever its number, and the recording ends in the
sizes of the loops: one for pointwise kernels (`poi`), rows and columns for reductions (`red`, `per`). Each operator is
counted once per element of these loops, at the FLOPs per element that it has by itself; one that is listed for its
origin (a product whose bias is added here) counts nothing. That is approximate: an operator may occur twice, or work on
fewer elements than the loops have.

Bytes: every tensor argument once; one that is read and overwritten also counts once. A kernel that takes indices beside
other tensors and is named for an operator that uses them (embedding, index, gather), or for none, may read a small part
of a tensor: of each, at most as many elements as the loops have count, and without the loops the bytes are unknown.

User-defined kernels that Inductor calls have their own name and a number.

>>> from pyprof.costs.ops.inductor import listed
>>> listed("triton_red_fused__to_copy_add_native_layer_norm_5")
['_to_copy', 'add', 'native_layer_norm']
>>> listed("triton_poi_fused_add_gelu_truncat_0")  # what is cut off is unknown
"""

from __future__ import annotations

import re
from functools import cache
from math import prod

from pyprof.core.model import Arg, Call, Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost, find, formulas, lookup
from pyprof.costs.ops.attention import attend
from pyprof.costs.ops.shapes import require
from pyprof.costs.reasons import selects

_NAME = re.compile(r"triton_(?:poi|red|per)_fused_(\w+)_\d+$")
_ELEMENTS = 1 << 12  # of the tensor by which the FLOPs per element are looked up
# Families whose operators do arithmetic on the elements of a loop. Others (products) are named for their origin.
_LOOPS = frozenset(["activation", "cast", "dropout", "loss", "norm", "pointwise", "reduction", "softmax", "special"])
_BY_INDEX = frozenset(["embedding", "indexing", "loss"])  # families whose operators take indices


@cache
def _words() -> frozenset[str]:
    """Return the names of operators without their namespaces."""
    return frozenset(name.rpartition("::")[2].rpartition(".")[2] for name in formulas())


def listed(name: str) -> list[str] | None:
    """Return the operators in a kernel's name; None if a part of it is not an operator's name."""
    match = _NAME.match(name)
    return _split(match[1]) if match else None


def _split(text: str) -> list[str] | None:
    """Cut a text into operators' names, the longest first: names contain the underscores that separate them."""
    words, out, at = _words(), [], 0
    while at < len(text):
        ends = [i for i in range(at + 1, len(text) + 1) if i == len(text) or text[i] == "_"]
        end = next((i for i in reversed(ends) if text[at:i] in words), None)
        if end is None:
            return None
        out.append(text[at:end])
        at = end + 1
    return out


@cache
def per_element(name: str) -> int | None:
    """Return the FLOPs per element of an operator by itself, 0 for one that is named for its origin; None if unknown.

    >>> [per_element(name) for name in ("add", "gelu", "native_layer_norm", "view", "addmm", "no_such")]
    [1, 5, 6, 0, 0, None]
    """
    match = find("aten", f"aten::{name}")
    if match is None:
        return 0 if name in _words() else None
    if match[0].family not in _LOOPS:
        return 0
    operand = Arg("", Tensor((_ELEMENTS,), "float32"))
    size = Arg("", (_ELEMENTS,))
    for operands in (
        (),
        (operand,),
        (Arg("", 2),),
        (operand, operand),
        (Arg("", 0), Arg("", False)),
        (size,),
        (size, Arg("", None)),
    ):
        flops = lookup(Call("aten", f"aten::{name}", (operand, *operands))).flops
        if flops is not None:
            return round(flops / _ELEMENTS)
    return None


@cost("triton_poi_fused", "triton_red_fused", "triton_per_fused")
def fused(*args: Value, kernel_name: str) -> Cost:
    """Source: torch/_inductor/codegen/triton.py, codegen/common.py.

    >>> x = Tensor((4, 8), "float16")
    >>> fused(x, x, 32, kernel_name="triton_poi_fused_add_gelu_3")  # (1 + 5)·32; each tensor once
    Cost(flops=192, bytes=128)
    >>> fused(x, x, 4, 8, kernel_name="triton_per_fused_native_layer_norm_0").flops
    192
    >>> fused(x, kernel_name="triton_poi_fused_add_1")  # no size of a loop
    Cost(flops=None, bytes=64)
    >>> rows, table = Tensor((4,), "int64"), Tensor((1000, 8), "float16")
    >>> fused(rows, table, x, 32, kernel_name="triton_poi_fused_embedding_0")  # 4·8 + 32·2 of 16,000 + 32·2
    Cost(flops=0, bytes=160)
    >>> fused(rows, table, x, kernel_name="triton_poi_fused_0").bytes
    """
    tensors = [value for value in args if isinstance(value, Tensor)]
    numbers = [value for value in args if type(value) is int]
    require(bool(tensors), "a kernel has tensors")
    operators = listed(kernel_name) or []
    counts = [per_element(operator) for operator in operators or [""]]
    loops = 1 if kernel_name.startswith("triton_poi") else 2
    flops = None
    # With more numbers some are sizes that vary from call to call: which, the recording does not say.
    if len(numbers) == loops and None not in counts:
        flops = sum(count for count in counts if count is not None) * prod(numbers)
    if selects("", tensors) and (not operators or any(map(_uses_indices, operators))):
        if len(numbers) != loops:
            return Cost(flops, None, basis="default" if flops is None else "approximate")
        tensors = [Tensor((min(tensor.numel, prod(numbers)),), tensor.dtype) for tensor in tensors]
    return Cost(flops, bytes_of(*tensors), basis="default" if flops is None else "approximate")


def _uses_indices(operator: str) -> bool:
    match = find("aten", f"aten::{operator}")
    return match is not None and match[0].family in _BY_INDEX


@cost("triton::sage_fwd")
def sage_attention(query: Tensor, key: Tensor, value: Tensor, *parameters: Value) -> Cost:
    """SageAttention of AITER as Inductor calls it: operands (B, H, S, D) of 8 bits, their scales, and the result among
    the remaining arguments. A mask would be a constant of the kernel, which is not recorded. Source: ROCm/aiter,
    ops/triton/attention; a MI300X trace.

    >>> q, scale = Tensor((1, 2, 4, 8), "int8"), Tensor((1, 2, 1), "float32")
    >>> sage_attention(q, q, q, -1, scale, scale, scale, Tensor((1, 2, 4, 8), "bfloat16"))  # 2·2·16·16; 192 + 24 + 128
    Cost(flops=1024, bytes=344)
    """
    plain = attend(query, key, value)
    tensors = [tensor for tensor in parameters if isinstance(tensor, Tensor)]
    return Cost(plain.flops, bytes_of(query, key, value, *tensors), basis="approximate")
