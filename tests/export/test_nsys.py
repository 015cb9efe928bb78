# SPDX-License-Identifier: Apache-2.0
"""What is exported in Nsight Systems' tables is read again as it was."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import pyprof
from pyprof.errors import UsageError
from pyprof.parse import loader, reader_process
from pyprof.session import Profile
from tests import build, kineto
from tests.parse.test_invariance import training


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_process, "cores", lambda: 1)


def again(prof: Profile, path: Path, **window: int) -> Profile:
    prof.export("nsys", path, **window)
    return pyprof.load(path)


def plain(frame: pd.DataFrame, *without: str) -> list[dict[str, Any]]:
    kept = [name for name in frame.columns if name not in without]
    return frame[kept].astype(object).where(frame[kept].notna(), None).to_dict("records")


def ranges(prof: Profile) -> list[tuple[Any, ...]]:
    return prof.database.rows(
        """select string.text, kind, start_ns, duration_ns, seq, tid from range join string on string.id = range.text
           join thread on thread.id = range.thread order by start_ns, duration_ns desc, string.text"""
    )


WRITERS: dict[str, Callable[[Path], Path]] = {
    "nsys": lambda path: build.write_nsys(path, training(True), registered=True),
    "nvprof": lambda path: build.write_nvprof(path, training(True)),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_kernels_operators_and_ranges_are_the_same(writer: str, tmp_path: Path) -> None:
    prof = pyprof.load(WRITERS[writer](tmp_path / "net.sqlite"))
    back = again(prof, tmp_path / "out.sqlite")
    assert len(prof.kernels) > 10
    assert plain(back.kernels) == plain(prof.kernels)
    assert plain(back.ops, "thread") == plain(prof.ops, "thread")
    assert ranges(back) == ranges(prof)
    assert plain(back.devices, "compute_capability") == plain(prof.devices, "compute_capability")
    assert plain(back.steps) == plain(prof.steps)


def test_copies_sets_graphs_and_marks(tmp_path: Path) -> None:
    lines = "own\n    > 40 graph=5 k\n    + 7 graph=6 l\n    > 9 stream=8 copy\n    > 3 set\n"
    recording = build.recording(f"{lines}mark here\nbetween apart\n    wait 5\n")
    copied, empty = recording.kernels[2:]
    copied.size, copied.copy_kind, empty.size = 4096, 8, 64
    prof = pyprof.load(build.write_nsys(tmp_path / "net.sqlite", recording))
    back = again(prof, tmp_path / "out.sqlite")
    assert plain(back.kernels) == plain(prof.kernels)
    moved = {k.kind: k.copied_bytes for k in back.kernels.itertuples() if k.kind != "kernel"}
    assert moved == {"memcpy": 4096, "memset": 64}
    assert ranges(back) == ranges(prof)
    columns = "select kind, graph, copied_bytes, copy_from, copy_to from event order by id"
    assert back.database.rows(columns) == prof.database.rows(columns)


def test_operators_of_a_capture_become_ranges(tmp_path: Path) -> None:
    """A file of nsys has no table for them: they have emit_nvtx's names, and the calls around keep theirs."""
    linear = build.call("torch.nn.functional.linear", (64, 32), (16, 32))
    recording = build.recording(
        f"{linear}\n    op seq=3 aten::linear\n        op seq=3 aten::addmm\n            > 40 volta_sgemm\n"
        "op aten::zeros\n    > 2 fill\n"
        "thread 2\nop seq=3 forward=1 AddmmBackward0\n    > 30 volta_sgemm_tn\n"
    )
    recording.steps += [(7, 10, 60), (8, 60, 130)]
    prof = pyprof.load(build.write_capture(tmp_path / "net.sqlite", recording))
    back = again(prof, tmp_path / "out.sqlite")
    kept = [
        "name", "start_ns", "duration_ns", "stream", "device", "op", "direction", "flops", "bytes", "launch_ns"
    ]  # fmt: skip
    assert plain(back.kernels[kept]) == plain(prof.kernels[kept])
    numbered = [
        (text, seq) for text, _, _, _, seq, _ in ranges(back) if text[:4] == "aten" or "Backward" in text
    ]
    assert numbered == [
        ("aten::linear", 3), ("aten::addmm", 3), ("aten::zeros", None), ("AddmmBackward0", 3),
    ]  # fmt: skip
    assert list(back.steps["start_ns"]) == list(prof.steps["start_ns"])
    assert back.aggregation.method == "ranges"


def test_times_are_those_of_the_same_clock(tmp_path: Path) -> None:
    prof = pyprof.load(build.write_nsys(tmp_path / "net.sqlite", training(True)))
    prof.export("nsys", tmp_path / "out.sqlite")
    one, two = loader.load(tmp_path / "net.sqlite"), loader.load(tmp_path / "out.sqlite")
    start = "session_start_unix_ns"
    assert one.t0 + int(one.meta[start]) == two.t0 + int(two.meta[start])


