# SPDX-License-Identifier: Apache-2.0
"""Who gets CUPTI's records: PyProf's windows, torch's own profiler and the program share one library.

libcupti and Kineto are stand-ins that keep to the contract of the real ones (`cupti_fake.c`, `stand_in.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import pyprof
from pyprof.capture import pace
from pyprof.capture.collectors import kineto, kineto_device, kineto_start, layer
from pyprof.capture.collectors.cupti import library
from pyprof.capture.collectors.device import KERNEL, LAUNCH
from tests.forks import Forks

from .conftest import Recorded
from .stand_in import Fake, LibKineto, users_profile


@pytest.fixture(params=[False, True], ids=["always", "by_activities"])
def libkineto(fake: Fake, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[LibKineto]:
    """A GPU, with a torch whose profiler always knows of it, or only if its first profile in the process asks."""
    monkeypatch.setattr(layer, "cupti_missing", lambda: "")
    monkeypatch.setattr(layer, "kineto_missing", lambda: "")
    monkeypatch.setattr(library, "load", lambda: fake.library)
    yield LibKineto(fake, monkeypatch, request.param)
    pyprof.shutdown()


def kernels(path: Path) -> list[int]:
    return [number for (number,) in Recorded(path).query(f"select correlationId from {KERNEL} order by 1")]


def test_the_first_window_and_the_second_have_their_kernels(libkineto: LibKineto, fake: Fake, tmp_path: Path) -> None:
    for number in (1, 2):
        path = tmp_path / f"{number}.sqlite"
        with pyprof.profile(str(path), collector="cupti"):
            torch.ones(2) + 1
            fake.launch(number)
        assert kernels(path) == [number]
        assert Recorded(path).query(f"select count(*) from {LAUNCH}") == [(1,)]
    assert fake.enabled == set()
    assert fake.kineto_unknown == 0


def test_a_window_has_its_kernels_from_before_and_after_a_pause(
    libkineto: LibKineto, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "_mallinfo", None)
    monkeypatch.setattr(pace, "MOST", 150)
    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path), collector="cupti"):
        for number in range(1, 101):
            torch.add(torch.ones(2), 1)
            fake.launch(number)
    assert int(Recorded(path).table("PYPROF_META")["pauses"]) > 2
    assert kernels(path) == list(range(1, 101))


def test_times_are_those_of_the_program_whoever_named_the_clock(
    libkineto: LibKineto, fake: Fake, tmp_path: Path
) -> None:
    path = tmp_path / "net.sqlite"
    for profiled in (False, True):
        if profiled:
            users_profile(lambda: None)
        with pyprof.profile(str(path), collector="cupti"):
            torch.ones(2) + 1
            fake.launch(1)
            torch.ones(2) + 2
        recorded = Recorded(path)
        [(start,)] = recorded.query(f"select start from {KERNEL}")
        first, *_, last = [op for op in recorded.ops if op.name == "aten::add"]
        assert first.end <= start <= last.start


def test_after_a_profile_of_the_programs_own(libkineto: LibKineto, fake: Fake, tmp_path: Path) -> None:
    users_profile(lambda: fake.launch(7))
    assert fake.kineto_kernels == 1
    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path), collector="cupti"):
        fake.launch(8)
    assert kernels(path) == [8]
    assert fake.kineto_kernels == 0


@pytest.mark.parametrize("collector", ["cupti", "none"])
def test_a_later_profile_of_the_programs_own_is_whole(
    collector: str, libkineto: LibKineto, fake: Fake, tmp_path: Path
) -> None:
    with pyprof.profile(str(tmp_path / "net.sqlite"), collector=collector):
        torch.ones(2) + 1
        fake.launch(1)
    assert fake.kineto_kernels == 0
    users_profile(lambda: [fake.launch(number) for number in (2, 3)])
    assert fake.kineto_kernels == 2
    assert fake.kineto_unknown == 0


def test_a_profile_of_the_programs_own_inside_a_window_is_whole(
    libkineto: LibKineto, fake: Fake, tmp_path: Path
) -> None:
    path = tmp_path / "net.sqlite"
    pyprof.init()
    with pyprof.profile(str(path), collector="cupti"):
        fake.launch(1)
        users_profile(lambda: fake.launch(2))
    assert kernels(path) == [1]
    assert fake.kineto_kernels == 1


def test_functions_that_a_window_leaves_out_are_recorded_again_later(
    libkineto: LibKineto, fake: Fake, tmp_path: Path
) -> None:
    with pyprof.profile(str(tmp_path / "net.sqlite"), collector="cupti"):
        assert (False, 133) in fake.left_out()  # cudaEventCreate
    # What Kineto leaves out for itself, whenever it records those calls, may stay.
    assert fake.left_out() <= {(False, 17), (True, 304), (True, 392), (True, 686)}


@pytest.mark.parametrize("when", ["step", "pause", "close"])
def test_that_kineto_stopped_to_record_is_told(
    when: str, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its buffers are full, and it says nothing."""
    monkeypatch.setattr(layer, "kineto_missing", lambda: "")
    monkeypatch.setattr(kineto_device, "events", lambda result: iter(()))
    monkeypatch.setattr(kineto, "_device_stopped", fake.kineto_stopped)
    monkeypatch.setattr(pace, "_mallinfo", None)
    monkeypatch.setattr(pace, "MOST", 150 if when == "pause" else 15_000)
    LibKineto(fake, monkeypatch, by_activities=True)
    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path), collector="kineto") as p:
        torch.add(torch.ones(2), 1)
        fake.kineto_overflow()
        if when == "step":
            p.step()
            p.step()  # it is told once
            fake.kineto_start([])  # the flag is down again: only the step could tell
        for _ in range(40):
            torch.add(torch.ones(2), 1)
    pyprof.shutdown()
    assert Recorded(path).table("PYPROF_LOST") == {
        "readings whose end lacks device events: the buffers of torch's profiler were full": 1
    }


