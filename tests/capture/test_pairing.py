# SPDX-License-Identifier: Apache-2.0
"""Every backward row names the call whose backward it is, in programs where that is hard.

The truth does not come from PyProf: the program itself reads autograd's counter before and after each of its calls, so
it knows which node numbers each of its lines made, in which thread, and what `grad_fn` calls the last of them.
"""

from __future__ import annotations

import ast
import csv
import gc
import inspect
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import pyprof
from pyprof.core import netdict
from pyprof.core.marker import ACCUMULATE, EVALUATE
from pyprof.parse import loader
from pyprof.parse.rows import rows
from tests import cli
from tests.forks import Forks

from .conftest import Recorded

Record = Callable[..., Recorded]


class Made(NamedTuple):
    """A node of the graph: the line of this file that made it; the name of the last one that the line made."""

    line: int
    last: str | None


class Truth:
    """(thread, number) -> node, and the lines of nodes that were made inside a backward."""

    def __init__(self) -> None:
        self.nodes: dict[tuple[int, int], Made] = {}

    def __call__(self, function: Callable[[], Any]) -> Any:
        """Call, and note the numbers of the nodes that the call makes."""
        frame = inspect.currentframe()
        assert frame is not None
        assert frame.f_back is not None
        counter = torch._C._autograd._get_sequence_nr
        first = counter()
        out = function()
        last = out.grad_fn._sequence_nr() if out.grad_fn is not None else None
        for number in range(first, counter()):
            name = out.grad_fn.name() if number == last else None
            self.nodes[threading.get_native_id(), number] = Made(frame.f_back.f_lineno, name)
        return out


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 6))


def plain(note: Truth) -> None:
    net, weight = model(), torch.randn(5, 2, 2, 2, requires_grad=True)
    hidden = note(lambda: net(torch.randn(4, 6)))
    image = note(lambda: hidden.reshape(1, 2, 3, 4))
    image = note(lambda: F.conv2d(image, weight))
    image = note(lambda: F.silu(image))
    pooled = note(lambda: F.max_pool2d(image, 2))
    loss = note(lambda: F.mse_loss(pooled, torch.zeros_like(pooled)))
    loss.backward()


def _checkpointed(note: Truth, reentrant: bool) -> None:
    net = model()

    def part(x: torch.Tensor) -> Any:
        hidden = note(lambda: net(x))
        return note(lambda: torch.sin(hidden))

    x = torch.randn(4, 6, requires_grad=True)
    squared = note(lambda: x * x)
    once = checkpoint(part, squared, use_reentrant=reentrant)
    twice = checkpoint(part, once, use_reentrant=reentrant)
    note(lambda: twice.sum()).backward()


def checkpoint_reentrant(note: Truth) -> None:
    _checkpointed(note, True)


def checkpoint_saved_tensors(note: Truth) -> None:
    _checkpointed(note, False)


def double_backward(note: Truth) -> None:
    x = torch.randn(4, requires_grad=True)
    cube = note(lambda: x.pow(3))
    wave = note(lambda: torch.sin(cube))
    total = note(lambda: wave.sum())
    (slope,) = torch.autograd.grad(total, x, create_graph=True)
    squared = note(lambda: slope * slope)
    note(lambda: squared.sum()).backward()


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


def custom_function(note: Truth) -> None:
    x = torch.randn(4, 4, requires_grad=True)
    product = note(lambda: x @ x)
    square = note(lambda: Square.apply(product))
    note(lambda: square.mean()).backward()


def two_backwards(note: Truth) -> None:
    net = model()
    out = note(lambda: net(torch.randn(4, 6)))
    total = note(lambda: out.sum())
    total.backward(retain_graph=True)
    total.backward()