def test_workers_of_equal_pid_stay_apart(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for number in range(3):
        build.write_nsys(
            run / f"a.rank{number}.sqlite", build.recording(f"own\n    > {5 + number} k{number}\n")
        )
    prof = pyprof.load(run)
    back = again(prof, tmp_path / "out.sqlite")
    assert back.kernels["worker"].nunique() == 3
    assert plain(back.kernels, "worker") == plain(prof.kernels, "worker")
    assert [one.pid for one in loader.load(tmp_path / "out.sqlite").processes] == [build.PROCESS] * 3


def test_threads_of_a_process_that_nobody_knows(tmp_path: Path) -> None:
    """As of a trace whose processes have no numbers."""
    events = [
        kineto.op("aten::mm", 1000, 2000, pid="python"),
        kineto.op("aten::add", 3000, 4000, pid="python"),
    ]
    events += [kineto.launch(3100, 3200, 7), kineto.kernel("add", 3300, 3400, 7)]
    for event in events:
        event["pid"] = "python" if event["pid"] == kineto.PID else event["pid"]
    prof = pyprof.load(kineto.write(tmp_path / "trace.json", events))
    assert prof.database.rows("select pid from worker") == [(None,)]
    assert [text for text, *_ in ranges(again(prof, tmp_path / "out.sqlite"))] == ["aten::mm", "aten::add"]


def test_large_thread_numbers_stay_apart(tmp_path: Path) -> None:
    """pthread's numbers of nvprof: a globalTid has 24 bits for them."""
    large = 1 << 30
    text = "".join(f"thread {large * n + 5}\nr{n}\n    > 5 k{n}\n" for n in range(1, 4))
    prof = pyprof.load(build.write_nvprof(tmp_path / "net.sqlite", build.recording(text)))
    assert prof.database.rows("select count(distinct tid) from thread") == [(3,)]
    back = again(prof, tmp_path / "out.sqlite")
    assert back.database.rows("select count(distinct tid) from thread") == [(3,)]
    assert plain(back.kernels) == plain(prof.kernels)


def test_a_window_has_what_goes_on_in_it(tmp_path: Path) -> None:
    prof = pyprof.load(build.write_nsys(tmp_path / "net.sqlite", training(True)))
    kernels = prof.kernels
    start, end = int(kernels["start_ns"].iloc[3]), int(kernels["end_ns"].iloc[9])
    back = again(prof, tmp_path / "out.sqlite", start=start, end=end)
    inside = kernels[(kernels["start_ns"] < end) & (kernels["end_ns"] > start)]
    assert len(back.kernels) == len(inside) < len(kernels)
    assert back.kernels["duration_ns"].tolist() == inside["duration_ns"].tolist()


def test_what_other_tools_ask_for_is_there(tmp_path: Path) -> None:
    prof = pyprof.load(build.write_nsys(tmp_path / "net.sqlite", training(True)))
    prof.export("nsys", tmp_path / "out.sqlite")
    with closing(sqlite3.connect(tmp_path / "out.sqlite")) as connection:
        found = connection.execute(
            """select s.value, k.end - k.start, r.globalTid >> 24 = k.globalPid >> 24 from CUPTI_ACTIVITY_KIND_KERNEL k
               join StringIds s on s.id = k.shortName
               join CUPTI_ACTIVITY_KIND_RUNTIME r on r.correlationId = k.correlationId order by k.start"""
        ).fetchall()
        ((unwanted,),) = connection.execute("select count(*) from NVTX_EVENTS where eventType = 34 and end")
        ((sound,),) = connection.execute("pragma integrity_check")
    mine = prof.kernels[(prof.kernels["kind"] == "kernel") & prof.kernels["launch_ns"].notna()]
    assert sorted(found) == sorted((k.name, k.duration_ns, 1) for k in mine.itertuples())
    assert (unwanted, sound) == (0, "ok")


def test_what_cannot_be_shown_is_a_sentence(tmp_path: Path) -> None:
    path = build.write_capture(tmp_path / "net.sqlite", build.recording("op seq=3 aten::mm\n    wait 5\n"))
    with pytest.raises(UsageError, match="has no GPU kernels"):
        pyprof.load(path).export("nsys", tmp_path / "out.sqlite")
    with pytest.raises(UsageError, match="no tool reads compressed"):
        pyprof.load(path).export("nsys", tmp_path / "out.sqlite.gz")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["net.sqlite"]


RECORDINGS = [
    "nsys/h100_2gpu_1s.sqlite",
    "nsys/cifar_rtx2070_pyprof_markers.sqlite",
    "nvprof/transformer_lm/net.sql",
]


@pytest.mark.parametrize("name", RECORDINGS)
def test_real_recordings(data: Path, tmp_path: Path, name: str) -> None:
    prof = pyprof.load(data / name)
    back = again(prof, tmp_path / "out.sqlite")
    assert plain(back.kernels) == plain(prof.kernels)
    assert plain(back.ops, "thread") == plain(prof.ops, "thread")
