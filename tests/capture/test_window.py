# SPDX-License-Identifier: Apache-2.0
"""When PyProf records: windows, steps, bounds, threads, forks, and the user's own profiler."""

from __future__ import annotations

import gc
import os
import threading
import time
import tracemalloc
import weakref
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pyprof
from pyprof.capture.collectors import kineto
from pyprof.capture.collectors.kineto_cpu import Reader
from pyprof.capture.controller import control
from pyprof.capture.instrument.patch import Patches
from tests.forks import Forks

from .conftest import OURS, Recorded

Record = Callable[..., Recorded]
x = torch.ones(2, 2)


def loop(profile: pyprof.profile, steps: int) -> None:
    for _ in range(steps):
        torch.tanh(x)
        profile.step()


@pytest.mark.parametrize(
    ("options", "numbers", "calls"),
    [
        ({}, [0, 1, 2, 3, 4, 5], 6),
        ({"active": 2}, [0, 1], 2),
        ({"wait": 2, "active": 2}, [2, 3], 2),
        ({"wait": 1, "warmup": 1, "active": 2}, [2, 3], 2),
        ({"warmup": 2}, [2, 3, 4, 5], 4),
        ({"wait": 3}, [3, 4, 5], 3),
        ({"wait": 9}, [], 0),
    ],
)
def test_steps_of_a_schedule(options: dict[str, int], numbers: list[int], calls: int, tmp_path: Path) -> None:
    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path), **options) as p:
        loop(p, 6)
    recorded = Recorded(path)
    assert [number for number, *_ in recorded.query("select * from PYPROF_STEP")] == numbers
    assert recorded.names == ["torch.tanh"] * calls
    for call, (start, end) in zip(recorded.calls, recorded.query("select start, end from PYPROF_STEP")):
        assert start <= call.start < call.end <= end


def test_file_is_there_when_the_last_active_step_ends(tmp_path: Path) -> None:
    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path), active=1) as p:
        p.step()
        assert path.exists()
        before = path.read_bytes()
        loop(p, 2)
    assert path.read_bytes() == before


def test_start_step_stop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "net.sqlite")
    pyprof.start(path)
    torch.tanh(x)
    pyprof.step()
    assert pyprof.stop() == path
    assert Recorded(Path(path)).names == ["torch.tanh"]
    assert capsys.readouterr().err == f"{path}: 1 operator, 1 call, 1 step\n"


def test_file_is_written_when_the_body_raises(tmp_path: Path) -> None:
    path = tmp_path / "net.sqlite"

    def body() -> None:
        torch.tanh(x)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), pyprof.profile(str(path)):
        body()
    assert Recorded(path).names == ["torch.tanh"]


def test_a_second_window_inside_the_first_is_one_clear_error(tmp_path: Path) -> None:
    with pyprof.profile(str(tmp_path / "a.sqlite")):
        with pytest.raises(pyprof.PyProfError, match="already recording"):
            pyprof.start()
        with pytest.raises(pyprof.PyProfError, match="already recording"), pyprof.profile():
            pass
        torch.tanh(x)
    assert Recorded(tmp_path / "a.sqlite").names == ["torch.tanh"]
    with pytest.raises(pyprof.PyProfError, match="not recording"):
        pyprof.stop()


def test_windows_after_each_other_are_files_of_their_own(tmp_path: Path) -> None:
    for name, function in (("a", "tanh"), ("b", "exp")):
        with pyprof.profile(str(tmp_path / f"{name}.sqlite")):
            getattr(torch, function)(x)
            x.log2() if name == "a" else x.sqrt()
    assert Recorded(tmp_path / "a.sqlite").names == ["aten.aten::tanh", "Tensor.log2"]
    assert Recorded(tmp_path / "b.sqlite").names == ["aten.aten::exp", "Tensor.sqrt"]


def test_init_and_shutdown_twice_are_harmless() -> None:
    pyprof.init()
    pyprof.init()
    pyprof.shutdown()
    pyprof.shutdown()
    assert torch.add(x, x).sum().item() == 8


def test_switches_of_other_profilers_do_nothing_else_without_cuda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pyprof.init()
    with torch.autograd.profiler.emit_nvtx(record_shapes=True) as entered, torch.cuda.profiler.profile():
        torch.cuda.profiler.start()
        torch.cuda.profiler.stop()
    assert isinstance(entered, torch.autograd.profiler.emit_nvtx)


