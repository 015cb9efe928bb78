# SPDX-License-Identifier: Apache-2.0
"""pyprof.estimate: every call of a function with its cost, on real, meta and fake tensors, and nothing left behind."""

from __future__ import annotations

import csv
import io
import sys
import threading
import types
import warnings
from pathlib import Path

import pandas as pd
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import add as add_imported_by_name
from torch._subclasses.fake_tensor import FakeTensorMode

import pyprof
from pyprof.capture.instrument.recorder import local, recorder
from pyprof.commands.main import main
from pyprof.core.errors import CaptureError, UsageError
from pyprof.costs import custom
from tests import cli

ROOT = Path(__file__).resolve().parent.parent


class Net(nn.Module):
    """A convolution, an operator by an imported name, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.body(x).mean((2, 3))
        return self.head(add_imported_by_name(x, 1.0))


CALLS = [
    # mod, op, flops, bytes, module; conv: 2·2·8·16·16·3·9, (2·3·256 + 216 + 8 + 2·8·256)·4
    ("torch.nn.functional", "conv2d", 221184, 23424, "body.0"),
    ("torch.nn.functional", "relu", 4096, 32768, "body.1"),
    ("Tensor", "mean", 4096 + 16, 4 * (4096 + 16), "Net"),
    ("aten", "aten::add", 16, 128, "Net"),
    ("torch.nn.functional", "linear", 2 * 2 * 10 * 8, 4 * (16 + 80 + 10 + 20), "head"),
]


def calls(frame: pd.DataFrame) -> list[tuple[object, ...]]:
    return list(frame[["mod", "op", "flops", "bytes", "module"]].itertuples(index=False, name=None))


def test_every_call_in_order_with_its_module():
    assert calls(pyprof.estimate(Net(), torch.randn(2, 3, 16, 16))) == CALLS


def test_meta_tensors_cost_the_same():
    with torch.device("meta"):
        net = Net()
    assert calls(pyprof.estimate(net, torch.empty(2, 3, 16, 16, device="meta"))) == CALLS


def test_fake_tensors_cost_the_same():
    with FakeTensorMode():
        net, x = Net(), torch.randn(2, 3, 16, 16)
        assert calls(pyprof.estimate(net, x)) == CALLS
    assert calls(pyprof.estimate(net, x)) == CALLS, "the mode of fake tensors need not be on"


def test_columns_and_types():
    frame = pyprof.estimate(Net(), torch.randn(2, 3, 16, 16))
    assert list(frame) == [
        "mod", "op", "params", "dtype", "flops", "flops_dense", "bytes", "flops_dgrad", "bytes_dgrad",
        "flops_wgrad", "bytes_wgrad", "flops_bgrad", "bytes_bgrad", "tc_eligible", "basis", "module",
    ]  # fmt: skip
    assert {str(frame[c].dtype) for c in frame if c.startswith(("flops", "bytes"))} == {"Int64"}
    linear = frame.iloc[4]
    assert linear.params == "M=2,N=10,K=8,float32"
    assert linear.flops_dgrad == linear.flops_wgrad == 320
    assert linear.bytes_bgrad == 4 * (20 + 10)  # reads the gradient, writes the bias gradient
    assert frame.iloc[1].flops_wgrad is pd.NA, "relu has no weight: not 0"
    assert (linear["dtype"], linear.tc_eligible, linear.basis) == ("float32", "tf32", "formula")


def test_a_function_without_calls_gives_an_empty_frame_with_the_columns():
    frame = pyprof.estimate(lambda: None)
    assert len(frame) == 0
    assert str(frame["flops"].dtype) == "Int64"


def test_backward_and_optimizer():
    net, x = Net(), torch.randn(2, 3, 16, 16)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)

    def train() -> None:
        net(x).sum().backward()
        optimizer.step()

    pyprof.init()  # its hooks follow optimizers
    try:
        frame = pyprof.estimate(train)
    finally:
        pyprof.shutdown()
    assert not (frame["mod"] == "profiler").any(), "ranges are no calls"
    assert calls(frame.iloc[:5]) == CALLS, "what the backward runs is no row"
    steps = frame[(frame.op == "add_") & (frame["mod"] == "Tensor")]
    assert sorted(steps.flops) == sorted(2 * p.numel() for p in net.parameters()), "x + alpha · g"


@pytest.mark.parametrize("form", ["function", "method", "bound", "partial", "operator"])
def test_a_function_of_torch_itself_is_a_call_in_its_own_name(form):
    a, b = torch.ones(2, 3), torch.ones(3, 4)
    import functools

    frame = {
        "function": lambda: pyprof.estimate(torch.mm, a, mat2=b),
        "method": lambda: pyprof.estimate(torch.Tensor.mm, a, b),
        "bound": lambda: pyprof.estimate(a.mm, b),
        "partial": lambda: pyprof.estimate(functools.partial(torch.mm, a), b),
        "operator": lambda: pyprof.estimate(torch.ops.aten.mm, a, b),
    }[form]()
    mod, op = {"function": ("torch", "mm"), "partial": ("torch", "mm"), "operator": ("aten", "aten::mm")}.get(
        form, ("Tensor", "mm")
    )
    assert calls(frame) == [(mod, op, 48, 104, "")]


@pytest.mark.parametrize(
    ("dtype", "eligible"),
    [("float16", "yes"), ("bfloat16", "yes"), ("float32", "tf32"), ("float64", "fp64tc"), ("int32", "no")],
)
def test_tensor_cores_by_type(dtype, eligible):
    a = torch.empty(4, 4, dtype=getattr(torch, dtype), device="meta")
    frame = pyprof.estimate(lambda: (torch.mm(a, a), torch.add(a, a), torch.mv(a, a[0])))
    assert list(frame[frame.op != "__getitem__"].tc_eligible) == [eligible, "no", "no"]


def test_dense_flops_come_from_the_formula():
    @pyprof.cost("estimate_tests::triangle")
    def triangle(x):
        return pyprof.Cost(x.numel, 0, dense=2 * x.numel)

    with scratch("triangle(Tensor x) -> Tensor", lambda x: x.clone()):
        frame = pyprof.estimate(torch.ops.estimate_tests.triangle, torch.ones(3))
    custom.forget("estimate_tests::triangle")
    assert (frame.flops[0], frame.flops_dense[0]) == (3, 6)


class scratch:
    """An operator of the namespace estimate_tests, for the length of a block."""

    def __init__(self, schema, run):
        self.schema, self.run = schema, run

    def __enter__(self):
        self.library = torch.library.Library("estimate_tests", "FRAGMENT")
        self.library.define(self.schema)
        self.library.impl(self.schema.partition("(")[0], self.run, "CompositeExplicitAutograd")

    def __exit__(self, *error):
        self.library._destroy()


def scaled(x, eps, w):
    return torch.mul(x, eps) + w


def test_a_custom_operator_is_one_call_by_default_of_its_tensors():
    x, w = torch.ones(3, 4), torch.ones(4)
    with scratch("scaled(Tensor x, float eps, Tensor w) -> Tensor", scaled):
        frame = pyprof.estimate(torch.ops.estimate_tests.scaled, x, 0.5, w)
    assert calls(frame) == [("estimate_tests", "estimate_tests::scaled", pd.NA, 4 * (12 + 4 + 12), "")]
    assert frame.basis[0] == "default"
    assert frame.tc_eligible[0] is None
    assert frame.params[0] == "x=[3,4]float32,eps=0.5,w=[4]float32"


def test_default_bytes_count_a_tensor_that_comes_twice_once():
    x = torch.ones(3, 4)
    with scratch("scaled(Tensor x, float eps, Tensor w) -> Tensor", scaled):
        frame = pyprof.estimate(torch.ops.estimate_tests.scaled, x, 0.5, x)
    assert frame.bytes[0] == 4 * (12 + 12)


def test_a_formula_of_the_user_binds_by_the_names_of_the_schema():
    @pyprof.cost("estimate_tests::scaled")
    def cost(w, eps):
        return int(eps * w.numel), 3 * w.bytes

    try:
        with scratch("scaled(Tensor x, float eps, Tensor w) -> Tensor", scaled):
            frame = pyprof.estimate(torch.ops.estimate_tests.scaled, torch.ones(3, 4), 0.5, torch.ones(4))
    finally:
        custom.forget("estimate_tests::scaled")
    assert (frame.flops[0], frame.bytes[0], frame.basis[0]) == (2, 48, "formula")


def test_a_wrapped_function_is_a_call_with_a_formula(monkeypatch):
    class kernels:
        @staticmethod
        def launch(x, n):
            return x

    try:
        pyprof.wrap(kernels, "launch")
        pyprof.cost("launch")(lambda x, n: (n * x.numel, x.bytes))
        frame = pyprof.estimate(lambda: kernels.launch(torch.ones(3), 5).relu())
    finally:
        pyprof.shutdown()
        custom.forget("launch")
    assert [row[1:4] for row in calls(frame)] == [("ones", 0, 12), ("launch", 15, 12), ("relu", 3, 24)]


class KernelInterface:
    """As in triton.runtime.jit: what stands around a kernel, and the kernel, are launched with `[grid](...)`."""

    def __init__(self, fn):
        self.fn = fn

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.run(*args, grid=grid, **kwargs)

    def run(self, *args, grid, **kwargs):
        return self.fn.run(*args, grid=grid, **kwargs) if isinstance(self.fn, KernelInterface) else self.fn(*args)


@pytest.fixture
def triton(monkeypatch):
    module = types.ModuleType("triton.runtime.jit")
    module.KernelInterface = KernelInterface
    monkeypatch.setitem(sys.modules, "triton.runtime.jit", module)
    before = vars(KernelInterface)["__getitem__"]
    yield module
    assert vars(KernelInterface)["__getitem__"] is before


def scale_kernel(x, n):
    x.add_(1)


def test_the_launch_of_a_triton_kernel_is_a_call_with_a_formula(triton):
    kernel = KernelInterface(KernelInterface(scale_kernel))  # an autotuner around the kernel
    pyprof.cost("scale_kernel")(lambda x, n: (n * x.numel, x.bytes))
    x = torch.ones(3)
    try:
        frame = pyprof.estimate(lambda: kernel[(1,)](x, 4, num_warps=2))
    finally:
        custom.forget("scale_kernel")
    assert calls(frame) == [("triton", "scale_kernel", 12, 12, "")]
    assert frame.params[0] == "[3]float32,4,num_warps=2"
    assert x[0] == 2


def test_a_window_records_the_launch_of_a_triton_kernel(triton, tmp_path, capsys):
    try:
        with pyprof.profile(str(tmp_path / "net.sqlite")):
            KernelInterface(scale_kernel)[(1,)](torch.ones(3), 4)
    finally:
        pyprof.shutdown()
    kernels = pyprof.load(tmp_path / "net.sqlite").table
    assert ("triton", "scale_kernel") in set(zip(kernels["mod"], kernels["op"]))


def test_a_formula_may_be_registered_again_but_not_over_one_of_ours():
    @pyprof.cost("estimate_tests::again")
    def first(x):
        return 1, 1

    pyprof.cost("estimate_tests::again")(lambda x: (2, 2))
    call = custom.Call("estimate_tests", "estimate_tests::again", (custom.Arg("", custom.Tensor((3,), "int8")),))
    try:
        assert custom.lookup(call).flops == 2
    finally:
        custom.forget("estimate_tests::again")
    assert custom.lookup(call).basis == "unknown"
    with pytest.raises(UsageError, match="has a formula for 'linear'"):
        pyprof.cost("linear")


def test_a_formula_that_fails_leaves_the_cost_unknown_and_says_so_once(caplog):
    @pyprof.cost("estimate_tests::scaled")
    def cost(x):
        raise AssertionError("shape")

    try:
        with scratch("scaled(Tensor x, float eps, Tensor w) -> Tensor", scaled):
            frame = pyprof.estimate(
                lambda: [torch.ops.estimate_tests.scaled(torch.ones(n), 0.5, torch.ones(n)) for n in (1, 2)]
            )
    finally:
        custom.forget("estimate_tests::scaled")
    own = frame[frame["mod"] == "estimate_tests"]
    assert list(own.flops) == [pd.NA] * 2
    assert list(own.basis) == ["default"] * 2
    assert caplog.text.count("the formula of estimate_tests::scaled failed") == 1


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        return torch.relu(x @ w)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, gradient


def test_a_call_without_formula_costs_what_its_operators_do():
    x, w = torch.ones(2, 3), torch.ones(3, 4)
    frame = pyprof.estimate(lambda: Product.apply(x, w))
    assert calls(frame) == [("torch.autograd", "Product.apply", 48 + 8, 104 + 64, "")]
    assert (frame.basis[0], frame.tc_eligible[0]) == ("formula", "tf32")
    assert frame.flops_dgrad[0] is pd.NA, "the backward is the user's"


def test_scripted_and_compiled_functions_hide_nothing():
    def function(x):
        return torch.relu(x) + x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(function)
        compiled = torch.compile(lambda x: torch.relu(x) + x, backend="aot_eager")
        compiled(torch.ones(2))
    x = torch.ones(3)
    assert [(r[1], r[2]) for r in calls(pyprof.estimate(scripted, x))] == [
        ("aten::relu", 3),
        ("aten::add", 3),
    ]
    assert [(r[1], r[2]) for r in calls(pyprof.estimate(compiled, x))] == [("relu", 3), ("__add__", 3)]


def test_recomputation_in_a_backward_is_no_row():
    from torch.utils.checkpoint import checkpoint

    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    x = torch.randn(2, 3, requires_grad=True)
    frame = pyprof.estimate(lambda: checkpoint(net, x, use_reentrant=False).sum().backward())
    assert list(frame.op).count("linear") == 1


def test_attention_modules_are_their_projections_and_an_attention():
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(3, 5, 8)
    frame = pyprof.estimate(layer, x, x, x, need_weights=False)
    work = frame[(frame.basis != "view") & (frame.flops > 0)]
    assert list(work.op) == ["linear", "scaled_dot_product_attention", "linear"]
    assert list(work.flops) == [2 * 15 * 8 * 24, 2 * 2 * 3 * 8 * 5 * 5, 2 * 15 * 8 * 8]
    assert not (frame["mod"] == "aten").any()
    torch.manual_seed(0)
    same = layer(x, x, x)[0]
    assert torch.equal(same, pyprof_result(layer, x))


def pyprof_result(layer, x):
    """What a module returns while it is estimated."""
    found = []
    torch.manual_seed(0)
    pyprof.estimate(lambda: found.append(layer(x, x, x)[0]))
    return found[0]


def test_results_are_those_without_an_estimate():
    def train(net, x):
        optimizer = torch.optim.Adam(net.parameters())
        for _ in range(2):
            loss = net(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return [loss, *net.parameters(), *(p.grad for p in net.parameters())]

    x = torch.randn(2, 3, 16, 16)
    found = []
    for run in (lambda f: f(), pyprof.estimate):
        torch.manual_seed(0)
        net = Net()
        run(lambda: found.append(train(net, x)))  # noqa: B023
    assert all(torch.equal(a, b) for a, b in zip(*found))


def state() -> dict[str, object]:
    """What an estimate changes for its length."""
    return {
        **{f"Tensor.{name}": value for name, value in vars(torch.Tensor).items()},
        **vars(F),
        "classes": (type(F), type(torch)),
        "call": nn.Module.__call__,
        "apply": vars(torch.autograd.Function)["apply"],
        "modes": torch._C._len_torch_dispatch_stack(),
        "recorder": (recorder.observer, recorder.active),
    }


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = state()
    net = Net()

    def fails(x):
        net(x)
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match=r"^mine$"):
        pyprof.estimate(fails, torch.randn(1, 3, 4, 4))
    assert state() == before
    assert not local.state.busy
    assert not local.state.calls
    assert not list(tmp_path.iterdir())


def test_no_tensor_is_kept():
    import gc
    import weakref

    kept = []

    def run():
        x = torch.ones(7)
        kept.append(weakref.ref(x))
        return torch.relu(x)

    frame = pyprof.estimate(run)
    gc.collect()
    assert kept[0]() is None
    assert len(frame) == 2


def test_an_open_recording_is_not_disturbed(tmp_path, capsys):
    try:
        with pyprof.profile(str(tmp_path / "net.sqlite")):
            torch.ones(3).relu()
            with pytest.raises(CaptureError, match="PyProf is recording"):
                pyprof.estimate(torch.relu, torch.ones(3))
            torch.ones(3).sigmoid()
    finally:
        pyprof.shutdown()
    ops = set(pyprof.load(tmp_path / "net.sqlite").table.op)
    assert {"relu", "sigmoid"} <= ops


def test_windows_inside_an_estimate_are_passed_over(tmp_path, capsys):
    def run():
        with pyprof.profile(str(tmp_path / "net.sqlite")) as p:
            torch.ones(3).relu()
            p.step()
        pyprof.start(str(tmp_path / "other.sqlite"))
        torch.ones(3).relu()
        pyprof.stop()

    try:
        frame = pyprof.estimate(run)
    finally:
        pyprof.shutdown()
    assert list(frame.op) == ["ones", "relu"] * 2
    assert not list(tmp_path.iterdir())
    assert capsys.readouterr().err.count("an estimate is running") == 1


def test_an_estimate_inside_an_estimate_belongs_to_both():
    inner = []

    def run():
        torch.ones(3).relu()
        inner.append(pyprof.estimate(lambda: torch.ones(4).sigmoid()))
        torch.ones(3).tanh()

    outer = pyprof.estimate(run)
    assert list(inner[0].op) == ["ones", "sigmoid"]
    assert list(outer.op) == ["ones", "relu", "ones", "sigmoid", "ones", "tanh"]


def test_another_threads_calls_are_counted_not_mixed_in(caplog):
    def run():
        thread = threading.Thread(target=lambda: torch.ones(3).relu())
        thread.start()
        thread.join()
        torch.ones(3).sigmoid()

    assert list(pyprof.estimate(run).op) == ["ones", "sigmoid"]
    assert "2 calls on other threads" in caplog.text


def test_a_warning_names_the_users_line():
    def run():
        return torch.ones(2, 3).T.reshape(6).view(2, 3).t().mT, torch.ones(3).T

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        pyprof.estimate(lambda: F.tanh(F.softmax(torch.ones(3))))
    assert {Path(w.filename).name for w in told} == {Path(__file__).name}


SCRIPT = """
import sys
import torch, torch.nn as nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8, bias=False), nn.Linear(8, 4)
    def forward(self, x):
        return self.b(self.a(x))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = Block(), nn.Linear(4, 4)
        self.two.weight = nn.Parameter(torch.zeros(4, 4)); self.three = self.two
        self.tied = nn.Linear(4, 4, bias=False); self.tied.weight = self.two.weight
    def forward(self, x):
        return self.three(self.two(self.one(x)))

