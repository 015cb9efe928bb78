# SPDX-License-Identifier: Apache-2.0
"""Capture changes no result and no attribute: models with and without a window, compared bit for bit."""

from __future__ import annotations

import copy
import gc
import pickle
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.bias import causal_lower_right

import pyprof

from .conftest import Recorded

Record = Callable[..., Recorded]
OWNERS = {
    "torch": torch,
    "F": F,
    "linalg": torch.linalg,
    "fft": torch.fft,
    "special": torch.special,
    "_VF": torch._VF,
    "_nn": torch._C._nn,
    "Tensor": torch.Tensor,
    "Module": nn.Module,
    "Function": torch.autograd.Function,
    "optim": torch.optim,
    "nn.utils": nn.utils,
    "Optimizer": torch.optim.Optimizer,
    "AdamW": torch.optim.AdamW,
    "SGD": torch.optim.SGD,
    "profiler": torch.autograd.profiler,
    "record_function": torch.autograd.profiler.record_function,
    "emit_nvtx": torch.autograd.profiler.emit_nvtx,
    "cuda.profiler": torch.cuda.profiler,
    "cuda.nvtx": torch.cuda.nvtx,
}


def attributes() -> dict[str, dict[str, Any]]:
    return {name: dict(vars(owner)) for name, owner in OWNERS.items()}


def conv_net() -> torch.Tensor:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 4)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(net(torch.randn(2, 3, 8, 8)), torch.tensor([1, 2])).backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def encoder(train: bool) -> torch.Tensor:
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, activation=F.gelu)
    net = nn.TransformerEncoder(layer, 2).train(train)
    x = torch.randn(2, 5, 16)
    if not train:
        with torch.no_grad():
            return net(x)  # type: ignore[no-any-return]
    net(x).square().sum().backward()
    return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])


def attention_bias() -> torch.Tensor:
    q, k = torch.randn(2, 2, 3, 8), torch.randn(2, 2, 5, 8)
    return F.scaled_dot_product_attention(q, k, k, attn_mask=causal_lower_right(3, 5))


def adamw(**options: bool) -> torch.Tensor:
    net = nn.Linear(6, 3)
    optimizer = torch.optim.AdamW(net.parameters(), **options)  # type: ignore[arg-type]
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randn(4, 6)).square().mean().backward()
        optimizer.step()
        schedule.step()
    return net.weight.detach()


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 2 * grad * x


def custom_function() -> torch.Tensor:
    x = torch.randn(5, requires_grad=True)
    Square.apply(x).sum().backward()
    assert x.grad is not None
    return x.grad


def scripted() -> torch.Tensor:
    def body(x: torch.Tensor) -> torch.Tensor:
        return F.relu(torch.add(x, x)) + F.gelu(x).mean()

    module = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Conv1d(2, 2, 1)))
    x = torch.randn(2, 4)
    return torch.jit.script(body)(x) + module(x).sum()  # type: ignore[no-any-return]


def traced() -> torch.Tensor:
    module = torch.jit.trace(nn.Sequential(nn.Linear(4, 4), nn.GELU()), torch.randn(2, 4))
    return module(torch.randn(2, 4))  # type: ignore[no-any-return]


def compiled() -> torch.Tensor:
    @torch.compile(backend="eager", fullgraph=True)
    def body(x: torch.Tensor) -> torch.Tensor:
        return F.relu(torch.add(x, x)) + F.gelu(x.mul(2)[:1])

    return body(torch.randn(3, 4))


def recurrent() -> torch.Tensor:
    output: torch.Tensor = nn.LSTM(4, 3)(torch.randn(5, 2, 4))[0]
    return output


def indexing() -> torch.Tensor:
    x = torch.randn(4, 4)
    x[1:, 0] = x[:-1, 1] ** 2
    x += 1
    return torch.where(x > 0, x @ x.t(), torch.linalg.inv(x + 5 * torch.eye(4))).to(torch.float16)


def functional_transforms() -> torch.Tensor:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.softmax(x * 2, dim=-1).sum() + torch.tanh(x).prod()

    return torch.func.vmap(torch.func.grad(f))(torch.randn(3, 4))


def checkpointed() -> torch.Tensor:
    from torch.utils.checkpoint import checkpoint

    net, x = nn.Linear(4, 4), torch.randn(2, 4, requires_grad=True)
    torch.tanh(checkpoint(net, x, use_reentrant=False)).sum().backward()
    assert x.grad is not None
    return x.grad


def exported() -> torch.Tensor:
    program = torch.export.export(nn.Sequential(nn.Linear(3, 3), nn.GELU()), (torch.ones(2, 3),))
    return program.module()(torch.randn(2, 3))  # type: ignore[no-any-return]


