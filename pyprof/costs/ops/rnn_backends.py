# SPDX-License-Identifier: Apache-2.0
"""Kernels of recurrent layers: backward of whole layers, pointwise parts of cells, quantised cells.

A layer's backward is twice its products. The pointwise part of an LSTM cell adds the two gate inputs (and two
biases), takes 3 sigmoids and 2 tanh, and forms c' and h': per unit 4 additions (12 with biases), 5 functions,
3 products and 1 addition. Of a GRU cell: 2 sigmoids, 1 tanh, 3 + 3 additions and products.

>>> f = lambda *shape: Tensor(shape, "float32")
>>> lstm_pointwise(f(2, 16), f(2, 16), f(2, 4))  # 13 · 8; (32 + 32 + 8 + 8 + 8)·4
Cost(flops=104, bytes=352)
"""

from __future__ import annotations

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.rnn import cudnn_rnn, gru_cell, lstm, lstm_cell
from pyprof.costs.ops.shapes import backward_sum, like, require, tensors_in


@cost("_thnn_fused_lstm_cell")
def lstm_pointwise(
    input_gates: Tensor, hidden_gates: Tensor, cx: Tensor, input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> Cost:  # fmt: skip
    """h' and c' from the gates (B, 4H); the workspace is not counted. Source: aten::_thnn_fused_lstm_cell, RNN.cu.

    >>> f = lambda *shape: Tensor(shape, "float32")
    >>> lstm_pointwise(f(2, 16), f(2, 16), f(2, 4), f(16), f(16))
    Cost(flops=168, bytes=480)
    """
    require(input_gates.numel == 4 * cx.numel == hidden_gates.numel, "four gates are expected")
    per_unit = 13 + (8 if input_bias is not None else 0)
    moved = bytes_of(input_gates, hidden_gates, cx, input_bias, hidden_bias, like(cx), like(cx))
    return Cost(per_unit * cx.numel, moved)


@cost("_thnn_fused_gru_cell")
def gru_pointwise(
    input_gates: Tensor, hidden_gates: Tensor, hx: Tensor, input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> Cost:  # fmt: skip
    """r, z: sum and sigmoid; n = tanh(i + r·h); h' = n + z·(h - n): 10 per unit (16 with biases). Source: RNN.cu.

    >>> f = lambda *shape: Tensor(shape, "float32")
    >>> gru_pointwise(f(2, 12), f(2, 12), f(2, 4))
    Cost(flops=80, bytes=256)
    """
    require(input_gates.numel == 3 * hx.numel == hidden_gates.numel, "three gates are expected")
    per_unit = 10 + (6 if input_bias is not None else 0)
    return Cost(per_unit * hx.numel, bytes_of(input_gates, hidden_gates, hx, input_bias, hidden_bias, like(hx)))


@cost("_thnn_fused_lstm_cell_backward", "_thnn_fused_lstm_cell_backward_impl")
def lstm_pointwise_backward(
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    cx: Tensor,
    cy: Tensor,
    workspace: Tensor,
    has_bias: Value = False,
) -> Cost:
    """Gradients of the gates (B, 4H) and of c: per unit tanh c and its derivative 5, four gates' derivatives 4·4, the
    gradient of c 3. Source: aten::_thnn_fused_lstm_cell_backward_impl, RNN.cu.

    >>> f = lambda *shape: Tensor(shape, "float32")
    >>> lstm_pointwise_backward(f(2, 4), f(2, 4), f(2, 4), f(2, 4), f(2, 16))  # 24·8; (8·4 + 32 + 32 + 8)·4
    Cost(flops=192, bytes=416)
    """
    moved = bytes_of(grad_hy, grad_cy, cx, cy, workspace, like(workspace), like(cx))
    return Cost(24 * cx.numel, moved)


@cost("_thnn_fused_gru_cell_backward")
def gru_pointwise_backward(grad_hy: Tensor, workspace: Tensor, has_bias: Value = False) -> Cost:
    """The workspace (B, 5H) holds the gates; gradients of both gate inputs (B, 3H) and of h: per unit 17.

    Source: aten::_thnn_fused_gru_cell_backward, RNN.cu.

    >>> gru_pointwise_backward(Tensor((2, 4), "float32"), Tensor((2, 20), "float32"))  # (8 + 40 + 24 + 24 + 8)·4
    Cost(flops=136, bytes=416)
    """
    require(workspace.numel == 5 * grad_hy.numel, "five values per unit are expected")
    b, h = grad_hy.shape
    gates = Tensor((b, 3 * h), grad_hy.dtype)
    return Cost(17 * grad_hy.numel, bytes_of(grad_hy, workspace, gates, gates, like(grad_hy)))


@cost("_thnn_differentiable_lstm_cell_backward")
def lstm_composite_backward(
    grad_hy: Tensor | None, grad_cy: Tensor | None, input_gates: Tensor, hidden_gates: Tensor,
    input_bias: Tensor | None, hidden_bias: Tensor | None, cx: Tensor, cy: Tensor,
) -> Cost:  # fmt: skip
    """The gates are recomputed (13 per unit) before their gradients. Source: RNN.cpp.

    >>> f = lambda *shape: Tensor(shape, "float32")
    >>> lstm_composite_backward(f(2, 4), None, f(2, 16), f(2, 16), None, None, f(2, 4), f(2, 4))
    Cost(flops=296, bytes=512)
    """
    read = bytes_of(grad_hy, grad_cy, input_gates, hidden_gates, input_bias, hidden_bias, cx, cy)
    written = bytes_of(like(input_gates), like(cx))
    moved = None if read is None or written is None else read + written
    return Cost((13 + 24) * cx.numel, moved)


@cost("_thnn_differentiable_gru_cell_backward")
def gru_composite_backward(
    grad_hy: Tensor, input_gates: Tensor, hidden_gates: Tensor, hx: Tensor, input_bias: Tensor | None,
    hidden_bias: Tensor | None,
) -> Cost:  # fmt: skip
    """Source: aten::_thnn_differentiable_gru_cell_backward, RNN.cpp.

    >>> f = lambda *shape: Tensor(shape, "float32")
    >>> gru_composite_backward(f(2, 4), f(2, 12), f(2, 12), f(2, 4), None, None)  # (8 + 24 + 24 + 8 + 24 + 24 + 8)·4
    Cost(flops=216, bytes=480)
    """
    read = (grad_hy, input_gates, hidden_gates, hx, input_bias, hidden_bias)
    return Cost((10 + 17) * hx.numel, bytes_of(*read, like(input_gates), like(hidden_gates), like(hx)))


@cost("miopen_rnn")
def miopen_rnn(
    input: Tensor, weight: Value, weight_stride0: Value, hx: Tensor, cx: Value, mode: Value, hidden_size: Value,
    num_layers: Value, batch_first: Value, dropout: Value, train: Value, bidirectional: Value, *parameters: Value,
) -> Cost:  # fmt: skip
    """Like _cudnn_rnn, without a buffer of packed weights. Source: aten::miopen_rnn.

    >>> f = lambda *shape: Tensor(shape, "float32")
    >>> h = f(1, 2, 4)
    >>> miopen_rnn(f(5, 2, 8), (f(16, 8), f(16, 4), f(16), f(16)), 4, h, h, 2, 4, 1, False, 0.0, True, False, (), None)
    Cost(flops=3840, bytes=1504)
    """
    weights = tuple(tensors_in((weight,)))
    return cudnn_rnn(
        input,
        weights,
        0,
        None,
        hx,
        cx,
        mode,
        hidden_size,
        0,
        num_layers,
        batch_first,
        dropout,
        train,
        bidirectional,
    )


def _both(whole: Cost) -> Cost:
    return backward_sum(whole.dgrad, whole.wgrad)


@cost("_cudnn_rnn_backward")
def cudnn_rnn_backward(
    input: Tensor, weight: Value, weight_stride0: Value, weight_buf: Value, hx: Tensor, cx: Value, output: Value,
    grad_output: Value, grad_hy: Value, grad_cy: Value, mode: Value, hidden_size: Value, proj_size: Value,
    num_layers: Value, batch_first: Value, dropout: Value, train: Value, bidirectional: Value, *parameters: Value,
) -> Cost:  # fmt: skip
    """Gradients of input and weights: twice the products of the forward. Source: aten::_cudnn_rnn_backward.

    >>> f = lambda *shape: Tensor(shape, "float32")
    >>> w, h, y = (f(16, 8), f(16, 4), f(16), f(16)), f(1, 2, 4), f(5, 2, 4)
    >>> cudnn_rnn_backward(f(5, 2, 8), w, 4, f(224), h, h, y, y, h, h, 2, 4, 0, 1, False, 0.0, True, False, ())
    Cost(flops=7680, bytes=3008)
    """
    weights = tuple(tensors_in((weight,)))
    return _both(
        cudnn_rnn(
            input, weights, 0, None, hx, cx, mode, hidden_size, proj_size, num_layers, batch_first, dropout, train,
            bidirectional,
        )
    )  # fmt: skip


@cost("miopen_rnn_backward")
def miopen_rnn_backward(
    input: Tensor, weight: Value, weight_stride0: Value, weight_buf: Value, hx: Tensor, cx: Value, output: Value,
    grad_output: Value, grad_hy: Value, grad_cy: Value, mode: Value, hidden_size: Value, num_layers: Value,
    batch_first: Value, dropout: Value, train: Value, bidirectional: Value, *parameters: Value,
) -> Cost:  # fmt: skip
    """Source: aten::miopen_rnn_backward.

    >>> f = lambda *shape: Tensor(shape, "float32")
    >>> w, h, y = (f(16, 8), f(16, 4), f(16), f(16)), f(1, 2, 4), f(5, 2, 4)
    >>> miopen_rnn_backward(f(5, 2, 8), w, 4, f(224), h, h, y, y, h, h, 2, 4, 1, False, 0.0, True, False, ())
    Cost(flops=7680, bytes=3008)
    """
    whole = miopen_rnn(
        input, weight, 0, hx, cx, mode, hidden_size, num_layers, batch_first, dropout, train, bidirectional
    )
    return _both(whole)


@cost("_lstm_mps")
def lstm_mps(*args: Value) -> Cost:
    """Source: aten::_lstm_mps: the arguments of lstm.

    >>> f = lambda *shape: Tensor(shape, "float32")
    >>> lstm_mps(f(5, 2, 8), (f(1, 2, 4),) * 2, (f(16, 8), f(16, 4)), False, 1, 0.0, True, False, False).flops
    3840
    """
    return lstm(*args)


@cost("quantized_lstm_cell")
def quantized_lstm_cell(
    input: Tensor, hx: Value, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor, *packed: Value
) -> Cost:
    """The packed copies of the weights are not counted again. Source: aten::quantized_lstm_cell.

    >>> f, q = (lambda *shape: Tensor(shape, "float32")), (lambda *shape: Tensor(shape, "int8"))
    >>> quantized_lstm_cell(f(2, 8), (f(2, 4), f(2, 4)), q(16, 8), q(16, 4), f(16), f(16)).flops
    768
    """
    return lstm_cell(input, *tensors_in((hx,)), w_ih, w_hh, b_ih, b_hh)._replace(dgrad=None, wgrad=None)


@cost("quantized_gru_cell", "quantized_rnn_relu_cell", "quantized_rnn_tanh_cell")
def quantized_gru_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor, *packed: Value
) -> Cost:
    """Source: aten::quantized_gru_cell.

    >>> f, q = (lambda *shape: Tensor(shape, "float32")), (lambda *shape: Tensor(shape, "int8"))
    >>> quantized_gru_cell(f(2, 8), f(2, 4), q(12, 8), q(12, 4), f(12), f(12)).flops
    576
    """
    return gru_cell(input, hx, w_ih, w_hh, b_ih, b_hh)._replace(dgrad=None, wgrad=None)
