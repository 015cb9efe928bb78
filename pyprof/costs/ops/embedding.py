# SPDX-License-Identifier: Apache-2.0
"""Embeddings: rows gathered from a table. No FLOPs; bytes: the indices, the rows read, the rows written.

The backward adds one gradient row per index into a table of zeros: one FLOP per gradient element; it reads gradient
and indices and writes the whole dense gradient once.

>>> weight, input = Tensor((1000, 16), "float32"), Tensor((4, 8), "int64")
>>> embedding(input, weight), embedding(input, weight).dgrad  # 32·8 + 2·512·4; 512·4 + 256 + 16000·4
(Cost(flops=0, bytes=4352), Cost(flops=512, bytes=66304))
"""

from __future__ import annotations

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.shapes import as_int, is_float, like, require


def _gathered(input: Tensor, weight: Tensor) -> Tensor:
    require(
        len(weight.shape) == 2 and not is_float(input.dtype),
        "integer indices and a table (V, D) are expected",
    )
    return Tensor((*input.shape, weight.shape[1]), weight.dtype)


@cost("torch.nn.functional.embedding")
def embedding(
    input: Tensor, weight: Tensor, padding_idx: Value = None, max_norm: Value = None, norm_type: Value = 2.0,
    scale_grad_by_freq: Value = False, sparse: Value = False,
) -> Cost:  # fmt: skip
    """A sparse gradient has the rows only. Renormalising by max_norm is not counted. Source: F.embedding.

    >>> embedding(Tensor((3,), "int64"), Tensor((10, 4), "float32"), sparse=True).dgrad
    Cost(flops=0, bytes=120)
    """
    rows = _gathered(input, weight)
    dgrad = Cost(0, bytes_of(rows, input, rows)) if sparse else Cost(rows.numel, bytes_of(rows, input, like(weight)))
    return Cost(0, bytes_of(input, rows, rows), dgrad=dgrad)


@cost("embedding", moves=True)
def dispatched_embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: Value = -1,
    scale_grad_by_freq: Value = False,
    sparse: Value = False,
) -> Cost:
    """The table comes first. Source: torch.embedding, aten::embedding.

    >>> dispatched_embedding(Tensor((1000, 16), "float32"), Tensor((4, 8), "int64"))
    Cost(flops=0, bytes=4352)
    """
    return embedding(indices, weight, sparse=sparse)


@cost("embedding_dense_backward", "embedding_backward")
def embedding_dense_backward(grad_output: Tensor, indices: Tensor, num_weights: Value, *parameters: Value) -> Cost:
    """Source: aten::embedding_dense_backward.

    >>> embedding_dense_backward(Tensor((4, 8, 16), "float32"), Tensor((4, 8), "int64"), 1000)
    Cost(flops=512, bytes=66304)
    """
    table = Tensor((as_int(num_weights), grad_output.shape[-1]), grad_output.dtype)
    return Cost(grad_output.numel, bytes_of(grad_output, indices, table))


def _bag(input: Tensor, weight: Tensor, offsets: Tensor | None, include_last: Value, scales: Tensor | None) -> Cost:
    rows = _gathered(input, weight)
    if len(input.shape) == 2:
        bags = input.shape[0]
    else:
        require(offsets is not None, "one-dimensional input needs offsets")
        assert offsets is not None
        bags = offsets.shape[0] - int(include_last is True)
    output = Tensor((bags, weight.shape[1]), weight.dtype)
    flops = rows.numel * (1 if scales is None else 2)
    dgrad = Cost(flops, bytes_of(output, input, offsets, scales, like(weight)))
    return Cost(flops, bytes_of(input, offsets, scales, rows, output), dgrad=dgrad)


@cost("torch.nn.functional.embedding_bag")
def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: Value = None, norm_type: Value = 2,
    scale_grad_by_freq: Value = False, mode: Value = "mean", sparse: Value = False,
    per_sample_weights: Tensor | None = None, include_last_offset: Value = False, padding_idx: Value = None,
) -> Cost:  # fmt: skip
    """One addition (two with weights) per gathered element, one row per bag. Source: F.embedding_bag.

    >>> embedding_bag(Tensor((2, 3), "int64"), Tensor((10, 4), "float32"))  # 6·8 + 24·4 + 8·4
    Cost(flops=24, bytes=176)
    """
    return _bag(input, weight, offsets, include_last_offset, per_sample_weights)


@cost("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
def dispatched_embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: Value = False, mode: Value = 0,
    sparse: Value = False, per_sample_weights: Tensor | None = None, include_last_offset: Value = False,
    padding_idx: Value = None,
) -> Cost:  # fmt: skip
    """Source: aten::_embedding_bag.

    >>> dispatched_embedding_bag(Tensor((10, 4), "float32"), Tensor((6,), "int64"), Tensor((2,), "int64"))
    Cost(flops=24, bytes=192)
    """
    return _bag(indices, weight, offsets, include_last_offset, per_sample_weights)


