# SPDX-License-Identifier: Apache-2.0
"""Other kinds of pooling: power-average, fractional, unpooling, local response.

>>> lp_pool(Tensor((1, 4, 8, 8), "float32"), 2.0, 2)  # 64 results: 4 powers, 4 additions, a root; (256 + 64)·4
Cost(flops=576, bytes=1280)
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost, formulas
from pyprof.costs.ops.pooling import pooled
from pyprof.costs.ops.shapes import as_int, ints, like, require, sizes


def _lp(n: int) -> Callable[..., Cost]:
    def lp_pool_(
        input: Tensor, norm_type: Value, kernel_size: Value, stride: Value = None, ceil_mode: Value = False
    ) -> Cost:
        average = formulas()[f"avg_pool{n}d"].function(input, kernel_size, stride, 0, ceil_mode)
        assert average.flops is not None
        results = pooled(n, input, kernel_size, stride, ceil_mode).numel
        dgrad = Cost(3 * average.flops, average.bytes)
        return Cost(2 * average.flops + results, average.bytes, dgrad=dgrad)

    return lp_pool_


for _n in (1, 2, 3):
    cost(f"lp_pool{_n}d")(_lp(_n))
lp_pool = _lp(2)


def _fractional(input: Tensor, kernel: Value, output_size: Value, n: int, indices: bool) -> Cost:
    """Return the cost of windows at random positions: one comparison per element of a window."""
    out = ints(output_size, n)
    output = Tensor((*input.shape[:-n], *out), input.dtype)
    where = Tensor(output.shape, "int64")
    dgrad = Cost(output.numel, bytes_of(output, where, like(input)))
    results = [output, where] if indices else [output]
    return Cost(output.numel * prod(ints(kernel, n)), bytes_of(input, *results), dgrad=dgrad)


def _fractional_user(n: int, with_indices: bool) -> Callable[..., Cost]:
    def fractional(
        input: Tensor, kernel_size: Value, output_size: Value = None, output_ratio: Value = None,
        return_indices: Value = False, _random_samples: Value = None,
    ) -> Cost:  # fmt: skip
        if output_size is None:
            ratios = output_ratio if isinstance(output_ratio, tuple) else (output_ratio,) * n
            numbers = [r for r in ratios if isinstance(r, float)]
            require(len(numbers) == n, "a size or a ratio is expected")
            output_size = tuple(int(size * r) for size, r in zip(input.shape[-n:], numbers))
        return _fractional(input, kernel_size, output_size, n, with_indices or return_indices is True)

    return fractional


def _fractional_aten(n: int) -> Callable[..., Cost]:
    def fractional(input: Tensor, kernel_size: Value, output_size: Value, random_samples: Value = None) -> Cost:
        plain = _fractional(input, kernel_size, output_size, n, True)
        samples = bytes_of(random_samples if isinstance(random_samples, Tensor) else None)
        return plain._replace(bytes=None if plain.bytes is None or samples is None else plain.bytes + samples)

    return fractional


def _fractional_backward(n: int) -> Callable[..., Cost]:
    def fractional_backward(
        grad_output: Tensor, input: Tensor, kernel_size: Value, output_size: Value, indices: Tensor
    ) -> Cost:
        return Cost(grad_output.numel, bytes_of(grad_output, indices, like(input)))

    return fractional_backward


def _unpool(input: Tensor, indices: Tensor, output: Tensor) -> Cost:
    back = Cost(0, bytes_of(like(input), indices, like(input)))
    return Cost(0, bytes_of(input, indices, output), dgrad=back)


def _max_unpool(n: int) -> Callable[..., Cost]:
    def max_unpool(
        input: Tensor, indices: Tensor, kernel_size: Value, stride: Value = None, padding: Value = 0,
        output_size: Value = None,
    ) -> Cost:  # fmt: skip
        """Values scattered into zeros at their indices. Source: torch.nn.functional.max_unpool2d."""
        window, border = ints(kernel_size, n), ints(padding, n, 0)
        step = window if stride in (None, ()) else ints(stride, n)
        if output_size is None:
            image = tuple((s - 1) * t - 2 * p + k for s, t, p, k in zip(input.shape[-n:], step, border, window))
        else:
            image = sizes((output_size,))[-n:]
        return _unpool(input, indices, Tensor((*input.shape[:-n], *image), input.dtype))

    return max_unpool


def _max_unpool_aten(n: int) -> Callable[..., Cost]:
    def max_unpool(input: Tensor, indices: Tensor, output_size: Value, *parameters: Value) -> Cost:
        """Source: aten::max_unpool2d."""
        image = ints(output_size, n)
        return _unpool(input, indices, Tensor((*input.shape[:-n], *image), input.dtype))

    return max_unpool


for _n in (2, 3):
    cost(f"torch.nn.functional.fractional_max_pool{_n}d")(_fractional_user(_n, False))
    cost(f"fractional_max_pool{_n}d_with_indices")(_fractional_user(_n, True))
    cost(f"fractional_max_pool{_n}d")(_fractional_aten(_n))
    cost(f"fractional_max_pool{_n}d_backward")(_fractional_backward(_n))
    cost(f"aten::max_unpool{_n}d")(_max_unpool_aten(_n))
for _n in (1, 2, 3):
    cost(f"max_unpool{_n}d")(_max_unpool(_n))


@cost("local_response_norm")
def local_response_norm(input: Tensor, size: Value, alpha: Value = 1e-4, beta: Value = 0.75, k: Value = 1.0) -> Cost:
    """x / (k + α·mean of size squares)^β: square, size additions, scale, add, power, divide.

    Source: torch.nn.functional.local_response_norm.

    >>> local_response_norm(Tensor((1, 4, 2, 2), "float32"), 3)  # 16·(5 + 3)
    Cost(flops=128, bytes=128)
    """
    per_element = 5 + as_int(size)
    dgrad = Cost(2 * per_element * input.numel, bytes_of(like(input), input, like(input)))
    return Cost(per_element * input.numel, bytes_of(input, like(input)), dgrad=dgrad)
