# SPDX-License-Identifier: Apache-2.0
"""Casts and copies: no FLOPs; bytes: source and result. The gradient takes the same way back.

A cast to a tensor's own dtype does nothing. Whether `to` moves to another device is not recorded: with a device but no
new dtype the bytes are unknown.

>>> to(Tensor((4, 8), "float32"), Other("dtype", "torch.float16"))  # 128 + 64
Cost(flops=0, bytes=192)
>>> to(Tensor((4, 8), "float32"), "float32").basis
'view'
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from pyprof.core.model import Cost, Other, Tensor, Value
from pyprof.costs.cost import VIEW, bytes_of, cost
from pyprof.costs.ops.shapes import (
    as_tensor,
    broadcast,
    chosen_dtype,
    dtype_of,
    is_float,
    like,
    require,
    sizes,
)

# The methods that are named after a dtype. Source: torch.Tensor.
CASTS = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "byte": "uint8", "char": "int8",
    "short": "int16", "int": "int32", "long": "int64", "bool": "bool", "cfloat": "complex64", "cdouble": "complex128",
    "chalf": "complex32",
}  # fmt: skip


def copied(input: Tensor, dtype: str | None) -> Cost:
    """Return the cost of reading a tensor and writing it with another dtype or to another place."""
    output = Tensor(input.shape, dtype)
    dgrad = Cost(0, bytes_of(output, like(input))) if is_float(input.dtype) and is_float(dtype) else None
    return Cost(0, bytes_of(input, output), dgrad=dgrad)


def _cast(dtype: str) -> Callable[..., Cost]:
    def cast(input: Tensor, *parameters: Value) -> Cost:
        return VIEW if as_tensor(input).dtype == dtype else copied(input, dtype)

    return cast


for _name, _dtype in CASTS.items():
    cost(_name)(_cast(_dtype))


@cost("to", "type", "type_as")
def to(
    input: Tensor,
    *args: Value,
    dtype: Value = None,
    device: Value = None,
    other: Value = None,
    copy: Value = False,
) -> Cost:
    """to(dtype), to(device), to(device, dtype), to(other), type(dtype), type_as(other). Source: torch.Tensor.to.

    >>> to(Tensor((4,), "float16"), Tensor((1,), "float32")), to(Tensor((4,), "float16"), "cuda:0")
    (Cost(flops=0, bytes=24), Cost(flops=0, bytes=None))
    """
    arguments = [value for value in (*args, dtype, device, other) if value is not None and not isinstance(value, bool)]
    flags = [value for value in args if isinstance(value, bool)]  # non_blocking, copy
    dtypes = [name for value in arguments if (name := _named_dtype(value)) is not None]
    return _conversion(input, dtypes, copy is True or flags[1:2] == [True], len(arguments) > len(dtypes))


def _named_dtype(value: Value) -> str | None:
    """Return the dtype of `other`, or the named dtype. "torch.cuda.HalfTensor" names float16; a number is a device."""
    if isinstance(value, Tensor):
        return value.dtype
    if isinstance(value, str) and value.endswith("Tensor"):
        value = value.rsplit(".", 1)[-1].removesuffix("Tensor").lower()
    return dtype_of(value) if isinstance(value, (str, Other)) else None


def _conversion(input: Tensor, dtypes: list[str], copy: bool, moves: bool) -> Cost:
    dtype = dtypes[-1] if dtypes else as_tensor(input).dtype
    if dtype != input.dtype or copy:
        return copied(input, dtype)
    return Cost(0, None) if moves else VIEW


@cost("aten::to")
def dispatched_to(input: Tensor, *args: Value) -> Cost:
    """The number of arguments determines the overload: 4 (dtype or other, non_blocking, copy, memory_format), 5 with a
    leading device, 7 (dtype, layout, device, pin_memory, non_blocking, copy, memory_format). Source: aten::to.

    Without a change of dtype the operator itself does nothing: a move to another device is a separate operator,
    _to_copy.

    >>> dispatched_to(Tensor((4,), "float32"), 5, False, False, None)
    Cost(flops=0, bytes=24)
    """
    require(len(args) in (4, 5, 7), "an overload of aten::to")
    dtype = args[1 if len(args) == 5 else 0]
    target = dtype.dtype if isinstance(dtype, Tensor) else chosen_dtype(dtype, as_tensor(input).dtype)
    require(target is not None, f"no dtype {dtype!r}")
    assert target is not None
    return _conversion(input, [target], args[-2] is True, False)


@cost("cuda", "cpu", "xpu", "mtia", "ipu")
def moved(input: Tensor, *parameters: Value) -> Cost:
    """Copy to another device, or nothing if already there: the bytes are unknown. Source: torch.Tensor.cuda.

    >>> moved(Tensor((4,), "float32"))
    Cost(flops=0, bytes=None)
    """
    as_tensor(input)
    return Cost(0, None)


for _name in ("Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short"):
    cost(f"_cast_{_name}")(_cast(CASTS[_name.lower()]))


@cost("convert_element_type")
def convert_element_type(input: Tensor, dtype: Value) -> Cost:
    """Source: prims::convert_element_type.

    >>> convert_element_type(Tensor((4,), "float32"), 15)
    Cost(flops=0, bytes=24)
    """
    return _conversion(input, [chosen_dtype(dtype, None) or ""], False, False)


@cost("_autocast_to_reduced_precision")
def autocast_to_reduced(
    input: Tensor, cuda_enabled: Value, cpu_enabled: Value, cuda_dtype: Value, cpu_dtype: Value
) -> Cost:
    """float32 to the device's 16-bit type; both have the same width. Source: aten::_autocast_to_reduced_precision.

    >>> autocast_to_reduced(Tensor((4,), "float32"), True, False, 5, 15)
    Cost(flops=0, bytes=24)
    """
    if as_tensor(input).dtype != "float32" or not (cuda_enabled or cpu_enabled):
        return VIEW
    return copied(input, dtype_of(cuda_dtype if cuda_enabled else cpu_dtype))


@cost("_autocast_to_full_precision")
def autocast_to_full(input: Tensor, cuda_enabled: Value, cpu_enabled: Value) -> Cost:
    """Back to float32. Source: aten::_autocast_to_full_precision.

    >>> autocast_to_full(Tensor((4,), "bfloat16"), False, True)
    Cost(flops=0, bytes=24)
    """
    reduced = as_tensor(input).dtype in ("float16", "bfloat16")
    return copied(input, "float32") if reduced and (cuda_enabled or cpu_enabled) else VIEW


@cost("_to_copy")
def to_copy(input: Tensor, dtype: Value = None, *parameters: Value) -> Cost:
    """The copy that `to` makes if necessary. Source: aten::_to_copy.

    >>> to_copy(Tensor((4,), "float32"), 15)
    Cost(flops=0, bytes=24)
    """
    return copied(input, chosen_dtype(dtype, input.dtype))


@cost("clone", "lift_fresh_copy", "detach_copy", "pin_memory", "roll", "flip", "fliplr", "flipud", "rot90", "tril",
      "triu", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle", "fft_fftshift",
      "fft_ifftshift", "torch.fft.fftshift", "torch.fft.ifftshift", "alias_copy", "permute_copy", "t_copy",
      "transpose_copy", "view_copy", "_reshape_copy", "_reshape_alias_copy", "squeeze_copy", "unsqueeze_copy",
      "view_as_real_copy", "view_as_complex_copy", "unbind_copy", "split_copy", "split_with_sizes_copy",
      "_lazy_clone", "_pin_memory", "rev", "copy_to", "_mkldnn_transpose", "_mkldnn_reshape",
      "mkldnn_reorder_conv2d_weight", "mkldnn_reorder_conv3d_weight", "mkldnn::_reorder_linear_weight",
      "mkldnn::_reorder_convolution_weight", "mkldnn::_reorder_convolution_transpose_weight", "to_mkldnn")  # fmt: skip
def clone(input: Tensor, *parameters: Value) -> Cost:
    """As many elements as the input has, in another place or order. Source: torch.clone.

    >>> clone(Tensor((4, 8), "float32", (0, 1)))  # 8 stored, 32 written
    Cost(flops=0, bytes=160)
    """
    return copied(input, input.dtype)


@cost("copy")
def copy(input: Tensor, src: Value, *parameters: Value) -> Cost:
    """copy_ overwrites its destination, which is not read; the source may be broadcast. Source: torch.Tensor.copy_.

    >>> copy(Tensor((4, 8), "float16"), Tensor((8,), "float32"))  # 32 + 64
    Cost(flops=0, bytes=96)
    """
    source = (src,) if isinstance(src, Tensor) else ()
    require(broadcast(input.shape, *(t.shape for t in source)) == input.shape, "the source does not fit")
    return Cost(0, bytes_of(*source, input), dgrad=Cost(0, bytes_of(like(input), *map(like, source))))


@cost("expand_copy")
def expand_copy(input: Tensor, size: Value, implicit: Value = False) -> Cost:
    """The sizes are the result's; -1 keeps a size. Source: aten::expand_copy.

    >>> expand_copy(Tensor((5, 1), "float32"), (2, -1, 4))  # 5·4 read, 40·4 written
    Cost(flops=0, bytes=180)
    """
    requested = sizes((size,))
    own = (1,) * (len(requested) - len(input.shape)) + input.shape
    shape = tuple(n if w == -1 else w for n, w in zip(own, requested))
    require(len(own) == len(requested) and broadcast(own, shape) == shape, "the sizes do not fit")
    output = Tensor(shape, input.dtype)
    return Cost(0, bytes_of(input, output), dgrad=Cost(output.numel, bytes_of(output, like(input))))


@cost("repeat", "tile")
def repeat(input: Tensor, *repeats: Value) -> Cost:
    """Reads the input once, writes every repetition; the backward adds them up. Source: torch.Tensor.repeat.

    >>> repeat(Tensor((4,), "float32"), 3, 2)  # 4·4 + 24·4
    Cost(flops=0, bytes=112)
    """
    times = sizes(repeats)
    require(all(n >= 0 for n in times), "negative repeats")
    output = Tensor((input.numel * prod(times),), input.dtype)
    return Cost(0, bytes_of(input, output), dgrad=Cost(output.numel, bytes_of(output, like(input))))
