# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint runs has its call, line and module in the forward, in the recomputation and in the backward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import checkpoint as module
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import pyprof


class Layer(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.reentrant = reentrant

    def work(self, x: Tensor) -> Tensor:
        return torch.tanh(torch.sigmoid(x) * self.inner(x)).exp()

    def forward(self, x: Tensor) -> Any:  # the function and not a module is checkpointed
        return checkpoint(self.work, x, use_reentrant=self.reentrant)


def train(path: Path | None, reentrant: bool) -> list[Any]:
    torch.manual_seed(0)
    net = nn.Sequential(Layer(reentrant), Layer(reentrant))
    x = torch.randn(3, 4, requires_grad=True)
    if path is None:
        net(x).sum().backward()
    else:
        with pyprof.profile(str(path)):
            net(x).sum().backward()
    return [x.grad, *(parameter.grad for parameter in net.parameters())]


@pytest.mark.parametrize("reentrant", [True, False])
def test_module_call_and_line_are_known_everywhere(reentrant: bool, tmp_path: Path) -> None:
    path, before = tmp_path / "net.sqlite", dict(vars(module))
    assert all(map(torch.equal, train(None, reentrant), train(path, reentrant)))
    pyprof.shutdown()
    assert vars(module) == before
    table = pyprof.load(path).table
    kernels = [
        "aten::sigmoid",
        "aten::tanh",
        "aten::addmm",
        "aten::tanh_backward",
        "aten::sigmoid_backward",
        "aten::mm",
    ]
    for kernel in kernels:
        forward = kernel in kernels[:3]
        found = table[table.kernel == kernel]
        leaf = "" if "mm" not in kernel else ".inner"
        op = "linear" if leaf else kernel.removeprefix("aten::").removesuffix("_backward")
        phases = ["forward", "recompute"] if forward else ["backward"]
        for phase in phases:
            rows = found[found.phase == phase]
            assert sorted(set(rows.module)) == [f"0{leaf}", f"1{leaf}"], (kernel, phase)
            assert set(rows.op) == {op}
            assert {trace.split(",")[-1].rpartition(":")[0] for trace in rows.trace} == {__file__}
        assert set(found.phase) == set(phases)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient.div(x)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_users_backward_is_no_recomputation_whoever_calls_it(reentrant: bool, tmp_path: Path) -> None:
    path = tmp_path / "net.sqlite"
    x = torch.ones(3, requires_grad=True)
    with pyprof.profile(str(path)):
        checkpoint(lambda y: Square.apply(torch.tanh(y)), x, use_reentrant=reentrant).sum().backward()
    pyprof.shutdown()
    table = pyprof.load(path).table
    assert set(table[table.kernel == "aten::div"].phase) == {"backward"}
    assert set(table[table.kernel == "aten::tanh"].phase) == {"forward", "recompute"}


def nested(net: nn.Sequential, x: Tensor) -> Tensor:
    inner = lambda z: checkpoint(net[0], torch.tanh(z), use_reentrant=False)  # noqa: E731
    result: Tensor = checkpoint(lambda y: net[1](inner(y)), x, use_reentrant=False)
    return result


def early_stop_off(net: nn.Sequential, x: Tensor) -> Tensor:
    with module.set_checkpoint_early_stop(False):
        result: Tensor = checkpoint(net, x, use_reentrant=False)
    return result


STOPS = {
    "an operator that saves its operands": lambda net, x: checkpoint(net, x, use_reentrant=False),
    "one that saves its result": lambda net, x: checkpoint(lambda y: net(y).softmax(1), x, use_reentrant=False),
    "one inside another": nested,
    "not at all": early_stop_off,
    "the rest saves nothing": lambda net, x: checkpoint(lambda y: net(y) + 1, x, use_reentrant=False),
    "a call of several": lambda net, x: checkpoint(
        lambda y: torch.einsum("ij,jk,kl->il", net[0](y), torch.ones(5, 7), torch.ones(7, 2)),
        x,
        use_reentrant=False,
    ),
}


@pytest.mark.parametrize("where", STOPS)
def test_what_a_checkpoint_stops_has_computed_nothing(where: str, tmp_path: Path) -> None:
    """The products of a step are those that FlopCounterMode sees, which counts what is computed."""
    net = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 5))
    x = torch.randn(3, 4, requires_grad=True)

    def step() -> None:
        STOPS[where](net, x).sum().backward()

    def products(path: Path) -> tuple[int, int]:
        table = pyprof.load(path).table
        rows = table[table.kernel.isin(["aten::mm", "aten::addmm", "aten::bmm"])]
        return int(rows.flops.sum()), int(rows.flops.isna().sum())

    with FlopCounterMode(display=False) as counter:
        step()
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        step()
    pyprof.shutdown()
    for stacks in (True, False):
        with torch.profiler.profile(record_shapes=True, with_stack=stacks) as profiler:
            step()
        profiler.export_chrome_trace(str(tmp_path / f"{stacks}.json"))
    true = counter.get_total_flops()
    assert products(tmp_path / "net.sqlite") == (true, 0)
    assert products(tmp_path / "True.json") == (true, 0)
    known, unknown = products(tmp_path / "False.json")  # nothing in it says whether it stopped
    assert known <= true
    assert (known, unknown) == (true, 0) or where != "one that saves its result"
    assert known == true or where in ("not at all", "one inside another")