def test_bound_on_events_is_kept_and_the_excess_counted(tmp_path: Path) -> None:
    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path), max_events=100):
        for _ in range(300):
            torch.tanh(x)
    recorded = Recorded(path)
    kept = len(recorded.calls) + len(recorded.ops)
    assert 98 <= kept <= 100
    lost = recorded.table("PYPROF_LOST")
    assert sum(lost.values()) >= 300 - len(recorded.calls)
    assert all("100 events" in reason for reason in lost)


def test_calls_of_all_threads_are_recorded_with_their_thread(record: Record) -> None:
    tids = []

    def work() -> None:
        tids.append(threading.get_native_id())
        weight = torch.ones(2, 2, requires_grad=True)
        with pyprof.annotate("layer:work"):
            torch.mm(x, weight).sum().backward()

    def body() -> None:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    recorded = record(body)
    calls = [call for call in recorded.calls if call.name == "torch.mm"]
    assert sorted(call.tid for call in calls) == sorted(os.getpid() << 24 | tid for tid in tids)
    assert all(call.marker.layer == ("work",) for call in calls)
    nodes = [op for op in recorded.ops if op.name == "MmBackward0"]
    assert sorted(op.forward or 0 for op in nodes) == sorted(call.tid for call in calls)


def test_function_imported_before_the_window_is_a_call_of_the_module_that_ran_it(record: Record) -> None:
    early_add, early_conv = torch.add, F.conv2d

    class Net(nn.Module):
        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return early_add(early_conv(image, image), 1)

    net = nn.Sequential(Net())
    recorded = record(lambda: net(torch.ones(1, 1, 2, 2)))
    assert recorded.names[-2:] == ["torch.nn.functional.conv2d", "aten.aten::add"]
    conv = recorded.call("torch.nn.functional.conv2d")
    assert conv.shapes == [(1, 1, 2, 2), (1, 1, 2, 2)]
    assert conv.marker.module == "0"
    assert conv.user_lines[-1].startswith(f"{__file__}:")


def test_attention_module_shows_its_products_and_the_attention(record: Record) -> None:
    net = nn.MultiheadAttention(8, 2, batch_first=True)
    y = torch.randn(2, 3, 8)
    names = record(lambda: net(y, y, y, need_weights=False)).names
    assert names.count("torch.nn.functional.linear") == 2
    assert names.count("torch.nn.functional.scaled_dot_product_attention") == 1


def test_custom_function_is_one_call(record: Record) -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, value: torch.Tensor) -> torch.Tensor:
            return value.add(value)

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
            return grad * 2

    names = record(lambda: Twice.apply(torch.ones(2, requires_grad=True))).names
    assert names == ["torch.ones", "torch.autograd.Twice.apply"]


class Extension:
    @staticmethod
    def fused(a: torch.Tensor, scale: float) -> torch.Tensor:
        return a * scale + 1

    @classmethod
    def made(cls, a: torch.Tensor) -> tuple[type, torch.Tensor]:
        return cls, a + 1

    def method(self, a: torch.Tensor) -> torch.Tensor:
        return a + 2


class Derived(Extension):
    pass


def test_wrap_names_a_function_of_the_user(record: Record) -> None:
    before = dict(vars(Extension))
    for name in ("fused", "made", "method", "fused"):
        pyprof.wrap(Extension, name)

    def body() -> None:
        Extension.fused(x, scale=2.0)
        Extension().fused(x, 1.0)
        assert Derived.made(x)[0] is Derived
        Extension().method(x)

    first, *others = record(body).calls
    assert first.name == "Extension.fused"
    assert first.marker.call.args[1] == ("scale", 2.0)
    assert [call.name for call in others] == ["Extension.fused", "Extension.made", "Extension.method"]
    assert first.user_lines[-1].startswith(f"{__file__}:")
    with pytest.raises(pyprof.PyProfError, match="is a class"):
        pyprof.wrap(torch.nn, "Linear")
    pyprof.shutdown()
    assert dict(vars(Extension)) == before


