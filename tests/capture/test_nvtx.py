# SPDX-License-Identifier: Apache-2.0
"""Calls as NVTX ranges: what a listening tool gets, seen by a stand-in for the nvtx package and by a real listener."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import nvtx
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pyprof
from pyprof.capture.instrument import nvtx_ranges as ranges
from pyprof.core.marker import CallMarker, LayerMarker, ModuleMarker, TraceMarker, decode
from pyprof.core.model import Tensor
from tests.forks import Forks

from .. import build
from .conftest import Recorded
from .test_run import python

HERE = os.path.realpath(__file__)
x = torch.ones(2, 3)


class Event(NamedTuple):
    """A push (`text`) or a pop (`text` None)."""

    thread: int
    domain: str | None
    text: str | None
    payload: int | None = None


class Attributes:
    def __init__(self, message: str):
        self.message, self.payload = message, None


class FakeDomain:
    """What nvtx.get_domain gives when a tool listens."""

    def __init__(self, name: str | None, log: list[Event]):
        self.name, self.log = name, log
        self.registered: list[str] = []
        self._known: set[str] = set()

    def get_event_attributes(self, message: str) -> Attributes:
        if message not in self._known:  # as the package does, which keeps its registered strings
            self._known.add(message)
            self.registered.append(message)
        return Attributes(message)

    def push_range(self, attributes: Attributes) -> None:
        assert type(attributes.payload) in (int, type(None))
        self.log.append(Event(threading.get_ident(), self.name, attributes.message, attributes.payload))

    def pop_range(self) -> None:
        self.log.append(Event(threading.get_ident(), self.name, None))


class DummyDomain(FakeDomain):
    """The same when no tool listens, told by its name alone."""


class Tool:
    """All that was written, and what it says."""

    def __init__(self) -> None:
        self.listens = True
        self.log: list[Event] = []
        self.domains: dict[str | None, FakeDomain] = {}

    def get_domain(self, name: str | None = None) -> FakeDomain:
        kind = FakeDomain if self.listens else DummyDomain
        return self.domains.setdefault(name, kind(name, self.log))

    def clear(self) -> None:
        self.log.clear()

    @property
    def texts(self) -> list[str]:
        return [event.text for event in self.log if event.text is not None]

    @property
    def calls(self) -> list[CallMarker]:
        markers = [decode(text) for text in self.texts]
        return [marker for marker in markers if isinstance(marker, CallMarker)]

    @property
    def names(self) -> list[str]:
        return [f"{marker.call.mod}.{marker.call.op}" for marker in self.calls]

    def check_balance(self) -> int:
        """Each thread and domain closes what it opens. Returns the greatest depth."""
        open_: dict[tuple[int, str | None], int] = {}
        deepest = 0
        for event in self.log:
            place = event.thread, event.domain
            open_[place] = open_.get(place, 0) + (1 if event.text is not None else -1)
            assert open_[place] >= 0
            deepest = max(deepest, open_[place])
        assert set(open_.values()) <= {0}
        return deepest


@pytest.fixture(autouse=True)
def _without_tools(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (*ranges.TOOLS, "PYPROF_NVTX", "PYPROF_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    yield
    pyprof.shutdown()


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Tool:
    """A tool that listens."""
    listening = Tool()
    monkeypatch.setattr(nvtx, "get_domain", listening.get_domain)
    return listening


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2))
        self.out = nn.Linear(6 * 12 * 12, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        with pyprof.annotate("layer:features"):
            images = self.features(images)
        return self.out(torch.flatten(images, 1))  # OUT


NET_LINE = next(
    number for number, line in enumerate(Path(HERE).read_text().splitlines(), 1) if line.rstrip().endswith("# OUT")
)


def training() -> Callable[[], None]:
    torch.manual_seed(0)
    net = LeNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    images, labels = torch.randn(2, 1, 28, 28), torch.tensor([1, 2])

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(images), labels).backward()
        optimizer.step()

    return step


STEP = [
    "torch.optim.SGD.zero_grad", "torch.nn.functional.conv2d", "torch.nn.functional.relu",
    "torch.nn.functional.max_pool2d", "torch.flatten", "torch.nn.functional.linear",
    "torch.nn.functional.cross_entropy", "torch.ones_like", "torch.optim.SGD.step",
]  # fmt: skip


def test_every_outermost_call_is_one_range(tool: Tool) -> None:
    step = training()
    pyprof.init()
    step()
    pyprof.shutdown()
    calls = [event for event in tool.log if event.domain == "pyprof"]
    assert tool.names == STEP
    assert [event.payload for event in calls if event.text is not None] == list(range(1, len(STEP) + 1))
    assert [event.text is None for event in calls] == [False, True] * len(STEP)
    tool.check_balance()


def test_text_says_arguments_layer_module_and_line(tool: Tool) -> None:
    step = training()
    pyprof.init()
    step()
    conv, linear = tool.calls[1], tool.calls[5]
    assert [arg.value for arg in conv.call.args[:2]] == [
        Tensor((2, 1, 28, 28), "float32"), Tensor((6, 1, 5, 5), "float32")
    ]  # fmt: skip
    assert (conv.layer, conv.module) == (("features",), "features.0")
    assert (linear.layer, linear.module) == ((), "out")
    assert f"{HERE}:{NET_LINE}" in linear.trace
    assert linear.trace[-1].endswith(tuple(f"linear.py:{n}" for n in range(100, 200)))
    assert tool.domains[None].registered == ["layer:features"]


def test_the_ranges_are_what_a_capture_file_says(tool: Tool, tmp_path: Path) -> None:
    step = training()
    said = []
    for mode in ("registered", "off"):
        pyprof.init(nvtx=mode)
        tool.clear()
        with pyprof.profile(str(tmp_path / "net.sqlite")):
            step()
        said.append(tool.calls if mode == "registered" else [])
        pyprof.shutdown()
    file = [call.marker for call in Recorded(tmp_path / "net.sqlite").calls]
    assert [call._replace(trace=()) for call in said[0]] == [call._replace(trace=()) for call in file]
    assert [call.trace for call in said[0]] == [call.trace for call in file]


@pytest.mark.parametrize("mode", ["registered", "classic"])
def test_ranges_are_balanced_when_calls_raise(mode: str, tool: Tool) -> None:
    pyprof.init(nvtx=mode)

    def work() -> None:
        for _ in range(3):
            with pytest.raises(RuntimeError):
                torch.mm(x, x)
            with pytest.raises(ZeroDivisionError):
                Raises.apply(x)
            torch.exp(x)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pyprof.shutdown()
    assert tool.check_balance() == (1 if mode == "registered" else 2)
    assert sorted(set(tool.names)) == ["torch.autograd.Raises.apply", "torch.exp", "torch.mm"]
    assert len(tool.names) == 4 * 9


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


def test_a_text_is_registered_once(tool: Tool) -> None:
    step = training()
    pyprof.init()
    for _ in range(5):
        step()
    assert len(tool.names) == 5 * len(STEP)
    assert len(tool.domains["pyprof"].registered) == len(STEP)


def test_payloads_are_those_of_the_thread_that_pushed(tool: Tool) -> None:
    pyprof.init()

    def work() -> None:
        for _ in range(200):
            torch.exp(x)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    payloads = [event.payload for event in tool.log if event.text is not None]
    assert sorted(payloads) == list(range(1, 801))  # type: ignore[type-var]


# What the original writes around a call: its own words, from its source and its published examples.
CLASSIC: list[tuple[str, Callable[[], Any], str]] = [
    ("function", lambda: F.relu(x),
     "{'mod': 'torch.nn.functional', 'op': 'relu', 'args': "
     "[{'name': '', 'type': 'tensor', 'shape': (2, 3), 'dtype': 'float32'}]}"),
    ("keyword", lambda: torch.sum(x, dim=1),
     "{'mod': 'torch', 'op': 'sum', 'args': [{'name': '', 'type': 'tensor', 'shape': (2, 3), 'dtype': 'float32'}, "
     "{'name': 'dim', 'type': 'int', 'value': 1}]}"),
    ("method", lambda: x.half().add_(2.5),
     "{'mod': 'Tensor', 'op': 'add_', 'args': [{'name': '', 'type': 'tensor', 'shape': (2, 3), 'dtype': 'float16'}, "
     "{'name': '', 'type': 'float', 'value': 2.5}]}"),
    ("list is flattened", lambda: torch.cat([x, x], 1),
     "{'mod': 'torch', 'op': 'cat', 'args': [{'name': '', 'type': 'tensor', 'shape': (2, 3), 'dtype': 'float32'}, "
     "{'name': '', 'type': 'tensor', 'shape': (2, 3), 'dtype': 'float32'}, {'name': '', 'type': 'int', 'value': 1}]}"),
    ("tuple", lambda: x.view((3, 2)),
     "{'mod': 'Tensor', 'op': 'view', 'args': [{'name': '', 'type': 'tensor', 'shape': (2, 3), 'dtype': 'float32'}, "
     "{'name': '', 'type': 'tuple', 'value': (3, 2)}]}"),
    ("list", lambda: torch.ones([2]),
     "{'mod': 'torch', 'op': 'ones', 'args': [{'name': '', 'type': 'list', 'value': [2]}]}"),
    ("one dimension", lambda: torch.ones(4).neg(),
     "{'mod': 'Tensor', 'op': 'neg', 'args': [{'name': '', 'type': 'tensor', 'shape': (4,), 'dtype': 'float32'}]}"),
    ("none, bool, infinity, text", lambda: torch.nan_to_num(x, None, posinf=float("inf")),
     "{'mod': 'torch', 'op': 'nan_to_num', 'args': [{'name': '', 'type': 'tensor', 'shape': (2, 3), 'dtype': "
     "'float32'}, {'name': '', 'type': 'NoneType', 'value': None}, {'name': 'posinf', 'type': 'float', 'value': "
     "'inf'}]}"),
    ("dtypes vanish", lambda: torch.zeros(2, dtype=torch.int64),
     "{'mod': 'torch', 'op': 'zeros', 'args': [{'name': '', 'type': 'int', 'value': 2}]}"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "text"), [row[1:] for row in CLASSIC], ids=[row[0] for row in CLASSIC])
def test_classic_texts_are_the_originals(call: Callable[[], Any], text: str, tool: Tool) -> None:
    pyprof.init(nvtx="classic")
    call()
    line = call.__code__.co_firstlineno
    trace, arguments = tool.texts[-2:]
    frames = decode(trace)
    assert isinstance(frames, TraceMarker)
    assert trace == str({"traceMarker": list(frames.frames)})
    assert frames.frames[-1] == f"{HERE}:{line}"
    assert arguments == text
    assert [event.text for event in tool.log[-4:]] == [trace, arguments, None, None]
    assert {event.domain for event in tool.log} == {None}
    assert {event.payload for event in tool.log} == {None}


def test_classic_marks_recurrent_modules(tool: Tool) -> None:
    cell = nn.LSTMCell(3, 4)
    state = torch.zeros(2, 4), torch.zeros(2, 4)
    pyprof.init(nvtx="classic")
    cell(x, state)
    trace, module, arguments = tool.texts
    assert isinstance(decode(trace), TraceMarker)
    assert module == "{'mod': 'LSTMCell', 'strRepr': '3, 4'}"
    assert decode(module) == ModuleMarker("LSTMCell", "3, 4")
    tensor = "{'name': '', 'type': 'tensor', 'shape': (2, %d), 'dtype': 'float32'}"
    assert arguments == (
        "{'mod': 'LSTMCell', 'op': 'forward', 'args': [" + ", ".join((tensor % 3, tensor % 4, tensor % 4)) + "]}"
    )
    assert tool.check_balance() == 3


def nsys_file(path: Path, log: list[Event]) -> Path:
    """An export of Nsight Systems with these ranges, and a kernel in each call."""
    out = build.Recording()
    open_: list[build.Range] = []
    time = 0
    for event in log:
        time += 10
        if event.text is None:
            open_.pop().end = time
            continue
        item = build.Range(event.text, time, None)
        out.ranges.append(item)
        open_.append(item)
        if isinstance(decode(event.text), CallMarker):
            number = len(out.kernels) + 1
            out.launches.append(build.Launch(time + 2, time + 4, number))
            out.kernels.append(build.Kernel("kernel", time + 1000, time + 1005, number))
    return build.write_nsys(path, out, registered=True)


def test_both_forms_are_read_back_alike(tool: Tool, tmp_path: Path) -> None:
    step = training()
    tables = []
    for mode in ("registered", "classic"):
        tool.clear()
        pyprof.init(nvtx=mode)
        step()
        pyprof.shutdown()
        tables.append(pyprof.load(nsys_file(tmp_path / f"{mode}.sqlite", tool.log)).table.astype(object).fillna("none"))
    registered, classic = tables
    for column in ("op", "mod", "params", "layer", "dir", "flops", "bytes"):
        values = [list(table[column]) for table in tables]
        # ones_like: the original leaves out what is no tensor, number or text, memory_format here
        for number, (one, other) in enumerate(zip(*values)):
            assert one == other or (column, registered["op"][number]) == ("params", "ones_like")
    assert list(registered["op"])[1:8] == [name.rpartition(".")[2] for name in STEP[1:8]]
    assert list(registered["params"])[1].startswith("N=2,C=1,H=28,W=28,K=6")
    assert list(registered["trace"])[5] == list(classic["trace"])[5]
    assert f"test_nvtx.py:{NET_LINE}" in str(list(classic["trace"])[5])
    assert list(registered["module"])[1] == "features.0"


def test_functions_keep_their_identity(tool: Tool) -> None:
    kept = {name: getattr(F, name) for name in ("relu", "gelu", "conv2d", "linear", "scaled_dot_product_attention")}
    method, apply = torch.Tensor.mul, torch.autograd.Function.apply
    pyprof.init()
    assert {name: getattr(F, name) for name in kept} == kept
    assert torch.Tensor.mul is method
    tool.clear()
    q = torch.ones(1, 1, 4, 8)
    tool.clear()
    F.relu(x), F.gelu(x), F.linear(x, x), F.scaled_dot_product_attention(q, q, q)
    F.conv2d(q, q), F.conv1d(q[0], q[0])
    assert [name.rpartition(".")[2] for name in tool.names if "getitem" not in name] == [
        "relu", "gelu", "linear", "scaled_dot_product_attention", "conv2d", "conv1d"
    ]  # fmt: skip
    assert torch.autograd.Function.apply.__func__.__qualname__ == apply.__func__.__qualname__


def test_result_is_bit_for_bit_that_without(tool: Tool) -> None:
    def train() -> list[torch.Tensor]:
        torch.manual_seed(0)
        net = LeNet()
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(net(torch.randn(2, 1, 28, 28)), torch.tensor([1, 2])).backward()
            optimizer.step()
        return [parameter.detach() for parameter in net.parameters()]

    plain = train()
    pyprof.init(nvtx="registered")
    written = train()
    assert tool.names
    assert all(torch.equal(a, b) for a, b in zip(plain, written))


def test_compiled_function_is_not_compiled_again(tool: Tool) -> None:
    compiled = 0

    def backend(graph: Any, inputs: Any) -> Any:
        nonlocal compiled
        compiled += 1
        return graph.forward

    function = torch.compile(lambda value: F.relu(value) + torch.exp(value), backend=backend, fullgraph=True)
    function(x)
    pyprof.init()
    function(x)
    pyprof.shutdown()
    function(x)
    assert compiled == 1


def snapshot() -> list[Any]:
    owners = (torch, torch.Tensor, F, torch.linalg, nn.Module, torch.autograd.Function, torch.optim.Optimizer,
              torch.autograd.profiler.emit_nvtx, torch.cuda.profiler, torch.cuda.nvtx, nvtx)  # fmt: skip
    return [dict(vars(owner)) for owner in owners] + [type(owner) for owner in owners]


def test_shutdown_leaves_nothing(tool: Tool) -> None:
    before = snapshot()
    pyprof.init(nvtx="classic")
    torch.exp(x)
    pyprof.shutdown()
    assert snapshot() == before
    tool.clear()
    torch.exp(x)
    assert tool.log == []


def test_no_tensor_is_kept(tool: Tool) -> None:
    pyprof.init(nvtx="classic")
    value = torch.ones(3)
    cell = nn.GRUCell(3, 4)
    cell(value)
    cell(value)
    seen = weakref.ref(value), weakref.ref(cell)
    del value, cell
    gc.collect()
    assert [reference() for reference in seen] == [None, None]


def test_nothing_grows_with_calls(tool: Tool) -> None:
    from pyprof.capture.instrument.recorder import local

    step = training()
    pyprof.init()
    state, sizes = local.state, []
    for _ in range(4):
        step()
        sizes.append([len(state.calls), len(state.modules), len(state.ranges), len(state.attributes)])
    assert sizes == [[0, 0, 0, len(STEP)]] * 4


def test_texts_are_bounded(tool: Tool, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(ranges, "MAX_TEXTS", 10)
    pyprof.init()
    for number in range(50):
        torch.add(x, number)
    assert len(tool.names) == 50
    assert len(tool.domains["pyprof"].registered) == 11
    assert tool.calls[-1].call.args == ()
    assert tool.calls[-1].trace == tool.calls[0].trace
    assert capsys.readouterr().err.count("\n") == 1


def test_a_broken_backend_does_not_reach_the_program(tool: Tool, capsys: Any) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise OSError("gone")

    pyprof.init()
    torch.exp(x)
    domain = tool.domains["pyprof"]
    for name in ("get_event_attributes", "push_range", "pop_range"):
        setattr(domain, name, broken)
    ranges.plan.writer._push = ranges.plan.writer._pop = broken  # type: ignore[union-attr]
    with pyprof.annotate("layer:a"):
        assert torch.equal(torch.exp(x), x.exp())
    pyprof.shutdown()
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "NVTX range not written (OSError)" in said


class Setting(NamedTuple):
    """What `init` is told, who listens, and whether ranges are written."""

    mode: str | None
    variable: str | None
    listens: bool
    written: bool


@pytest.mark.parametrize(
    "setting",
    [
        Setting(None, None, True, True),
        Setting(None, None, False, False),
        Setting("auto", "off", True, True),
        Setting(None, "off", True, False),
        Setting("off", "registered", True, False),
        Setting("registered", None, False, True),
        Setting(None, "classic", False, True),
        Setting(None, "nonsense", True, True),
    ],
)
def test_who_decides(setting: Setting, tool: Tool, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    if setting.variable:
        monkeypatch.setenv("PYPROF_NVTX", setting.variable)
    tool.listens = setting.listens
    pyprof.init(nvtx=setting.mode)
    torch.exp(x)
    assert bool(tool.names) == setting.written
    assert ("not one of auto" in capsys.readouterr().err) == (setting.variable == "nonsense")


def test_an_unknown_mode_is_a_sentence(tool: Tool) -> None:
    pyprof.init()
    with pytest.raises(pyprof.PyProfError, match="'auto', 'registered', 'classic', 'off'"):
        pyprof.init(nvtx="on")
    torch.exp(x)
    assert tool.names == ["torch.exp"]


def test_modes_work_without_a_listener(tmp_path: Path) -> None:
    for mode in ("registered", "classic"):
        pyprof.init(nvtx=mode)  # the nvtx package itself, which gives its DummyDomain
        torch.exp(x)
        with pyprof.profile(str(tmp_path / "net.sqlite")):
            torch.exp(x)
        pyprof.shutdown()
        assert Recorded(tmp_path / "net.sqlite").names == ["torch.exp"]


def test_forced_ranges_and_a_file_go_together(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool.listens = False
    pyprof.init(nvtx="registered")
    torch.exp(x)
    with pyprof.profile(str(tmp_path / "net.sqlite"), wait=1, active=1) as p:
        torch.ones(2)
        p.step()
        torch.zeros(2)
        p.step()
        torch.eye(2)
    torch.tanh(x)
    assert Recorded(tmp_path / "net.sqlite").names == ["torch.zeros"]
    assert tool.names == ["torch.exp", "torch.zeros", "torch.eye", "torch.tanh"]


def test_a_full_window_goes_on_writing_ranges(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool.listens = False
    pyprof.init(nvtx="registered")
    with pyprof.profile(str(tmp_path / "net.sqlite"), max_events=20):
        for _ in range(100):
            torch.exp(x)
    recorded = Recorded(tmp_path / "net.sqlite")
    assert len(tool.names) == 100
    assert len(recorded.calls) < 20
    assert sum(recorded.table("PYPROF_LOST").values()) >= 80


WINDOWS: list[tuple[str, Callable[[Path], None]]] = []


def window(function: Callable[[Path], None]) -> Callable[[Path], None]:
    WINDOWS.append((function.__name__, function))
    return function


@window
def with_profile(path: Path) -> None:
    with pyprof.profile(str(path)) as p:
        torch.exp(x)
        p.step()


@window
def with_start(path: Path) -> None:
    pyprof.start(str(path))
    torch.exp(x)
    assert pyprof.stop() == ""


@window
def with_init(path: Path) -> None:
    pyprof.init(str(path))
    torch.exp(x)


@window
def with_everything(path: Path) -> None:
    pyprof.init()
    with pyprof.profile(str(path)):
        torch.exp(x)
        with pytest.raises(pyprof.PyProfError):
            pyprof.start(str(path))


@pytest.mark.parametrize("body", [row[1] for row in WINDOWS], ids=[row[0] for row in WINDOWS])
def test_under_a_tool_there_is_no_file(
    body: Callable[[Path], None], tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "7")
    body(tmp_path / "net.sqlite")
    pyprof.shutdown()
    assert tool.names == ["torch.exp"]
    assert os.listdir(tmp_path) == []
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "NSYS_PROFILING_SESSION_ID" in said


def test_with_ranges_off_a_tool_changes_nothing(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "7")
    pyprof.init(nvtx="off")
    with_profile(tmp_path / "net.sqlite")
    assert Recorded(tmp_path / "net.sqlite").names == ["torch.exp"]
    assert tool.log == []


def test_a_tool_that_does_not_listen_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "7")
    with_profile(tmp_path / "net.sqlite")
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "takes no NVTX ranges" in said


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    pyprof.init(nvtx="registered")
    with pyprof.annotate("layer:a"):
        torch.exp(x)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "pip install nvtx" in said
    pyprof.shutdown()
    pyprof.init()
    assert capsys.readouterr().err == ""


class Emit:
    """torch's emit_nvtx where CUDA is there: counts who is inside."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.inside = self.entered = 0
        self.shapes: list[bool] = []
        cls = torch.autograd.profiler.emit_nvtx
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(cls, "__enter__", lambda context: self.enter(context))
        monkeypatch.setattr(cls, "__exit__", lambda *_: self.leave())
        monkeypatch.setattr(torch._C._autograd, "_profiler_enabled", lambda: self.inside > 0)

    def enter(self, context: Any) -> Any:
        assert not self.inside, "torch raises here"
        self.inside += 1
        self.entered += 1
        self.shapes.append(context.record_shapes)
        return context

    def leave(self) -> None:
        self.inside -= 1


