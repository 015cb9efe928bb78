# SPDX-License-Identifier: Apache-2.0
"""Matrix products: linear, matmul, addmm, bmm.

FLOPs count a fused multiply-add as 2; bytes count each operand once, as if caches were perfect.
Add an operator: one function here, decorated with the names torch gives it.

>>> linear(Tensor((64, 1024), "float16"), Tensor((4096, 1024), "float16"))
Cost(flops=536870912, bytes=9043968)
"""

from __future__ import annotations

from pyprof.model import Cost, Tensor
from pyprof.prof.cost import bytes_of, cost


@cost("linear")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Cost:
    """y = x Wᵀ + b, with x (*, K), W (N, K), b (N); bias adds are not counted. Source: torch.nn.functional.linear.

    >>> linear(Tensor((2, 3, 8), "float16"), Tensor((5, 8), "float16"), Tensor((5,), "float16"))
    Cost(flops=480, bytes=246)
    """
    n, k = weight.shape
    m = input.numel // k  # all leading dimensions fold into M
    output = Tensor((m, n), input.dtype)
    product = Cost(2 * m * n * k, bytes_of(input, weight, output))
    bgrad = None if bias is None else Cost(m * n, bytes_of(output, bias))
    return Cost(2 * m * n * k, bytes_of(input, weight, bias, output), dgrad=product, wgrad=product, bgrad=bgrad)
