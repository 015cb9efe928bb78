# SPDX-License-Identifier: Apache-2.0
"""Modules and optimizers: layers with fast paths, hooks, copies and pickles, every class of torch.optim."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, parametrizations, parametrize, prune, rnn

from .features import Features, check

features = Features()
pytestmark = pytest.mark.filterwarnings("ignore")
Tensor = torch.Tensor


def grads(net: nn.Module) -> list[Tensor | None]:
    return [parameter.grad for parameter in net.parameters()]


@features("conv net", "torch.nn.functional.conv2d", "torch.nn.functional.batch_norm", "torch.optim.SGD.zero_grad")
def conv_net() -> Any:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 4)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(net(torch.randn(2, 3, 8, 8)), torch.tensor([1, 2])).backward()
        optimizer.step()
    return [*net.parameters(), *grads(net), *net.buffers()]


@features(
    "TransformerEncoder in training",
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.functional.gelu",
)
def encoder() -> Any:
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True, activation=F.gelu)
    net = nn.TransformerEncoder(layer, 2)
    net(torch.randn(2, 5, 16)).square().sum().backward()
    return grads(net)


@features("TransformerEncoder on the fast path", "aten.aten::_transformer_encoder_layer_fwd")
def fast_path() -> Any:
    out = []
    for activation in (F.gelu, F.relu, "relu"):
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation=activation)
        net = nn.TransformerEncoder(layer, 2).eval()
        with torch.no_grad():
            out.append(net(torch.randn(2, 5, 16)))
        out.append(layer.activation_relu_or_gelu)
    return out


@features("whole Transformer", "torch.nn.functional.layer_norm", "torch.nn.functional.dropout")
def transformer() -> Any:
    net = nn.Transformer(8, 2, 1, 1, 16)
    out = net(torch.randn(3, 2, 8), torch.randn(2, 2, 8), tgt_mask=nn.Transformer.generate_square_subsequent_mask(2))
    out.sum().backward()
    return [out, *grads(net)]


@features("MultiheadAttention", "torch.nn.functional.scaled_dot_product_attention", "torch.bmm")
def attention() -> Any:
    net = nn.MultiheadAttention(8, 2, dropout=0.1)
    x = torch.randn(3, 2, 8)
    out, weights = net(x, x, x)
    out.sum().backward()
    quick, none = net.eval()(x, x, x, need_weights=False)
    return [out, weights, quick, none, *grads(net)]


@features("LSTM, GRU, RNN", "torch.lstm", "torch.gru", "torch.rnn_tanh", "torch.lstm_cell", "torch.gru_cell")
def recurrent() -> Any:
    x, out = torch.randn(5, 2, 4), []
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        net = kind(4, 3, num_layers=2, bidirectional=True)
        y, state = net(x)
        y.sum().backward()
        out += [y, state, *grads(net)]
    packed = rnn.pack_padded_sequence(x, [5, 3])
    y, _ = nn.LSTM(4, 3)(packed)
    out += [*rnn.pad_packed_sequence(y), nn.LSTMCell(4, 3)(x[0]), nn.GRUCell(4, 3)(x[0])]
    return out


@features(
    "other layers",
    "torch.nn.functional.embedding",
    "torch.nn.functional.interpolate",
    "torch.nn.functional.rms_norm",
)
def layers() -> Any:
    index = torch.tensor([[1, 2], [0, 3]])
    embedding = nn.Embedding(4, 6, sparse=True)
    x = nn.RMSNorm(6)(nn.GroupNorm(2, 6)(embedding(index).transpose(1, 2)).transpose(1, 2))
    out = [
        x,
        nn.EmbeddingBag(4, 3)(index),
        nn.Upsample(scale_factor=2)(torch.randn(1, 1, 2, 2)),
        nn.Bilinear(2, 2, 1)(x[..., :2], x[..., :2]),
    ]
    out += [
        nn.ConvTranspose2d(1, 2, 2)(torch.randn(1, 1, 3, 3)),
        nn.PReLU()(x),
        nn.Softmax(-1)(x),
        nn.Fold(4, 2)(torch.randn(1, 4, 9)),
    ]
    out += [
        nn.CTCLoss()(torch.randn(5, 1, 4).log_softmax(2), torch.tensor([[1, 2]]), torch.tensor([5]), torch.tensor([2])),
        nn.AdaptiveAvgPool2d(1)(torch.randn(1, 2, 3, 3)),
    ]
    x.sum().backward()
    return [*out, embedding.weight.grad]


@features("scripted modules in a model", "aten.aten::", "torch.nn.functional.linear")
def scripted_module() -> Any:
    net = nn.Sequential(nn.Linear(3, 3), torch.jit.script(nn.Sequential(nn.Linear(3, 3), nn.ReLU())))
    out = net(torch.randn(2, 3))
    out.sum().backward()
    return [out, *grads(net), copy.deepcopy(net)(torch.randn(2, 3))]


class Acting(nn.Module):
    """Holds functions of torch, as models do."""

    def __init__(self) -> None:
        super().__init__()
        self.act, self.reduce, self.method = F.gelu, torch.sum, Tensor.mul
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.method(self.reduce(self.act(self.linear(x))), 2)


@features("pickle, deepcopy, state_dict", "torch.nn.functional.linear")
def copies() -> Any:
    net = Acting()
    clones = [copy.deepcopy(net), pickle.loads(pickle.dumps(net))]
    buffer = io.BytesIO()
    torch.save(net, buffer)
    buffer.seek(0)
    clones.append(torch.load(buffer, weights_only=False))
    fresh = Acting()
    fresh.load_state_dict(copy.deepcopy(net.state_dict()))
    x = torch.randn(2, 3)
    identical = [clone.act is F.gelu and clone.reduce is torch.sum and clone.method is Tensor.mul for clone in clones]
    tensor = pickle.loads(pickle.dumps(x))
    return [
        identical,
        tensor,
        copy.deepcopy(x),
        *(model(x) for model in (net, *clones, fresh)),
        list(net.state_dict()),
    ]


@features("hooks of modules", "torch.nn.functional.linear", "torch.mul")
def module_hooks() -> Any:
    seen: list[Any] = []
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    net[0].register_forward_pre_hook(lambda module, args: (torch.mul(args[0], 2),))
    net[0].register_forward_hook(lambda module, args, out: seen.append(out.shape))
    net[1].register_full_backward_pre_hook(lambda module, grad: seen.append(grad[0].clone()))
    net[2].register_full_backward_hook(lambda module, gi, go: seen.append(gi[0].clone()))
    net.register_forward_hook(lambda module, args, out: seen.append("always"), always_call=True)
    handles = [
        nn.modules.module.register_module_forward_hook(lambda module, args, out: seen.append(type(module).__name__)),
        nn.modules.module.register_module_full_backward_hook(lambda module, gi, go: seen.append(len(gi))),
    ]
    try:
        out = net(torch.randn(2, 3))
        out.sum().backward()
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            net(torch.randn(2, 5))
    finally:
        for handle in handles:
            handle.remove()
    return [out, seen, *grads(net)]


@features("parametrize, weight_norm, spectral_norm, prune", "torch.nn.functional.linear", "torch.matmul")
def reparametrised() -> Any:
    class Symmetric(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.triu() + x.triu(1).transpose(-1, -2)

    net = nn.Linear(3, 3)
    parametrize.register_parametrization(net, "weight", Symmetric())
    normed = parametrizations.weight_norm(nn.Linear(3, 2))
    old = torch.nn.utils.weight_norm(nn.Linear(3, 2))
    spectral = parametrizations.spectral_norm(nn.Linear(3, 2))
    pruned = prune.l1_unstructured(nn.Linear(3, 2), "weight", amount=0.5)
    x = torch.matmul(torch.randn(2, 3), torch.eye(3))
    with parametrize.cached():
        out = [model(x) for model in (net, normed, old, spectral, pruned)]
    sum(y.sum() for y in out).backward()  # type: ignore[union-attr]
    return [*out, *grads(net), *grads(normed), *grads(pruned)]


@features("lazy modules", "torch.nn.functional.linear", "torch.nn.functional.conv2d")
def lazy() -> Any:
    net = nn.Sequential(nn.LazyConv2d(2, 2), nn.Flatten(), nn.LazyLinear(3))
    out = net(torch.randn(1, 1, 3, 3))
    return [out, type(net[2]).__name__, net[2].weight]


@features("DataParallel, modules in containers", "torch.nn.functional.linear")
def containers() -> Any:
    shared = nn.Linear(2, 2)
    net = nn.ModuleDict({"a": shared, "b": nn.ModuleList([shared, nn.Identity()])})
    x = net["b"][0](net["a"](torch.randn(1, 2)))
    return [nn.DataParallel(shared)(x), [name for name, _ in net.named_modules(remove_duplicate=False)]]


class Counted(nn.Module):
    calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        type(self).calls += 1
        return super().__call__(*args, **kwargs)

    def forward(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        return torch.mul(x, scale)


@features("modules with a __call__ of their own", "torch.mul")
def own_call() -> Any:
    Counted.calls = 0
    net = Counted()
    net.forward = net.forward  # type: ignore[method-assign]
    return [net(torch.ones(2), scale=2.0), nn.Module.__call__(net, torch.ones(1)), Counted.calls]


@features("clipping, averaging, schedules", "torch._foreach_norm", "torch.optim.AdamW.step", "torch._foreach_mul_")
def training_tools() -> Any:
    net = nn.Linear(6, 3)
    optimizer = torch.optim.AdamW(net.parameters(), foreach=True)
    average = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=4)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    seen: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    norms = []
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randn(4, 6)).square().mean().backward()
        norms.append(clip_grad_norm_(net.parameters(), 0.1, foreach=True))
        clip_grad_value_(net.parameters(), 0.01)
        optimizer.step()
        schedule.step()
        average.update_parameters(net)
    plateau.step(1.0)
    state = copy.deepcopy(optimizer.state_dict())
    torch.optim.AdamW(net.parameters()).load_state_dict(state)
    return [*net.parameters(), *average.parameters(), norms, seen, optimizer.param_groups[0]["lr"]]


def optimizers() -> dict[str, Callable[[], Any]]:
    """Every optimizer of torch, in each form that it has."""
    out: dict[str, Callable[[], Any]] = {}
    for name, cls in vars(torch.optim).items():
        if isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer) and cls is not torch.optim.Optimizer:
            has = inspect.signature(cls).parameters
            forms = [{"foreach": False}] if "foreach" in has else [{}]
            forms += [{form: True} for form in ("foreach", "fused") if form in has]
            for form in forms:
                out[f"{name} {' '.join(key for key, on in form.items() if on) or 'plain'}"] = steps(cls, form)
    return out


def steps(cls: Any, form: dict[str, bool]) -> Callable[[], Any]:
    def run() -> Any:
        weight = nn.Parameter(torch.randn(4, 3))
        optimizer = cls([weight], **form)
        x = torch.randn(5, 4)

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = torch.matmul(x, weight).square().mean()
            loss.backward()
            if cls is torch.optim.SparseAdam:
                assert weight.grad is not None
                weight.grad = weight.grad.to_sparse()
            return loss

        losses = []
        for _ in range(3):
            if cls is torch.optim.LBFGS:
                losses.append(optimizer.step(closure))
            else:
                losses.append(closure())
                optimizer.step()
        return [weight, losses]

    return run


for name, run in optimizers().items():
    calls = [f"torch.optim.{name.split()[0]}.{method}" for method in ("step", "zero_grad")]
    features(name, *calls)(run)


@pytest.mark.parametrize("name", features)
def test_it_is_the_same_with_pyprof(name: str, tmp_path: Path) -> None:
    check(features[name], tmp_path)