def test_profile_enters_emit_nvtx(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    emit = Emit(monkeypatch)
    with pyprof.profile():
        assert (emit.inside, emit.shapes) == (1, [True])
        with torch.autograd.profiler.emit_nvtx():  # the user's own is not doubled
            assert emit.entered == 1
        assert emit.inside == 1
    assert emit.inside == 0
    with torch.autograd.profiler.emit_nvtx(), pyprof.profile():
        assert emit.entered == 2
    assert emit.inside == 0
    pyprof.init()
    assert emit.inside == 0  # a bare init leaves it to the program
    with torch.autograd.profiler.emit_nvtx():
        assert emit.inside == 1
    with pytest.raises(ZeroDivisionError), pyprof.profile():
        raise ZeroDivisionError
    assert emit.inside == 0


def test_forked_child_is_quiet(tool: Tool) -> None:
    pyprof.init()
    tool.clear()
    child = os.fork()
    if not child:
        torch.exp(x)
        os._exit(0 if not tool.log else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_call_costs_less_than_the_originals_way() -> None:
    """Against what the original did per call, on the same machine in the same run: a stack and two texts."""
    import traceback

    def seconds(function: Callable[[], Any]) -> float:
        best = 1.0
        for _ in range(5):
            begin = perf_counter()
            for _ in range(300):
                function()
            best = min(best, perf_counter() - begin)
        return best

    def original() -> None:
        frames = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_stack()]
        str({"traceMarker": frames})
        str({"mod": "torch", "op": "exp", "args": [{"name": "", "type": "tensor", "shape": tuple(x.shape)}]})

    def call() -> None:
        torch.exp(x)

    alone, texts = seconds(call), seconds(original)
    pyprof.init(nvtx="registered")
    written = seconds(call)
    assert written - alone < texts / 2


LENET = """\
import threading
import torch, torch.nn.functional as F
from torch import nn
import pyprof
pyprof.init()
class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 5)
        self.out = nn.Linear(864, 10)
    def forward(self, x):
        with pyprof.annotate("layer:conv"):
            x = F.max_pool2d(F.relu(self.conv(x)), 2)
        return self.out(torch.flatten(x, 1))
net = LeNet()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
images, labels = torch.randn(2, 1, 28, 28), torch.tensor([1, 2])
for _ in range(2):
    optimizer.zero_grad()
    F.cross_entropy(net(images), labels).backward()
    optimizer.step()
try:
    torch.mm(images, images)
except RuntimeError:
    pass
thread = threading.Thread(target=lambda: torch.exp(labels))
thread.start(); thread.join()
"""


@pytest.fixture(scope="session")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of nvtx_log.c."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("the NVTX listener: no C compiler")
    library = tmp_path_factory.mktemp("listener") / "libnvtx_log.so"
    source = Path(__file__).with_name("nvtx_log.c")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, source, "-lpthread"], check=True)
    return library


