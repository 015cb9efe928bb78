# SPDX-License-Identifier: Apache-2.0
"""Convolutions of 1 to 3 dimensions, transposed ones, and their backward.

Letters: input (N, C, H, W), weight (K, C/g, R, S), output (N, K, P, Q), g groups. A fused multiply-add is 2 FLOPs;
positions in the padding count as in the closed formula; the bias is free.
    convolution  2 · N·K·P·Q · C/g·R·S        transposed  2 · N·C·H·W · K/g·R·S
dgrad and wgrad are one such product each, over the same three operands; bgrad adds up N·K·P·Q gradients.

>>> conv2d(Tensor((64, 64, 56, 56), "float16"), Tensor((64, 64, 1, 1), "float16")).flops  # seed: volta_fp16_s884cudnn
1644167168
"""

from __future__ import annotations

from math import prod

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.shapes import Shape, as_int, backward_sum, ints, require, sizes


def _padding(padding: Value, n: int) -> Shape | str:
    """Return the padding of each dimension, or "same"."""
    if isinstance(padding, str):
        require(padding in ("same", "valid"), f"no padding {padding!r}")
        return padding if padding == "same" else (0,) * n
    return ints(padding, n, 0)


def convolve(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Value = 1, padding: Value = 0,
    dilation: Value = 1, transposed: Value = False, output_padding: Value = 0, groups: Value = 1,
) -> Cost:  # fmt: skip
    """Return the cost of a convolution in the dispatcher's terms; an input without N is one image.

    >>> t = lambda *shape: Tensor(shape, "float32")
    >>> convolve(t(2, 8, 19, 23), t(12, 8, 3, 5))  # 2 · 2·12·17·19 · 8·3·5; (6992 + 1440 + 7752)·4
    Cost(flops=1860480, bytes=64736)
    >>> convolve(t(1, 4, 5, 5), t(4, 3, 2, 2), transposed=True, stride=2, groups=2)  # 2 · 4·25 · 3·2·2; K = 6
    Cost(flops=2400, bytes=2992)
    """
    n = len(weight.shape) - 2
    require(n > 0 and len(input.shape) in (n + 1, n + 2), f"{input.shape} does not fit {weight.shape}")
    batch = input.shape[: len(input.shape) - n - 1]
    channels, *image = input.shape[len(batch) :]
    window = weight.shape[2:]
    g = 1 if groups is None else as_int(groups)
    step, spread = ints(stride, n, 1), ints(dilation, n, 1)
    border = _padding(padding, n)
    require(g > 0 and min(step) > 0 and min(spread) > 0, "stride, dilation and groups are positive")
    if transposed:
        require(not isinstance(border, str) and weight.shape[0] == channels, "the weight is (C, K/g, ...)")
        extra = ints(output_padding, n, 0)
        out = [
            (size - 1) * s - 2 * int(p) + d * (r - 1) + e + 1
            for size, s, p, d, r, e in zip(image, step, border, spread, window, extra)
        ]
        output = Tensor((*batch, weight.shape[1] * g, *out), input.dtype)
        flops = 2 * input.numel * weight.shape[1] * prod(window)
    else:
        require(weight.shape[1] * g == channels and weight.shape[0] % g == 0, "the weight is (K, C/g, ...)")
        if isinstance(border, str):
            out = image
        else:
            out = [
                (size + 2 * p - d * (r - 1) - 1) // s + 1
                for size, s, p, d, r in zip(image, step, border, spread, window)
            ]
        output = Tensor((*batch, weight.shape[0], *out), input.dtype)
        flops = 2 * output.numel * weight.shape[1] * prod(window)
    require(min(out) > 0 or input.numel == 0, "the output is empty")
    part = Cost(flops, bytes_of(input, weight, output))
    bgrad = None if bias is None else Cost(output.numel, bytes_of(output, bias))
    return Cost(flops, bytes_of(input, weight, bias, output), dgrad=part, wgrad=part, bgrad=bgrad)


