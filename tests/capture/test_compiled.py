# SPDX-License-Identifier: Apache-2.0
"""The compiled path of a call records what the Python one does, keeps nothing, and is missed by nobody."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

from pyprof.capture.instrument import compiled
from pyprof.capture.instrument.arguments import key_of
from pyprof.capture.instrument.recorder import Recorder, ThreadState
from pyprof.capture.instrument.stacks import Stacks
from tests.forks import Forks

from .conftest import Recorded

ROOT = Path(__file__).resolve().parents[2]
CAN_COMPILE = (shutil.which("cc") or shutil.which("gcc")) and os.path.isfile(
    os.path.join(sysconfig.get_path("include"), "Python.h")
)
needs_it = pytest.mark.skipif(
    os.environ.get("PYPROF_PURE", "") not in ("", "0") or not CAN_COMPILE,
    reason="PYPROF_PURE is set, or there is no C compiler with Python.h: Python records",
)

PROGRAM = """
import threading, warnings
import torch
import torch.nn.functional as F
from torch import nn
import pyprof

torch.manual_seed(0)
warnings.simplefilter("ignore")

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)
    def forward(self, x):
        return F.relu(self.norm(self.linear(x))) + x

class Mine(torch.Tensor):
    pass

model = nn.Sequential(Block(), Block(), nn.Sequential(Block(), nn.Dropout(0.5)))
x, ints = torch.randn(3, 4), torch.arange(6)

def deeper(function, depth, value):
    return function(value) if not depth else deeper(function, depth - 1, value)

def kinds():
    yield from (torch.zeros(2, 3).t(), torch.zeros(4, 6)[::2, ::3], torch.zeros(()), torch.zeros(0, 3))
    yield torch.zeros(2, 1).expand(2, 5)
    for dtype in "float64 bfloat16 int8 uint8 bool complex64 float8_e4m3fn".split():
        yield torch.zeros(2, 2, dtype=getattr(torch, dtype))
    yield from (torch.eye(3).to_sparse(), torch.empty(2, device="meta"), nn.Parameter(torch.ones(2)))
    yield from (torch.ones(2).as_subclass(Mine), torch.ones(2, requires_grad=True).detach())

def arguments():
    for value in (1, 1.0, True, -0.0, 2**40, 2**70, float("inf")):
        try:
            torch.mul(x, value)
        except (RuntimeError, OverflowError):
            pass
    x.to(torch.float64), x.to("cpu"), x.sum(dim=1, keepdim=True), x.sum((0, 1)), x.view(-1), x.reshape([2, 6])
    x[0], x[1:], x[:, None, ::2], x[..., 0], x[[0, 2]], x[ints[:2]], x[x > 0]
    torch.cat([x, x]), torch.cat((x, x), dim=1), torch.stack([x] * 40), torch.einsum("ij,kj->ik", x, x)
    F.pad(x, (1, 1), "constant", 0.5), F.interpolate(x[None, None], scale_factor=2.0), x.type(torch.int32)
    torch.add(input=x, other=x, alpha=2), torch.add(x, x, alpha=2)
    torch.full((2, 2), 1.5), torch.tensor([[1, 2], [3, 4]])
    torch.split(x, [1, 2]), x.size(), x.size(0), x.unsqueeze(0).squeeze(0), x.new_zeros(2), x.masked_fill(x > 0, 1.0)
    star, named = (x, 0), {"dim": 1}
    torch.sum(*star), torch.sum(x, **named), list(map(F.relu, [x])), (lambda f: f(x))(x.mul)

def errors():
    for wrong in (lambda: torch.mm(x, x), lambda: x.view(5), lambda: F.linear(x, x[:, :2])):
        try:
            wrong()
        except RuntimeError:
            pass