def proxies() -> torch.Tensor:
    from torch.fx.experimental.proxy_tensor import make_fx

    def body(x: torch.Tensor) -> torch.Tensor:
        return F.relu(torch.add(x, x).mul(2))

    graph = torch.fx.symbolic_trace(body)
    assert [node.target for node in graph.graph.nodes][1:4] == [torch.add, "mul", F.relu]
    x = torch.randn(3)
    return torch.cat([graph(x), make_fx(body, tracing_mode="fake")(x)(x)])


def autocast() -> torch.Tensor:
    scaler = torch.amp.GradScaler("cpu")
    weight = torch.ones(3, 3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scaler.scale(torch.mm(weight, torch.randn(3, 3)).float().sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    return weight


def double_backward() -> torch.Tensor:
    x = torch.randn(3, requires_grad=True)
    (grad,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    grad.sum().backward()
    assert x.grad is not None
    return x.grad


def layouts() -> torch.Tensor:
    nested = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(1, 3)])
    sparse = torch.eye(3).to_sparse() @ torch.randn(3, 2)
    with torch.device("meta"), torch.inference_mode():
        torch.ones(2, 3).matmul(torch.ones(3, 1))
    return torch.cat([(nested + nested).to_padded_tensor(0.0).flatten(), sparse.flatten()])


def inner_models() -> torch.Tensor:
    module = torch.jit.script(nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0).eval())
    return copy.deepcopy(module)(torch.randn(2, 1, 8))  # type: ignore[no-any-return]


class Logged(torch.Tensor):
    """A subclass that handles functions through a table keyed by the functions themselves."""

    table: dict[Any, str] = {torch.add: "add", torch.Tensor.mul: "mul", F.relu: "relu", F.linear: "linear"}  # noqa: RUF012
    seen: list[Any] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(cls.table.get(func, func))
        return super().__torch_function__(func, types, args, kwargs or {})


def subclass() -> torch.Tensor:
    x = torch.randn(3, 3).as_subclass(Logged)
    Logged.seen.clear()
    out = F.relu(torch.add(x, x).mul(2)) + F.linear(x, x)
    assert Logged.seen == ["add", "mul", "relu", "linear", torch.Tensor.add]
    return out.as_subclass(torch.Tensor)