@cost("conv1d", "conv2d", "conv3d", "cudnn_convolution_relu", "miopen_convolution_relu")
def conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Value = 1, padding: Value = 0,
    dilation: Value = 1, groups: Value = 1,
) -> Cost:  # fmt: skip
    """Source: torch.nn.functional.conv2d; the rank is the weight's.

    >>> conv2d(Tensor((8, 28), "float32"), Tensor((8, 1, 3), "float32"), None, 1, "same", 1, 8)  # 2·8·28·3
    Cost(flops=1344, bytes=1888)
    """
    require(stride in (1, (1,), (1, 1), (1, 1, 1), None) or padding != "same", "'same' needs stride 1")
    return convolve(input, weight, bias, stride, padding, dilation, False, 0, groups)


@cost("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Value = 1, padding: Value = 0,
    output_padding: Value = 0, groups: Value = 1, dilation: Value = 1,
) -> Cost:  # fmt: skip
    """Source: torch.nn.functional.conv_transpose2d; weight (C, K/g, R, S).

    >>> conv_transpose2d(Tensor((1, 2, 3, 3), "float32"), Tensor((2, 5, 2, 2), "float32"))  # 2·18·20; 5·4·4 out
    Cost(flops=720, bytes=552)
    """
    return convolve(input, weight, bias, stride, padding, dilation, True, output_padding, groups)


@cost("convolution", "_convolution", "convolution_overrideable")
def convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Value, padding: Value, dilation: Value,
    transposed: Value, output_padding: Value, groups: Value, *flags: Value,
) -> Cost:  # fmt: skip
    """Source: aten::convolution; _convolution has trailing backend flags.

    >>> convolution(Tensor((1, 2, 3), "float32"), Tensor((4, 2, 3), "float32"), None, (1,), (1,), (1,), False, (0,), 1)
    Cost(flops=144, bytes=168)
    """
    return convolve(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


@cost("mkldnn_convolution", "miopen_convolution", "miopen_depthwise_convolution", "_mps_convolution")
def mkldnn_convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, padding: Value, stride: Value, dilation: Value,
    groups: Value, *flags: Value,
) -> Cost:  # fmt: skip
    """Padding comes before stride. Source: aten::mkldnn_convolution.

    >>> mkldnn_convolution(Tensor((1, 2, 3), "float32"), Tensor((4, 2, 3), "float32"), None, (1,), (1,), (1,), 1)
    Cost(flops=144, bytes=168)
    """
    return convolve(input, weight, bias, stride, padding, dilation, False, 0, groups)


@cost("cudnn_convolution_backward_input")
def backward_input(size: Value, grad: Tensor, weight: Tensor, *parameters: Value) -> Cost:
    """Gradient of the input, before convolution_backward existed: `size` is that of the input. Source:
    native_functions.yaml of torch 1.9.

    >>> backward_input((2, 8, 19, 23), Tensor((2, 12, 17, 19), "float32"), Tensor((12, 8, 3, 5), "float32"))
    Cost(flops=1860480, bytes=64736)
    """
    shape = sizes((size,))
    require(len(shape) == len(grad.shape) == len(weight.shape), "sizes do not fit")
    return Cost(2 * grad.numel * prod(weight.shape[1:]), bytes_of(grad, weight, Tensor(shape, grad.dtype)))


@cost("cudnn_convolution_backward_weight")
def backward_weight(size: Value, grad: Tensor, input: Tensor, *parameters: Value) -> Cost:
    """Gradient of the weight, before convolution_backward existed: `size` is that of the weight. Source:
    native_functions.yaml of torch 1.9.

    >>> backward_weight((12, 8, 3, 5), Tensor((2, 12, 17, 19), "float32"), Tensor((2, 8, 19, 23), "float32"))
    Cost(flops=1860480, bytes=64736)
    """
    shape = sizes((size,))
    require(len(shape) == len(grad.shape) == len(input.shape), "sizes do not fit")
    return Cost(2 * grad.numel * prod(shape[1:]), bytes_of(grad, input, Tensor(shape, grad.dtype)))