def run():
    for value in kinds():
        for call in (torch.clone, torch.ravel):
            try:
                call(value), torch.clone(value), value.reshape(-1)
            except (RuntimeError, NotImplementedError):
                pass
    for _ in range(2):
        arguments(), errors()
        for depth in (0, 1, 2, 5):
            deeper(torch.sinh, depth, x), deeper(lambda v: v.cosh(), depth, x)
        for batch in (2, 3):
            with pyprof.annotate("layer:batch"):
                model(torch.ones(batch, 4)).sum().backward()
    torch.func.vmap(lambda v: torch.sin(v) * 2)(x)
    torch.func.grad(lambda v: F.gelu(v).sum())(x)
    torch.jit.trace(lambda v: F.relu(v) + v.mul(2), (x,))(x)
    with torch.device("cpu"):
        torch.ones(2).add(1)
    for _ in range(20):
        torch.sin(torch.eye(2).to_sparse())
    torch.tan(x)
    other = threading.Thread(target=lambda: [torch.add(x, i) for i in range(3)], name="other")
    other.start()
    other.join()
    def recurse(n):
        return torch.add(x, 1) if n == 0 else recurse(n - 1)
    recurse(50)

with pyprof.profile("net.sqlite"):
    run()
with pyprof.profile("again.sqlite"):
    run()
"""


@pytest.mark.long
def test_both_record_the_same(forks: Forks, tmp_path: Path) -> None:
    seen = {}
    for pure in ("", "1"):
        folder = tmp_path / f"pure{pure}"
        folder.mkdir()
        code, program = forks.run(folder, PROGRAM, PYPROF_PURE=pure)
        assert code == 0, program.stderr
        for name in ("net.sqlite", "again.sqlite"):
            file = Recorded(folder / name)
            tids = {tid: number for number, tid in enumerate(dict.fromkeys(call.tid for call in file.calls))}
            calls = [(tids[call.tid], str(call.marker).replace(str(folder), "")) for call in file.calls]
            seen[pure, name] = calls, file.table("PYPROF_LOST")
    assert len(seen["", "net.sqlite"][0]) > 350
    for name in ("net.sqlite", "again.sqlite"):
        calls, expected = seen["", name][0], seen["1", name][0]
        assert calls == expected
        assert seen["", name][1] == seen["1", name][1]


class _Local(threading.local):
    def __init__(self) -> None:
        self.state = ThreadState()


class Watched:
    """A recorder of its own, and functions that are recorded there."""

    def __init__(self) -> None:
        self.recorder, self.local = Recorder(), _Local()
        self.recorder.active = self.recorder.keeping = True
        self.recorder.limit = 1 << 60
        self.watch = compiled.watch(self.recorder, self.local)

    def call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return compiled.call(original, self.recorder.function("test", "call"), self.watch)

    @property
    def calls(self) -> list[Any]:
        return self.local.state.calls

    def described(self) -> Any:
        """The key of the last call's arguments."""
        return list(self.recorder.keys)[self.calls[-4]]


@pytest.fixture
def watched() -> Watched:
    return Watched()


def nothing(*args: Any, **kwargs: Any) -> None:
    pass


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**80), 2**80), st.floats(allow_nan=False), st.text(max_size=4),
    st.sampled_from([torch.float32, torch.int64, torch.bool, ..., torch.strided, torch.device("cpu"), 1j, b"x"]),
    st.builds(slice, st.none() | st.integers(0, 3), st.none() | st.integers(0, 3), st.none() | st.integers(1, 3)),
)  # fmt: skip
TENSORS = st.builds(
    lambda shape, dtype, flip: torch.zeros(shape, dtype=dtype).t() if flip else torch.zeros(shape, dtype=dtype),
    st.lists(st.integers(0, 3), max_size=2),
    st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8, torch.bool]),
    st.booleans(),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS | TENSORS | TENSORS.map(torch.Tensor.size),
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)
ARGUMENTS = st.tuples(
    st.lists(VALUES, max_size=4), st.dictionaries(st.sampled_from(["dim", "out", "x"]), VALUES, max_size=2)
)


@needs_it
@hypothesis.given(st.lists(ARGUMENTS, min_size=1, max_size=6))
def test_arguments_are_described_as_python_describes_them(calls: list[Any]) -> None:
    watched = Watched()
    call = watched.call(nothing)
    for _ in range(2):  # met for the first time, and known
        for args, kwargs in calls:
            call(*args, **kwargs)
            assert watched.described() == key_of(args, kwargs)
    assert len(watched.recorder.keys) == len({key_of(args, kwargs) for args, kwargs in calls})


