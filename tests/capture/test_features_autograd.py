# SPDX-License-Identifier: Apache-2.0
"""Gradients and transforms: autocast, vmap, checkpoint, custom Functions, hooks, modes of autograd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from .features import Features, check

features = Features()
pytestmark = pytest.mark.filterwarnings("ignore")
Tensor = torch.Tensor


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * grad * x


class Scale(torch.autograd.Function):
    """With setup_context, vmap and jvp, as torch.func wants it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, factor: float) -> Tensor:
        return x * factor

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad * ctx.factor, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: Any) -> Tensor:
        return tangent * ctx.factor


@features("custom Function", "torch.autograd.Square.apply")
def custom_function() -> Any:
    x = torch.randn(5, requires_grad=True)
    apply = Square.apply  # a bound method that is kept
    (apply(x).sum() + Square.apply(x).prod()).backward()
    return [
        x.grad,
        Square.apply.__self__.__name__,
        torch.autograd.gradcheck(Square.apply, x.double().detach().requires_grad_()),
    ]


@features("custom Function under torch.func", "torch.autograd.Scale.apply")
def custom_function_func() -> Any:
    x = torch.randn(3, 4)
    grad = torch.func.vmap(torch.func.grad(lambda row: Scale.apply(row, 2.0).sum()))(x)
    return [grad, torch.func.jvp(lambda row: Scale.apply(row, 3.0), (x,), (x,)), Scale.apply(x, 4.0)]


@features("vmap, grad, jvp, jacrev, hessian", "torch.nn.functional.softmax", "torch.tanh", "torch.sin")
def transforms() -> Any:
    def function(x: Tensor) -> Tensor:
        return F.softmax(x * 2, dim=-1).sum() + torch.tanh(x).prod()

    x = torch.randn(3, 4)
    grad = torch.func.vmap(torch.func.grad(function))(x)
    jvp = torch.func.jvp(function, (x[0],), (x[1],))
    return [grad, jvp, torch.func.jacrev(torch.tanh)(x[0]), torch.func.hessian(function)(x[0]),
            torch.func.vmap(lambda a: torch.sin(a), chunk_size=2)(x), torch.vmap(lambda a: a.flip(0))(x)]  # fmt: skip


@features("forward mode", "torch.mul", "torch.sin")
def forward_mode() -> Any:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.randn(3), torch.ones(3))
        return list(forward_ad.unpack_dual(torch.mul(torch.sin(dual), 2)))


@features("checkpoint, both kinds", "torch.tanh", "torch.nn.functional.linear")
def checkpointed() -> Any:
    out = []
    for reentrant in (True, False):
        net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.GELU(), nn.Linear(4, 4))
        x = torch.randn(2, 4, requires_grad=True)
        y = torch.tanh(checkpoint(net, x, use_reentrant=reentrant))
        y = y + checkpoint_sequential(net, 2, x, use_reentrant=reentrant)
        y.sum().backward()
        out += [x.grad, *(p.grad for p in net.parameters())]
    return out


@features("double backward and two backwards", "Tensor.__pow__", "Tensor.sum")
def double_backward() -> Any:
    x = torch.randn(3, requires_grad=True)
    y = (x**3).sum()
    (grad,) = torch.autograd.grad(y, x, create_graph=True)
    grad.sum().backward()
    y.backward(retain_graph=True)
    y.backward()
    return [grad, x.grad]


@features(
    "autocast and GradScaler",
    "torch.mm",
    "torch._amp_foreach_non_finite_check_and_unscale_",
    "torch.optim.SGD.step",
)
def amp() -> Any:
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
    weight = torch.ones(3, 3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            product = torch.mm(weight, torch.randn(3, 3))
            scaler.scale(F.linear(product, weight).float().sum()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    return [weight, product, scaler.get_scale()]


@features("autocast of a model", "torch.conv2d", "torch.nn.functional.layer_norm")
def autocast_model() -> Any:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.LayerNorm(8), nn.Linear(8, 2))

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def step(x: Tensor) -> Tensor:
        return torch.conv2d(x, torch.ones(2, 1, 1, 1)).mean() + net(x)  # type: ignore[no-any-return]

    out = step(torch.randn(2, 1, 4, 4))
    out.sum().backward()
    return [out, *(p.grad for p in net.parameters())]


@features("modes of autograd", "torch.add", "torch.mul")
def grad_modes() -> Any:
    x = torch.randn(3, requires_grad=True)

    @torch.no_grad()
    def frozen(y: Tensor) -> Tensor:
        return torch.add(y, 1)

    with torch.inference_mode():
        inference = torch.mul(x, 2)
    with torch.set_grad_enabled(False), torch.enable_grad():
        enabled = torch.mul(x, 3)
    with torch.autograd.detect_anomaly(check_nan=True):
        (torch.mul(x, 4)).sum().backward()
    return [frozen(x), inference.is_inference(), enabled, x.grad]


@features("anomaly is told", "torch.sqrt")
def anomaly() -> Any:
    x = torch.zeros(2, requires_grad=True)
    with (
        torch.autograd.detect_anomaly(),
        pytest.raises(RuntimeError, match="Backward0") as raised,
    ):
        (torch.sqrt(x) * 0).sum().backward()
    return str(raised.value)


@features("hooks of tensors and saved tensors", "torch.exp")
def hooks() -> Any:
    seen: list[Any] = []
    x = torch.randn(3, requires_grad=True)
    x.register_hook(lambda grad: seen.append(grad.clone()))
    x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.clone()))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t + 0, lambda t: t):
        y = torch.exp(x)
    with torch.autograd.graph.save_on_cpu():
        z = torch.exp(y)
    y.grad_fn.register_hook(lambda *grads: seen.append(len(grads)))
    z.sum().backward()
    return seen


@features("graph of the results", "torch.matmul", "Tensor.view", "torch.relu")
def graph() -> Any:
    x = torch.randn(4, 4, requires_grad=True)
    y = torch.relu(torch.matmul(x, x).view(16)).sum()
    nodes, names = [y.grad_fn], []
    while nodes:
        node = nodes.pop()
        if node is not None:
            names.append(node.name())
            nodes += [child for child, _ in node.next_functions]
    return names


@features("in place, views, versions", "Tensor.__iadd__", "Tensor.__setitem__", "Tensor.add_")
def in_place() -> Any:
    x = torch.randn(4, 4)
    view = x[1:]
    x += 1
    view[0] = 3
    x.add_(view[0].clone())
    leaf = torch.randn(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        leaf.add_(1)
    y = leaf.exp()
    z = y.sum()
    y.mul_(2)
    z = (y * y).sum() + leaf.sigmoid().mul_(2).sum() + z
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()
    return [x, view._base is x, x._version, leaf.grad]


@pytest.mark.parametrize("name", features)
def test_it_is_the_same_with_pyprof(name: str, tmp_path: Path) -> None:
    check(features[name], tmp_path)