def four_threads(note: Truth) -> None:
    """All threads are at the same numbers at the same time."""
    together = threading.Barrier(4)

    def train() -> None:
        together.wait()
        for _ in range(3):
            two_backwards(note)

    threads = [threading.Thread(target=train) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def compiled(note: Truth) -> None:
    torch._dynamo.reset()
    net = torch.compile(model(), backend="aot_eager")
    for _ in range(2):
        out = note(lambda: net(torch.randn(4, 6)))
        note(lambda out=out: out.sum()).backward()


PROGRAMS = (
    plain,
    checkpoint_reentrant,
    checkpoint_saved_tensors,
    double_backward,
    custom_function,
    two_backwards,
    four_threads,
    compiled,
)


def table(path: Path) -> list[dict[str, Any]]:
    return [ast.literal_eval(line) for line in netdict.lines(rows(loader.load(path)))]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_backward_rows_name_their_forward(
    program: Callable[[Truth], None], record: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    note = Truth()
    torch.manual_seed(0)
    found = table(record(lambda: program(note)).path)
    backward = [row for row in found if row["dir"] == "bprop" and row["op"][:1] != ["accumulate_grad"]]
    numbered = [row for row in backward if row["seqId"]]
    paired = [row for row in numbered if row["fwdThread"] is not None]
    known = [(row, note.nodes.get((row["fwdThread"], row["seqId"][0]))) for row in paired]
    checked = [(row, made) for row, made in known if made is not None]
    contradicted = [row for row, made in checked if not agrees(row, made)]
    with capsys.disabled():
        print(f"\n{program.__name__}: {len(numbered)} of {len(backward)} backward rows have a number, "
              f"{len(paired)} paired, {len(checked)} checked, {len(contradicted)} contradicted")  # fmt: skip
    assert backward
    assert len(numbered) == len(backward)
    assert len(paired) >= 0.995 * len(numbered)
    assert checked
    assert not contradicted


def agrees(row: dict[str, Any], made: Made) -> bool:
    """Whether a row's stack has the line that made the node, and its ranges have the node's name."""
    lines = {int(frame.rpartition(":")[2]) for frame in row["trace"] if frame.startswith(__file__)}
    nodes = [marker.removeprefix(EVALUATE) for marker in row["seqMarker"]]
    return made.line in lines and (made.last is None or any(node.startswith(made.last) for node in nodes))


def test_nodes_of_a_double_backward_belong_to_the_forward(record: Record) -> None:
    note = Truth()
    found = table(record(lambda: double_backward(note)).path)
    forward = {made.line for made in note.nodes.values()}
    inside = [row for row in found if row["seqId"] and (row["fwdThread"], row["seqId"][0]) not in note.nodes]
    assert {"MulBackward0", "PowBackward0"} <= {row["kShortName"] for row in inside}
    for row in inside:
        assert {int(frame.rpartition(":")[2]) for frame in row["trace"] if frame.startswith(__file__)} & forward


class Shared(nn.Module):
    """One weight in two places, one parameter of the root itself, one that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.second.bias.requires_grad_(False)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> Any:
        return self.second(self.first(x)) * self.scale


def accumulated(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """(module, parameter, shape) of each event that adds a gradient, sorted."""
    events = [row for row in found if row["kShortName"] == ACCUMULATE]
    out = []
    for row in events:
        name, tensor = ast.literal_eval(row["marker"][0])["args"]
        out.append((row["module"], name["value"], tensor["shape"]))
    return sorted(out)


def test_accumulate_grad_names_its_parameter(record: Record) -> None:
    net, x = Shared(), torch.randn(2, 3)
    recorded = record(lambda: [net(x).sum().backward() for _ in range(2)])
    found = table(recorded.path)
    assert accumulated(found) == sorted(
        2 * [("Shared", "scale", ()), ("first", "bias", (3,)), ("first", "weight", (3, 3))]
    )
    adding = [row for row in found if row["op"][:2] == ["accumulate_grad", "aten::add_"]]
    assert {row["module"] for row in adding} == {"Shared", "first"}  # what runs inside says so too


def test_parameters_are_named_in_every_window(tmp_path: Path) -> None:
    net, x = Shared(), torch.randn(2, 3)
    with pyprof.profile(str(tmp_path / "net.sqlite"), wait=1, active=1, repeat=2) as p:
        for _ in range(4):
            net(x).sum().backward()
            p.step()
    for name in ("net.sqlite", "net.1.sqlite"):
        assert len(accumulated(table(tmp_path / name))) == 3


def test_hooks_of_parameters_go_with_the_window(record: Record) -> None:
    net, seen = Shared(), []
    handle = net.scale.register_post_accumulate_grad_hook(lambda parameter: seen.append(parameter.grad.item()))
    record(lambda: net(torch.ones(1, 3)).sum().backward())
    assert len(seen) == 1
    assert [parameter._post_accumulate_grad_hooks for parameter in net.first.parameters()] == [None, None]
    handle.remove()
    assert not net.scale._post_accumulate_grad_hooks
    reference = weakref.ref(net.scale)
    net = handle = None
    gc.collect()
    assert reference() is None


def test_what_runs_while_torch_compiles_is_no_work_of_the_program(
    record: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    """The compiler runs forward and backward on tensors without data: one call, no direction, no FLOPs."""
    torch._dynamo.reset()
    net = torch.compile(model(), backend="aot_eager")
    x = torch.randn(4, 6)

    def train() -> None:
        for _ in range(2):
            net(x).sum().backward()  # LINE compiled

    path = record(train).path
    capsys.readouterr()
    assert cli.prof(["--csv", "-c", "op,dir,phase,flops,kernel", str(path)]) == 0
    cells = [row for row in csv.DictReader(capsys.readouterr().out.splitlines()) if row["Op"] == "compile"]
    assert len(cells) > 100
    assert {(row["Direction"], row["Phase"], row["FLOPs"]) for row in cells} == {("na", "none", "0")}
    found = table(path)
    lines = {row["trace"][-1] for row in found if row["op"][0] == "compile"}
    assert lines == {f"{__file__}:{line_of('compiled')}"}
    products = [
        (row["start"], row["end"])
        for row in found
        if row["kShortName"] in ("aten::mm", "aten::addmm") and row["op"][0] != "compile"
    ]
    outermost = [a for a in products if not any(b != a and b[0] <= a[0] and a[1] <= b[1] for b in products)]
    # Two layers, two steps; backward two products each, but the first layer's input needs no gradient.
    assert len(outermost) == 2 * (2 + 3)


def line_of(mark: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(i for i, text in enumerate(lines, 1) if text.endswith("# LINE " + mark))


@pytest.mark.long
def test_a_compiler_that_is_imported_in_the_window_is_followed(forks: Forks, tmp_path: Path) -> None:
    """`pyprof run` opens the window before the script imports anything, and the script compiles a plain function."""
    code, done = forks.run(
        tmp_path,
        "import sys, torch\n"
        "assert 'torch._dynamo' not in sys.modules\n"
        "double = torch.compile(lambda x: x @ x, backend='aot_eager')\n"
        "double(torch.randn(3, 3))\n"
        "assert not torch._dynamo.callback_handler.start_callbacks == []\n",
        "run",
    )
    assert code == 0, done.stderr
    found = table(tmp_path / "net.sqlite")
    assert "compile" in {row["op"][0] for row in found if row["op"]}
    assert [row["op"][0] for row in found if row["kShortName"] == "aten::mm"].count("compile") >= 1


def test_operators_of_a_compiled_region_have_the_place_of_its_call(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x).tanh())  # type: ignore[no-any-return]

    model = torch.compile(Net(), backend="aot_eager")
    x = torch.ones(3, 4)
    model(x).sum().backward()
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        y = model(x)
        y.sum().backward()
    rows = table(tmp_path / "net.sqlite")
    inside = [row for row in rows if (row["module"] or "").startswith("OptimizedModule")]
    source, first = inspect.getsourcelines(test_operators_of_a_compiled_region_have_the_place_of_its_call)
    forward, call = (
        str(first + next(n for n, line in enumerate(source) if text in line)) for text in ("def forward", "y = model")
    )
    for direction, products in (("fprop", ["addmm", "addmm"]), ("bprop", ["mm", "mm", "mm"])):
        own = [row for row in inside if row["dir"] == direction]
        lines = {row["trace"][-1].rpartition(":")[2] for row in own}
        assert call in lines <= {call, forward}  # the compiled code stands for the whole of `forward`
        assert [row["op"][0].removeprefix("aten::") for row in own if row["kLongName"].endswith("mm")] == products


def test_inductor_records_its_kernels_in_a_window(tmp_path: Path) -> None:
    import torch._dynamo.callback
    from torch._inductor.runtime import triton_heuristics as inductor

    profiler: Any = torch.autograd.profiler
    for _ in range(2):
        with pyprof.profile(str(tmp_path / "net.sqlite")):
            asked: Any = inductor.autograd_profiler  # type: ignore[attr-defined]
            assert asked._is_profiler_enabled
            assert not profiler._is_profiler_enabled  # which the rest of torch asks
            torch.ones(2)
        assert inductor.autograd_profiler is profiler  # type: ignore[attr-defined]


def test_kernels_of_inductor_have_their_arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import torch._dynamo.callback
    from torch._C._profiler import _RecordFunctionFast
    from torch._inductor.runtime import triton_heuristics as inductor

    streams: list[int] = []

    def run(self: Any, *args: Any, stream: int) -> None:
        streams.append(stream)
        if inductor.autograd_profiler._is_profiler_enabled:  # type: ignore[attr-defined]
            with _RecordFunctionFast(self.inductor_meta["kernel_name"], args, {"stream": stream}):
                pass

    monkeypatch.setattr(inductor.CachingAutotuner, "run", run)
    kernel: Any = object.__new__(inductor.CachingAutotuner)
    kernel.inductor_meta = {"kernel_name": "triton_poi_fused_add_7"}
    path = tmp_path / "net.sqlite"
    a, b, out = (torch.ones(n, 4, dtype=torch.bfloat16) for n in (3, 3, 3))
    with pyprof.profile(str(path)):
        for stream in (5, 5, 6):
            kernel.run(a, b, out, 12, stream=stream)
    assert streams == [5, 5, 6]
    assert inductor.CachingAutotuner.run is run
    (own,) = {row["marker"][-1] for row in table(path) if row["kLongName"] == "triton_poi_fused_add_7"}
    args = ast.literal_eval(own)["args"]
    assert [arg.get("shape", arg.get("value")) for arg in args] == [(3, 4), (3, 4), (3, 4), 12]
    kernels = pyprof.load(path).kernels
    kernels = kernels[kernels["name"] == "triton_poi_fused_add_7"]
    assert kernels["flops"].tolist() == [12] * 3  # one addition per element
    assert kernels["bytes"].tolist() == [3 * 12 * 2] * 3
    assert kernels["source"].str.contains("test_pairing.py").all()


def test_a_window_that_closes_while_torch_compiles_leaves_nothing(tmp_path: Path) -> None:
    torch._dynamo.reset()
    pyprof.start(str(tmp_path / "net.sqlite"))

    def backend(graph: Any, inputs: Any) -> Any:
        pyprof.stop()
        return graph.forward

    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    handler = torch._dynamo.callback_handler
    assert handler.start_callbacks == handler.end_callbacks == []
    with pyprof.profile(str(tmp_path / "again.sqlite")):
        torch.ones(2)
    assert "ones" in {row["op"][0] for row in table(tmp_path / "again.sqlite")}