@pytest.mark.parametrize("order", ["around", "inside", "overlapping"])
def test_the_users_profiler_keeps_its_trace_whole(
    order: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "net.sqlite"

    def work() -> None:
        for _ in range(5):
            torch.tanh(x)

    if order == "around":
        with torch.profiler.profile(acc_events=True) as theirs, pyprof.profile(str(path)):
            work()
    elif order == "inside":
        with pyprof.profile(str(path)), torch.profiler.profile(acc_events=True) as theirs:
            work()
    else:
        pyprof.start(str(path))
        with torch.profiler.record_function("before"):
            torch.exp(x)
        with torch.profiler.profile(acc_events=True) as theirs:
            with torch.profiler.record_function("after"):
                torch.tanh(x)
            pyprof.stop()
            for _ in range(4):
                torch.tanh(x)
    assert [event.name for event in theirs.events()].count("aten::tanh") == 5
    recorded = Recorded(path)
    meta = recorded.table("PYPROF_META")
    if order == "overlapping":  # what came before theirs is kept
        assert recorded.names == ["torch.exp", "torch.tanh"]
        assert [op.name for op in recorded.ops] == ["aten::exp"]
        assert recorded.ranges == [("before", 59), ("after", 59)]
        assert "torch.profiler" in meta["operators"]
    else:
        assert recorded.names == ["torch.tanh"] * 5
        assert recorded.ops == []
        assert meta["layers"] == "sites"
    assert capsys.readouterr().err.count("torch.profiler") == 1
    with pyprof.profile(str(path)):  # and it is over when theirs is over
        torch.tanh(x)
    assert [op.name for op in Recorded(path).ops] == ["aten::tanh"]


def test_the_users_profiler_before_a_window_and_after_it_is_whole(tmp_path: Path) -> None:
    def theirs() -> list[str]:
        with torch.profiler.profile(acc_events=True) as profiler:
            torch.tanh(x)
        return [event.name for event in profiler.events()]

    path = tmp_path / "net.sqlite"
    before = theirs()
    with pyprof.profile(str(path)):
        torch.tanh(x)
    recorded = Recorded(path)
    assert before == theirs() == ["aten::tanh"]
    assert (recorded.names, [op.name for op in recorded.ops]) == (["torch.tanh"], ["aten::tanh"])


def test_kineto_prints_nothing(forks: Forks, tmp_path: Path) -> None:
    """In a process of its own: torch reads its switch once, at its first profile."""
    path = tmp_path / "net.sqlite"
    program = f"import torch, pyprof\nx = torch.ones(2)\nwith pyprof.profile({str(path)!r}):\n    torch.tanh(x)\n"
    _, done = forks.run(tmp_path, program, prelude="import os\nos.environ.pop('KINETO_LOG_LEVEL', None)\n")
    assert done.stderr == f"{path}: 1 operator, 1 call\n"


def test_forked_child_is_quiet(tmp_path: Path) -> None:
    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path)):
        torch.tanh(x)
        child = os.fork()
        if not child:
            torch.tanh(x)
            os._exit(0 if type(torch).__name__ == "module" and "mul" not in vars(torch.Tensor) else 1)
        assert os.waitpid(child, 0)[1] == 0
        torch.tanh(x)
    assert Recorded(path).names == ["torch.tanh"] * 2


def test_cuda_profiler_does_not_narrow_a_window_of_the_script(record: Record) -> None:

    def body() -> None:
        torch.tanh(x)
        torch.cuda.profiler.start()
        torch.cuda.profiler.stop()
        torch.exp(x)

    assert record(body).names == ["torch.tanh", "torch.exp"]


def test_a_fault_of_ours_never_reaches_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyprof.capture import recording

    def broken(*args: object) -> None:
        raise ValueError("mine")

    monkeypatch.setattr(recording, "resolve", broken)
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        torch.tanh(x)
    assert "the recording is lost (ValueError: mine)" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []
    assert type(F).__dict__.get("relu") is None


def test_nothing_of_the_program_is_kept_after_a_window(record: Record) -> None:
    from pyprof.capture.instrument.recorder import recorder

    thread = threading.Thread(target=lambda: torch.tanh(x))

    def body() -> None:
        nn.Sequential(nn.Linear(2, 2))(x)
        thread.start()
        thread.join()

    record(body)
    assert recorder.keys == {}
    assert recorder.stacks.sites == []
    assert len(recorder.stacks.contexts) == 1
    assert [state for state in recorder.threads if state.calls or state.modules or state.ranges] == []
    record(lambda: None)
    assert thread.name not in [state.name for state in recorder.threads]


