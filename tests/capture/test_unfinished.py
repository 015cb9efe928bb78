# SPDX-License-Identifier: Apache-2.0
"""torch writes the end of a function into the recording in which it began, though that was freed: no recording begins
while a function of the last one is open."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from time import time_ns

import pytest

from pyprof.capture.collectors.unfinished import Function, Unfinished
from pyprof.capture.instrument.recorder import ThreadState, local, recorder
from tests.forks import Forks

from .conftest import Recorded

# Memory that is freed is gone at once, as it is for any large recording: to write there ends the process.
PRELUDE = """
import ctypes, gc
gc.disable()  # a collection that comes by chance would be one more range
ctypes.CDLL(None).mallopt(-3, 4096)  # M_MMAP_THRESHOLD
ctypes.CDLL(None).mallopt(-1, 4096)  # M_TRIM_THRESHOLD
from pyprof.capture import pace
pace.MOST, pace._mallinfo = 1500, None
"""
WHOLE = """
import torch, pyprof
from torch.profiler import record_function
x = torch.ones(4)
def work(count):
    for _ in range(count): torch.add(x, 1)
"""
PROGRAMS = {
    "open over a reading": """
with pyprof.profile("net.sqlite"):
    for _ in range(3):
        with record_function("epoch"), record_function("inner"): work(800)
""",
    "open from window to window": """
with record_function("epoch"):
    for number in range(3):
        with pyprof.profile("net.sqlite"), record_function("window"): work(800)
""",
    "left after the window": """
pyprof.start("other.sqlite")
ranges = [record_function(str(n)).__enter__() for n in range(40)]
pyprof.stop()
pyprof.start("net.sqlite")
for one in reversed(ranges): one.__exit__(None, None, None)
work(800)
pyprof.stop()
""",
    "of another thread": """
import threading
entered, closed = threading.Event(), threading.Event()
def other():
    with record_function("theirs"):
        entered.set()
        closed.wait()
thread = threading.Thread(target=other)
pyprof.start("other.sqlite")
thread.start(); entered.wait()
pyprof.stop()
pyprof.start("net.sqlite")
work(5)
closed.set(); thread.join()
work(800)
pyprof.stop()
""",
    "an operator of another thread": """
import threading
begun = threading.Event()
big = torch.ones(1500, 1500)
def other():
    begun.set()
    for _ in range(3): torch.mm(big, big)
thread = threading.Thread(target=other)
pyprof.start("other.sqlite")
thread.start(); begun.wait()
pyprof.stop()
pyprof.start("net.sqlite")
thread.join()
work(800)
pyprof.stop()
""",
}


@pytest.fixture
def forks(forks: Forks) -> Forks:
    """Programs that free all of torch at their end, with what is open of it."""
    return forks.whole()


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_open_when_a_recording_ends_does_no_harm(name: str, forks: Forks, tmp_path: Path) -> None:
    code, done = forks.run(tmp_path, WHOLE + PROGRAMS[name], prelude=PRELUDE)
    assert code == 0, done.stderr
    recorded = Recorded(tmp_path / "net.sqlite")
    adds = [op for op in recorded.ops if op.name == "aten::add"]
    assert len(adds) >= 795, (
        recorded.query("select * from PYPROF_LOST"),
        recorded.query("select * from PYPROF_PAUSE"),
    )
    assert recorded.names.count("torch.add") >= len(adds)


def test_a_range_that_is_open_over_a_reading_is_whole(forks: Forks, tmp_path: Path) -> None:
    code, done = forks.run(tmp_path, WHOLE + PROGRAMS["open over a reading"], prelude=PRELUDE)
    assert code == 0, done.stderr
    recorded = Recorded(tmp_path / "net.sqlite")
    assert recorded.query("select count(*) from PYPROF_PAUSE")[0][0] >= 2
    ranges = recorded.query("select text, start, end from NVTX_EVENTS where domainId = 0 order by start")
    assert [name for name, *_ in ranges] == ["epoch", "inner"] * 3
    calls = recorded.query("select start, end from NVTX_EVENTS where domainId = 1 and eventType = 59")
    for _, start, end in ranges:
        assert sum(start <= begin and stop <= end for begin, stop in calls) == 800


def test_a_range_around_the_window_is_there(forks: Forks, tmp_path: Path) -> None:
    program = """
