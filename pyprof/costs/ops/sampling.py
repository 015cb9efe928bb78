# SPDX-License-Identifier: Apache-2.0
"""Images sampled at given positions: grid_sample, affine grids, unfolding into columns and back, antialiased resizing.

Per result element: nearest 0, bilinear 7 (a weighted sum of 4), trilinear 15 (of 8), bicubic 35 (5 weighted sums of 4).
Per point of the grid: 2 per dimension for the pixel's position, and the weights of the corners (differences and their
products), 8 in two dimensions, 22 in three; 40 bicubic. The whole input counts as read once.

>>> grid_sample(Tensor((1, 3, 8, 8), "float32"), Tensor((1, 4, 4, 2), "float32"))  # 48·7 + 16·(4 + 8)
Cost(flops=528, bytes=1088)
"""

from __future__ import annotations

from math import prod

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.shapes import backward_sum, ints, like, require, sizes

# Interpolation by name and number: products and additions per element, FLOPs of weights per point, 2-D and 3-D.
# Source: aten/src/ATen/native/GridSampler.cpp.
MODES: dict[Value, str] = {0: "bilinear", 1: "nearest", 2: "bicubic"}


def _counts(mode: Value, dims: int) -> tuple[int, int]:
    """Return the FLOPs per element of the result, and per point in addition to the 2 per dimension that find the pixel.

    >>> _counts("bilinear", 2), _counts("bilinear", 3), _counts(1, 2), _counts("bicubic", 2)
    ((7, 8), (15, 22), (0, 2), (35, 40))
    """
    name = MODES.get(mode, mode) if not isinstance(mode, bool) else mode
    require(name in ("bilinear", "nearest", "bicubic"), f"no mode {mode!r}")
    if name == "nearest":
        return 0, dims  # rounding
    if name == "bicubic":
        return 35, 40  # 5 weighted sums of 4; 2·4 weights of 5
    corners = 2**dims
    return 2 * corners - 1, 2 * dims + corners * (dims - 1)


@cost("grid_sample", "grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "cudnn_grid_sampler",
      "_grid_sampler_2d_cpu_fallback")  # fmt: skip
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: Value = "bilinear",
    padding_mode: Value = "zeros",
    align_corners: Value = None,
) -> Cost:
    """Input (N, C, H, W), grid (N, P, Q, 2). The backward does about twice the work. Source: F.grid_sample.

    >>> grid_sample(Tensor((1, 3, 8, 8), "float32"), Tensor((1, 4, 4, 2), "float32"), "nearest")  # 16·(4 + 2)
    Cost(flops=96, bytes=1088)
    """
    d = len(input.shape) - 2
    require(d in (2, 3) and len(grid.shape) == d + 2 and grid.shape[-1] == d, "shapes do not fit")
    points = prod(grid.shape[:-1])
    output = Tensor((*input.shape[:2], *grid.shape[1:-1]), input.dtype)
    per_element, weights = _counts(mode, d)
    flops = per_element * output.numel + (2 * d + weights) * points
    dgrad = Cost(2 * flops, bytes_of(output, input, grid, like(input), like(grid)))
    return Cost(flops, bytes_of(input, grid, output), dgrad=dgrad)


@cost("grid_sampler_2d_backward", "grid_sampler_3d_backward", "_grid_sampler_2d_cpu_fallback_backward")
def grid_sampler_backward(
    grad_output: Tensor, input: Tensor, grid: Tensor, mode: Value = 0, *parameters: Value
) -> Cost:
    """Gradients of input and grid. Source: aten::grid_sampler_2d_backward.

    >>> x, g = Tensor((1, 3, 8, 8), "float32"), Tensor((1, 4, 4, 2), "float32")
    >>> grid_sampler_backward(Tensor((1, 3, 4, 4), "float32"), x, g, 0, 0, False, (True, True))
    Cost(flops=1056, bytes=1984)
    """
    return backward_sum(grid_sample(input, grid, mode).dgrad)


@cost("cudnn_grid_sampler_backward")
def cudnn_grid_sampler_backward(input: Tensor, grid: Tensor, grad_output: Tensor) -> Cost:
    """Source: aten::cudnn_grid_sampler_backward.

    >>> x, g = Tensor((1, 3, 8, 8), "float32"), Tensor((1, 4, 4, 2), "float32")
    >>> cudnn_grid_sampler_backward(x, g, Tensor((1, 3, 4, 4), "float32"))
    Cost(flops=1056, bytes=1984)
    """
    return grid_sampler_backward(grad_output, input, grid)