@pytest.mark.parametrize("mode", ["auto", "classic"])
def test_a_real_listener_gets_lenet(mode: str, listener: Path, compiler_forks: Forks, tmp_path: Path) -> None:
    log = tmp_path / "log"
    variables = {"PYPROF_NVTX": mode, "NVTX_INJECTION64_PATH": str(listener), "NVTX_LOG": str(log)}
    code, done = compiler_forks.run(tmp_path, LENET, **variables)
    assert (code, done.stderr) == (0, "")
    lines = [line.split("\t", 5) for line in log.read_text().splitlines()]
    registered = [line[2] for line in lines if line[0] == "registered"]
    assert len(registered) == len(set(registered))
    closed = [line for line in lines if line[0].isdigit()]
    assert len(closed) + len(registered) == len(lines)  # no pop without a push
    calls = [line for line in closed if isinstance(decode(line[5]), CallMarker)]
    calls.sort(key=lambda line: int(line[1]))
    markers = [decode(line[5]) for line in calls]
    ops = [marker.call.op for marker in markers if isinstance(marker, CallMarker)]
    step = [
        "SGD.zero_grad",
        "conv2d",
        "relu",
        "max_pool2d",
        "flatten",
        "linear",
        "cross_entropy",
        "ones_like",
    ]
    begin = ops.index("SGD.zero_grad")
    assert ops[begin:] == [*step, "SGD.step", *step, "SGD.step", "mm", "exp"]
    conv = next(marker for marker in markers if isinstance(marker, CallMarker) and marker.call.op == "conv2d")
    assert [arg.value for arg in conv.call.args[:2]] == [
        Tensor((2, 1, 28, 28), "float32"), Tensor((6, 1, 5, 5), "float32")
    ]  # fmt: skip
    line = calls[begin + 1]
    around = [
        decode(other[5]) for other in closed
        if other[0] == line[0] and int(other[1]) <= int(line[1]) and int(line[2]) <= int(other[2])
    ]  # fmt: skip
    assert LayerMarker("conv") in around
    assert calls[-1][0] != line[0]
    if mode == "auto":
        assert (conv.layer, conv.module) == (("conv",), "conv")
        assert f"{tmp_path}/net.py:13" in conv.trace
        assert [int(line[4]) for line in calls] == list(range(1, len(calls) + 1))
        assert {line[3] for line in calls} == {"pyprof"}
    else:
        (trace,) = [marker for marker in around if isinstance(marker, TraceMarker)]
        assert f"{tmp_path}/net.py:13" in trace.frames
        assert {line[3] for line in closed} == {"-"}


@pytest.mark.long
def test_run_under_a_real_listener_writes_no_file(listener: Path, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("import torch\ntorch.ones(2).exp()\n")
    done = python(
        tmp_path,
        "-m",
        "pyprof",
        "run",
        "net.py",
        NVTX_INJECTION64_PATH=str(listener),
        NVTX_LOG=str(tmp_path / "log"),
    )
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1
    assert "NVTX_INJECTION64_PATH" in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["log", "net.py"]
    assert "'op': 'exp'" in (tmp_path / "log").read_text()


def test_import_does_not_import_the_package(forks: Forks, tmp_path: Path) -> None:
    source = "import sys, pyprof, pyprof.capture.controller; print('nvtx' in sys.modules)"
    _, done = forks.run(tmp_path, source)
    assert done.stdout == "False\n", done.stderr
