# SPDX-License-Identifier: Apache-2.0
"""Padding and its backward: no FLOPs; the backward of reflection and replication adds overlapping elements.

>>> pad(Tensor((2, 3), "float32"), (1, 1))  # 6·4 + 10·4
Cost(flops=0, bytes=64)
"""

from __future__ import annotations

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.shapes import like, require, sizes, tensors_in

_EDGES = [f"{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3)]


@cost("pad", "constant_pad_nd", "_pad_enum", "_pad_circular", *_EDGES)
def pad(input: Tensor, pad: Value, mode: Value = None, value: Value = None) -> Cost:
    """Sizes grow by pairs, starting at the last dimension; negative ones crop. Source: torch.nn.functional.pad.

    >>> pad(Tensor((2, 3), "float32"), (1, 1))
    Cost(flops=0, bytes=64)
    """
    edges = sizes((pad,))
    require(len(edges) % 2 == 0 and len(edges) <= 2 * len(input.shape), "pairs of edges are expected")
    shape = list(input.shape)
    for i, edge in enumerate(edges):
        shape[-1 - i // 2] += edge
    require(min(shape, default=0) >= 0, "nothing is left")
    output = Tensor(tuple(shape), input.dtype)
    return Cost(0, bytes_of(input, output), dgrad=Cost(0, bytes_of(output, like(input))))


@cost(*(f"{name}_backward" for name in _EDGES))
def pad_backward(grad_output: Tensor, input: Tensor, padding: Value = None) -> Cost:
    """Every gradient is added to the element that it was read from. Source: aten::reflection_pad2d_backward.

    >>> pad_backward(Tensor((2, 5), "float32"), Tensor((2, 3), "float32"), (1, 1))
    Cost(flops=10, bytes=64)
    """
    return Cost(grad_output.numel, bytes_of(grad_output, like(input)))


@cost("pad_sequence")
def pad_sequence(sequences: Value, batch_first: Value = False, *parameters: Value) -> Cost:
    """Sequences (L, *) in one batch, the shorter ones padded. Source: torch.nn.utils.rnn.pad_sequence.

    >>> pad_sequence((Tensor((3, 2), "float32"), Tensor((5, 2), "float32")))  # 64 + 2·5·2·4
    Cost(flops=0, bytes=144)
    """
    parts = tensors_in((sequences,))
    require(bool(parts), "sequences are expected")
    longest = max(t.shape[0] for t in parts)
    output = Tensor((len(parts), longest, *parts[0].shape[1:]), parts[0].dtype)
    return Cost(0, bytes_of(*parts, output))


@cost("_pack_padded_sequence")
def pack_padded_sequence(input: Tensor, lengths: Tensor, batch_first: Value = False) -> Cost:
    """The packed size depends on data. Source: aten::_pack_padded_sequence.

    >>> pack_padded_sequence(Tensor((5, 2, 4), "float32"), Tensor((2,), "int64"))
    Cost(flops=0, bytes=None)
    """
    require(isinstance(input, Tensor), "a tensor is expected")
    return Cost(0, None)


@cost("_pack_padded_sequence_backward")
def pack_padded_sequence_backward(
    grad: Tensor, input_size: Value, batch_sizes: Tensor, batch_first: Value = False
) -> Cost:
    """The packed gradient scattered into zeros. Source: aten::_pack_padded_sequence_backward.

    >>> pack_padded_sequence_backward(Tensor((7, 4), "float32"), (5, 2, 4), Tensor((5,), "int64"))
    Cost(flops=0, bytes=272)
    """
    return Cost(0, bytes_of(grad, Tensor(sizes((input_size,)), grad.dtype)))


@cost("_pad_packed_sequence")
def pad_packed_sequence(
    data: Tensor, batch_sizes: Tensor, batch_first: Value, padding_value: Value, total_length: Value
) -> Cost:
    """The batch depends on data: bytes unknown. Source: aten::_pad_packed_sequence.

    >>> pad_packed_sequence(Tensor((7, 4), "float32"), Tensor((5,), "int64"), False, 0.0, 5)
    Cost(flops=0, bytes=None)
    """
    require(isinstance(data, Tensor), "a tensor is expected")
    return Cost(0, None)