with torch.device("meta"):
    model, x = Model(), torch.empty(2, 8)
model(x)
print(sys.argv[1:])
torch.unique(torch.ones(3))
sys.exit(3)
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("estimate") / "model.py"
    path.write_text(SCRIPT)
    return path


def test_the_command_prints_totals_by_module(script, forks):
    code, done = forks.run(script.parent, script, "estimate", "--depth", "2", arguments=["--csv", "x"])
    assert code == 3, done.stderr
    said, heading, *lines, rule, total = done.stdout.splitlines()
    assert said == "['--csv', 'x']", "what follows the script is the script's"
    assert heading.split() == [
        "module",
        "params",
        "forward",
        "backward",
        "bytes",
        "share",
        "calls",
        "unknown",
    ]
    # a: 2·2·8·8; b: 2·2·8·4; two, twice: 2·2·4·4. Parameters: 64 + 36 + 20, what is shared once.
    cells = {line.split()[0]: line.split()[1:] for line in lines}
    assert list(cells) == ["Model", "one", "two", "tied", "outside"]
    assert cells["one"][:2] == ["100", "384"]
    assert cells["two"][:2] == ["20", "128"]
    assert cells["Model"][:2] == ["120", "512"]
    assert total.split()[:3] == ["total", "120", "512"]
    assert set(rule) == {"-"}