@needs_it
def test_nothing_is_kept(watched: Watched) -> None:
    call, value = watched.call(nothing), torch.ones(2, 3)

    def run() -> None:
        for size in range(50):
            call(value, size, [value, "text"], dim=1.5)
        watched.calls.clear()

    run()
    run()
    gc.collect()
    before = sys.getallocatedblocks(), sys.getrefcount(value), sys.getrefcount(nothing)
    for _ in range(100):
        run()
    gc.collect()
    after = sys.getallocatedblocks(), sys.getrefcount(value), sys.getrefcount(nothing)
    assert after[1:] == before[1:]
    assert after[0] - before[0] < 500  # of 5,000 calls; Python's own lists of free objects grow


@needs_it
def test_all_is_let_go_of(watched: Watched) -> None:
    """A wrapper goes with what it holds, its places and the code of the frames that called it."""
    before = sys.getallocatedblocks()
    for _ in range(200):
        scope = {"call": watched.call(lambda *args: None)}
        exec("def run(): return call(1, 2.0)\nrun()", scope)
        watched.calls.clear()
        watched.recorder.stacks.clear()
        watched.watch.forget()
        scope.clear()
    gc.collect()
    assert sys.getallocatedblocks() - before < 1000


@needs_it
def test_an_error_is_the_originals(watched: Watched) -> None:
    def fails(*args: Any) -> None:
        raise ValueError("mine")

    call = watched.call(fails)
    with pytest.raises(ValueError, match="mine") as caught:
        call(1)
    assert [entry.name for entry in caught.traceback] == ["test_an_error_is_the_originals", "fails"]
    assert len(watched.calls) == 6
    assert not watched.local.state.busy


@needs_it
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, MemoryError])
def test_an_error_in_our_code(watched: Watched, error: type[BaseException]) -> None:
    """Ctrl-C is the program's; all else is counted, and the call is made."""

    class Failing(Stacks):
        def site(self, frame: Any, context: int) -> int:
            raise error

    watched.recorder.stacks = Failing()
    watched.watch = compiled.watch(watched.recorder, watched.local)
    made: list[int] = []
    call = watched.call(made.append)
    if error is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            call(1)
        assert (made, watched.calls) == ([], [])
    else:
        call(1)
        assert made == [1]
        assert watched.calls[1:3] == [-1, -1]
        assert watched.recorder.lost == {f"call not described ({error.__name__})": 1}
    assert not watched.local.state.busy


@needs_it
def test_the_bound_is_asked(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(compiled, "at_bound", lambda: asked.append(len(watched.calls)))
    watched.watch, watched.recorder.limit = compiled.watch(watched.recorder, watched.local), 12
    call = watched.call(nothing)
    for number in range(3):
        call(number)
    assert asked == [18]
    watched.recorder.active, watched.recorder.counting = False, True
    call(1)
    call(2)
    assert (len(watched.calls), watched.recorder.excess) == (18, 2)


@needs_it
def test_where_torch_gives_no_shapes_python_does(watched: Watched) -> None:
    call = watched.call(nothing)
    sparse = torch.eye(3).to_sparse()
    for number in range(40):
        call(sparse, number)
        assert watched.described() == key_of((sparse, number), {})
    assert not watched.watch.exchanges
    call(torch.ones(2), 1)
    assert watched.described() == key_of((torch.ones(2), 1), {})


@needs_it
def test_threads_have_a_state_each(watched: Watched) -> None:
    call, states = watched.call(nothing), []

    def work() -> None:
        for number in range(100):
            call(number)
        states.append(watched.local.state)

    for _ in range(3):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [len(state.calls) for state in states] == [600] * 12
    assert not watched.calls


def test_a_compiler_that_fails_changes_nothing_but_speed(tmp_path: Path) -> None:
    built = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", built, "--build-temp", built], cwd=ROOT,
        env={**os.environ, "CC": "false", "LDSHARED": "false"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.rglob("*.so"))


@pytest.mark.long
def test_without_it_python_records(tmp_path: Path) -> None:
    program = "from pyprof.capture.instrument import compiled; print(compiled.WATCH)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env={**os.environ, "PYPROF_PURE": "1"}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "None\n"
