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
