# SPDX-License-Identifier: Apache-2.0
"""Values that go to the host: each conversion is a call with its line, where the tensor holds values; nothing else of
the program changes."""

from __future__ import annotations

import _thread
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import pyprof

from .conftest import Recorded

Record = Callable[..., Recorded]
one, several = torch.tensor([2.5]), torch.arange(4.0)

# What the user writes, as a function of a tensor, and the call that it is.
CONVERSIONS: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "x.item()": (lambda x: x.sum().item(), "Tensor.item"),
    "float(x)": (lambda x: float(x.sum()), "Tensor.__float__"),
    "int(x[0])": (lambda x: int(x[0]), "Tensor.__int__"),
    "complex(x)": (lambda x: complex(x[0]), "Tensor.__complex__"),
    "bool(x)": (lambda x: bool(x[0]), "Tensor.__bool__"),
    "if x": (lambda x: "yes" if x[0] > 0 else "no", "Tensor.__bool__"),
    "not x": (lambda x: not x[0], "Tensor.__bool__"),
    "and": (lambda x: x[0] and 3, "Tensor.__bool__"),
    "while x": (lambda x: [0 for _ in range(2) if x[0] < 0], "Tensor.__bool__"),
    "any of tensors": (lambda x: any([x[0] > 9, x[1] > 0]), "Tensor.__bool__"),
    "max of tensors": (lambda x: max(x[0], x[1]).shape, "Tensor.__bool__"),
    "index of a list": (lambda x: [7, 8, 9][x[0].long()], "Tensor.__index__"),
    "range": (lambda x: list(range(x[0].long())), "Tensor.__index__"),
    "round": (lambda x: round(x.max().item(), 1), "Tensor.item"),
    "f-string": (lambda x: f"{x[0]:.1f}", "Tensor.item"),
    "math": (lambda x: __import__("math").sqrt(x[0]), "Tensor.__float__"),
    "tolist": (lambda x: x.tolist(), "Tensor.tolist"),
    "numpy": (lambda x: x.numpy().sum(), "Tensor.numpy"),
    "np.asarray": (lambda x: np.asarray(x).sum(), "Tensor.__array__"),
    "np.sum": (lambda x: np.sum(np.asarray(x)), "Tensor.__array__"),
    "in": (lambda x: 2.5 in x, "Tensor.__contains__"),
    "is_nonzero": (lambda x: x[0].is_nonzero(), "Tensor.is_nonzero"),
    "torch.is_nonzero": (lambda x: torch.is_nonzero(x[0]), "torch.is_nonzero"),
    "cpu": (lambda x: x.cpu().shape, "Tensor.cpu"),
}


@pytest.mark.parametrize("where", ["outside", "in a module"])
@pytest.mark.parametrize("name", CONVERSIONS)
def test_a_conversion_is_a_call_with_its_own_line(name: str, where: str, record: Record) -> None:
    convert, call = CONVERSIONS[name]

    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return convert(x)

    run = convert if where == "outside" else Net()
    found: list[Any] = []
    recorded = record(lambda: found.append(run(several)))
    assert found == [convert(several)]
    assert call in recorded.names
    line = f"{__file__}:{convert.__code__.co_firstlineno}"
    assert all(seen.user_lines[-1] == line for seen in recorded.calls if seen.name == call)
    waits = [op for op in recorded.ops if op.name == "aten::_local_scalar_dense"]
    calls = [(seen.start, seen.end) for seen in recorded.calls]
    assert all(any(start <= op.start and op.end <= end for start, end in calls) for op in waits)


def test_asking_for_what_needs_no_value_is_no_call(record: Record) -> None:
    def ask() -> object:
        x = several
        return (len(x), x.shape, x.ndim, x.dtype, x.device, x.is_cuda, x.requires_grad, x is None, hash(x), id(x),
                x.is_floating_point(), x.size(0), x.numel(), isinstance(x, torch.Tensor), x.data_ptr())  # fmt: skip

    assert record(ask).calls == []


def test_casting_a_module_is_calls_with_its_line(record: Record) -> None:
    """But for what assigning `.data` asks in C++: an operator that does no work."""
    net = nn.Linear(2, 2)
    recorded = record(lambda: net.to(torch.float64))
    calls = {call.name: call.user_lines for call in recorded.calls if not call.name.startswith("aten.")}
    assert set(calls) == {"Tensor.to", "torch._has_compatible_shallow_copy_type"}
    assert all(lines[-1].startswith(f"{__file__}:") for lines in calls.values())


