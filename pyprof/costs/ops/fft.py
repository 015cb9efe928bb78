# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms: 5·N·log₂N FLOPs for a complex one of N points, half of it if one side is real (N points there).

That is the count of Cooley and Tukey's algorithm for powers of 2, which benchmarks use for all lengths (FFTW, "FFT
benchmark methodology"); over several dimensions N is the product of their sizes. Rounded to the nearest integer; the
scaling by N is not counted. Bytes: input and result once; the transformed sizes may cut or pad the input.
The backward is a transform of the same size.

>>> fft(Tensor((3, 8), "complex64"))  # 3·5·8·3; 2·24·8
Cost(flops=360, bytes=384)
>>> rfft(Tensor((3, 8), "float32"))  # half; 96 + 3·5·8
Cost(flops=180, bytes=216)
"""

from __future__ import annotations

from collections.abc import Callable
from math import log2, prod

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.linalg import COMPLEX_OF
from pyprof.costs.ops.shapes import REAL_OF, as_int, dims, floating, like, require, sizes

WAYS = ("c2c", "r2c", "c2r")


def _complex(dtype: str | None) -> str | None:
    kind = floating(dtype)
    return {**COMPLEX_OF, "float16": "complex32"}.get(kind or "", kind)


def transform_flops(batch: int, points: int, real: bool) -> int:
    """Return the FLOPs of `batch` transforms with the given number of points.

    >>> transform_flops(1, 8, False), transform_flops(2, 6, True)  # 120; 30·2.585
    (120, 78)
    """
    return round(batch * (2.5 if real else 5) * points * log2(points)) if points > 1 else 0


def _transform(input: Tensor, way: str, size: Value, dim: Value, onesided: bool = True) -> Cost:
    """Return the cost of a transform. `size` is given per transformed dimension; for c2r that of the (real) result.
    -1 keeps the size."""
    rank = len(input.shape)
    requested = None if size is None or size == () else sizes((size,))
    if dim is None or dim == ():
        order = list(range(rank)) if requested is None else list(range(rank - len(requested), rank))
    else:
        order = [as_int(d) % rank for d in (dim if isinstance(dim, tuple) else (dim,))]
    require(bool(order) and len(set(order)) == len(order) and min(order) >= 0, "dimensions are expected")
    dims(tuple(order), rank)
    inside = list(input.shape)
    lengths = requested or (-1,) * len(order)
    require(len(lengths) == len(order), "a size per dimension is expected")
    for d, n in zip(order, lengths):
        if n != -1:
            inside[d] = n
    last = order[-1]
    if way == "c2r" and lengths[-1] == -1:
        inside[last] = 2 * (input.shape[last] - 1)
    require(min(inside) > 0, "sizes are positive")
    points = prod(inside[d] for d in order)
    shape = list(inside)
    if way == "r2c" and onesided:
        shape[last] = inside[last] // 2 + 1
    kind = _complex(input.dtype)
    dtype = REAL_OF.get(kind or "", kind) if way == "c2r" else kind
    output = Tensor(tuple(shape), dtype)
    flops = transform_flops(prod(inside) // points, points, way != "c2c")
    return Cost(flops, bytes_of(input, output), dgrad=Cost(flops, bytes_of(output, like(input))))


def _one(way: str) -> Callable[..., Cost]:
    def one(input: Tensor, n: Value = None, dim: Value = -1, norm: Value = None, out: Value = None) -> Cost:
        return _transform(input, way, None if n is None else (n,), dim)

    return one


def _several(way: str, default: Value) -> Callable[..., Cost]:
    def several(input: Tensor, s: Value = None, dim: Value = default, norm: Value = None, out: Value = None) -> Cost:
        return _transform(input, way, s, dim)

    return several


# An inverse costs what its transform costs; hfft takes half of a signal with a real spectrum. Source: torch.fft.
for _name, _way in {
    "fft": "c2c",
    "ifft": "c2c",
    "rfft": "r2c",
    "ihfft": "r2c",
    "irfft": "c2r",
    "hfft": "c2r",
}.items():
    cost(f"fft_{_name}", f"torch.fft.{_name}")(_one(_way))
    cost(f"fft_{_name}2", f"torch.fft.{_name}2")(_several(_way, (-2, -1)))
    cost(f"fft_{_name}n", f"torch.fft.{_name}n")(_several(_way, None))
fft, rfft = _one("c2c"), _one("r2c")


@cost("_fft_c2c")
def fft_c2c(input: Tensor, dim: Value, normalization: Value = 0, forward: Value = True, out: Value = None) -> Cost:
    """Source: aten::_fft_c2c.

    >>> fft_c2c(Tensor((3, 8), "complex64"), (1,), 0, True)
    Cost(flops=360, bytes=384)
    """
    return _transform(input, "c2c", None, dim)


@cost("_fft_r2c")
def fft_r2c(input: Tensor, dim: Value, normalization: Value = 0, onesided: Value = True, out: Value = None) -> Cost:
    """Source: aten::_fft_r2c.

    >>> fft_r2c(Tensor((3, 8), "float32"), (1,), 0, True), fft_r2c(Tensor((3, 8), "float32"), (1,), 0, False)
    (Cost(flops=180, bytes=216), Cost(flops=180, bytes=288))
    """
    return _transform(input, "r2c", None, dim, onesided is not False)


@cost("_fft_c2r")
def fft_c2r(input: Tensor, dim: Value, normalization: Value, last_dim_size: Value, out: Value = None) -> Cost:
    """Source: aten::_fft_c2r.

    >>> fft_c2r(Tensor((3, 5), "complex64"), (1,), 0, 8)
    Cost(flops=180, bytes=216)
    """
    many = len(dim) if isinstance(dim, tuple) else 1
    return _transform(input, "c2r", (*(-1,) * (many - 1), as_int(last_dim_size)), dim)


def _frames(input: Tensor, n_fft: Value, hop_length: Value, center: bool, onesided: Value) -> tuple[int, int, int, int]:
    """Return the numbers of signals, frames, points of a transform, and result bins."""
    n = as_int(n_fft)
    hop = n // 4 if hop_length is None else as_int(hop_length)
    length = input.shape[-1] + (2 * (n // 2) if center else 0)
    require(hop > 0 and 0 < n <= length, "no frame fits")
    whole = onesided is False or (onesided is None and input.dtype in REAL_OF)
    return prod(input.shape[:-1]), (length - n) // hop + 1, n, n if whole else n // 2 + 1


@cost("stft", "torch.functional.stft")
def stft(
    input: Tensor, n_fft: Value, hop_length: Value = None, win_length: Value = None, window: Value = None,
    center: Value = True, pad_mode: Value = "reflect", normalized: Value = False, onesided: Value = None,
    return_complex: Value = None, align_to_window: Value = None,
) -> Cost:  # fmt: skip
    """Frames, each times the window and transformed. Source: torch.stft.

    >>> stft(Tensor((2, 16), "float32"), 8, 4, center=False)  # 2·3 frames: 2.5·8·3 each; 128 + 2·5·3·8
    Cost(flops=360, bytes=368)
    """
    signals, frames, n, bins = _frames(input, n_fft, hop_length, center is not False, onesided)
    read = window if isinstance(window, Tensor) else None
    flops = transform_flops(signals * frames, n, input.dtype not in REAL_OF)
    flops += signals * frames * n if read is not None else 0
    return Cost(flops, bytes_of(input, read, Tensor((signals, bins, frames), _complex(input.dtype))))


@cost("aten::stft")
def dispatched_stft(
    input: Tensor, n_fft: Value, hop_length: Value = None, win_length: Value = None, window: Value = None,
    normalized: Value = False, onesided: Value = None, *parameters: Value,
) -> Cost:  # fmt: skip
    """The signal is padded already; the form with `center` has it as its sixth argument. Source: aten::stft.

    >>> dispatched_stft(Tensor((2, 16), "float32"), 8, 4, 8, None, False, True, True)
    Cost(flops=360, bytes=368)
    """
    if isinstance(onesided, str):
        return stft(input, n_fft, hop_length, win_length, window, normalized, onesided, *parameters[:3])
    return stft(input, n_fft, hop_length, win_length, window, False, "", normalized, onesided)


@cost("istft", "torch.functional.istft")
def istft(
    input: Tensor, n_fft: Value, hop_length: Value = None, win_length: Value = None, window: Value = None,
    center: Value = True, normalized: Value = False, onesided: Value = None, length: Value = None,
    return_complex: Value = False,
) -> Cost:  # fmt: skip
    """A transform per frame, its product with the window, the addition where frames overlap, and the same of the
    squared window, one division per sample. Source: torch.istft.

    >>> istft(Tensor((2, 5, 3), "complex64"), 8, 4, center=False)  # 2·3·60 + 48 added + 32 divided; 240 + 2·16·4
    Cost(flops=440, bytes=368)
    """
    *batch, bins, frames = input.shape
    n = as_int(n_fft)
    hop = n // 4 if hop_length is None else as_int(hop_length)
    signals = prod(batch)
    samples = n + hop * (frames - 1) - (2 * (n // 2) if center is not False else 0)
    if length is not None:
        samples = as_int(length)
    require(samples > 0 and bins in (n, n // 2 + 1), "sizes do not fit")
    read = window if isinstance(window, Tensor) else None
    flops = transform_flops(signals * frames, n, bins != n)
    flops += signals * frames * n * (2 if read is not None else 1) + signals * samples
    kind = input.dtype if return_complex is True else REAL_OF.get(input.dtype or "", input.dtype)
    return Cost(flops, bytes_of(input, read, Tensor((signals, samples), kind)))


@cost("fft_fftfreq", "torch.fft.fftfreq")
def fftfreq(n: Value, d: Value = 1.0, *parameters: Value, out: Value = None) -> Cost:
    """One division per frequency. Source: torch.fft.fftfreq.

    >>> fftfreq(8)
    Cost(flops=8, bytes=32)
    """
    return Cost(as_int(n), bytes_of(Tensor((as_int(n),), "float32")))


@cost("fft_rfftfreq", "torch.fft.rfftfreq")
def rfftfreq(n: Value, d: Value = 1.0, *parameters: Value, out: Value = None) -> Cost:
    """n/2 + 1 frequencies. Source: torch.fft.rfftfreq.

    >>> rfftfreq(8)
    Cost(flops=5, bytes=20)
    """
    return fftfreq(as_int(n) // 2 + 1)
