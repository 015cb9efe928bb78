# SPDX-License-Identifier: Apache-2.0
"""What looks at a program instead of running it, and compiled programs: torch.compile, export, fx, jit."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import pyprof

from .features import Features, check

features = Features()
pytestmark = pytest.mark.filterwarnings("ignore")
Tensor = torch.Tensor


def body(x: Tensor) -> Tensor:
    return F.relu(torch.add(x, x)) + F.gelu(x.mul(2)[:1]) + F.scaled_dot_product_attention(x, x, x)


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.GELU(), nn.Flatten(), nn.Linear(144, 2))


class Counting:
    """A backend that keeps the code of each graph that it was given."""

    def __init__(self, backend: str):
        self.graphs: list[str] = []
        self._compile = torch._dynamo.lookup_backend(backend)

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Any:
        self.graphs.append(graph.code)
        return self._compile(graph, inputs)


def compiled(backend: str, function: Callable[..., Any], *args: Any, **options: Any) -> list[Any]:
    """The result, the gradients of the arguments, and the code of the graphs."""
    counting = Counting(backend)
    args = tuple(arg.requires_grad_() if isinstance(arg, Tensor) and arg.is_floating_point() else arg for arg in args)
    out = torch.compile(function, backend=counting, **options)(*args)
    grads = torch.autograd.grad(out.square().sum(), args) if out.requires_grad else ()
    return [out, *grads, *counting.graphs, len(torch._dynamo.utils.counters["graph_break"])]


@features("torch.compile eager", "torch.add", "torch.nn.functional.gelu")
def compile_eager() -> Any:
    return compiled("eager", body, torch.randn(3, 3), fullgraph=True)


@features("torch.compile aot_eager", "aten.aten::relu", "aten.aten::add", "aten.aten::_safe_softmax")
def compile_aot() -> Any:
    return compiled("aot_eager", body, torch.randn(3, 3), fullgraph=True)


NO_SPACE = pytest.mark.skipif(
    " " in torch.__file__, reason="torch's inductor does not compile where torch's path has a space"
)


@features("torch.compile inductor", "aten.aten::mm", long=True)
def compile_inductor() -> Any:
    return compiled("inductor", body, torch.randn(3, 3), fullgraph=True)


@features("torch.compile of a model", "aten.aten::convolution", "aten.aten::addmm")
def compile_model() -> Any:
    return compiled("aot_eager", network(), torch.randn(2, 3, 8, 8), fullgraph=True)


@features("torch.compile with a graph break", "torch.add", "torch.nn.functional.relu")
def compile_break() -> Any:
    def broken(x: Tensor) -> Tensor:
        y = torch.add(x, 1)
        torch._dynamo.graph_break()
        return F.relu(y) * 2

    return compiled("eager", broken, torch.randn(3))


class Breaking(nn.Module):
    """Every kind of call that is made between two graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.add(x, 1)
        places = torch.nonzero(y).sum() + y.nonzero().sum() + torch.unique(y.detach()).sum()
        print(end="")
        y = self.linear(y) + y.tolist()[0]
        return Cube.apply(F.softmax(y, -1)) + places  # type: ignore[no-any-return]


# The code that torch makes between graphs has no source ranges, which Python before 3.13 needs to tell a call.
BETWEEN = (
    ("torch.nonzero", "torch.unique") if sys.version_info >= (3, 13) else ("aten.aten::nonzero", "aten.aten::_unique2")
)


@features("torch.compile between graphs", "Tensor.nonzero", *BETWEEN)
def compile_between() -> Any:
    """Frames too: none of PyProf's is compiled."""
    return [*compiled("eager", Breaking(), torch.randn(3)), dict(torch._dynamo.utils.counters["frames"])]


@features("torch.compile with dynamic shapes", "torch.add")
def compile_dynamic() -> Any:
    counting = Counting("eager")
    function = torch.compile(body, backend=counting, dynamic=True)
    return [function(torch.randn(n, n)) for n in (2, 3, 5)] + counting.graphs


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x


@features("torch.compile of a custom Function and a checkpoint", "aten.aten::tanh")
def compile_function() -> Any:
    def function(x: Tensor) -> Tensor:
        return torch.utils.checkpoint.checkpoint(lambda y: Cube.apply(y).tanh(), x, use_reentrant=False)  # type: ignore[no-any-return]

    return compiled("aot_eager", function, torch.randn(3), fullgraph=True)


@features("torch.compile of an optimizer's step", "torch._foreach_", long=True)
def compile_optimizer() -> Any:
    weight = torch.randn(3, requires_grad=True)
    optimizer = torch.optim.Adam([weight], foreach=True)
    counting = Counting("eager")
    step = torch.compile(optimizer.step, backend=counting)
    for _ in range(2):
        weight.grad = torch.ones(3)
        step()
    return [weight, len(counting.graphs)]


@features("torch.compile of bound methods that were kept")
def compile_bound() -> Any:
    x = torch.randn(3)
    multiply = x.mul
    counting = Counting("eager")
    out = torch.compile(lambda y: multiply(y) + 1, backend=counting)(torch.randn(3))
    return [out, *counting.graphs]


@features("torch.compile with disable", "torch.nn.functional.softplus", "Tensor.__add__")
def compile_disable() -> Any:
    @torch.compiler.disable
    def eager(x: Tensor) -> Tensor:
        return F.softplus(x)

    return compiled("eager", lambda x: eager(x + 1) * 2, torch.randn(3))


