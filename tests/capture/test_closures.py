# SPDX-License-Identifier: Apache-2.0
"""A closure that an optimizer's step runs is the program: its forward, backward and modules are seen as anywhere."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import pyprof
from pyprof.capture.instrument.recorder import local
from pyprof.core.marker import CLOSURE

from .conftest import Recorded

Closure = Callable[[], Any]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x).tanh()  # type: ignore[no-any-return]


class Mine(torch.optim.SGD):
    """An optimizer of the user's, which asks for its closure in its own way."""

    def step(self, closure: Any = None, scale: float = 1.0) -> Any:
        with torch.enable_grad():
            return super().step() or closure()


def positional(optimizer: Any, closure: Closure) -> Any:
    return optimizer.step(closure)


def keyword(optimizer: Any, closure: Closure) -> Any:
    return optimizer.step(closure=functools.partial(closure))


def train(cls: Any, step: Callable[[Any, Closure], Any], path: Path | None) -> tuple[Tensor, list[Any]]:
    torch.manual_seed(0)
    net = Net()
    optimizer = cls(net.parameters(), lr=0.1)
    x = torch.randn(5, 4)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        return loss

    def both() -> list[Any]:
        return [step(optimizer, closure) for _ in range(2)]

    if path is None:
        losses = both()
    else:
        with pyprof.profile(str(path)):
            losses = both()
        assert not local.state.busy
        assert not optimizer._optimizer_step_pre_hooks
    return net.head.weight.detach(), losses


@pytest.fixture(scope="module", params=[(torch.optim.Adam, positional), (torch.optim.Adam, keyword),
                                        (torch.optim.LBFGS, positional), (Mine, keyword)],
                ids=lambda p: f"{p[0].__name__}-{p[1].__name__}")  # fmt: skip
def table(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("closure") / "net.sqlite"
    plain, losses = train(*request.param, None)
    seen, losses_seen = train(*request.param, path)
    pyprof.shutdown()
    assert torch.equal(plain, seen)
    assert all(map(torch.equal, losses, losses_seen))
    return pyprof.load(path).table, request.param[0].__name__, Recorded(path)


def rows(table: pd.DataFrame, kernel: str, direction: str) -> pd.DataFrame:
    return table[(table.kernel == kernel) & (table["dir"] == direction)]


def test_forward_has_its_module_call_and_phase(table: Any) -> None:
    found = rows(table[0], "aten::addmm", "fprop")
    assert len(found) >= 2
    assert set(zip(found.op, found.module, found.phase, strict=True)) == {("linear", "head", "forward")}
    assert found.params.str.startswith("M=5,N=3,K=4").all()
    assert {trace.split(",")[-1].rpartition(":")[0] for trace in found.trace} == {__file__}


def test_backward_has_its_forward(table: Any) -> None:
    found = rows(table[0], "aten::mm", "bprop")
    assert len(found) >= 2
    assert set(zip(found.op, found.module, found.phase, strict=True)) == {("linear", "head", "backward")}


def test_what_the_step_does_itself_is_the_optimizers(table: Any) -> None:
    kernels, name, _ = table
    steps = kernels[kernels.op == f"{name}.step"]
    assert len(steps)
    assert set(steps.phase) == {"optimizer"}
    assert set(kernels[kernels.phase == "optimizer"].op) <= {f"{name}.step", f"{name}.zero_grad"}
    assert set(kernels[kernels.phase == "forward"].op) <= {"linear", "tanh", "square", "mean", "ones_like"}


def test_last_part_of_a_step_is_the_one_without_a_closure_after_it(table: Any) -> None:
    """Each of the two steps is several calls; the recording tells which one ends it."""
    _, name, recorded = table
    rows = [(call.start, call.marker.call.op) for call in recorded.calls if call.marker.call.op.endswith(".step")]
    closures = recorded.query(f"select start, text from NVTX_EVENTS where text = '{CLOSURE}{name}.step'")
    order = [text for _, text in sorted(rows + closures)]
    parts = [text for text in order if text == f"{name}.step"]
    interrupted = [pair for pair in pairwise(order) if pair == (f"{name}.step", f"{CLOSURE}{name}.step")]
    assert len(interrupted) == len(closures) >= 2
    assert len(parts) - len(interrupted) == 2
    assert order[-1] == f"{name}.step"


def test_error_in_a_closure_is_the_programs(tmp_path: Path) -> None:
    optimizer = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1)

    x = torch.ones(2)

    def closure() -> Any:
        torch.tanh(x)
        raise ZeroDivisionError

    with pyprof.profile(str(tmp_path / "net.sqlite")):
        with pytest.raises(ZeroDivisionError):
            optimizer.step(closure)
        torch.sigmoid(x)
    assert not optimizer._optimizer_step_pre_hooks
    kernels = pyprof.load(tmp_path / "net.sqlite").table
    assert list(kernels.op) == ["tanh", "sigmoid"]
    assert list(kernels.phase) == ["forward", "forward"]


def test_window_that_closes_in_a_closure_leaves_the_thread_free(tmp_path: Path) -> None:
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    pyprof.start(str(tmp_path / "net.sqlite"))
    optimizer.step(lambda: [weight.sum().backward(), pyprof.stop()])
    assert not local.state.busy
    assert weight.tolist() == pytest.approx([0.9, 0.9])


def test_hooks_of_the_program_get_its_own_closure(tmp_path: Path) -> None:
    optimizer = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1)
    seen: list[Any] = []
    optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: seen.append(args[1]))

    def closure() -> float:
        return 1.0

    with pyprof.profile(str(tmp_path / "net.sqlite")):
        assert optimizer.step(closure) == 1.0
    assert seen == [closure]


def test_warning_from_a_closure_names_the_same_file(tmp_path: Path) -> None:
    optimizer = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1)

    def closure() -> float:
        warnings.warn("mine", stacklevel=2)
        return 1.0

    def files() -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            optimizer.step(closure)
        return [warning.filename for warning in caught]

    plain = files()
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        assert files() == plain