@cost("_convolution_mode")
def convolution_mode(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Value,
    padding: Value,
    dilation: Value,
    groups: Value,
) -> Cost:
    """Padding is a string. Source: aten::_convolution_mode.

    >>> convolution_mode(Tensor((1, 2, 3), "float32"), Tensor((4, 2, 3), "float32"), None, (1,), "same", (1,), 1)
    Cost(flops=144, bytes=168)
    """
    return convolve(input, weight, bias, stride, padding, dilation, False, 0, groups)


@cost("_nnpack_spatial_convolution")
def nnpack_convolution(input: Tensor, weight: Tensor, bias: Tensor | None, padding: Value, stride: Value = 1) -> Cost:
    """Source: aten::_nnpack_spatial_convolution.

    >>> t = lambda *shape: Tensor(shape, "float32")
    >>> nnpack_convolution(t(1, 2, 3, 3), t(4, 2, 3, 3), None, (1, 1))
    Cost(flops=1296, bytes=504)
    """
    return convolve(input, weight, bias, stride, padding)


@cost("_mps_convolution_transpose")
def mps_convolution_transpose(
    input: Tensor,
    weight: Tensor,
    padding: Value,
    output_padding: Value,
    stride: Value,
    dilation: Value,
    groups: Value,
) -> Cost:
    """Source: aten::_mps_convolution_transpose.

    >>> x, w = Tensor((1, 2, 3, 3), "float32"), Tensor((2, 5, 2, 2), "float32")
    >>> mps_convolution_transpose(x, w, (0, 0), (0, 0), (1, 1), (1, 1), 1)
    Cost(flops=720, bytes=552)
    """
    return convolve(input, weight, None, stride, padding, dilation, True, output_padding, groups)


@cost("mps_convolution_backward")
def mps_convolution_backward(
    input: Tensor, grad_output: Tensor, weight: Tensor, padding: Value, stride: Value, dilation: Value, groups: Value,
    output_mask: Value = None,
) -> Cost:  # fmt: skip
    """Source: aten::mps_convolution_backward.

    >>> x, w, g = (Tensor(s, "float32") for s in [(1, 2, 5, 5), (4, 2, 3, 3), (1, 4, 3, 3)])
    >>> mps_convolution_backward(x, g, w, (0, 0), (1, 1), (1, 1), 1, (True, True, False))
    Cost(flops=2592, bytes=1264)
    """
    return _parts(grad_output, input, weight, output_mask, stride, padding, dilation, False, 0, groups)


@cost("cudnn_convolution_backward", "miopen_convolution_backward", "miopen_depthwise_convolution_backward")
def library_backward(
    input: Tensor, grad_output: Tensor, weight: Tensor, padding: Value, stride: Value, dilation: Value, groups: Value,
    *flags: Value,
) -> Cost:  # fmt: skip
    """Before convolution_backward existed; output_mask is the last of the flags. Source: native_functions.yaml of torch
    1.9.

    >>> x, w, g = (Tensor(s, "float32") for s in [(1, 2, 5, 5), (4, 2, 3, 3), (1, 4, 3, 3)])
    >>> library_backward(x, g, w, (0, 0), (1, 1), (1, 1), 1, True, False, True, (True, True))
    Cost(flops=2592, bytes=1264)
    """
    mask = flags[-1] if flags else None
    mask = (*mask, False)[:3] if isinstance(mask, tuple) and len(mask) >= 2 else (True, True, False)
    return _parts(grad_output, input, weight, mask, stride, padding, dilation, False, 0, groups)


@cost("mps_convolution_transpose_backward")
def mps_convolution_transpose_backward(
    input: Tensor, grad_output: Tensor, weight: Tensor, padding: Value, output_padding: Value, stride: Value,
    dilation: Value, groups: Value, output_mask: Value = None,
) -> Cost:  # fmt: skip
    """Source: aten::mps_convolution_transpose_backward.

    >>> x, w, g = (Tensor(s, "float32") for s in [(1, 2, 3, 3), (2, 5, 2, 2), (1, 5, 4, 4)])
    >>> mps_convolution_transpose_backward(x, g, w, (0, 0), (0, 0), (1, 1), (1, 1), 1, (True, True))
    Cost(flops=1440, bytes=1104)
    """
    mask = (*output_mask, False) if isinstance(output_mask, tuple) and len(output_mask) == 2 else None
    return _parts(grad_output, input, weight, mask, stride, padding, dilation, True, output_padding, groups)


