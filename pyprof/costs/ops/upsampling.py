# SPDX-License-Identifier: Apache-2.0
"""Upsampling: every result is one input (nearest) or a weighted sum of 2, 4, 8 or 16 neighbours, axis by axis.

FLOPs per result: a sum of two neighbours is 3 (two products, one addition), of four 7. linear 3, bilinear 2·3 + 3 = 9,
trilinear 4·3 + 2·3 + 3 = 21, bicubic 4·7 + 7 = 35; finding the neighbours is not counted. The backward distributes a
gradient with the same weights: as many FLOPs; it reads the gradient and writes one as large as the input.

>>> interpolate(Tensor((1, 3, 4, 4), "float32"), scale_factor=2, mode="bilinear")  # 9·192; (48 + 192)·4
Cost(flops=1728, bytes=960)
"""

from __future__ import annotations

from collections.abc import Callable
from math import floor

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost, formulas
from pyprof.costs.ops.shapes import ints, like, require

# mode: FLOPs per result. Source: torch.nn.functional.interpolate.
MODES = {"nearest": 0, "nearest-exact": 0, "linear": 3, "bilinear": 9, "trilinear": 21, "bicubic": 35}


def _image(input: Tensor, size: Value, scale: Value) -> tuple[int, ...]:
    """Return the sizes of the result after N and C."""
    n = len(input.shape) - 2
    require(n in (1, 2, 3), "an input (N, C, ...) of 1 to 3 dimensions is expected")
    if size not in (None, ()):
        image = ints(size, n)
    else:
        factors = scale if isinstance(scale, tuple) else (scale,) * n
        numbers = [f for f in factors if isinstance(f, (int, float)) and not isinstance(f, bool)]
        require(len(numbers) == n, "a size or scale factors are expected")
        image = tuple(floor(extent * factor) for extent, factor in zip(input.shape[2:], numbers))
    require(min(image) > 0, "an empty result")
    return image


def _resized(input: Tensor, size: Value, scale: Value, flops: int) -> Cost:
    image = _image(input, size, scale)
    output = Tensor((*input.shape[:2], *image), input.dtype)
    dgrad = Cost(flops * output.numel, bytes_of(output, like(input)))
    return Cost(flops * output.numel, bytes_of(input, output), dgrad=dgrad)


@cost("interpolate", "upsample")
def interpolate(
    input: Tensor, size: Value = None, scale_factor: Value = None, mode: Value = "nearest", align_corners: Value = None,
    recompute_scale_factor: Value = None, antialias: Value = False,
) -> Cost:  # fmt: skip
    """Area mode is adaptive average pooling. Source: torch.nn.functional.interpolate.

    >>> interpolate(Tensor((1, 3, 4), "float16"), 8).bytes  # 24 + 48
    72
    >>> interpolate(Tensor((1, 1, 4, 4), "float32"), 2, mode="area")  # 4 windows of 4; (16 + 4)·4
    Cost(flops=16, bytes=80)
    """
    if mode == "area":
        pool = formulas()[f"adaptive_avg_pool{len(input.shape) - 2}d"].function
        return pool(input, _image(input, size, scale_factor))
    if antialias is True:
        return _antialiased(TAPS[f"{mode}2d"])(input, _image(input, size, scale_factor))
    require(isinstance(mode, str) and mode in MODES, f"no mode {mode!r}")
    return _resized(input, size, scale_factor, MODES[str(mode)])


def _upsample(flops: int, aligns: bool) -> Callable[..., Cost]:
    def upsample(input: Tensor, output_size: Value, *parameters: Value) -> Cost:
        """(input, output_size, [align_corners], scales...) or, with a list of factors, without the size."""
        scales = parameters[1:] if aligns else parameters
        return _resized(input, output_size, scales[0] if scales else None, flops)

    return upsample


def _upsample_backward(flops: int) -> Callable[..., Cost]:
    def upsample_backward(grad_output: Tensor, output_size: Value, input_size: Value, *parameters: Value) -> Cost:
        shape = ints(input_size, len(grad_output.shape))
        return Cost(flops * grad_output.numel, bytes_of(grad_output, Tensor(shape, grad_output.dtype)))

    return upsample_backward


# The dispatcher's names. Source: native_functions.yaml.
for _name, _flops in {
    "nearest1d": 0, "nearest2d": 0, "nearest3d": 0, "_nearest_exact1d": 0, "_nearest_exact2d": 0,
    "_nearest_exact3d": 0, "linear1d": 3, "bilinear2d": 9, "trilinear3d": 21, "bicubic2d": 35,
}.items():  # fmt: skip
    _full = f"_upsample{_name}" if _name.startswith("_") else f"upsample_{_name}"
    cost(_full)(_upsample(_flops, aligns=_flops > 0))
    cost(f"{_full}_backward")(_upsample_backward(_flops))


def _antialiased(taps: int) -> Callable[..., Cost]:
    """Return the formula of weighted sums over a support that grows with the reduction: at least `taps` per
    dimension."""

    def antialiased(input: Tensor, output_size: Value, align_corners: Value = False, *scales: Value) -> Cost:
        plain = _resized(input, output_size, scales[0] if scales else None, 0)
        image = _image(input, output_size, scales[0] if scales else None)
        ratios = [max(1.0, a / b) for a, b in zip(input.shape[-2:], image)]
        # Two passes, widths first: a result of each pass takes 2·support - 1 FLOPs.
        supports = [min(n, round(taps * r)) for n, r in zip(input.shape[-2:], ratios)]
        rows = input.numel // (input.shape[-2] * input.shape[-1])
        first = rows * input.shape[-2] * image[1] * (2 * supports[1] - 1)
        second = rows * image[0] * image[1] * (2 * supports[0] - 1)
        return Cost(first + second, plain.bytes, dgrad=Cost(first + second, plain.bytes))

    return antialiased


def _antialiased_backward(taps: int) -> Callable[..., Cost]:
    def antialiased_backward(grad_output: Tensor, output_size: Value, input_size: Value, *parameters: Value) -> Cost:
        source = Tensor(ints(input_size, len(grad_output.shape)), grad_output.dtype)
        return _antialiased(taps)(source, grad_output.shape[-2:])

    return antialiased_backward


# Source: aten/src/ATen/native/cpu/UpSampleKernel.cpp: supports of the filters.
TAPS = {"bilinear2d": 2, "bicubic2d": 4, "lanczos2d": 6}
for _name, _taps in TAPS.items():
    cost(f"_upsample_{_name}_aa")(_antialiased(_taps))
    cost(f"_upsample_{_name}_aa_backward")(_antialiased_backward(_taps))
