# SPDX-License-Identifier: Apache-2.0
"""Kinds of tensors: subclasses, attention bias, fake, meta, nested, sparse, quantised, and modes that see them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.utils._python_dispatch import TorchDispatchMode

import pyprof

from .conftest import Recorded
from .features import Features, check

features = Features()
pytestmark = pytest.mark.filterwarnings("ignore")
Tensor = torch.Tensor


def handlers() -> dict[Any, str]:
    return {torch.add: "add", Tensor.mul: "mul", F.relu: "relu", F.linear: "linear", Tensor.__rsub__: "-",
            torch.Tensor.__getitem__: "[]", torch.stack: "stack", F.softmax: "softmax", F.gelu: "gelu"}  # fmt: skip


class Logged(Tensor):
    """A subclass that handles functions through tables keyed by the functions themselves."""

    before = handlers()
    tables: list[dict[Any, str]] = []  # noqa: RUF012
    seen: list[str] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(", ".join(table.get(func, func.__name__) for table in cls.tables))
        return super().__torch_function__(func, types, args, kwargs or {})


@features("subclass with tables of functions", "torch.add", "torch.stack", "torch.nn.functional.softmax")
def subclass() -> Any:
    Logged.seen = []
    Logged.tables = [Logged.before, handlers()]  # the second one is made in the window
    x = torch.randn(3, 3).as_subclass(Logged)
    out = F.relu(torch.add(x, x).mul(2)) + F.linear(x, x)[0]
    out = torch.stack([F.softmax(out, 0), F.gelu(out)])
    names = [part for text in Logged.seen for part in set(text.split(", "))]
    assert {"add", "mul", "relu", "linear", "[]", "stack", "softmax", "gelu"} <= set(names)
    seen = list(Logged.seen)
    return [out, seen, (1 - x).as_subclass(Tensor)]


class Scaled:
    """No tensor at all, with __torch_function__: as units or lazy arrays do it."""

    def __init__(self, value: Tensor):
        self.value = value

    handled: dict[Any, Any] = {}  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in cls.handled:
            return NotImplemented
        return cls.handled[func](*args, **(kwargs or {}))


def implements(function: Any) -> Any:
    def register(body: Any) -> Any:
        Scaled.handled[function] = functools.wraps(function)(body)
        return body

    return register


@implements(torch.mean)
def mean(x: Scaled, dim: int = 0) -> Tensor:
    return torch.mean(x.value, dim) * 2


@features("something else with __torch_function__", "torch.mean")
def duck() -> Any:
    implements(torch.nn.functional.gelu)(lambda x: F.gelu(x.value))
    x = Scaled(torch.randn(3))
    with pytest.raises(TypeError, match=r"torch\.add"):
        torch.add(x, x)
    return [torch.mean(x, dim=0), F.gelu(x)]  # type: ignore[arg-type]


class Wrapper(Tensor):
    """A wrapper subclass with __torch_dispatch__."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Wrapper:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, strides=inner.stride())
        made.inner = inner
        return made  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        unwrapped = [arg.inner if isinstance(arg, Wrapper) else arg for arg in args]
        out = func(*unwrapped, **(kwargs or {}))
        return Wrapper(out) if isinstance(out, Tensor) else out


@features("subclass with __torch_dispatch__", "torch.matmul", "Tensor.__add__")
def wrapper() -> Any:
    x = Wrapper(torch.randn(3, 3))
    return (torch.matmul(x, x) + 1).inner  # type: ignore[attr-defined]


@features("attention bias", "torch.nn.functional.scaled_dot_product_attention", "torch.tril")
def attention_bias() -> Any:
    q, k = torch.randn(2, 2, 3, 8), torch.randn(2, 2, 5, 8)
    out = []
    for bias in (causal_lower_right(3, 5), causal_upper_left(3, 5)):
        explicit = F.scaled_dot_product_attention(q, k, k, attn_mask=bias._materialize())
        out.append(F.scaled_dot_product_attention(q, k, k, attn_mask=bias))
        assert torch.allclose(out[-1], explicit, atol=1e-6)
    return out


@features("FakeTensor and meta", "torch.ones")
def fake() -> Any:
    with FakeTensorMode() as mode:
        x = torch.ones(2, 3)
        y = torch.matmul(x, x.t())
        assert type(y) is type(x)
    converted = mode.from_tensor(torch.ones(2, 3))
    with torch.device("meta"):
        meta = torch.ones(2, 3).matmul(torch.ones(3, 1))
        net = torch.nn.Linear(3, 4)
    return [
        y,
        converted + 1,
        meta,
        net(torch.ones(2, 3, device="meta")),
        torch.ones(1),
        net.to_empty(device="cpu").weight.shape,
    ]


@features("default device and dtype", "torch.zeros", "torch.nn.functional.linear")
def default_device() -> Any:
    try:
        torch.set_default_device("meta")
        torch.set_default_dtype(torch.float64)
        layer = torch.nn.Linear(3, 2)
        made = [torch.zeros(3), torch.tensor([1.0]), torch.arange(3), layer(torch.ones(1, 3))]
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
    return [*made, torch.zeros(3)]