def test_kernels_are_recorded_where_torchs_profiler_does_not_start(
    libkineto: LibKineto, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Any) -> None:
        raise RuntimeError("another profiler")

    monkeypatch.setattr(kineto.Kineto, "start", fails)
    path = tmp_path / "net.sqlite"
    pyprof.init()
    with pyprof.profile(str(path), collector="cupti"):
        fake.launch(1)
        users_profile(lambda: [fake.launch(number) for number in (2, 3)])
    assert kernels(path) == [1]
    assert fake.enabled == set()
    assert fake.kineto_kernels == 2


def test_beside_another_profiler_kineto_is_not_told_of_gpus(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take CUPTI from that one."""
    monkeypatch.setattr(layer, "kineto_missing", lambda: "")
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/opt/another.so")
    monkeypatch.setenv("PYPROF_NVTX", "off")
    libkineto = LibKineto(fake, monkeypatch, by_activities=True)
    with pyprof.profile(str(tmp_path / "net.sqlite"), collector="none"):
        torch.ones(2) + 1
    pyprof.shutdown()
    assert libkineto.knows_gpus is False


def test_a_profile_that_stopped_earlier_is_not_ours(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kineto, "_device_stopped", lambda: True)
    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path), collector="none") as p:
        torch.add(torch.ones(2), 1)
        p.step()
    assert not Recorded(path).table("PYPROF_LOST")


@pytest.mark.parametrize("sync", [False, True])
def test_kineto_is_asked_for_synchronisations_on_request(
    sync: bool, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    config = kineto._ExperimentalConfig
    monkeypatch.setattr(kineto, "_ExperimentalConfig", lambda **given: asked.append(given) or config(**given))
    monkeypatch.setattr(layer, "kineto_missing", lambda: "")
    monkeypatch.setattr(kineto_device, "events", lambda result: iter(()))
    with pyprof.profile(str(tmp_path / "net.sqlite"), collector="kineto", sync=sync):
        torch.ones(2) + 1
    assert ("enable_cuda_sync_events" in asked[-1]) == sync


def test_names_of_activities_that_torch_does_not_know_cost_nothing(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer, "kineto_missing", lambda: "")
    monkeypatch.setattr(kineto_start, "_CPU_TYPES", {"ANOTHER_NAME"})
    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path), collector="none"):
        torch.ones(2) + 1
    assert "aten::add" in {op.name for op in Recorded(path).ops}


def test_operators_and_ranges_are_the_same_whether_kineto_knows_of_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for missing in ("there is no GPU", ""):
        monkeypatch.setattr(layer, "kineto_missing", lambda: missing)  # noqa: B023
        path = tmp_path / f"{missing}.sqlite"
        with (
            pyprof.profile(str(path), collector="none", memory=True),
            torch.profiler.record_function("range"),
        ):
            (torch.ones(2, 2, requires_grad=True) @ torch.ones(2, 2)).sum().backward()
        recorded = Recorded(path)
        allocated = recorded.query("select bytes from PYPROF_MEMORY order by time")
        found.append(([(op.name, op.text) for op in recorded.ops], recorded.ranges, allocated))
    assert found[0] == found[1]
    assert len(found[0][0]) > 5
    assert found[0][2]


def test_the_environment_is_what_it_was_after_the_first_window(forks: Forks, tmp_path: Path) -> None:
    program = """
import os, torch, pyprof
os.environ.pop("KINETO_LOG_LEVEL", None)
before = dict(os.environ)
with pyprof.profile("net.sqlite"):
    print("KINETO_LOG_LEVEL" in os.environ)
    torch.ones(2) + 1
print(dict(os.environ) == before)
os.environ["KINETO_LOG_LEVEL"] = "3"
with pyprof.profile("net.sqlite"):
    print(os.environ["KINETO_LOG_LEVEL"])
"""
    code, done = forks.run(tmp_path, program)
    assert (code, done.stdout.split()) == (0, ["False", "True", "3"])
    assert "profiler_start" not in done.stderr


DEADLOCK = """
import faulthandler, pathlib, sys, threading
from pyprof.capture.collectors.cupti import pool
from pyprof.capture.collectors.cupti.collector import Cupti
from pyprof.capture.collectors.device import KERNEL
from tests.capture.stand_in import Fake

pool.BUFFER_BYTES = 1 << 10  # four launches
fake = Fake(pathlib.Path(sys.argv[1]))
rounds = int(sys.argv[2])
faulthandler.dump_traceback_later(100 + rounds, exit=True)
cupti = Cupti(fake.library)
cupti.start()
fake.delay(100)

def launch(first):
    for number in range(first, 2 * rounds, 2):
        fake.launch(number)

threads = [threading.Thread(target=launch, args=(first,), daemon=True) for first in (0, 1)]
for thread in threads:
    thread.start()
while any(thread.is_alive() for thread in threads):
    fake.call_with_gil()
cupti.stop()
print(len(set(cupti.records.column(KERNEL, "correlationId"))), cupti.records.count(KERNEL))
"""


@pytest.mark.parametrize("rounds", [40, pytest.param(1000, marks=pytest.mark.long)])
def test_threads_that_trade_the_gil_do_not_lock_each_other_out(
    rounds: int, forks: Forks, fake_path: Path, tmp_path: Path
) -> None:
    """CUPTI asks for a buffer under its lock, which another thread waits for with the GIL in its hands."""
    code, done = forks.run(tmp_path, DEADLOCK, arguments=[str(fake_path), str(rounds)])
    assert (code, done.stdout.split()) == (0, [str(2 * rounds)] * 2), done.stderr
