# SPDX-License-Identifier: Apache-2.0
"""Names of kernels: demangling and shortening. Names of types."""

from __future__ import annotations

import re
from functools import cache


@cache
def demangle(name: str) -> str:
    """Return a C++ symbol in readable form; anything else, and any undecodable symbol, unchanged.

    >>> demangle("_ZN2at6native4reluEv"), demangle("volta_sgemm_128x64_nn")
    ('at::native::relu()', 'volta_sgemm_128x64_nn')
    """
    if not name.startswith("_Z"):
        return name
    try:
        import cxxfilt

        return str(cxxfilt.demangle(name))
    except Exception:
        return name


def short_name(name: str) -> str:
    """Return the kernel's function name without its namespaces of torch, template arguments and parameters.

    >>> short_name("void at::native::(anonymous namespace)::softmax_warp_forward<float, 8>(float*, int)")
    'softmax_warp_forward'
    >>> short_name("cudnn::gemm::computeOffsetsKernel(cudnn::gemm::ComputeOffsetsParams)")
    'cudnn::gemm::computeOffsetsKernel'
    """
    if re.match(r"^\w+::\w+$", name):
        return name  # an operator: aten::mm
    name = name.replace("(anonymous namespace)::", "").replace("<unnamed>::", "").split("<", 1)[0]
    for prefix in ("void ", "at::", "cuda::", "native::"):
        name = name.replace(prefix, "")
    return name.split("(", 1)[0]


# torch's C++ type names -> dtype names; others lose their namespace (c10::Float8_e4m3fn -> float8_e4m3fn).
DTYPES = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16",
    "long int": "int64", "long": "int64", "long long": "int64", "int": "int32", "short int": "int16", "short": "int16",
    "signed char": "int8", "unsigned char": "uint8", "bool": "bool", "unsigned short": "uint16",
    "short unsigned int": "uint16", "unsigned int": "uint32", "unsigned long": "uint64", "long unsigned int": "uint64",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128", "c10::complex<c10::Half>": "complex32",
}  # fmt: skip


def dtype_of(kind: str) -> str:
    """Return torch's name of a type in C++ spelling.

    >>> dtype_of("c10::Half"), dtype_of("long int"), dtype_of("c10::Float8_e4m3fn")
    ('float16', 'int64', 'float8_e4m3fn')
    """
    name = kind.removeprefix("c10::")
    return DTYPES.get(kind) or name[:1].lower() + name[1:]