@cost("cudnn_convolution")
def cudnn_convolution(
    input: Tensor,
    weight: Tensor,
    padding: Value,
    stride: Value,
    dilation: Value,
    groups: Value,
    *flags: Value,
) -> Cost:
    """No bias: it is added by another kernel. Source: aten::cudnn_convolution.

    >>> cudnn_convolution(Tensor((1, 2, 3), "float32"), Tensor((4, 2, 3), "float32"), (1,), (1,), (1,), 1)
    Cost(flops=144, bytes=168)
    """
    return convolve(input, weight, None, stride, padding, dilation, False, 0, groups)


@cost("cudnn_convolution_transpose")
def cudnn_convolution_transpose(
    input: Tensor, weight: Tensor, padding: Value, output_padding: Value, stride: Value, dilation: Value,
    groups: Value, *flags: Value,
) -> Cost:  # fmt: skip
    """Source: aten::cudnn_convolution_transpose.

    >>> x, w = Tensor((1, 2, 3, 3), "float32"), Tensor((2, 5, 2, 2), "float32")
    >>> cudnn_convolution_transpose(x, w, (0, 0), (0, 0), (1, 1), (1, 1), 1, False, False, True)
    Cost(flops=720, bytes=552)
    """
    return convolve(input, weight, None, stride, padding, dilation, True, output_padding, groups)


@cost("miopen_convolution_transpose")
def miopen_convolution_transpose(
    input: Tensor, weight: Tensor, bias: Tensor | None, padding: Value, output_padding: Value, stride: Value,
    dilation: Value, groups: Value, *flags: Value,
) -> Cost:  # fmt: skip
    """Source: aten::miopen_convolution_transpose.

    >>> x, w = Tensor((1, 2, 3, 3), "float32"), Tensor((2, 5, 2, 2), "float32")
    >>> miopen_convolution_transpose(x, w, None, (0, 0), (0, 0), (1, 1), (1, 1), 1, False, False)
    Cost(flops=720, bytes=552)
    """
    return convolve(input, weight, bias, stride, padding, dilation, True, output_padding, groups)


@cost("_slow_conv2d_forward", "thnn_conv2d", "slow_conv3d", "slow_conv3d_forward", "slow_conv_dilated2d",
      "slow_conv_dilated3d", "_conv_depthwise2d", "conv_depthwise3d")  # fmt: skip