class Shown(torch.Tensor):
    """A subclass with a say in what is called."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        asked.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


asked: list[Any] = []


def in_window(body: Callable[[], Any], path: Path) -> tuple[list[str], str]:
    """The calls of a body, and how it ended: its value or error, and its warnings with their places."""
    with pyprof.profile(str(path)):
        ended = how_it_ends(body)
    return Recorded(path).names, ended


def how_it_ends(body: Callable[[], Any]) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value: Any = body()
        except Exception as error:
            value = type(error), str(error)
    places = [(str(w.message).partition(" (Triggered")[0], w.category, w.filename, w.lineno) for w in caught]
    return repr((value, places))


def fake() -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(1).item()


def traced() -> Any:
    return torch.jit.trace(lambda x: x + int(x.sum()), torch.ones(2))(torch.zeros(2)).tolist()


def compiled() -> Any:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return y + 1 if y.sum() > 0 else y - y.max().item()

    return torch.compile(function, backend="eager")(torch.ones(3)).shape


grad = torch.ones(1, requires_grad=True)
WITHOUT_A_VALUE: dict[str, Callable[[], Any]] = {
    "more than one element": lambda: several.item(),
    "an ambiguous truth": lambda: bool(several),
    "no float": lambda: float(several),
    "meta": lambda: torch.ones(1, device="meta").item(),
    "no index": lambda: [1][torch.tensor(0.5)],
    "numpy of what has a gradient": lambda: grad.numpy(),
    "asarray of what has a gradient": lambda: np.asarray(grad),
    "copy with a keyword": lambda: np.array(several).tolist(),
    "float of what has a gradient": lambda: float(grad),
    "item of what has a gradient": lambda: grad.item(),
    "wrong argument": lambda: one.item(1),  # type: ignore[call-arg]
    "a string in it": lambda: "a" in one,
    "vmap": lambda: torch.func.vmap(lambda x: x.item())(several),
    "vmap of if": lambda: torch.func.vmap(lambda x: x if x > 0 else -x)(several),
    "grad": lambda: torch.func.grad(lambda x: x * float(x > 0))(torch.tensor(2.0)),
    "fake": fake,
    "jit.trace": traced,
    "make_fx": lambda: make_fx(lambda x: x + x.sum().item())(several).code,
    "export": lambda: torch.export.export(nn.Linear(4, 1), (several,)).graph_module.code.count("linear"),
    "subclass": lambda: [one.as_subclass(Shown).item(), float(one.as_subclass(Shown)), asked.clear()],
    "through the class": lambda: [torch.Tensor.item(one), list(map(torch.Tensor.__float__, [one]))],
    "kept": lambda: (lambda f: f())(one.item),
}


@pytest.mark.parametrize("name", WITHOUT_A_VALUE)
def test_errors_warnings_and_results_are_those_without_a_window(name: str, tmp_path: Path) -> None:
    """Message, type, file and line of each; a stand-in of a tracer is no call."""
    body = WITHOUT_A_VALUE[name]
    body() if name in ("grad", "through the class", "export") else how_it_ends(body)  # warns once per process
    expected = how_it_ends(body)
    names, ended = in_window(body, tmp_path / "net.sqlite")
    pyprof.shutdown()
    assert ended == expected
    if name in ("fake", "export"):
        assert "Tensor.item" not in names


def test_a_compiled_program_is_the_same_graphs(tmp_path: Path) -> None:
    torch._dynamo.reset()
    graphs = []

    def count(graph: Any, inputs: Any) -> Any:
        graphs.append(len(list(graph.graph.nodes)))
        return graph.forward

    def function(x: torch.Tensor) -> float:
        y = x * 2
        return float(y.sum()) if y.max() > 0 else y.min().item()

    results = []
    for window in (False, True):
        torch._dynamo.reset()
        graphs.append(-1)
        run = torch.compile(function, backend=count)
        if window:
            with pyprof.profile(str(tmp_path / "net.sqlite")):
                results.append(run(several))
        else:
            results.append(run(several))
    pyprof.shutdown()
    assert results[0] == results[1] == 12.0
    half = graphs.index(-1, 1)
    assert graphs[:half] == graphs[half:]


@pytest.mark.parametrize("convert", [float, bool])
def test_a_thread_that_runs_no_python_converts_as_well(
    convert: Callable[[Any], Any], record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: raised.append(what.exc_value))
    results: list[Any] = []

    def body() -> None:
        _thread.start_new_thread(results.extend, (map(convert, [one]),))  # all of it in C
        while not (results or raised):
            os.sched_yield()

    record(body)
    assert (results, raised) == ([convert(one)], [])


def test_the_methods_are_torchs_own_before_in_and_after(record: Record) -> None:
    from pyprof.capture.instrument.targets import HOST

    before = {name: getattr(torch.Tensor, name) for name in HOST}
    held: dict[str, Any] = {}
    record(lambda: held.update({name: getattr(torch.Tensor, name) for name in HOST}))
    assert held == before == {name: getattr(torch.Tensor, name) for name in HOST}
    assert all(name not in vars(torch.Tensor) for name in ("item", "__bool__", "__float__", "numpy"))