@pytest.mark.long
def test_windows_leave_nothing_in_memory(tmp_path: Path) -> None:
    """Objects that the collector follows, by type, and bytes that our code holds, from one window to the next."""
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    def window() -> None:
        with pyprof.profile(str(tmp_path / "net.sqlite"), warmup=1, active=1, repeat=2) as p:
            for _ in range(4):
                net(torch.ones(4, 8)).sum().backward()
                p.step()

    def objects() -> Counter[str]:
        gc.collect()
        return Counter(type(thing).__qualname__ for thing in gc.get_objects())

    def held() -> tracemalloc.Snapshot:
        control.written.clear()  # the name of each file that the process wrote, as long as the folder's
        return tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, f"{OURS}*")])

    def size(snapshot: tracemalloc.Snapshot) -> int:
        return sum(trace.size for trace in snapshot.traces)

    tracemalloc.start()
    try:
        # Caches of Python's own grow now and then, and what was held before the first look is not counted until it is
        # replaced; what a window leaves would come each time.
        kept = []
        for _ in range(7):
            window()
            kept.append((objects(), held()))
        most = [max((later - former).values(), default=0) for (former, _), (later, _) in pairwise(kept)]
        # Over two windows: a table that is filled again has had its room before every other time.
        more = [size(later) - size(former) for (_, former), (_, later) in zip(kept, kept[2:])]
        # Caches of other code, of tests before, grow beside it, but not in each window.
        assert sorted(most)[1] <= 1, most
        lines = [str(line) for line in kept[-1][1].compare_to(kept[2][1], "lineno")[:5]]
        assert median(more) < 1000, "\n".join([*map(str, more), *lines])
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("jump", [-5_000_000_000, 5_000_000_000])
def test_a_clock_that_is_set_in_a_window_is_told(jump: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a machine's time is corrected. No interval ends before it begins."""
    from pyprof.capture import recording, session
    from pyprof.capture.environment import clock
    from pyprof.capture.instrument import wrappers

    late = False

    def now() -> int:
        return time.time_ns() + (jump if late else 0)

    class Late(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, value: torch.Tensor) -> torch.Tensor:
            nonlocal late
            late = True  # within a call
            return value.clone()

    for module in (clock, wrappers, recording):
        monkeypatch.setattr(module, "time_ns", now)
    monkeypatch.setattr(session, "_patches", Patches())  # with wrappers that read this clock
    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path)) as p:
        for turn in range(3):
            late = False
            torch.tanh(x)
            if turn == 1:
                Late.apply(x)
            p.step()
        late = True
    recorded = Recorded(path)
    set_by = int(recorded.table("PYPROF_META")["clock.set_ns"])
    assert round(set_by / jump) == 1
    assert all(call.start <= call.end for call in recorded.calls)
    steps = recorded.query("select start, end from PYPROF_STEP order by number")
    assert len(steps) == 3
    assert all(start <= end for start, end in steps)


def test_a_clock_that_is_not_set_is_no_fact(record: Record) -> None:
    assert "clock.set_ns" not in record(lambda: torch.tanh(x)).table("PYPROF_META")


def test_before_torch_2_7_operators_of_other_threads_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kineto, "ALL_THREADS", False)

    def other() -> None:
        torch.tanh(x)
        torch.exp(x)

    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path)):
        torch.sin(x)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    recorded = Recorded(path)
    assert sorted(recorded.names) == ["torch.exp", "torch.sin", "torch.tanh"]
    assert [op.name for op in recorded.ops] == ["aten::sin"]
    lost = recorded.table("PYPROF_LOST")
    assert lost == {"operators of calls on other threads, which torch before 2.7 does not record": 2}


def test_events_of_torch_go_when_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cycle keeps them until Python looks for garbage, which may be in the middle of another profile."""
    readers: list[weakref.ref[Reader]] = []

    def made(result: object) -> Reader:
        reader = Reader(result)
        readers.append(weakref.ref(reader))
        return reader

    monkeypatch.setattr(kineto, "Reader", made)
    gc.disable()
    try:
        with pyprof.profile(str(tmp_path / "net.sqlite")):
            torch.stack([x, x])
        assert [reader() for reader in readers] == [None]
    finally:
        gc.enable()
