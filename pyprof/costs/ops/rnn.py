# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers and cells: RNN, LSTM, GRU.

Only the matrix products count: every weight matrix of every layer, direction and gate is multiplied with every row of
every time step once, 2·T·B·(elements of all weight matrices). Gates' pointwise work is not counted. Bytes: input,
states and all parameters once; output and final states once. dgrad and wgrad are the same number of products each.

>>> f = lambda *shape: Tensor(shape, "float32")
>>> params = (f(16, 8), f(16, 4), f(16), f(16))
>>> lstm(f(5, 2, 8), (f(1, 2, 4), f(1, 2, 4)), params, True, 1, 0.0, True, False, False)  # 2·10·(128 + 64)
Cost(flops=3840, bytes=1504)
"""

from __future__ import annotations

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.shapes import as_int, backward_sum, like, require, scalars_in, tensors_in


def _products(rows: int, weights: list[Tensor], read: list[Tensor], written: list[Tensor]) -> Cost:
    flops = 2 * rows * sum(w.numel for w in weights)
    part = Cost(flops, bytes_of(*read, *written))
    return Cost(flops, bytes_of(*read, *written), dgrad=part, wgrad=part)


def _layers(args: tuple[Value, ...], states: int) -> Cost:
    """(input, states, params, has_biases, num_layers, dropout, train, bidirectional, ...), or with batch_sizes after
    a packed input. Sequences may be flattened into tensors."""
    data, *remaining = tensors_in(args)
    if remaining[0].dtype == "int64":
        remaining = remaining[1:]  # batch_sizes, which the host reads
    hidden, params = remaining[:states], remaining[states:]
    weights = [p for p in params if len(p.shape) == 2]
    settings = scalars_in(args)
    require(len(settings) > 4 and bool(weights), "num_layers and bidirectional are expected")
    layers, directions = as_int(settings[1]), 2 if settings[4] else 1
    require(hidden[0].shape[0] == layers * directions, "states do not fit the layers")
    *steps, features = data.shape
    require(features == weights[0].shape[1], "the input does not fit the first weight")
    output = Tensor((*steps, hidden[0].shape[-1] * directions), data.dtype)
    rows = output.numel // output.shape[-1]
    return _products(rows, weights, [data, *hidden, *params], [output, *map(like, hidden)])


@cost("lstm")
def lstm(*args: Value) -> Cost:
    """Source: aten::lstm, torch._VF.lstm: two states.

    >>> f = lambda *shape: Tensor(shape, "float32")
    >>> lstm(f(5, 2, 8), f(1, 2, 4), f(1, 2, 4), f(16, 8), f(16, 4), f(16), f(16), True, 1, 0.0, True, False, False)
    Cost(flops=3840, bytes=1504)
    """
    return _layers(args, 2)


@cost("gru", "rnn_tanh", "rnn_relu")
def gru(*args: Value) -> Cost:
    """Source: aten::gru, torch._VF.gru: one state.

    >>> f = lambda *shape: Tensor(shape, "float32")
    >>> gru(f(5, 2, 8), f(1, 2, 4), (f(12, 8), f(12, 4)), False, 1, 0.0, True, False, False)  # 2·10·(96 + 48)
    Cost(flops=2880, bytes=1120)
    """
    return _layers(args, 1)


def _cell(args: tuple[Value, ...], states: int) -> Cost:
    """(input, states, w_ih, w_hh, b_ih, b_hh)."""
    data, *remaining = tensors_in(args)
    hidden, params = remaining[:states], remaining[states:]
    w_ih, w_hh = params[:2]
    h = hidden[0].shape[-1]
    require(w_ih.shape[1] == data.shape[-1] and w_hh.shape[1] == h, "the weights do not fit")
    rows = hidden[0].numel // h
    return _products(rows, [w_ih, w_hh], [data, *hidden, *params], [like(t) for t in hidden])


@cost("lstm_cell")
def lstm_cell(*args: Value) -> Cost:
    """Source: aten::lstm_cell.

    >>> f = lambda *shape: Tensor(shape, "float32")
    >>> lstm_cell(f(2, 8), (f(2, 4), f(2, 4)), f(16, 8), f(16, 4), f(16), f(16))  # 2·2·192
    Cost(flops=768, bytes=1088)
    """
    return _cell(args, 2)


@cost("gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
def gru_cell(*args: Value) -> Cost:
    """Source: aten::gru_cell.

    >>> f = lambda *shape: Tensor(shape, "float32")
    >>> gru_cell(f(2, 8), f(2, 4), f(12, 8), f(12, 4), f(12), f(12))  # 2·2·144
    Cost(flops=576, bytes=800)
    """
    return _cell(args, 1)


# Gates of the module classes; classic markers record the call of `forward` without the parameters.
GATES = {"LSTMCell": 4, "GRUCell": 3, "RNNCell": 1}


def _cell_module(name: str) -> None:
    gates = GATES[name]

    @cost(f"{name}.forward", f"torch.nn.{name}.forward")
    def forward(*args: Value) -> Cost:
        """Parameters follow from the shapes of input and state; two bias vectors are assumed, the default."""
        data, *hidden = tensors_in(args)
        x, h = data.shape[-1], hidden[0].shape[-1]
        g = gates * h
        params = [Tensor(shape, data.dtype) for shape in ((g, x), (g, h), (g,), (g,))]
        require(len(hidden) == (2 if gates == 4 else 1), "the states are expected")
        return _cell((data, *hidden, *params), len(hidden))


for _name in GATES:
    _cell_module(_name)


@cost("mkldnn_rnn_layer")
def mkldnn_rnn_layer(
    input: Tensor, weight0: Tensor, weight1: Tensor, weight2: Tensor, weight3: Tensor, hx_: Tensor, cx_: Tensor,
    *parameters: Value,
) -> Cost:  # fmt: skip
    """One layer and direction. Source: aten::mkldnn_rnn_layer.

    >>> f = lambda *shape: Tensor(shape, "float32")
    >>> mkldnn_rnn_layer(f(5, 2, 8), f(16, 8), f(16, 4), f(16), f(16), f(2, 4), f(2, 4), False, (), 2, 4, 1)
    Cost(flops=3840, bytes=1504)
    """
    rows = input.numel // input.shape[-1]
    output = Tensor((rows, hx_.shape[-1]), input.dtype)
    read = [input, weight0, weight1, weight2, weight3, hx_, cx_]
    return _products(rows, [weight0, weight1], read, [output, like(hx_), like(cx_)])


@cost("mkldnn_rnn_layer_backward")
def mkldnn_rnn_layer_backward(
    input: Tensor, weight1: Tensor, weight2: Tensor, weight3: Tensor, weight4: Tensor, hx_: Tensor, cx_tmp: Tensor,
    output: Tensor, *parameters: Value,
) -> Cost:  # fmt: skip
    """Both gradients: twice the products of the forward. Source: aten::mkldnn_rnn_layer_backward.

    >>> f = lambda *shape: Tensor(shape, "float32")
    >>> mkldnn_rnn_layer_backward(f(5, 2, 8), f(16, 8), f(16, 4), f(16), f(16), f(2, 4), f(2, 4), f(5, 2, 4)).flops
    7680
    """
    part = mkldnn_rnn_layer(input, weight1, weight2, weight3, weight4, hx_, cx_tmp).dgrad
    return backward_sum(part, part)


@cost("_cudnn_rnn")
def cudnn_rnn(
    input: Tensor, weight: tuple[Tensor, ...], weight_stride0: Value, weight_buf: Value, hx: Tensor, cx: Value,
    mode: Value, hidden_size: Value, proj_size: Value, num_layers: Value, batch_first: Value, dropout: Value,
    train: Value, bidirectional: Value, *parameters: Value,
) -> Cost:  # fmt: skip
    """All layers; the parameters count once, their packed buffer is not counted. Source: aten::_cudnn_rnn.

    >>> f = lambda *shape: Tensor(shape, "float32")
    >>> weights = (f(16, 8), f(16, 4), f(16), f(16))
    >>> h = f(1, 2, 4)
    >>> cudnn_rnn(f(5, 2, 8), weights, 4, None, h, h, 2, 4, 0, 1, False, 0.0, True, False, (), None)
    Cost(flops=3840, bytes=1504)
    """
    states = [t for t in (hx, cx) if isinstance(t, Tensor)]
    settings = (True, num_layers, dropout, train, bidirectional)
    return _layers((input, *states, *tensors_in(weight), *settings), len(states))