MODELS: dict[str, Callable[[], torch.Tensor]] = {
    "conv net": conv_net,
    "encoder in training": lambda: encoder(True),
    "encoder on the fast path": lambda: encoder(False),
    "causal_lower_right": attention_bias,
    "AdamW plain": lambda: adamw(foreach=False),
    "AdamW foreach": lambda: adamw(foreach=True),
    "AdamW fused": lambda: adamw(fused=True),
    "custom Function": custom_function,
    "jit.script": scripted,
    "jit.trace": traced,
    "torch.compile": compiled,
    "LSTM": recurrent,
    "indexing and casts": indexing,
    "vmap of grad": functional_transforms,
    "checkpoint": checkpointed,
    "subclass with a table": subclass,
    "export": exported,
    "fx and make_fx": proxies,
    "autocast and GradScaler": autocast,
    "double backward": double_backward,
    "nested, sparse, meta": layouts,
    "scripted encoder layer": inner_models,
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_results_are_bit_for_bit_the_same(model: str, record: Record) -> None:
    def run() -> torch.Tensor:
        torch.manual_seed(3)
        torch._dynamo.reset()
        return MODELS[model]()

    results = [run()]
    recorded = record(lambda: results.append(run()))
    pyprof.init()
    results.append(run())
    pyprof.shutdown()
    results.append(run())
    first, *others = (result.detach() for result in results)
    assert all(torch.equal(first, other) for other in others)
    assert len(recorded.calls) > 1
    assert recorded.table("PYPROF_LOST") == {}


def test_shutdown_leaves_every_attribute_as_it_was(record: Record) -> None:
    torch.optim.AdamW(
        [torch.zeros(1, requires_grad=True)]
    )  # torch itself patches a class at its first instance
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    before, classes = attributes(), {name: type(owner) for name, owner in OWNERS.items()}
    pyprof.init()
    pyprof.wrap(nn.utils, "clip_grad_norm_")
    with pytest.raises(ZeroDivisionError):
        record(lambda: [adamw(), encoder(False), 1 / 0])
    pyprof.shutdown()
    after = attributes()
    changed = [(owner, name) for owner in OWNERS for name in before[owner] | after[owner]
               if before[owner].get(name) is not after[owner].get(name)]  # fmt: skip
    assert changed == []
    assert {name: type(owner) for name, owner in OWNERS.items()} == classes


FUNCTIONS = [
    "scaled_dot_product_attention", "relu", "gelu", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "linear", "softmax", "cross_entropy", "max_pool2d",
]  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_keep_their_identity_at_all_times(name: str, tmp_path: Path) -> None:
    before = getattr(F, name)
    values = [vars(F)[name]]
    pyprof.init()
    values.append(getattr(F, name))
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        values += [getattr(F, name), vars(F)[name], {before: before}[getattr(F, name)]]
        relu, gelu = F.relu, F.gelu
        assert relu is F.relu
        assert F.gelu is gelu
        assert {F.gelu: 1}[gelu] == 1
        assert (F.relu, F.gelu)[0] is relu
        assert torch.Tensor.mul is torch._C.TensorBase.mul  # type: ignore[comparison-overlap]
        assert isinstance(torch.add, types.BuiltinFunctionType)
        assert pickle.loads(pickle.dumps(F.gelu)) is gelu
        assert copy.deepcopy(nn.TransformerEncoderLayer(8, 2, 8)).activation is F.relu
    pyprof.shutdown()
    assert all(value is before for value in [*values, getattr(F, name)])


def test_encoder_built_after_init_takes_the_fast_path(record: Record) -> None:
    pyprof.init()
    ops = record(lambda: encoder(False)).ops
    assert [op.name for op in ops].count("aten::_transformer_encoder_layer_fwd") == 2


def test_a_function_that_is_replaced_in_a_window_is_the_new_one(record: Record) -> None:
    original = F.relu
    try:

        def body() -> None:
            F.relu = lambda x: x - 1  # type: ignore[assignment]
            assert F.relu(torch.zeros(1)).item() == -1

        record(body)
        assert F.relu(torch.zeros(1)).item() == -1
    finally:
        F.relu = original


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_traced_program_has_no_trace_of_the_window(record: Record) -> None:
    net, x = nn.Sequential(nn.Linear(4, 4), nn.GELU()), torch.randn(2, 4)

    def trace() -> list[str]:
        return [node.kind() for node in torch.jit.trace(net, x).inlined_graph.nodes()]

    graphs = [trace()]
    record(lambda: graphs.append(trace()))
    assert graphs[0] == graphs[1]


def test_no_tensor_is_kept(tmp_path: Path) -> None:
    class Held(nn.Linear):
        pass

    def work() -> list[weakref.ref[Any]]:
        net, x = Held(3, 3), torch.ones(2, 3)
        y = F.relu(net(torch.add(x, 1)))
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            net(torch.ones(2, 7))
        return [weakref.ref(thing) for thing in (net, net.weight, x, y)]

    with pyprof.profile(str(tmp_path / "net.sqlite")):
        held = work()
        gc.collect()  # pytest.raises leaves a cycle of frames
        assert [ref() for ref in held] == [None] * 4
    pyprof.shutdown()


def test_an_error_of_an_operator_is_the_users_and_recording_goes_on(record: Record) -> None:
    def body() -> None:
        with pytest.raises(RuntimeError, match="must match"):
            torch.add(torch.ones(2), torch.ones(3))
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            nn.Linear(2, 2)(torch.ones(1, 3))
        torch.sub(torch.ones(2), 1)

    recorded = record(body)
    assert {"torch.add", "torch.nn.functional.linear", "torch.sub"} <= set(recorded.names)
    assert recorded.call("torch.sub").marker.module is None


def test_user_modes_see_only_the_users_calls(record: Record) -> None:
    class Spy(torch.overrides.TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Any] = []

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(func)
            return func(*args, **(kwargs or {}))

    def body() -> list[Any]:
        with Spy() as spy:
            torch.add(torch.ones(2), 1).mul(2)
        return spy.seen

    plain = body()
    seen: list[Any] = []
    record(lambda: seen.extend(body()))
    assert seen == plain


def test_compiled_code_is_not_compiled_again_for_a_window(tmp_path: Path) -> None:
    graphs = 0

    def backend(module: torch.fx.GraphModule, inputs: Any) -> Any:
        nonlocal graphs
        graphs += 1
        return module.forward

    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.GELU(), nn.Flatten(), nn.Linear(144, 2))
    step = torch.compile(net, backend=backend, fullgraph=True)
    x = torch.randn(2, 3, 8, 8)
    step(x)
    pyprof.init()
    step(x)
    for number in range(2):
        with pyprof.profile(str(tmp_path / f"{number}.sqlite")):
            step(x)
        step(x)
    assert graphs == 1
    with pyprof.profile(str(tmp_path / "inside.sqlite")):
        inside = torch.compile(nn.Sequential(net, nn.Tanh()), backend=backend, fullgraph=True)
        assert torch.equal(inside(x), torch.tanh(net(x)))
    inside(x)
    pyprof.shutdown()
    step(x)
    inside(x)
    assert graphs == 2
