# SPDX-License-Identifier: Apache-2.0
"""`sample="cpu"`: stacks of running threads, from a thread that ends with the window."""

from __future__ import annotations

import gc
import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import monotonic, thread_time

import pytest
import torch

import pyprof
from pyprof.capture.extras.sampler import Sampler
from pyprof.capture.extras.stack_rows import StackRows

from .conftest import Recorded

Record = Callable[..., Recorded]
linux = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system tells no time of threads")


def samples(recorded: Recorded) -> list[tuple[int, str, int | None]]:
    """Thread, innermost function, processor time."""
    return recorded.query(
        """select globalTid, value, cpuNs
           from PYPROF_SAMPLE
           join PYPROF_STACK on stackId = PYPROF_STACK.id
           join StringIds on functionId = StringIds.id
           where depth = (select max(depth) from PYPROF_STACK inside where inside.id = stackId)"""
    )


def busy(seconds: float = 0.4) -> None:
    end = thread_time() + seconds
    while thread_time() < end:
        pass


def little() -> None:
    busy_little = thread_time() + 0.02
    while thread_time() < busy_little:
        pass


def test_the_function_that_runs_has_most_samples(record: Record) -> None:
    def body() -> None:
        torch.empty(1)
        little()
        busy()

    recorded = record(body, sample="cpu")
    found = Counter(name for _, name, _ in samples(recorded))
    assert found["busy"] > 0.5 * sum(found.values())
    assert found["busy"] > 3 * found["little"]
    facts = recorded.table("PYPROF_META")
    assert facts["samples"] == str(sum(found.values()))
    assert facts["samples.top.1"].endswith("% busy (test_sampler.py)")


def test_a_stack_is_outermost_first_without_our_frames(record: Record) -> None:
    class Net(torch.nn.Module):
        def forward(self) -> None:
            busy(0.1)

    net = Net()

    def body() -> None:
        torch.empty(1)
        net()  # through our stand-in for Module.__call__

    recorded = record(body, sample="cpu")
    frames = recorded.query(
        """select function.value, frame.value
           from PYPROF_STACK
           join StringIds function on functionId = function.id
           join StringIds frame on frameId = frame.id
           where PYPROF_STACK.id = (
               select PYPROF_STACK.id
               from PYPROF_STACK
               join PYPROF_SAMPLE on PYPROF_STACK.id = stackId
               join StringIds on functionId = StringIds.id
               where value = 'busy')
           order by depth"""
    )
    names = [name for name, _ in frames]
    assert names[-2:] == [Net.forward.__qualname__, "busy"]
    assert body.__qualname__ in names
    own = os.sep + os.path.join("pyprof", "capture", "")
    assert not [frame for _, frame in frames if own in frame and "tests" not in frame]


@linux
def test_a_thread_that_waits_gives_no_sample(record: Record) -> None:
    ended = threading.Event()
    waiter = threading.Thread(target=ended.wait)
    waiter.start()
    worker = threading.Thread(target=busy)

    def body() -> None:
        torch.empty(1)
        worker.start()
        worker.join()

    recorded = record(body, sample="cpu")
    ended.set()
    waiter.join()
    found = Counter(tid & 0xFFFFFF for tid, _, _ in samples(recorded))
    assert found[worker.native_id or 0] > 3
    assert found[waiter.native_id or 0] == 0
    spent = [spent for tid, _, spent in samples(recorded) if tid & 0xFFFFFF == worker.native_id]
    assert all(one is None or one > 0 for one in spent)


def test_the_thread_is_gone_afterwards(tmp_path: Path) -> None:
    before = threading.enumerate()
    with pyprof.profile(str(tmp_path / "net.sqlite"), sample="cpu"):
        ours = set(threading.enumerate()) - set(before)
        assert len(ours) == 2  # and the one that looks at the memory
        assert all(thread.daemon for thread in ours)
    assert not any(thread.is_alive() for thread in ours)
    assert threading.enumerate() == before
    pyprof.shutdown()


def test_no_frame_is_kept(tmp_path: Path) -> None:
    class Thing:
        pass

    def body() -> weakref.ref[Thing]:
        thing = Thing()
        busy(0.1)
        return weakref.ref(thing)

    gc.collect()
    gc.disable()
    try:
        with pyprof.profile(str(tmp_path / "net.sqlite"), sample="cpu"):
            torch.empty(1)
            reference = body()
            busy(0.05)
            assert reference() is None
    finally:
        gc.enable()
        pyprof.shutdown()


def test_what_was_missed_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler's clock jumps as when C++ code holds the interpreter's lock."""
    sampler = Sampler(None, 100, StackRows())
    times = iter([0, 10_000_000, 10_000_000, 75_000_000, 75_000_000, 80_000_000])
    monkeypatch.setattr("pyprof.capture.extras.sampler.monotonic_ns", lambda: next(times))
    looked: list[int] = []

    class Ended:
        def wait(self, seconds: float) -> bool:
            return len(looked) == 2

    monkeypatch.setattr(sampler, "_ended", Ended(), raising=False)
    monkeypatch.setattr(sampler, "_look", looked.append)
    sampler._run()
    # Due at 10, 20 ms: the second look comes at 75 ms, those of 30, 40, 50, 60, 70 ms never do.
    assert sampler.lost["samples that came too late"] == 5


def test_samples_above_the_bound_are_counted(record: Record) -> None:
    def body() -> None:
        torch.empty(1)
        busy(0.2)

    recorded = record(body, sample="cpu", max_events=2)
    assert len(samples(recorded)) == 2
    assert recorded.table("PYPROF_LOST")["samples after the first 2"] >= 1


def test_several_windows_keep_their_stacks(tmp_path: Path) -> None:
    path = tmp_path / "net.sqlite"
    try:
        pyprof.init(output=str(path), sample="cpu")
        for work in (busy, other):
            torch.cuda.profiler.start()
            torch.empty(1)
            work(0.1)
            torch.cuda.profiler.stop()
    finally:
        pyprof.shutdown()
    assert {"busy", "other"} <= {name for _, name, _ in samples(Recorded(path))}


def other(seconds: float) -> None:
    end = thread_time() + seconds
    while thread_time() < end:
        pass


def test_a_fault_of_the_sampler_stays_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Sampler, "_look", fails)
    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path), sample="cpu"):
        torch.empty(1)
        end = monotonic() + 5
        while sum(thread.name == "pyprof" for thread in threading.enumerate()) > 1:  # one looks at the memory
            assert monotonic() < end
    pyprof.shutdown()
    assert Recorded(path).table("PYPROF_LOST")["samples after a fault (MemoryError)"] == 1
    assert sys.exc_info() == (None, None, None)
