# SPDX-License-Identifier: Apache-2.0
"""Eligibility of a call for tensor cores, by its operator and its type: the one rule behind `tc_eligible` of an
estimate and `tcwhy` of a kernel. Capabilities of a GPU, settings of a run and alignment of sizes are in
`tensor_core_reasons.py`.

>>> half = Arg("", Tensor((4, 8), "float16"))
>>> eligible(Call("torch", "mm", (half, half))), eligible(Call("torch", "mv", (half, half)))
('yes', 'no')
"""

from __future__ import annotations

from functools import cache

from pyprof.core.model import DTYPE_BITS, Arg, Call, Tensor
from pyprof.costs.cost import find, tensors_of
from pyprof.costs.hardware.gpus import SINCE
from pyprof.costs.kernels import FITS, PRODUCTS
from pyprof.costs.params import dtype

# Operators of product families that multiply no two matrices: matrix times vector, and less.
_VECTORS = frozenset({"mv", "addmv", "dot", "vdot", "inner", "outer", "ger", "addr"})
_NAMES = {
    "half": "float16", "float": "float32", "double": "float64", "uint8": "int8", "qint8": "int8", "quint8": "int8",
}  # fmt: skip
# Types that tensor cores multiply instead of an unsupported one. Source: CUDA C++ Programming Guide, "Element
# Types and Matrix Sizes"; of complex numbers, cublasGemmEx with CUBLAS_COMPUTE_32F_FAST_TF32 and CUBLAS_COMPUTE_64F.
_INSTEAD = {"float32": "tf32", "complex64": "tf32", "complex128": "float64"}
_ANSWERS = {"tf32": "tf32", "float64": "fp64tc"}


def normal(name: str | None) -> str | None:
    """Return the name of a torch dtype as peaks use it.

    >>> normal("float8_e4m3fn"), normal("half"), normal("float4_e2m1fn_x2"), normal(None)
    ('float8', 'float16', 'float4', None)
    """
    if name is None:
        return None
    return _NAMES.get(name) or next((kind for kind in ("float8", "float4") if name.startswith(kind)), name)


def multiplied(name: str | None) -> str | None:
    """Return the type, of those in `gpus.SINCE`, in which tensor cores multiply operands of a type; None if they do
    not.

    >>> multiplied("float32"), multiplied("uint8"), multiplied("int64")
    ('tf32', 'int8', None)
    """
    plain = normal(name) or ""
    math = _INSTEAD.get(plain, plain)
    return math if math in SINCE else None


def with_vector(call: Call | None) -> bool:
    """Return whether the operator multiplies by a vector, whatever the sizes; torch.inner also takes matrices.

    >>> with_vector(Call("aten", "aten::addmv_")), with_vector(None)
    (True, False)
    >>> with_vector(Call("torch", "inner", (Arg("", Tensor((2, 8), None)), Arg("", Tensor((5, 8), None)))))
    False
    """
    name = "" if call is None else call.op.rpartition("::")[2].partition(".")[0].rstrip("_")
    if call is None or name not in _VECTORS:
        return False
    operands = [tensor for arg in call.args for tensor in tensors_of(arg.value)][:2]
    return name != "inner" or not operands or any(len(tensor.shape) < 2 for tensor in operands)


@cache
def eligible(call: Call) -> str | None:
    """Return yes, tf32 (where TF32 is allowed), fp64tc or no; None for an unknown operator or type."""
    match = find(call.mod, call.op)
    if match is None:
        return None
    kinds = FITS.get(match[0].family, frozenset())
    if not kinds or not kinds <= PRODUCTS or with_vector(call):
        return "no"
    if match[0].family == "contraction" and sum(len(tensors_of(arg.value)) for arg in call.args) < 2:
        return "no"  # one operand: a sum, or a view
    name = dtype(call)
    if name not in DTYPE_BITS:
        return None
    kind = multiplied(name)
    return "no" if kind is None else _ANSWERS.get(kind, "yes")


__all__ = ["Arg", "Tensor", "eligible", "multiplied", "normal", "with_vector"]
