# SPDX-License-Identifier: Apache-2.0
"""Names of kernels: mangled symbols to readable ones, and those to short ones."""

from __future__ import annotations

import re
from functools import cache


@cache
def demangle(name: str) -> str:
    """A C++ symbol in readable form; anything else, and any symbol nobody can read, as it is.

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
    """The kernel's function name without its namespaces of torch, template arguments and parameters.

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