@pytest.fixture
def command(monkeypatch, capsys):
    """`pyprof estimate` in this process: exit code, what it wrote to stdout and to stderr."""
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return lambda *words: (main(["estimate", *map(str, words)]), *capsys.readouterr())


def test_the_command_writes_exact_numbers(script, command):
    code, out, _ = command("--csv", "--depth", 3, script)
    assert code == 3
    rows = list(csv.DictReader(io.StringIO(out.partition("\n")[2])))
    of = {row["module"]: row for row in rows}
    assert list(of) == ["Model", "one", "one.a", "one.b", "two", "tied", "outside of modules", "total"]
    assert (of["one.b"]["flops"], of["one.b"]["params"], of["one.b"]["depth"]) == ("128", "36", "2")
    assert int(of["one.b"]["flops_backward"]) == 2 * 128 + 2 * 4  # two products, and the sum over the bias
    assert of["one.b"]["share"] == f"{128 / 512:.6f}"
    assert of["two"]["calls"] == "2"


def test_the_command_writes_both_figures(tmp_path, command):
    """A causal attention of (1, 2, 8, 4): 36 of 64 pairs, products of 2·2·4 FLOPs a pair: two, in the backward five
    executed, four of the model."""
    path = tmp_path / "causal.py"
    path.write_text(
        "import torch\nq = torch.empty(1, 2, 8, 4, device='meta')\n"
        "torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)\n"
    )
    _, out, _ = command("--csv", path)
    total = list(csv.DictReader(io.StringIO(out)))[-1]
    names = ("flops", "flops_backward", "flops_dense", "flops_dense_backward")
    assert [int(total[name]) for name in names] == [2 * 576, 5 * 576, 2 * 1024, 4 * 1024]