with record_function("epoch"):
    with pyprof.profile("net.sqlite"), record_function("inner"): work(5)
"""
    code, done = forks.run(tmp_path, "import pyprof; pyprof.init()\n" + WHOLE + program, prelude=PRELUDE)
    assert code == 0, done.stderr
    ranges = Recorded(tmp_path / "net.sqlite").query(
        "select text, end from NVTX_EVENTS where domainId = 0 order by start"
    )
    assert [name for name, _ in ranges] == ["epoch", "inner"]
    assert [end is None for _, end in ranges] == [True, False]  # the first was open when the window closed


THREADS = """
import threading
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        with record_function("inside"): return x * 2
    @staticmethod
    def backward(ctx, g): return g * 2
def train():
    y = torch.ones(4, requires_grad=True)
    for _ in range(150):
        Double.apply(y).sum().backward()
        pyprof.step()
with pyprof.profile("net.sqlite"):
    threads = [threading.Thread(target=train) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


def test_threads_that_all_read_and_wait_lose_no_recording(forks: Forks, tmp_path: Path) -> None:
    code, done = forks.run(tmp_path, WHOLE + THREADS, prelude=PRELUDE.replace("1500", "100"))
    assert code == 0, done.stderr
    assert not [line for line in done.stderr.splitlines() if "pyprof:" in line or "Exception" in line]
    recorded = Recorded(tmp_path / "net.sqlite")
    assert {reason.partition(":")[0] for reason in recorded.table("PYPROF_LOST")} <= {"stretches without operators"}
    assert recorded.query("select count(*) from PYPROF_STEP") == [(600,)]


HERE = threading.get_native_id
CASES = {
    "an operator, no call since": ([("aten::mm", True, False, False)], 0, True),
    "an operator, a call since": ([("aten::mm", True, False, False)], 1, False),
    "a node of autograd": ([("AddBackward0", False, True, False)], 1, False),
    "a range of C++": ([("region", True, False, False)], 1, True),
    "an operator in a range of C++": (
        [("region", True, False, False), ("aten::mm", True, False, False)],
        1,
        True,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_when_a_thread_has_left_what_was_open(name: str) -> None:
    functions, calls, remains = CASES[name]
    open_, state, before = Unfinished(), local.state, list(local.state.calls)
    open_.note([Function(HERE(), *function) for function in functions], {})
    state.calls[:] = [0, 0, 0, "", time_ns() + 1, time_ns() + 2] * calls
    try:
        assert open_.remain == remains
        open_.step()
        assert not open_.remain
    finally:
        state.calls[:] = before


def test_a_thread_that_is_gone_has_left_everything() -> None:
    numbers: list[int] = []
    thread = threading.Thread(target=lambda: numbers.append(threading.get_native_id()))
    thread.start()
    thread.join()
    while Path(f"/proc/self/task/{numbers[0]}").exists():  # Python is done with it a little earlier than the system
        time.sleep(0.001)
    open_ = Unfinished()
    open_.note([Function(numbers[0], "region", True, False, False)], {})
    assert not open_.remain


def test_ranges_of_python_are_left_when_the_thread_has_none_of_them() -> None:
    state = ThreadState()
    state.tid, scope = 1, object()  # a process that does not end
    state.scopes.append(scope)
    recorder.threads.append(state)
    try:
        open_ = Unfinished()
        open_._threads.clear()
        open_.note([Function(1, "epoch", False, False, True)], {1: [scope]})
        assert open_.remain == Path("/proc/self/task/1").exists()
        state.scopes.clear()
        assert not open_.remain
    finally:
        recorder.threads.remove(state)