def _bag_backward(grad: Tensor, indices: Tensor, rows: int, scales: Tensor | None, sparse: bool, *read: Tensor) -> Cost:
    """Return the cost of adding the gradient row of a bag to every row that it gathered."""
    width = grad.shape[-1]
    part = Tensor((indices.numel, width), grad.dtype)
    if sparse:
        return Cost(0 if scales is None else part.numel, bytes_of(grad, indices, *read, scales, part))
    table = Tensor((rows, width), grad.dtype)
    flops = part.numel * (1 if scales is None else 2)
    return Cost(flops, bytes_of(grad, indices, *read, scales, table))


@cost("_embedding_bag_backward")
def embedding_bag_backward(
    grad: Tensor, indices: Tensor, offsets: Tensor, offset2bag: Tensor, bag_size: Value, maximum_indices: Value,
    num_weights: Value, scale_grad_by_freq: Value = False, mode: Value = 0, sparse: Value = False,
    per_sample_weights: Tensor | None = None, padding_idx: Value = -1,
) -> Cost:  # fmt: skip
    """Source: aten::_embedding_bag_backward.

    >>> i, b = Tensor((6,), "int64"), Tensor((2,), "int64")
    >>> embedding_bag_backward(Tensor((2, 4), "float32"), i, b, i, b, b, 10)  # 24; 32 + 48 + 48 + 160
    Cost(flops=24, bytes=288)
    """
    return _bag_backward(grad, indices, as_int(num_weights), per_sample_weights, sparse is True, offset2bag)


@cost("_embedding_bag_dense_backward")
def embedding_bag_dense_backward(
    grad: Tensor, indices: Tensor, offset2bag: Tensor, bag_size: Value, maximum_indices: Value, num_weights: Value,
    scale_grad_by_freq: Value = False, mode: Value = 0, per_sample_weights: Tensor | None = None,
    padding_idx: Value = -1,
) -> Cost:  # fmt: skip
    """Source: aten::_embedding_bag_dense_backward.

    >>> i, b = Tensor((6,), "int64"), Tensor((2,), "int64")
    >>> embedding_bag_dense_backward(Tensor((2, 4), "float32"), i, i, b, b, 10)
    Cost(flops=24, bytes=288)
    """
    return _bag_backward(grad, indices, as_int(num_weights), per_sample_weights, False, offset2bag)


@cost("_embedding_bag_sparse_backward")
def embedding_bag_sparse_backward(
    grad: Tensor, indices: Tensor, offsets: Tensor, offset2bag: Tensor, bag_size: Value, num_weights: Value,
    scale_grad_by_freq: Value = False, mode: Value = 0, per_sample_weights: Tensor | None = None,
    padding_idx: Value = -1,
) -> Cost:  # fmt: skip
    """Rows only, without additions. Source: aten::_embedding_bag_sparse_backward.

    >>> i, b = Tensor((6,), "int64"), Tensor((2,), "int64")
    >>> embedding_bag_sparse_backward(Tensor((2, 4), "float32"), i, b, i, b, 10)
    Cost(flops=0, bytes=224)
    """
    return _bag_backward(grad, indices, as_int(num_weights), per_sample_weights, True, offset2bag)


@cost("_embedding_bag_per_sample_weights_backward")
def embedding_bag_weights_backward(
    grad: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, offset2bag: Tensor, mode: Value = 0,
    padding_idx: Value = -1,
) -> Cost:  # fmt: skip
    """Products of gathered rows with their bag's gradient. Source: aten::_embedding_bag_per_sample_weights_backward.

    >>> i, w = Tensor((6,), "int64"), Tensor((10, 4), "float32")
    >>> embedding_bag_weights_backward(Tensor((2, 4), "float32"), w, i, Tensor((2,), "int64"), i)  # 6·8
    Cost(flops=48, bytes=248)
    """
    rows = Tensor((indices.numel, weight.shape[1]), weight.dtype)
    results = Tensor((indices.numel,), weight.dtype)
    return Cost(2 * rows.numel, bytes_of(grad, rows, indices, offset2bag, results))


@cost("embedding_sparse_backward")
def embedding_sparse_backward(grad: Tensor, indices: Tensor, *parameters: Value) -> Cost:
    """Rows and indices, without additions. Source: aten::embedding_sparse_backward.

    >>> embedding_sparse_backward(Tensor((6, 4), "float32"), Tensor((6,), "int64"), 10, -1, False)
    Cost(flops=0, bytes=240)
    """
    return Cost(0, bytes_of(grad, indices, like(grad)))