def slow_conv(
    input: Tensor, weight: Tensor, kernel_size: Value, bias: Tensor | None = None, stride: Value = 1,
    padding: Value = 0, dilation: Value = 1, out: Value = None,
) -> Cost:  # fmt: skip
    """Source: aten::_slow_conv2d_forward; the groups follow from the weight (they are C in a depthwise one).

    >>> slow_conv(Tensor((1, 2, 3, 3), "float32"), Tensor((4, 2, 3, 3), "float32"), (3, 3), None, (1, 1), (1, 1))
    Cost(flops=1296, bytes=504)
    """
    channels = input.shape[1 - len(weight.shape)]
    require(channels % weight.shape[1] == 0, f"{input.shape} does not fit {weight.shape}")
    spread = 1 if isinstance(dilation, Tensor) else dilation
    return convolve(input, weight, bias, stride, padding, spread, False, 0, channels // weight.shape[1])


@cost("slow_conv_transpose2d", "slow_conv_transpose3d")
def slow_conv_transpose(
    input: Tensor, weight: Tensor, kernel_size: Value, bias: Tensor | None = None, stride: Value = 1,
    padding: Value = 0, output_padding: Value = 0, dilation: Value = 1, out: Value = None,
) -> Cost:  # fmt: skip
    """Source: aten::slow_conv_transpose2d.

    >>> slow_conv_transpose(Tensor((1, 2, 3, 3), "float32"), Tensor((2, 5, 2, 2), "float32"), (2, 2))
    Cost(flops=720, bytes=552)
    """
    return convolve(input, weight, bias, stride, padding, dilation, True, output_padding, 1)


@cost("convolution_backward")
def convolution_backward(
    grad_output: Tensor, input: Tensor, weight: Tensor, bias_sizes: Value, stride: Value, padding: Value,
    dilation: Value, transposed: Value, output_padding: Value, groups: Value, output_mask: Value = None,
) -> Cost:  # fmt: skip
    """The parts that output_mask selects (input, weight, bias), each a separate kernel; all without a mask.

    FLOPs are those of the products. The additions of the bias gradient are not counted beside them, like the bias of
    the forward; by themselves they are, one per element of grad_output. Source: aten::convolution_backward.

    >>> x, w, g = (Tensor(s, "float32") for s in [(1, 2, 5, 5), (4, 2, 3, 3), (1, 4, 3, 3)])
    >>> convolution_backward(g, x, w, (0,), (1, 1), (0, 0), (1, 1), False, (0, 0), 1, (True, True, False))
    Cost(flops=2592, bytes=1264)
    >>> convolution_backward(g, x, w, (4,), (1, 1), (0, 0), (1, 1), False, (0, 0), 1, (False, False, True))  # 36 + 4
    Cost(flops=36, bytes=160)
    """
    return _parts(
        grad_output, input, weight, output_mask, stride, padding, dilation, transposed, output_padding, groups
    )


@cost("convolution_backward_overrideable")
def convolution_backward_overrideable(
    grad_output: Tensor, input: Tensor, weight: Tensor, stride: Value, padding: Value, dilation: Value,
    transposed: Value, output_padding: Value, groups: Value, output_mask: Value = None,
) -> Cost:  # fmt: skip
    """For other devices, without bias_sizes. Source: aten::convolution_backward_overrideable.

    >>> x, w, g = (Tensor(s, "float32") for s in [(1, 2, 5, 5), (4, 2, 3, 3), (1, 4, 3, 3)])
    >>> convolution_backward_overrideable(g, x, w, (1, 1), (0, 0), (1, 1), False, (0, 0), 1, (True, True, False))
    Cost(flops=2592, bytes=1264)
    """
    return _parts(
        grad_output, input, weight, output_mask, stride, padding, dilation, transposed, output_padding, groups
    )


def _parts(grad_output: Tensor, input: Tensor, weight: Tensor, output_mask: Value, *settings: Value) -> Cost:
    mask = output_mask if isinstance(output_mask, tuple) and not isinstance(output_mask, Tensor) else (True,) * 3
    require(len(mask) == 3, "output_mask has three parts")
    whole = convolve(input, weight, None, *settings)
    bias = Tensor((grad_output.shape[1 - len(weight.shape)],), weight.dtype)
    bgrad = Cost(0 if mask[0] or mask[1] else grad_output.numel, bytes_of(grad_output, bias))
    return backward_sum(*(part for part, on in zip((whole.dgrad, whole.wgrad, bgrad), mask) if on))


@cost("_slow_conv2d_backward")
def slow_conv2d_backward(
    grad_output: Tensor, input: Tensor, weight: Tensor, kernel_size: Value, stride: Value, padding: Value,
    output_mask: Value = None, grad_weight: Value = None, grad_bias: Value = None,
) -> Cost:  # fmt: skip
    """Source: aten::_slow_conv2d_backward; another form has the three output gradients instead of the mask.

    >>> x, w, g = (Tensor(s, "float32") for s in [(1, 2, 5, 5), (4, 2, 3, 3), (1, 4, 3, 3)])
    >>> slow_conv2d_backward(g, x, w, (3, 3), (1, 1), (0, 0), (True, True, False))
    Cost(flops=2592, bytes=1264)
    """
    if isinstance(output_mask, Tensor) or isinstance(grad_weight, Tensor) or isinstance(grad_bias, Tensor):
        output_mask = tuple(isinstance(t, Tensor) for t in (output_mask, grad_weight, grad_bias))
    return _parts(grad_output, input, weight, output_mask, stride, padding)