@features("dynamo.explain")
def explain() -> Any:
    found = torch._dynamo.explain(body)(torch.randn(3, 3))
    return [
        found.graph_count,
        found.graph_break_count,
        found.op_count,
        *(graph.code for graph in found.graphs),
    ]


@features("torch.export", "torch.nn.functional.linear")
def export() -> Any:
    program = torch.export.export(nn.Sequential(nn.Linear(3, 3), nn.GELU()), (torch.ones(2, 3),))
    return [
        program.graph_module.code,
        program.module()(torch.randn(2, 3)),
        F.linear(torch.ones(1), torch.ones(1)),
    ]


@features("make_fx", "torch.relu")
def proxies() -> Any:
    x = torch.randn(3, 3)
    graphs = [make_fx(body, tracing_mode=mode)(x) for mode in ("real", "fake", "symbolic")]
    return [torch.relu(x), *(graph.code for graph in graphs), *(graph(x) for graph in graphs)]


@features("fx.symbolic_trace", "torch.add", "torch.nn.functional.relu", "Tensor.mul")
def symbolic_trace() -> Any:
    graph = torch.fx.symbolic_trace(body)
    targets = [node.target for node in graph.graph.nodes]
    assert targets[1:5] == [torch.add, F.relu, "mul", F.relu.__class__] or torch.add in targets
    assert F.relu in targets
    assert F.gelu in targets
    assert F.scaled_dot_product_attention in targets
    x = torch.randn(3, 3)
    return [graph.code, graph(x), torch.fx.Interpreter(graph).run(x)]


@features("fx of a model", "torch.conv2d")
def symbolic_model() -> Any:
    model = network()
    graph = torch.fx.symbolic_trace(model)
    x = torch.randn(2, 3, 8, 8)
    return [graph.code, graph(x), torch.conv2d(x, torch.ones(1, 3, 1, 1))]


@features("jit.script", "aten.aten::", "Tensor.sum")
def script() -> Any:
    def function(x: Tensor) -> Tensor:
        return F.relu(torch.add(x, x)) + F.gelu(x).mean()

    made = torch.jit.script(function)
    module = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Conv1d(2, 2, 1)))
    x = torch.randn(2, 4)
    return [made.code, module.code, made(x), module(x).sum(), torch.jit.freeze(module.eval())(x)]


@features("jit.trace", "aten.aten::")
def trace() -> Any:
    net, x = nn.Sequential(nn.Linear(4, 4), nn.GELU()), torch.randn(2, 4)
    made = torch.jit.trace(net, x)
    traced = torch.jit.trace(body, torch.randn(3, 3))
    graph = re.sub(r"\.___torch_mangle_\d+", "", str(made.inlined_graph))  # a number of its own for each class
    return [graph, traced.code, made(x), traced(torch.randn(3, 3))]


@features("jit of a scripted encoder layer", "aten.aten::")
def script_encoder() -> Any:
    module = torch.jit.script(nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0).eval())
    return module(torch.randn(2, 1, 8))


@torch.library.custom_op("pyprof_tests::triple", mutates_args=())
def triple(x: Tensor) -> Tensor:
    return x * 3


triple.register_fake(torch.empty_like)
triple.register_autograd(lambda ctx, grad: grad * 3)


@features("custom operator", "torch.autograd.GeneratedBackwardFor_pyprof_tests_triple")
def custom_operator() -> Any:
    x = torch.randn(3, requires_grad=True)
    (grad,) = torch.autograd.grad(triple(x).square().sum(), x)
    return [grad, torch.ops.pyprof_tests.triple(x)]


@features("custom operator, compiled", "aten.aten::tanh")
def custom_operator_compiled() -> Any:
    return compiled("aot_eager", lambda x: triple(x).tanh(), torch.randn(3), fullgraph=True)


@features("functionalize and functional_call", "torch.nn.functional.linear")
def functionalize() -> Any:
    net = nn.Linear(3, 2)
    weights = {name: value + 1 for name, value in net.named_parameters()}
    called = torch.func.functional_call(net, weights, torch.randn(1, 3))
    return [called, torch.func.functionalize(lambda x: x.add(1).mul_(2))(torch.randn(2))]


@pytest.mark.long
@pytest.mark.parametrize("name", features.names("torch.compile inductor"))
def test_it_is_the_same_with_pyprof(name: str, tmp_path: Path) -> None:
    if "inductor" in name and " " in torch.__file__:
        pytest.skip(NO_SPACE.kwargs["reason"])
    check(features[name], tmp_path)


@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=[pytest.mark.long, NO_SPACE])]
)
def test_compiled_code_is_not_compiled_again_for_a_window(backend: str, tmp_path: Path) -> None:
    torch._dynamo.reset()
    counting, net, x = Counting(backend), network(), torch.randn(2, 3, 8, 8)
    step = torch.compile(net, backend=counting, fullgraph=True)
    first = step(x)
    pyprof.init()
    step(x)
    for number in range(2):
        with pyprof.profile(str(tmp_path / f"{number}.sqlite")):
            assert torch.equal(step(x), first)
        step(x)
    assert len(counting.graphs) == 1
    with pyprof.profile(str(tmp_path / "inside.sqlite")):
        inside = torch.compile(nn.Sequential(net, nn.Tanh()), backend=counting, fullgraph=True)
        inside(x)
    inside(x)
    pyprof.shutdown()
    assert torch.equal(step(x), first)
    inside(x)
    assert len(counting.graphs) == 2
