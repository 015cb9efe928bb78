# SPDX-License-Identifier: Apache-2.0
"""Operators of optimizers: `_foreach_*` operators over lists of tensors, and the fused steps.

A foreach operator applies its elementwise namesake to every tensor of the lists: each list is read once and the first
is written (or a result as large). A fused step reads and writes parameters and state, and reads the gradients: SGD 2
FLOPs per parameter, with momentum 4; Adam 13, AdamW 14, one more with amsgrad. No backward.

>>> p = (Tensor((10,), "float32"), Tensor((2, 5), "float32"))
>>> fused_adamw(p, p, p, p, (), (Tensor((), "float32"),) * 2)  # 14·20; (4 read + 3 written)·80 + 2·4
Cost(flops=280, bytes=568)
"""

from __future__ import annotations

from collections.abc import Callable

from pyprof.core.model import Cost, Tensor, Value
from pyprof.costs.cost import bytes_of, cost
from pyprof.costs.ops.pointwise import FLOAT_UNARY, SAME_UNARY
from pyprof.costs.ops.shapes import like, require, tensors_in

# FLOPs per element. The operators of one list: their row in the tables of pointwise. Source: native_functions.yaml.
FOREACH = {
    "add": 1, "sub": 1, "div": 1, "addcmul": 3, "addcdiv": 3, "lerp": 3, "zero": 0, "copy": 0, "abs": 1, "clone": 0,
    "clamp_min": 1, "clamp_max": 1, "minimum": 1, "maximum": 1, "mul": 1, "pow": 1,
    **{
        name: (FLOAT_UNARY | SAME_UNARY)[name][0]
        for name in (
            "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma",
            "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh",
            "sqrt", "tan", "tanh", "trunc",
        )
    },
}  # fmt: skip
OVERWRITTEN = ("zero", "copy")  # the first list is not read


def _foreach(flops: int, overwrites: bool, scales: bool) -> Callable[..., Cost]:
    """Return the formula of a foreach operator. With `scales`, a number after the second list is alpha, one product
    more per element unless it is 1."""

    def foreach(input: tuple[Tensor, ...], *operands: Value, alpha: Value = 1, **keywords: Value) -> Cost:
        first = tensors_in((input,))
        inputs = tensors_in((*operands, *keywords.values()))
        require(isinstance(input, tuple) and bool(first), "a list of tensors is expected")
        lists = [value for value in (*operands, *keywords.values()) if isinstance(value, tuple) and tensors_in(value)]
        require(all(len(tensors_in(value)) == len(first) for value in lists), "lists of one length are expected")
        read = inputs if overwrites else [*first, *inputs]
        factor = operands[1] if len(operands) > 1 and tensors_in(operands[:1]) else alpha
        per_element = flops + int(scales and not isinstance(factor, Tensor) and factor not in (1, None))
        return Cost(per_element * sum(t.numel for t in first), bytes_of(*read, *map(like, first)))

    return foreach


for _name, _flops in FOREACH.items():
    cost(f"_foreach_{_name}")(_foreach(_flops, _name in OVERWRITTEN, _name in ("add", "sub")))


def _reduction(input: Value, per_element: int, result: int) -> Cost:
    """Return the cost of a reduction: `per_element` FLOPs per element and `result` per tensor, for which one number
    is written."""
    parts = tensors_in((input,))
    require(bool(parts), "a list of tensors is expected")
    results = [Tensor((), t.dtype) for t in parts]
    return Cost(per_element * sum(t.numel for t in parts) + result * len(parts), bytes_of(*parts, *results))


@cost("_foreach_norm")
def foreach_norm(input: tuple[Tensor, ...], *parameters: Value) -> Cost:
    """Power and addition per element, a root per tensor. Source: aten::_foreach_norm.

    >>> foreach_norm((Tensor((10,), "float32"), Tensor((2, 5), "float32")))
    Cost(flops=42, bytes=88)
    """
    return _reduction(input, 2, 1)


@cost("_foreach_powsum")
def foreach_powsum(input: tuple[Tensor, ...], *parameters: Value) -> Cost:
    """The norm without its root. Source: aten::_foreach_powsum.

    >>> foreach_powsum((Tensor((10,), "float32"), Tensor((2, 5), "float32")))
    Cost(flops=40, bytes=88)
    """
    return _reduction(input, 2, 0)


@cost("_foreach_max")
def foreach_max(input: tuple[Tensor, ...], *parameters: Value) -> Cost:
    """A comparison per element. Source: aten::_foreach_max.

    >>> foreach_max((Tensor((10,), "float32"), Tensor((2, 5), "float32")))
    Cost(flops=20, bytes=88)
    """
    return _reduction(input, 1, 0)


def _step(flops: int, input: Value, grads: Value, state: list[Value], steps: Value = ()) -> Cost:
    """Return the cost of a fused step. `state` is read and written like the parameters, `steps` are read."""
    weights, gradients = tensors_in((input,)), tensors_in((grads,))
    state_tensors = tensors_in(state)
    require(0 < len(weights) == len(gradients), "lists of one length are expected")
    written = [like(t) for t in (*weights, *state_tensors)]
    total = sum(t.numel for t in weights)
    return Cost(flops * total, bytes_of(*weights, *gradients, *state_tensors, *written, *tensors_in((steps,))))