@cost("affine_grid", "affine_grid_generator")
def affine_grid(theta: Tensor, size: Value, align_corners: Value = None) -> Cost:
    """theta (N, d, d + 1) times every homogeneous point: a product of matrices. Source: F.affine_grid.

    >>> affine_grid(Tensor((2, 2, 3), "float32"), (2, 3, 4, 5))  # 2·2·20·2·3; 12·4 + 80·4
    Cost(flops=480, bytes=368)
    """
    n, d, columns = theta.shape
    shape = sizes((size,))
    require(columns == d + 1 and len(shape) == d + 2 and shape[0] == n, "shapes do not fit")
    grid = Tensor((n, *shape[2:], d), theta.dtype)
    flops = 2 * grid.numel * (d + 1)
    return Cost(flops, bytes_of(theta, grid), dgrad=Cost(flops, bytes_of(grid, like(theta))))


@cost("affine_grid_generator_backward")
def affine_grid_backward(grad: Tensor, size: Value, align_corners: Value = None) -> Cost:
    """Source: aten::affine_grid_generator_backward.

    >>> affine_grid_backward(Tensor((2, 4, 5, 2), "float32"), (2, 3, 4, 5), False)
    Cost(flops=480, bytes=368)
    """
    n, d = grad.shape[0], grad.shape[-1]
    return Cost(2 * grad.numel * (d + 1), bytes_of(grad, Tensor((n, d, d + 1), grad.dtype)))


@cost("cudnn_affine_grid_generator")
def cudnn_affine_grid(theta: Tensor, N: Value, C: Value, H: Value, W: Value) -> Cost:
    """Source: aten::cudnn_affine_grid_generator.

    >>> cudnn_affine_grid(Tensor((2, 2, 3), "float32"), 2, 3, 4, 5)
    Cost(flops=480, bytes=368)
    """
    return affine_grid(theta, (N, C, H, W))


@cost("cudnn_affine_grid_generator_backward")
def cudnn_affine_grid_backward(grad: Tensor, N: Value, C: Value, H: Value, W: Value) -> Cost:
    """Source: aten::cudnn_affine_grid_generator_backward.

    >>> cudnn_affine_grid_backward(Tensor((2, 4, 5, 2), "float32"), 2, 3, 4, 5)
    Cost(flops=480, bytes=368)
    """
    return affine_grid_backward(grad, (N, C, H, W))


@cost("im2col", "torch.nn.functional.unfold")
def im2col(input: Tensor, kernel_size: Value, dilation: Value = 1, padding: Value = 0, stride: Value = 1) -> Cost:
    """(N, C, H, W) to (N, C·R·S, blocks): copies. The backward adds overlapping blocks. Source: F.unfold.

    >>> im2col(Tensor((1, 2, 4, 4), "float32"), (3, 3))  # 32·4 + 18·4·4
    Cost(flops=0, bytes=416)
    """
    window, spread = ints(kernel_size, 2), ints(dilation, 2, 1)
    border, step = ints(padding, 2, 0), ints(stride, 2, 1)
    require(len(input.shape) in (3, 4) and min((*window, *spread, *step)) > 0, "sizes do not fit")
    blocks = prod(
        (n + 2 * p - d * (r - 1) - 1) // s + 1 for n, p, d, r, s in zip(input.shape[-2:], border, spread, window, step)
    )
    require(blocks >= 0, "no block fits")
    output = Tensor((*input.shape[:-3], input.shape[-3] * prod(window), blocks), input.dtype)
    dgrad = Cost(output.numel, bytes_of(output, like(input)))
    return Cost(0, bytes_of(input, output), dgrad=dgrad)


@cost("col2im", "fold")
def col2im(
    input: Tensor,
    output_size: Value,
    kernel_size: Value,
    dilation: Value = 1,
    padding: Value = 0,
    stride: Value = 1,
) -> Cost:
    """(N, C·R·S, blocks) to (N, C, H, W): an addition per element. Source: torch.nn.functional.fold.

    >>> col2im(Tensor((1, 18, 4), "float32"), (4, 4), (3, 3))
    Cost(flops=72, bytes=416)
    """
    image, window = ints(output_size, 2), ints(kernel_size, 2)
    channels = input.shape[-2] // max(prod(window), 1)
    require(channels * prod(window) == input.shape[-2], "channels do not fit")
    output = Tensor((*input.shape[:-2], channels, *image), input.dtype)
    return Cost(input.numel, bytes_of(input, output), dgrad=Cost(0, bytes_of(output, like(input))))