def test_the_command_names_what_has_no_flops(tmp_path, command):
    path = tmp_path / "unknown.py"
    path.write_text(
        "import torch\nfor n in (3, 4): torch.ops.estimate_tests.scaled(torch.ones(n), 0.5, torch.ones(n))\n"
    )
    with scratch("scaled(Tensor x, float eps, Tensor w) -> Tensor", scaled):
        code, out, err = command(path)
    assert (code, err) == (0, "pyprof: without FLOPs: estimate_tests::scaled ×2.\n")
    assert out.splitlines()[-1].split()[-1] == "2"


def test_the_command_says_in_one_line_what_is_wrong(tmp_path, command):
    code, out, err = command(tmp_path / "absent.py")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "cannot be read" in err


def test_a_file_of_formulas_for_a_recording(tmp_path, capsys):
    """Recordings know an operator's arguments by position; those behind the formula's parameters are cut."""
    costs, net = tmp_path / "costs.py", tmp_path / "net.sqlite"
    costs.write_text(
        "import pyprof\n"
        '@pyprof.cost("estimate_tests::scaled")\n'
        "def scaled(x, eps): return int(100 * eps) + x.numel, 2 * x.bytes\n"
    )
    try:
        with (
            scratch("scaled(Tensor x, float eps, Tensor w) -> Tensor", scaled),
            pyprof.profile(str(net)),
        ):
            torch.ops.estimate_tests.scaled(torch.ones(3, 4), 0.5, torch.ones(4))
        capsys.readouterr()
        assert cli.prof(["--csv", "-c", "op,flops,bytes", "--costs", str(costs), str(net)]) == 0
    finally:
        pyprof.shutdown()
        custom.forget("estimate_tests::scaled")
    assert '"estimate_tests::scaled","62","96"' in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read"),
        ("1 / 0", "ZeroDivisionError"),
        ("import pyprof\npyprof.cost('mm')", "choose another name"),
    ],
)
def test_a_file_of_formulas_that_is_wrong_is_one_line(text, said, tmp_path, capsys):
    costs = tmp_path / "costs.py"
    if text is not None:
        costs.write_text(text)
    assert cli.prof(["--costs", str(costs), str(tmp_path / "absent")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert said in err


def _steps(found) -> list[tuple[str, int]]:
    return [(row.op, row.flops) for row in found.itertuples() if row.flops is not pd.NA and row.flops > 0]


def test_operators_that_are_given_functions_cost_what_runs_inside():
    """Products of 8 by 8 and 8 by 8: 2·8·8·8. cond takes one branch, the loop three turns, map four slices."""
    from torch._higher_order_ops.map import map as mapped
    from torch._higher_order_ops.while_loop import while_loop

    w, each = torch.ones(8, 8), 2 * 8 * 8 * 8
    taken = pyprof.estimate(lambda: torch.cond(torch.tensor(True), lambda x: x @ x, lambda x: x + x, (w,)))
    assert _steps(taken) == [("__matmul__", each)]
    grad = w.clone().requires_grad_()
    taken = pyprof.estimate(lambda: torch.cond(torch.tensor(False), lambda x: x @ x, lambda x: x + x, (grad,)))
    assert taken.flops.sum() == 64
    turns = pyprof.estimate(lambda: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x @ w), (torch.tensor(0), w)))
    assert [flops for op, flops in _steps(turns) if op == "__matmul__"] == [each] * 3
    slices = pyprof.estimate(mapped, lambda x: x @ w, torch.ones(4, 3, 8))
    assert [flops for op, flops in _steps(slices) if op == "__matmul__"] == [2 * 3 * 8 * 8] * 4


