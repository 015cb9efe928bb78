# SPDX-License-Identifier: Apache-2.0
"""Pooling: as many FLOPs per result as its window has elements (comparisons, or additions and the division). A window
that extends beyond the input and its padding is cut off.

Bytes: input, result, and the indices (int64) where an operator returns them. The backward, in dgrad, adds every
gradient to the element it came from (max) or to its window (average); it reads the gradient (and for max the indices)
and writes a gradient as large as the input.

>>> max_pool(Tensor((1, 4, 8, 8), "float32"), 2)  # 64 results of 4; (256 + 64)·4
Cost(flops=256, bytes=1280)
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.shapes import Shape, as_int, ints, like, require


def _sizes(
    n: int, input: Tensor, kernel: Value, stride: Value, padding: Value, dilation: Value, ceil_mode: Value
) -> tuple[Tensor, int]:
    """Return the result, and the number of elements of all windows together: a window ends where the padded input ends.

    Source: torch.nn.MaxPool2d, torch.nn.AvgPool2d.
    """
    window = ints(kernel, n)
    step = window if stride is None or stride == () else ints(stride, n)
    border, spread = ints(padding, n, 0), ints(dilation, n, 1)
    require(len(input.shape) in (n + 1, n + 2) and min((*window, *step, *spread)) > 0, "sizes do not fit")
    out, seen = [], prod(input.shape[:-n])
    for size, r, s, p, d in zip(input.shape[-n:], window, step, border, spread):
        room = size + 2 * p - d * (r - 1) - 1
        whole = room // s + 1 if room >= 0 else 0  # windows that fit
        count = (-(-room // s) if ceil_mode else room // s) + 1
        if ceil_mode and (count - 1) * s >= size + p:
            count -= 1  # a window must start inside the input or its left padding
        require(0 < count < whole + 10**6, "no window fits")
        seen *= whole * r + sum(-(-(size + 2 * p - i * s) // d) for i in range(whole, count))
        out.append(count)
    return Tensor((*input.shape[:-n], *out), input.dtype), seen


def pooled(n: int, input: Tensor, kernel: Value, stride: Value, ceil_mode: Value) -> Tensor:
    """Return the result of pooling without padding."""
    return _sizes(n, input, kernel, stride, 0, 1, ceil_mode)[0]


def _max(n: int, input: Tensor, indices: bool, *settings: Value) -> Cost:
    output, seen = _sizes(n, input, *settings)
    where = Tensor(output.shape, "int64")
    dgrad = _max_pool_backward(output, input)
    return Cost(seen, bytes_of(input, output, *([where] if indices else [])), dgrad=dgrad)


def _max_pool(n: int) -> Callable[..., Cost]:
    def max_pool(
        input: Tensor, kernel_size: Value, stride: Value = None, padding: Value = 0, dilation: Value = 1,
        ceil_mode: Value = False, return_indices: Value = False,
    ) -> Cost:  # fmt: skip
        return _max(n, input, return_indices is True, kernel_size, stride, padding, dilation, ceil_mode)

    return max_pool


def _max_pool_with_indices(n: int) -> Callable[..., Cost]:
    def max_pool_with_indices(
        input: Tensor, kernel_size: Value, stride: Value = None, padding: Value = 0, dilation: Value = 1,
        ceil_mode: Value = False, return_indices: Value = True,
    ) -> Cost:  # fmt: skip
        return _max(n, input, True, kernel_size, stride, padding, dilation, ceil_mode)

    return max_pool_with_indices


def _max_pool_backward(grad_output: Tensor, input: Tensor, *settings: Value) -> Cost:
    """Reads gradient and indices. Source: aten::max_pool2d_with_indices_backward."""
    indices = Tensor(grad_output.shape, "int64")
    return Cost(grad_output.numel, bytes_of(grad_output, indices, like(input)))


def _avg_pool(n: int) -> Callable[..., Cost]:
    def avg_pool(
        input: Tensor, kernel_size: Value, stride: Value = None, padding: Value = 0, ceil_mode: Value = False,
        count_include_pad: Value = True, divisor_override: Value = None,
    ) -> Cost:  # fmt: skip
        output, seen = _sizes(n, input, kernel_size, stride, padding, 1, ceil_mode)
        dgrad = Cost(seen, bytes_of(output, like(input)))
        return Cost(seen, bytes_of(input, output), dgrad=dgrad)

    return avg_pool


def _avg_pool_backward(n: int) -> Callable[..., Cost]:
    def avg_pool_backward(
        grad_output: Tensor, input: Tensor, kernel_size: Value, stride: Value = None, padding: Value = 0,
        ceil_mode: Value = False, *settings: Value,
    ) -> Cost:  # fmt: skip
        output, seen = _sizes(n, input, kernel_size, stride, padding, 1, ceil_mode)
        require(output.numel == grad_output.numel, "the gradient does not fit")
        return Cost(seen, bytes_of(grad_output, like(input)))

    return avg_pool_backward


def _adaptive_sizes(n: int, input: Tensor, output_size: Value) -> tuple[Tensor, int]:
    """Return the result, and the number of elements of all windows together: from floor(i·in/out) to ceil((i +
    1)·in/out)."""
    requested = output_size if isinstance(output_size, tuple) else (output_size,) * n
    require(len(requested) == n and len(input.shape) in (n + 1, n + 2), "sizes do not fit")
    seen, shape = prod(input.shape[:-n]), list(input.shape[:-n])
    for size, target in zip(input.shape[-n:], requested):
        count = size if target is None else as_int(target)
        require(count > 0, "an empty result")
        if size % count == 0:
            seen *= size
        else:
            require(count < 10**6, "too many windows")
            seen *= sum(-(-(i + 1) * size // count) - i * size // count for i in range(count))
        shape.append(count)
    return Tensor(tuple(shape), input.dtype), seen


def _adaptive_avg_pool(n: int) -> Callable[..., Cost]:
    def adaptive_avg_pool(input: Tensor, output_size: Value) -> Cost:
        output, seen = _adaptive_sizes(n, input, output_size)
        return Cost(seen, bytes_of(input, output), dgrad=Cost(seen, bytes_of(output, like(input))))

    return adaptive_avg_pool


def _adaptive_avg_pool_backward(n: int) -> Callable[..., Cost]:
    def adaptive_avg_pool_backward(grad_output: Tensor, input: Tensor) -> Cost:
        _, seen = _adaptive_sizes(n, input, grad_output.shape[-n:])
        return Cost(seen, bytes_of(grad_output, like(input)))

    return adaptive_avg_pool_backward


def _adaptive_max_pool(n: int) -> Callable[..., Cost]:
    def adaptive_max_pool(input: Tensor, output_size: Value, return_indices: Value = False) -> Cost:
        output, seen = _adaptive_sizes(n, input, output_size)
        indices = [Tensor(output.shape, "int64")] if return_indices is True else []
        return Cost(seen, bytes_of(input, output, *indices), dgrad=_max_pool_backward(output, input))

    return adaptive_max_pool


def _adaptive_max_pool_with_indices(n: int) -> Callable[..., Cost]:
    def adaptive_max_pool_with_indices(input: Tensor, output_size: Value, return_indices: Value = True) -> Cost:
        return _adaptive_max_pool(n)(input, output_size, True)

    return adaptive_max_pool_with_indices


def _max_pool_backward_searched(grad_output: Tensor, input: Tensor, *settings: Value) -> Cost:
    """Without indices the input is searched again. Source: aten::max_pool2d_backward."""
    return Cost(grad_output.numel, bytes_of(grad_output, input, like(input)))


def _mkldnn_max_pool_backward(grad_output: Tensor, output: Tensor, input: Tensor, *settings: Value) -> Cost:
    """Source: aten::mkldnn_max_pool2d_backward; its workspace is not counted."""
    return Cost(grad_output.numel, bytes_of(grad_output, output, input, like(input)))


def _register(n: int) -> None:
    """Register all names for n dimensions. Source: torch.nn.functional and native_functions.yaml."""
    d: Shape | str = f"{n}d"
    cost(f"max_pool{d}", f"mkldnn_max_pool{d}", f"quantized_max_pool{d}")(_max_pool(n))
    cost(f"max_pool{d}_with_indices")(_max_pool_with_indices(n))
    cost(f"max_pool{d}_with_indices_backward", f"adaptive_max_pool{d}_backward")(_max_pool_backward)
    cost(f"max_pool{d}_backward")(_max_pool_backward_searched)
    cost(f"mkldnn_max_pool{d}_backward")(_mkldnn_max_pool_backward)
    cost(f"avg_pool{d}")(_avg_pool(n))
    cost(f"avg_pool{d}_backward")(_avg_pool_backward(n))
    cost(f"adaptive_avg_pool{d}", f"_adaptive_avg_pool{d}", f"mkldnn_adaptive_avg_pool{d}")(_adaptive_avg_pool(n))
    cost(f"_adaptive_avg_pool{d}_backward", f"adaptive_avg_pool{d}_backward", f"mkldnn_adaptive_avg_pool{d}_backward")(
        _adaptive_avg_pool_backward(n)
    )
    cost(f"adaptive_max_pool{d}")(_adaptive_max_pool(n))
    cost(f"adaptive_max_pool{d}_with_indices", f"aten::adaptive_max_pool{d}")(_adaptive_max_pool_with_indices(n))


for _n in (1, 2, 3):
    _register(_n)
max_pool = _max_pool(2)