@cost("_fused_adamw")
def fused_adamw(
    input: Value, grads: Value, exp_avgs: Value, exp_avg_sqs: Value, max_exp_avg_sqs: Value = (),
    state_steps: Value = (), *settings: Value, amsgrad: Value = False, **keywords: Value,
) -> Cost:  # fmt: skip
    """Two moments (3 + 4), their corrections and the root (4), update 2 and decay 1. Source: aten::_fused_adamw_.

    >>> p = (Tensor((10,), "float16"),)
    >>> fused_adamw(p, p, p, p)
    Cost(flops=140, bytes=140)
    """
    flops = 15 if tensors_in((max_exp_avg_sqs,)) else 14
    return _step(flops, input, grads, [exp_avgs, exp_avg_sqs, max_exp_avg_sqs], state_steps)


@cost("_fused_adam")
def fused_adam(
    input: Value, grads: Value, exp_avgs: Value, exp_avg_sqs: Value, max_exp_avg_sqs: Value = (),
    state_steps: Value = (), *settings: Value, **keywords: Value,
) -> Cost:  # fmt: skip
    """One less than AdamW, without decay. Source: aten::_fused_adam_.

    >>> p = (Tensor((10,), "float16"),)
    >>> fused_adam(p, p, p, p)
    Cost(flops=130, bytes=140)
    """
    flops = 14 if tensors_in((max_exp_avg_sqs,)) else 13
    return _step(flops, input, grads, [exp_avgs, exp_avg_sqs, max_exp_avg_sqs], state_steps)


@cost("_fused_sgd")
def fused_sgd(
    input: Value, grads: Value, momentum_buffer_list: Value = (), *settings: Value, **keywords: Value
) -> Cost:
    """Scale and subtract; momentum first scales and adds to its buffer, 2 more; Nesterov 2 more; weight decay scales
    and adds, 2 more. Dampening is not counted. The settings are weight_decay, momentum, lr, dampening, nesterov.
    Source: aten::_fused_sgd_; torch.optim.SGD.

    >>> p = (Tensor((10,), "float32"),)
    >>> fused_sgd(p, p), fused_sgd(p, p, p), fused_sgd(p, p, p, 0.1, 0.9, 0.01, 0.0, True).flops
    (Cost(flops=20, bytes=120), Cost(flops=40, bytes=200), 80)
    """
    named = dict(zip(("weight_decay", "momentum", "lr", "dampening", "nesterov"), settings)) | keywords
    momentum = bool(tensors_in((momentum_buffer_list,)))
    flops = 4 if momentum else 2
    flops += 2 if momentum and named.get("nesterov") is True else 0
    flops += 2 if named.get("weight_decay") else 0
    return _step(flops, input, grads, [momentum_buffer_list])


@cost("_fused_adagrad")
def fused_adagrad(
    input: Value,
    grads: Value,
    state_sums: Value,
    state_steps: Value = (),
    *settings: Value,
    **keywords: Value,
) -> Cost:
    """Square, add, root, add eps, divide, scale, subtract: 7. Source: aten::_fused_adagrad_.

    >>> p = (Tensor((10,), "float32"),)
    >>> fused_adagrad(p, p, p)
    Cost(flops=70, bytes=200)
    """
    return _step(7, input, grads, [state_sums], state_steps)


@cost("fused_adam_cuda.adam")
def apex_adam(p: Tensor, out_p: Tensor, m: Tensor, v: Tensor, g: Tensor, *settings: Value) -> Cost:
    """apex's fused Adam; `out_p` is a copy in half precision, or empty. Source: apex, csrc/fused_adam_cuda.cpp.

    >>> p, g = Tensor((10,), "float32"), Tensor((10,), "float16")
    >>> apex_adam(p, g, p, p, g, 0.1)  # 3·40 read and written, 20 read, 20 written
    Cost(flops=130, bytes=280)
    """
    cost_of_step = _step(13, p, g, [m, v])
    copy = out_p.bytes
    return Cost(cost_of_step.flops, None if cost_of_step.bytes is None or copy is None else cost_of_step.bytes + copy)


@cost("_amp_foreach_non_finite_check_and_unscale")
def amp_unscale(input: Value, found_inf: Tensor, inv_scale: Tensor, inplace: bool = False) -> Cost:
    """GradScaler's step on the gradients: two tests and a product per element. Source: AmpKernels.cu.

    >>> g = (Tensor((10,), "float32"), Tensor((2, 5), "float32"))
    >>> amp_unscale(g, Tensor((1,), "float32"), Tensor((1,), "float32"))  # 80 and 8 read, 80 and 4 written
    Cost(flops=60, bytes=172)
    """
    grads = tensors_in((input,))
    require(bool(grads), "a list of tensors is expected")
    moved = bytes_of(*grads, *map(like, grads), found_inf, like(found_inf), inv_scale)
    return Cost(3 * sum(t.numel for t in grads), moved)


@cost("_amp_update_scale")
def amp_update_scale(input: Tensor, growth_tracker: Tensor, found_inf: Tensor, *settings: Value) -> Cost:
    """Scale and growth tracker, one number each, are read and written. Two comparisons and a product. Source:
    AmpKernels.cu.

    >>> amp_update_scale(Tensor((1,), "float32"), Tensor((1,), "int32"), Tensor((1,), "float32"), 2.0, 0.5, 2000)
    Cost(flops=3, bytes=20)
    """
    moved = bytes_of(input, like(input), growth_tracker, like(growth_tracker), found_inf)
    return Cost(3 * input.numel, moved)