def test_a_scan_costs_its_steps():
    """5 steps of an addition and a product over 8 elements."""
    from torch._higher_order_ops.scan import scan

    found = pyprof.estimate(scan, lambda c, x: (c + x, c * x), torch.zeros(8), torch.ones(5, 8))
    steps = _steps(found)
    assert [flops for op, flops in steps if op == "__mul__"] == [8] * 5
    assert [flops for op, flops in steps if op == "__add__"] == [8] * 5


@pytest.mark.filterwarnings("ignore")  # torch recommends to compile it
def test_flex_attention_is_one_call():
    """2 heads of 16 queries and 16 keys, D = 8: two products are 2·2·2·16·16·8, five of the backward 2·5·2·256·8. The
    blocks of a mask are data."""
    from torch.nn.attention import flex_attention as flex

    q = torch.ones(1, 2, 16, 8)
    mask = flex.create_block_mask(lambda b, h, i, j: i >= j, 1, 1, 16, 16, device="cpu")
    before = flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG
    expected = flex.flex_attention(q, q, q)
    results = []
    found = pyprof.estimate(lambda: results.append(flex.flex_attention(q, q, q)))
    assert torch.equal(results[0], expected)
    last = found.iloc[-1]
    assert (last.flops, last.flops_dgrad, last.bytes) == (
        16384,
        40960,
        2 * 4 * 2 * 16 * 8,
    )  # read once, written once
    found = pyprof.estimate(lambda: flex.flex_attention(q, q, q, block_mask=mask))
    assert (found.iloc[-1].flops, found.iloc[-1].flops_dense) == (pd.NA, 16384)
    assert flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG is before


def test_under_vmap_the_operators_are_the_calls():
    """A call sees one element of the batch: three products of 2·4·4·4, and 16 rows through a weight of 8 by 8."""
    from torch.func import grad, vmap

    found = pyprof.estimate(lambda: vmap(lambda x: x @ x)(torch.ones(3, 4, 4)))
    assert found.flops.sum() == 3 * 2 * 4 * 4 * 4
    gradients = vmap(grad(lambda w, x: (x @ w).sum()), (None, 0))
    found = pyprof.estimate(gradients, torch.ones(8, 8), torch.ones(16, 8))
    assert found[found.tc_eligible != "no"].flops.sum() == 2 * 16 * 8 * 8
    assert pyprof.estimate(grad(lambda w: (w @ w).sum()), torch.ones(8, 8)).op.iloc[0] == "__matmul__"
