# SPDX-License-Identifier: Apache-2.0
"""What Python programs do with functions: names, partials, operators, coroutines, threads, errors, tracers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import copyreg
import functools
import gc
import importlib
import inspect
import io
import operator
import pickle
import re
import sys
import types
import warnings
from collections import ChainMap
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import add as early_add
from torch import nn
from torch.nn.functional import gelu as early_gelu
from torch.nn.functional import linear as early_linear

from .features import Features, check

features = Features()
pytestmark = pytest.mark.filterwarnings("ignore")
Tensor = torch.Tensor


@features("names imported before", "aten.aten::add", "torch.nn.functional.gelu", "torch.nn.functional.linear")
def early_names() -> Any:
    x = torch.randn(2, 2)
    return early_add(early_gelu(x), early_linear(x, x))


@features("partial, map, getattr, methodcaller", "aten.aten::", "torch.tanh", "torch.exp")
def indirect() -> Any:
    xs = [torch.randn(3), torch.randn(3)]
    plus = functools.partial(torch.add, 1)
    out = [plus(xs[0]), *map(torch.relu, xs), torch.tanh(xs[0]), getattr(torch, "sin")(xs[0])]  # noqa: B009
    out += [
        operator.methodcaller("mul", 2)(xs[0]),
        operator.attrgetter("cos")(torch)(xs[1]),
        functools.reduce(torch.add, xs),
    ]
    out += [
        (lambda f: f(xs[0]))(torch.exp),
        torch.exp(*xs[:1]),
        torch.exp(input=xs[1]),
        {"f": torch.cos}["f"](xs[0]),
    ]
    bound = xs[0].add
    return [
        *out,
        bound(1),
        bound(xs[1]),
        bound.__name__,
        bound.__self__ is xs[0],
        bound == xs[0].add,
        (bound if xs else None)(2),
    ]


@features("operators", "Tensor.__add__", "Tensor.__iadd__", "Tensor.__rsub__", "Tensor.__matmul__", "Tensor.__pow__",
          "Tensor.__rpow__", "Tensor.__rtruediv__", "Tensor.__lt__", "Tensor.__and__", "Tensor.__invert__",
          "Tensor.__neg__", "Tensor.__getitem__", "Tensor.__setitem__",
          "Tensor.__floordiv__", "Tensor.__mod__", "Tensor.__eq__")  # fmt: skip
def operators() -> Any:
    x, y = torch.randn(3, 3), torch.randn(3, 3)
    alias = x
    x += 1
    x -= y
    x *= 2
    x /= 3
    x **= 2
    x[0] = y[1]
    x[x > 100] = 0
    index = torch.tensor([2, 0])
    flags = (x < 1) & ~(y > 0) | (x == y) ^ (x != y)
    out = [x + y, x**3, 1 - x, 2 / x, x @ y, 2**y, x // 2, x % 2, -x, +x, abs(x), 5 // x, 7 % x]
    out += [
        x[index, 1:],
        x[..., None],
        x[1:, [0, 2]],
        x[flags],
        y.__rsub__(1),
        Tensor.add(x, y),
        torch.Tensor.__mul__(x, 2),
    ]
    return [
        *out,
        alias is x,
        x in [x],
        [bool(v) for v in x[0] > 0],
        3 in torch.arange(4),
        [float(v) for v in x[0]],
        len(x),
        hash(x) == hash(alias),
    ]


@features("mixed types", "Tensor.__radd__", "Tensor.__mul__")
def mixed() -> Any:
    class Units:
        def __radd__(self, other: Any) -> str:
            return "units"

        def __mul__(self, other: Any) -> str:
            return "times"

    x = torch.ones(2)
    with pytest.raises(TypeError):
        x + "text"
    with pytest.raises(TypeError):
        x @ None
    numbers = x.numpy() * 2
    return [1 + x, x * 2, x + torch.from_numpy(numbers), sum([x, x]), Units() * x]


@features("comprehensions, generators, coroutines", "torch.add", "torch.mul", "torch.sub")
def flow() -> Any:
    x = torch.randn(3)

    def lazily() -> Any:
        for n in range(3):
            yield torch.mul(x, n)

    async def later(n: int) -> Tensor:
        await asyncio.sleep(0)
        return torch.sub(x, n)

    async def both() -> list[Tensor]:
        return list(await asyncio.gather(later(1), later(2)))

    context = contextvars.copy_context()
    return [[torch.add(x, n) for n in range(3)], list(lazily()), asyncio.run(both()), context.run(torch.add, x, 1),
            {n: torch.add(x, n) for n in range(2)}, torch.add(x, 1) if torch.add(x, 1).sum() > 0 else 0]  # fmt: skip


@features("inspection", "torch.add")
def inspection() -> Any:
    torch.add(torch.ones(1), 1)
    modules = [torch, F, torch.linalg, torch.fft, torch.special, torch.distributed]
    known = [isinstance(module, types.ModuleType) for module in modules]
    members = [[len(dir(module)), len(vars(module)), repr(module), module.__name__] for module in modules]
    functions = F.softmax, F.cross_entropy, nn.Linear.forward, nn.Module.__call__
    signature = [str(inspect.signature(f)) for f in functions]
    same = [
        torch.add is torch._C._VariableFunctions.add,
        F.gelu is torch._C._nn.gelu,
        Tensor.mul is torch._C.TensorBase.mul,
    ]
    kinds = [
        type(torch.add).__name__,
        type(Tensor.add).__name__,
        torch.add.__name__,
        F.relu.__qualname__,
        F.relu.__module__,
    ]
    names = [
        hasattr(torch, "no_such"),
        getattr(torch, "no_such", 1),
        inspect.getsource(F.relu)[:8],
        inspect.isbuiltin(torch.add),
    ]
    return [
        known,
        members,
        signature,
        same,
        kinds,
        names,
        importlib.import_module("torch") is torch,
        Tensor.add.__doc__,
    ]


BY_TYPE = ChainMap(
    {types.ModuleType: lambda module: (importlib.import_module, (module.__name__,))}, copyreg.dispatch_table
)


@features("modules of torch are pickled by name", "torch.relu")
def module_pickles() -> Any:
    """As cloudpickle does it, which Dask, Ray and joblib send functions with: by the exact type of a module."""

    class ByName(pickle.Pickler):
        dispatch_table = BY_TYPE

    torch.relu(torch.ones(1))
    out = []
    for module in (torch, F, torch.linalg):
        buffer = io.BytesIO()
        ByName(buffer).dump(module)
        out.append(pickle.loads(buffer.getvalue()) is module)
    return out


@features("functions that are replaced", "torch.relu")
def replaced() -> Any:
    x = torch.randn(3)
    with (
        mock.patch("torch.nn.functional.relu", lambda y, inplace=False: y - 1),
        mock.patch.object(torch, "add", return_value=5),
    ):
        inside = [F.relu(x), torch.add(x, x), nn.ReLU()(x)]
    original = F.gelu
    F.gelu = lambda y: y + 1  # type: ignore[assignment]
    try:
        inside.append(F.gelu(x))
    finally:
        F.gelu = original
    sub = torch.sub
    del torch.sub
    try:
        with pytest.raises(AttributeError, match="module 'torch' has no attribute 'sub'"):
            torch.sub(x, x)
    finally:
        torch.sub = sub
    with mock.patch.object(Tensor, "mul", return_value="patched"):
        inside.append(x.mul(2))
    return [
        inside,
        F.relu(x),
        torch.add(x, 1),
        torch.relu(x),
        F.gelu(x),
        torch.sub(x, 1),
        x.mul(2),
        "relu" in vars(F),
    ]


@features("errors of operators", "torch.add", "torch.sub", "torch.nn.functional.linear")
def errors() -> Any:
    said = []
    for body in (
        lambda: torch.add(torch.ones(2), torch.ones(3)),
        lambda: torch.add(),
        lambda: torch.sub(torch.ones(2), "text"),
        lambda: nn.Linear(2, 2)(torch.ones(1, 3)),
        lambda: torch.ones(2).view(3),
        lambda: torch.ones(2)[5],
        lambda: F.softmax(torch.ones(2), dim=7),
        lambda: torch.no_such_function(1),
        lambda: torch.ones(1).no_such_method(),
    ):
        try:
            body()
        except Exception as error:
            said.append([type(error).__name__, str(error), error.__cause__, error.__context__])
    said.append(torch.sub(torch.ones(1), 1))
    return said


@features("warnings", "torch.from_numpy", "torch.nn.functional.softmax", "Tensor.to", "Tensor.__getitem__")
def told() -> Any:
    """By C++ and by Python, of functions, methods, operators, modules: the place that is named, and filters by it."""
    frozen, x = np.zeros(2), torch.ones(2)
    frozen.flags.writeable = False
    bodies = (
        lambda: torch.from_numpy(frozen),
        lambda: torch.add(x, 1, out=torch.empty(3)),
        lambda: x.to(torch.complex64).to(torch.float32),
        lambda: x[torch.ones(2, dtype=torch.uint8)],
        lambda: F.softmax(x),
        lambda: nn.Softmax()(x),
        lambda: F.mse_loss(x, torch.ones(2, 1)),
        lambda: nn.MSELoss()(x, torch.ones(2, 1)),
        lambda: nn.Dropout2d()(torch.ones(2, 3)),
    )
    was, said = torch.is_warn_always_enabled(), []
    torch.set_warn_always(True)
    try:
        for body in bodies:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                body()
            said.append([f"{warning.filename}:{warning.lineno} {warning.message}" for warning in caught])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", module=re.escape(__name__))
            for body in bodies:
                with suppress(UserWarning):
                    body()
                    said.append(["not an error"])
    finally:
        torch.set_warn_always(was)
    return said


class Interrupting(Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise KeyboardInterrupt


@features(
    "KeyboardInterrupt and SystemExit inside an operator",
    "torch.add",
    "torch.nn.functional.linear",
    "torch.mul",
)
def interrupted() -> Any:
    x = torch.ones(2, 2).as_subclass(Interrupting)
    for body in (lambda: torch.add(x, 1), lambda: nn.Linear(2, 2)(x), lambda: x * 2):
        with pytest.raises(KeyboardInterrupt):
            body()

    def leave(_: Any) -> None:
        raise SystemExit(3)

    y = torch.ones(2, requires_grad=True)
    z = torch.mul(y, 2)
    z.register_hook(leave)
    with pytest.raises(SystemExit):
        z.sum().backward()
    return [torch.mul(y, 3), y.grad]


@features("a full stack", "torch.add")
def recursion() -> Any:
    x = torch.ones(1)

    def down(n: int) -> Tensor:
        return down(n + 1) if n else x

    def deep(n: int) -> Tensor:
        return torch.add(deep(n - 1), 1) if n else x

    with pytest.raises(RecursionError):
        down(1)
    return [deep(200), torch.add(x, 1)]


@features("several threads", "torch.add", "torch.nn.functional.linear")
def threads() -> Any:
    net = nn.Linear(3, 3)

    def work(n: int) -> Tensor:
        x = torch.add(torch.full((2, 3), float(n)), 1)
        y = net(x).sum()
        return torch.autograd.grad(y, net.weight)[0]

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        return list(pool.map(work, range(6)))


@features("tracers and callbacks of Python", "torch.sinh", "Tensor.cosh", "torch.nn.functional.linear")
def tracers() -> Any:
    lines: list[int] = []
    called: list[str] = []
    here = tracers.__code__.co_filename

    def trace(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename == here and event == "line":
            lines.append(frame.f_lineno)
        return trace

    def profiler(frame: Any, event: str, arg: Any) -> None:
        if event == "c_call" and getattr(arg, "__name__", "") in ("sinh", "cosh"):
            called.append(arg.__name__)

    def body() -> Tensor:
        x = torch.sinh(torch.ones(1, 2))
        return nn.Linear(2, 2)(x.cosh())  # type: ignore[no-any-return]

    before = sys.gettrace(), sys.getprofile()
    collected: list[str] = []
    callback = lambda phase, info: collected.append(phase)  # noqa: E731
    try:
        sys.settrace(trace)
        out = [body()]
        sys.settrace(before[0])
        sys.setprofile(profiler)
        out.append(body())
        sys.setprofile(before[1])
        gc.callbacks.append(callback)
        gc.collect()
        body()
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
        if callback in gc.callbacks:
            gc.callbacks.remove(callback)
    return [out[0].shape, sorted(set(lines)), called, collected[:2]]


@pytest.mark.parametrize("name", features)
def test_it_is_the_same_with_pyprof(name: str, tmp_path: Path) -> None:
    check(features[name], tmp_path)