@features("nested", "Tensor.__add__", "torch.nn.functional.linear")
def nested() -> Any:
    parts = [torch.randn(2, 3), torch.randn(1, 3)]
    strided = torch.nested.nested_tensor(parts)
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    padded = torch.nested.to_padded_tensor(strided + strided, 0.0)
    return [
        padded,
        F.linear(strided, torch.ones(2, 3)),
        (jagged * 2).values(),
        F.linear(jagged, torch.ones(2, 3)).values(),
    ]


@features("sparse", "Tensor.__matmul__", "Tensor.to_sparse", "Tensor.to_sparse_csr", "torch.addmm")
def sparse() -> Any:
    x, y = torch.eye(3).to_sparse(), torch.randn(3, 2)
    csr = torch.eye(3).to_sparse_csr()
    return [x @ y, csr @ y, x + x, torch.addmm(torch.ones(3, 2), x, y), torch.sparse.mm(x, y), torch.sparse.sum(x),
            csr, (x * 2).to_dense()]  # fmt: skip


@features("complex", "torch.fft.fft", "Tensor.conj", "torch.view_as_real", "torch.polar")
def complex_numbers() -> Any:
    z = torch.fft.fft(torch.randn(4))
    return [
        z,
        z.conj(),
        torch.view_as_real(z),
        z.abs(),
        torch.polar(torch.ones(2), torch.ones(2)),
        -z.conj().imag,
        z * 1j,
    ]


@features("quantised", "torch.quantize_per_tensor", "Tensor.dequantize")
def quantised() -> Any:
    x = torch.quantize_per_tensor(torch.randn(4), 0.1, 10, torch.quint8)
    per_channel = torch.quantize_per_channel(torch.randn(2, 3), torch.ones(2), torch.zeros(2), 0, torch.qint8)
    net = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(3, 2)), {torch.nn.Linear})
    return [x, x.dequantize(), torch.relu(x), per_channel.int_repr(), net(torch.randn(1, 3))]


@features(
    "low precision and integer products",
    "torch._int_mm",
    "torch._scaled_mm",
    "torch._grouped_mm",
    "Tensor.to",
)
def low_precision() -> Any:
    x = torch.randint(-4, 4, (32, 32), dtype=torch.int8)
    half = torch.randn(16, 16, dtype=torch.bfloat16)
    eighth = torch.randn(16, 16).to(torch.float8_e4m3fn)
    one = torch.ones(())
    out = [
        torch._int_mm(x, x),
        torch._scaled_mm(eighth, eighth.t(), one, one, out_dtype=torch.bfloat16),
        half @ half,
    ]
    groups = torch.tensor([8, 16], dtype=torch.int32)
    return [*out, torch._grouped_mm(half, half.expand(2, 16, 16), groups)]


@features("nan, empty, strides", "torch.empty", "torch.cat", "Tensor.expand")
def odd_tensors() -> Any:
    nan = torch.tensor([float("nan"), float("inf"), -0.0])
    flat = torch.randn(3)
    return [nan * nan, nan.abs(), torch.empty(0, 3).sum(0), torch.cat([torch.zeros(0), flat]),
            flat.expand(2, 3), flat.expand(2, 3).t(),
            torch.randn(1, 2, 3, 4).to(memory_format=torch.channels_last)]  # fmt: skip


class Spy(torch.overrides.TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(f"{torch.overrides.resolve_name(func)} {len(args)} {sorted(kwargs or ())}")
        return func(*args, **(kwargs or {}))


class DispatchSpy(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@features(
    "modes of functions and of the dispatcher",
    "torch.add",
    "torch.nn.functional.gelu",
    "torch.nn.functional.linear",
)
def modes() -> Any:
    layer = torch.nn.Linear(2, 2)
    with Spy() as spy, DispatchSpy() as dispatched:
        out = layer(F.gelu(torch.add(torch.ones(1, 2), 1).mul(2), approximate="tanh"))
    with Spy() as outer, Spy() as inner:
        torch.relu(out)
    return [out, spy.seen, dispatched.seen, outer.seen, inner.seen]


@features("what torch says of its functions", "torch.add")
def overrides() -> Any:
    torch.add(torch.ones(1), 1)
    listed = torch.overrides.get_overridable_functions()
    names = [torch.overrides.resolve_name(function) for function in (torch.add, F.relu, Tensor.mul, torch.linalg.inv)]
    testing = torch.overrides.get_testing_overrides()
    return [sorted(len(value) for value in listed.values()), names, testing[torch.add].__name__, Tensor.mul in testing,
            torch.overrides.is_tensor_method_or_property(Tensor.add)]  # fmt: skip


@features("counting FLOPs", "torch.mm", "torch.nn.functional.linear")
def flop_counter() -> Any:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        torch.mm(torch.randn(2, 3), torch.nn.Linear(4, 3)(torch.randn(3, 4)))
    return counter.get_total_flops()


@pytest.mark.parametrize("name", features)
def test_it_is_the_same_with_pyprof(name: str, tmp_path: Path) -> None:
    check(features[name], tmp_path)


def test_calls_on_stand_ins_are_not_recorded(tmp_path: Path) -> None:
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        with FakeTensorMode():
            x = torch.ones(2, 3)
            torch.matmul(x, x.t())
        torch.tanh(torch.ones(1))
    pyprof.shutdown()
    names = Recorded(tmp_path / "net.sqlite").names
    assert "torch.tanh" in names
    assert not {"torch.matmul", "Tensor.t"} & set(names)
