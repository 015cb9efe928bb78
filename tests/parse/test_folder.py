# SPDX-License-Identifier: Apache-2.0
"""A folder of recordings is one run: its workers keep what each file says, side by side on one clock."""

from __future__ import annotations

import dataclasses
import io
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import pyprof
from pyprof.commands.main import main
from pyprof.core.errors import FormatError
from pyprof.core.model import Column, Process, Trace
from pyprof.parse import folder, loader, pool
from pyprof.parse import reader_process as processes
from pyprof.parse.merge import MEANING, merge
from pyprof.profiles import Profile
from pyprof.store.write.dimensions import worker_names
from tests import build, kineto

LINEAR = build.classic("linear", (2, 3), (4, 3))
RELU = build.classic("relu", (2, 4))
ONE = f"""
{LINEAR}
    > 40 volta_sgemm
    + 7 graph=5 reduce_kernel
thread 2
own
    {RELU}
        > 30 stream=8 relu_kernel
"""
TWO = f"wait 100\n{RELU}\n    > 20 relu_kernel\n{LINEAR}\n    > 50 ampere_sgemm\nopen never\n"
START = 1_700_000_000_000_000_000


def nsys(path: Path, text: str, start: int | None = START, gpu: tuple[str, int] | None = None) -> Path:
    """An export; `start`: unix time of the session, `gpu`: name and multiprocessors of device 0."""
    path.parent.mkdir(parents=True, exist_ok=True)
    build.write_nsys(path, build.recording(text))
    connection = sqlite3.connect(path)
    for table in ("TARGET_INFO_SESSION_START_TIME", "TARGET_INFO_GPU"):
        connection.execute(f"drop table if exists {table}")
    if start is not None:
        connection.execute("create table TARGET_INFO_SESSION_START_TIME (utcEpochNs integer)")
        connection.execute("insert into TARGET_INFO_SESSION_START_TIME values (?)", (start,))
    if gpu is not None:
        connection.execute("create table TARGET_INFO_GPU (id integer, name text, smCount integer)")
        connection.execute("insert into TARGET_INFO_GPU values (0, ?, ?)", gpu)
    connection.commit()
    connection.close()
    return path


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read in this process, but for tests of the pool: a child takes half a second to start."""
    monkeypatch.setattr(processes, "cores", lambda: 1)


@pytest.mark.parametrize(
    ("name", "worker", "stamp"),
    [
        ("host_12.1694128201554.pt.trace.json", "host_12", 1694128201554),
        ("node.example.org_7.17.pt.trace.json.gz", "node.example.org_7", 17),
        ("worker0.pt.trace.json", "worker0", None),
        ("trace.json", "trace", None),
        ("net.rank3.sqlite", "net.rank3", None),
        ("net.rank3.2.sqlite", "net.rank3", 2),
        ("ranks.tar.gz", "ranks", None),
        ("net.sql", "net", None),
        ("7.sqlite", "7", None),
    ],
)
def test_the_worker_is_what_stands_before_the_time(name: str, worker: str, stamp: int | None) -> None:
    assert folder.split(name) == (worker, stamp)


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["net.rank3", "net.rank_12", "rank-4_x"], [3, 12, 4]),
        (["worker0_step_12", "worker1_step_12"], [0, 1]),
        (["worker0_a", "other"], [None, None]),  # not all are named so
        (["worker0_a", "worker0_b"], [None, None]),  # not a number each
        (["host_3", "gpu4", "r5", "franks7", "ranked8"], [None] * 5),
        (["rank1_rank2"], [None]),  # two answers
    ],
)
def test_a_rank_is_taken_from_a_name_that_says_so(names: list[str], ranks: list[int | None]) -> None:
    found = folder._ranks(names)
    assert [found.get(name) for name in names] == ranks


def test_spans_of_a_worker_are_numbered_by_their_times(tmp_path: Path) -> None:
    for name in ("a.100.sqlite", "a.20.sqlite", "a.3.sqlite", "b.rank1.sqlite", "b.rank1.1.sqlite"):
        nsys(tmp_path / name, ONE)
    found, skipped = folder.inputs(tmp_path)
    assert [(one.path.name, one.worker, one.span, one.rank) for one in found] == [
        ("a.3.sqlite", "a", 1, None), ("a.20.sqlite", "a", 2, None), ("a.100.sqlite", "a", 3, None),
        ("b.rank1.sqlite", "b.rank1", 1, 1), ("b.rank1.1.sqlite", "b.rank1", 2, 1),
    ]  # fmt: skip
    assert skipped == {}
    prof = pyprof.load(tmp_path)
    assert list(prof.steps["worker"]) == ["rank1", "rank1 span 2", "a", "a span 2", "a span 3"]
    assert list(prof.steps["span"]) == [1, 2, 1, 2, 3]
    assert list(prof.devices["span"]) == [1, 2, 1, 2, 3]
    assert prof.overview.figures.step.whose == "5 spans of 2 workers"
    for frame in (prof.kernels, prof.ops):
        assert dict(zip(frame["worker"], frame["span"])) == dict(zip(prof.steps["worker"], prof.steps["span"]))
        assert frame["worker"].nunique() == 5


def decoded(trace: Trace, shift: int = 0) -> dict[str, list[tuple[Any, ...]]]:
    """Every table as plain rows that need nothing else of the trace; times from 1970 or, moved by `shift`, as given."""

    def plain(name: str, column: Any, row: int) -> Any:
        if isinstance(column, Column):
            if not column.mask()[row]:
                return None
            column = column.values
        value = column[row].tolist()
        if name in ("text", "name", "domain"):
            return trace.strings[value]
        if name in ("thread", "forward_thread"):
            thread = trace.threads[value]
            return thread.tid, trace.processes[thread.process].pid, trace.processes[thread.process].label
        if name == "process":
            one = trace.processes[value] if value >= 0 else Process(-1)
            return one.pid
        return value + shift if name in ("start", "end", "time") else value

    return {
        field.name: [
            tuple(plain(name, column, row) for name, column in vars(table).items()) for row in range(len(table))
        ]
        for field in dataclasses.fields(trace)
        if dataclasses.is_dataclass(table := getattr(trace, field.name))
    }


def labelled(path: Path) -> Trace:
    trace = loader.load(path)
    trace.processes = [one._replace(label=path.stem) for one in trace.processes]
    return trace


@pytest.mark.parametrize("capture", [False, True], ids=["nsys", "capture"])
def test_all_rows_of_all_tables_are_there_and_say_the_same(tmp_path: Path, capture: bool) -> None:
    texts = [ONE + "thread 1 process 300\nx\n    > 3 memset=no k\nfile 5 read\n", TWO, ONE]
    texts = [text.replace("memset=no ", "process=400 correlation=none ") for text in texts]
    ops = f"{LINEAR}\n    op seq=3 forward=1 aten::mm\n    > 9 k\n" if capture else ""
    write = build.write_capture if capture else build.write_nsys
    paths = []
    for number, text in enumerate(texts):
        recording = build.recording(text + ops)
        recording.steps.append((number, 3, 40))
        paths.append(write(tmp_path / f"w{number}.sqlite", recording))
    parts = [labelled(path) for path in paths]
    for number, part in enumerate(parts):
        part.t0 = START + (0, 700, -90)[number]
    zero = START - 90
    expected: dict[str, list[tuple[Any, ...]]] = {}
    for part in parts:
        for name, rows in decoded(part, part.t0 - zero).items():
            expected.setdefault(name, []).extend(rows)
    whole = merge(parts, "run")
    assert whole.t0 == zero
    assert decoded(whole) == expected
    assert sum(map(len, expected.values())) > 20


def test_every_column_of_a_trace_has_a_meaning(tmp_path: Path) -> None:
    """Who adds a column to the model says here what its numbers are, or merging would mix them up."""
    trace = loader.load(build.write_nsys(tmp_path / "a.sqlite", build.recording(ONE)))
    tables = [getattr(trace, field.name) for field in dataclasses.fields(trace)]
    columns = {
        field.name
        for table in tables
        if dataclasses.is_dataclass(table)
        for field in dataclasses.fields(table)
        if not isinstance(getattr(table, field.name), list)
    }
    assert columns <= MEANING.keys()


def test_each_worker_has_the_kernels_of_its_file_at_their_absolute_times(tmp_path: Path) -> None:
    first = nsys(tmp_path / "run" / "x.rank0.sqlite", ONE)
    second = nsys(tmp_path / "run" / "x.rank1.sqlite", TWO, START + 5000)
    prof = pyprof.load(tmp_path / "run")
    kept = [name for name in prof.kernels.columns if name not in ("worker", "start_ns", "end_ns", "launch_ns")]
    for worker, path in (("rank0", first), ("rank1", second)):
        own = pyprof.load(path)
        mine = prof.kernels[prof.kernels["worker"] == worker].reset_index(drop=True)
        alone = own.kernels.reset_index(drop=True)
        rest = [name for name in kept if name not in ("op_id", "seq")]  # numbered over the run
        assert mine[rest].astype(object).equals(alone[rest].astype(object))
        # Absolute time of the zero: the session's start, and the first event 10 ns (after `wait 100`: 110 ns) later.
        zero = START + (10 if worker == "rank0" else 5000 + 110)
        assert (mine["start_ns"] + START + 10).tolist() == (alone["start_ns"] + zero).tolist()
        assert mine["launch_ns"].dropna().min() == {"rank0": 10, "rank1": 5000 + 110 + 10 - 10}[worker]
    assert prof.trace.meta["run.clock"] == "unix"


def test_without_an_absolute_time_each_file_begins_at_its_own_zero(tmp_path: Path) -> None:
    nsys(tmp_path / "a.sqlite", ONE)
    nsys(tmp_path / "b.sqlite", TWO, None)
    trace = loader.load(tmp_path)
    assert trace.meta["run.clock"] == "own zero"
    assert trace.lost["files without an absolute time (each begins at its own zero, kept)"] == 1
    firsts = {int(trace.ranges.start[trace.ranges.thread == thread].min()) for thread in (0, 2)}
    assert firsts == {0}


def test_equal_pids_of_two_files_are_two_processes(tmp_path: Path) -> None:
    """Also on the CPU, where events nest by thread: of equal pid and tid at the same time in two containers."""
    product = build.call("aten::mm", (64, 32), (32, 16))
    for name, before, length in (("a.sqlite", 0, 500), ("b.sqlite", 20, 100)):
        text = f"mine\n    wait {before}\n    op {product}\n        wait {length}\n"
        build.write_capture(tmp_path / name, build.recording(text))
    prof = pyprof.load(tmp_path)
    # Times as they were written: 10 for each begin and end. Each computes 2 * 64 * 32 * 16 FLOPs.
    found = prof.kernels[["worker", "duration_ns", "flops"]].values.tolist()
    assert found == [["a", 510, 65536], ["b", 110, 65536]]
    assert main(["parse", str(tmp_path)]) == 1  # a net.dict has nothing but the pid


def test_each_worker_has_its_own_devices(tmp_path: Path) -> None:
    run = tmp_path / "run"
    large = f"{build.classic('linear', (4096, 4096), (4096, 4096))}\n    > 90 volta_sgemm\n"
    first = nsys(run / "a.rank0.sqlite", large, gpu=("Tesla V100-SXM2-16GB", 80))
    second = nsys(run / "a.rank1.sqlite", large, gpu=("NVIDIA A100-SXM4-40GB", 108))
    prof = pyprof.load(run)
    assert prof.devices[["worker", "name", "sm_count"]].values.tolist() == [
        ["rank0", "Tesla V100-SXM2-16GB", 80], ["rank1", "NVIDIA A100-SXM4-40GB", 108],
    ]  # fmt: skip
    for worker, path in (("rank0", first), ("rank1", second)):
        mine = prof.kernels[prof.kernels["worker"] == worker]["roofline_ns"].tolist()
        assert mine == pyprof.load(path).kernels["roofline_ns"].tolist()
    by_worker = prof.kernels.groupby("worker", observed=True)["roofline_ns"].sum()
    assert by_worker["rank0"] > by_worker["rank1"] > 0  # the A100 is the faster one


def test_events_of_no_known_process_stay_with_their_file(tmp_path: Path) -> None:
    text = f"{LINEAR}\n    > 5 k\nthread 1 process 300\n{LINEAR}\n    > 6 k\n"
    for name in ("a.sqlite", "b.sqlite"):
        path = nsys(tmp_path / name, text)
        connection = sqlite3.connect(path)
        connection.execute("update CUPTI_ACTIVITY_KIND_KERNEL set globalPid = null, correlationId = 999")
        connection.commit()
        connection.close()
    prof = pyprof.load(tmp_path)
    counts = prof.kernels.groupby("worker", observed=True).size().to_dict()
    assert counts == {"a_host_unknown": 2, "b_host_unknown": 2} or counts == {"a_unknown": 2, "b_unknown": 2}


def test_facts_that_differ_belong_to_their_file(tmp_path: Path) -> None:
    traces = []
    for number in range(2):
        path = build.write_capture(
            tmp_path / f"net.rank{number}.sqlite", build.recording(f"{LINEAR}\n    op seq=3 aten::mm\n")
        )
        connection = sqlite3.connect(path)
        facts = {"torch": "2.13.0", "distributed.rank": str(number), "distributed.world_size": "2"}
        connection.executemany("insert into PYPROF_META values (?, ?)", facts.items())
        connection.execute("insert into PYPROF_LOST values ('calls after the first 9 events', 5)")
        connection.commit()
        connection.close()
        traces.append(path)
    trace = loader.load(tmp_path)
    assert trace.meta["torch"] == "2.13.0"
    assert trace.meta["distributed.world_size"] == "2"
    assert "distributed.rank" not in trace.meta
    assert trace.meta["worker.net.rank1.distributed.rank"] == "1"
    assert trace.lost["calls after the first 9 events"] == 10
    assert [one.rank for one in trace.processes] == [0, 1]


def test_the_files_own_rank_comes_before_that_of_its_name(tmp_path: Path) -> None:
    for name, rank in (("x.rank0.sqlite", "7"), ("x.rank1.sqlite", "4")):
        path = build.write_capture(tmp_path / name, build.recording(f"{LINEAR}\n    op seq=3 aten::mm\n"))
        connection = sqlite3.connect(path)
        connection.execute("insert into PYPROF_META values ('distributed.rank', ?)", (rank,))
        connection.commit()
        connection.close()
    trace = loader.load(tmp_path)
    assert [(one.rank, one.label) for one in trace.processes] == [(4, "x.rank1"), (7, "x.rank0")]


def test_what_is_no_recording_is_counted_and_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    good = nsys(tmp_path / "a.sqlite", ONE)
    pyprof.load(good).save(tmp_path / "a_dldb.sqlite")
    (tmp_path / "train.py").write_text("print()")
    (tmp_path / "empty.json").write_text("")
    (tmp_path / ".hidden.sqlite").write_bytes(good.read_bytes())
    (tmp_path / "cut.sqlite").write_bytes(good.read_bytes()[:20000])
    (tmp_path / "a.nsys-rep").write_bytes(b"report")
    nsys(tmp_path / "capture_traces" / "graph.sqlite", TWO)
    trace = loader.load(tmp_path)
    assert len(trace.gpu) == 3
    lost = dict(trace.lost)
    assert lost.pop("profile databases in the folder (results, not read)") == 1
    assert lost.pop("files that are not recordings (skipped)") == 2
    assert lost.pop("reports of Nsight Systems beside their exports (not read twice)") == 1
    assert [key for key in lost if key.startswith("recordings not read: ") and "cut.sqlite" in key]
    assert len(lost) == 1


def ranks(folder: Path, present: Sequence[int], world: int, name: str = "rank{}.1700000000000.pt.trace.json") -> None:
    folder.mkdir(exist_ok=True)
    for rank in present:
        facts = {"rank": rank, "world_size": world, "backend": "nccl"}
        kineto.write(folder / name.format(rank), kineto.training(), distributedInfo=facts)


def not_read(folder: Path) -> set[str]:
    return {reason for reason in loader.load(folder).lost if reason.startswith("recordings not read: ")}


@pytest.mark.parametrize(
    ("present", "world", "sentence"),
    [
        ([0, 1, 3], 4, "rank 2 of 4 has no recording."),
        ([1, 2], 4, "ranks 0 and 3 of 4 have no recording."),
        ([0, 4], 9, "ranks 1 to 3 and 5 to 8 of 9 have no recording."),
        ([0, 1], 10**6, "ranks 2 to 999999 of 1000000 have no recording."),
        ([*range(0, 40, 2)], 40, "ranks 1, 3, 5, 7, 9, 11, 13, 15 and ... of 40 have no recording."),
        ([0, 1], 2, ""),
        ([0], 8, ""),  # of one rank alone, as it was meant
        ([0, 9], 8, ""),  # the number of ranks is wrong
    ],
)
def test_ranks_without_a_recording_are_named(present: list[int], world: int, sentence: str, tmp_path: Path) -> None:
    ranks(tmp_path, present, world)
    assert not_read(tmp_path) == ({f"recordings not read: {sentence}"} if sentence else set())


def test_a_rank_that_is_not_known_may_be_the_missing_one(tmp_path: Path) -> None:
    ranks(tmp_path, [0, 1], 3)
    (tmp_path / "other.trace.json").write_text("{")
    (reason,) = not_read(tmp_path)
    assert "other.trace.json" in reason
    prof = pyprof.load(tmp_path)
    assert reason in {row[0] for row in prof.database.rows("select reason from lost")}


@pytest.mark.parametrize(
    ("series", "broken", "named"),
    [
        ("rank{}.1700000000000.pt.trace.json", "rank5.1700000000000.pt.trace.json", True),
        ("rank{}.1700000000000.pt.trace.json", "host_77.1700000000000.pt.trace.json.gz", True),
        ("trace_rank{}.json", "trace_rank5.json", True),
        ("trace_rank{}.json", "memory_rank5.json", False),
        ("trace_rank{}.json", "config.json", False),
        ("trace_rank{}.json", "train.py", False),
    ],
)
def test_a_file_of_the_name_of_a_recording_is_one(series: str, broken: str, named: bool, tmp_path: Path) -> None:
    ranks(tmp_path, [0, 1], 2, series)
    for content in ("garbage", "", "[1, 2]"):
        (tmp_path / broken).write_text(content)
        lost = loader.load(tmp_path).lost
        reasons = [reason for reason in lost if reason.startswith("recordings not read: ")]
        assert [broken in reason for reason in reasons] == [True] * named
        assert lost.get("files that are not recordings (skipped)", 0) == (not named)


def test_folders_that_are_no_run_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"holds no recording; expected"):
        pyprof.load(tmp_path)
    (tmp_path / "x.txt").write_text("x")
    with pytest.raises(FormatError, match=r"holds no recording, 1 files that are not recordings \(skipped\); expected"):
        pyprof.load(tmp_path)
    good = nsys(tmp_path / "b" / "a.sqlite", ONE).read_bytes()
    (tmp_path / "b" / "a.sqlite").write_bytes(good[:20000])
    with pytest.raises(FormatError, match=r"none of its 1 recordings can be read; the first is: .*cut off"):
        pyprof.load(tmp_path / "b")
    with pytest.raises(FormatError, match="is not a folder"):
        pyprof.runs(tmp_path / "x.txt")


def test_several_runs_are_named(tmp_path: Path) -> None:
    nsys(tmp_path / "monday" / "a.sqlite", ONE)
    assert len(pyprof.load(tmp_path).kernels) == 3  # the only one
    nsys(tmp_path / "deep" / "er" / "a.sqlite", ONE)
    nsys(tmp_path / "deep" / "er" / "capture_traces" / "graph.sqlite", ONE)
    assert pyprof.runs(tmp_path) == {"deep/er": tmp_path / "deep" / "er", "monday": tmp_path / "monday"}
    with pytest.raises(FormatError, match=r"holds 2 runs; choose one with --run NAME: deep/er, monday\.$"):
        pyprof.load(tmp_path)
    assert len(pyprof.load(tmp_path, run="monday").kernels) == 3
    nsys(tmp_path / "a.sqlite", TWO)
    assert list(pyprof.runs(tmp_path)) == [".", "deep/er", "monday"]
    assert len(pyprof.load(tmp_path).kernels) == 2  # a folder with recordings is itself the run


def test_commands_take_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, target = tmp_path / "run", tmp_path / "run_dldb.sqlite"
    nsys(run / "a.rank0.sqlite", ONE)
    nsys(run / "a.rank1.sqlite", TWO)
    assert main(["save", str(run), "-o", str(target)]) == 0
    assert pyprof.load(target).kernels.equals(pyprof.load(run).kernels)
    assert main(["info", str(run)]) == 0
    assert "rank 1 label a.rank1" in capsys.readouterr().out
    assert main(["report", "op_type", str(run), "--worker", "rank1", "--format", "csv"]) == 0
    alone = capsys.readouterr().out
    assert main(["report", "op_type", str(run / "a.rank1.sqlite"), "--format", "csv"]) == 0
    assert capsys.readouterr().out == alone


def test_names_of_workers_are_different() -> None:
    same = Process(5, rank=1, label="a")
    names = worker_names([same, same, same, same, Process(6, label="b", span=2), Process(-1), Process(-1)])
    assert len(set(names)) == 7
    assert [names[0], names[4], names[5]] == ["rank1", "b span 2", "host_unknown"]


# --- the child processes


def test_a_script_may_load_a_folder_at_its_top_level(tmp_path: Path, root: Path) -> None:
    """multiprocessing would import it again in each child."""
    for number in range(3):
        nsys(tmp_path / "run" / f"a.rank{number}.sqlite", ONE)
    script = tmp_path / "script.py"
    script.write_text(f"import pyprof\nprint(len(pyprof.load({str(tmp_path / 'run')!r}).trace.gpu))\n")
    done = subprocess.run(
        [sys.executable, script], env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("9\n", "")


def two(folder: Path) -> list[Path]:
    return [nsys(folder / "a.sqlite", ONE), nsys(folder / "b.sqlite", TWO)]


def requests(paths: list[Path]) -> list[loader.Request]:
    return [loader.Request(path) for path in paths]


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes that the pool starts, on a machine of two cores."""
    found: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **more: Any):
            super().__init__(*args, **more)
            found.append(self)

    monkeypatch.setattr(processes.subprocess, "Popen", Noted)
    monkeypatch.setattr(processes, "cores", lambda: 2)
    monkeypatch.setattr(pool, "_MIN_BYTES", 0)
    return found


def test_files_are_read_by_children_that_end(tmp_path: Path, children: list[Any]) -> None:
    found = pool.read(requests(two(tmp_path)), loader.answer, loader.serve)
    assert [len(trace.gpu) for trace in found if isinstance(trace, Trace)] == [3, 2]
    assert len(children) == 2
    assert all(child.poll() is not None for child in children)


def test_a_child_that_dies_costs_its_file(tmp_path: Path, children: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    paths = two(tmp_path)
    ask = pool._Child.ask

    def killed(self: Any, request: Any) -> Any:
        if request.path == paths[0]:
            self.process.kill()
            self.process.wait()
        return ask(self, request)

    monkeypatch.setattr(pool._Child, "ask", killed)
    died, alive = pool.read(requests(paths), loader.answer, loader.serve)
    assert isinstance(died, FormatError)
    assert "a.sqlite: the process that read it ended (-9)" in str(died)
    assert isinstance(alive, Trace)
    trace = loader.load(tmp_path)
    assert len(trace.gpu) == 2
    assert any("a.sqlite" in reason for reason in trace.lost)


def test_ctrl_c_ends_the_children(tmp_path: Path, children: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """While they read: they are never answered."""
    asked = threading.Semaphore(0)

    def waits(self: Any, request: Any) -> Any:
        asked.release()
        self.pipe.poll(60)  # until it is killed: its end of the pipe is closed
        return pool._Died("killed")

    class Interrupted:
        def put(self, number: int) -> None:
            pass

        def get(self) -> int:
            asked.acquire()
            asked.acquire()
            raise KeyboardInterrupt

    monkeypatch.setattr(pool._Child, "ask", waits)
    monkeypatch.setattr(pool.queue, "SimpleQueue", {int: Interrupted})
    with pytest.raises(KeyboardInterrupt):
        pool.read(requests(two(tmp_path)), loader.answer, loader.serve)
    assert len(children) == 2
    assert all(child.poll() is not None for child in children)


def test_real_recordings_beside_each_other(data: Path, tmp_path: Path) -> None:
    """Exports of two machines and a database of nvprof, years apart: three runs; merged nevertheless, each worker has
    what its file has."""
    names = [
        "nsys/h100_2gpu_1s.sqlite",
        "nsys/cifar_rtx2070_pyprof_markers.sqlite",
        "nvprof/transformer_lm/net.sql",
    ]
    for name in names:
        shutil.copy(data / name, tmp_path / Path(name).name)
    with pytest.raises(FormatError, match="3 files are 3 runs: recordings are up to 6 years apart"):
        pyprof.load(tmp_path)
    prof = Profile.open(tmp_path, only=[Path(name).name for name in names])
    mine = prof.kernels.groupby("worker", observed=True)["duration_ns"].agg(["size", "sum"])
    assert mine["size"].sum() == sum(len(loader.load(data / name).gpu) for name in names)
    assert int(mine.loc["net", "sum"]) == int(pyprof.load(data / names[2]).kernels["duration_ns"].sum())
    assert prof.trace.meta["run.clock"] == "unix"


# --- archives


def pack(target: Path, files: dict[str, bytes]) -> Path:
    if target.suffix == ".zip":
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as out:
            for name, content in files.items():
                out.writestr(name, content)
        return target
    with tarfile.open(target, "w:gz") as out:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            out.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("run/link.sqlite")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        out.addfile(link)
    return target


@pytest.mark.parametrize("name", ["ranks.zip", "ranks.tar.gz", "ranks.tgz"])
def test_an_archive_is_a_folder(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    folder_ = tmp_path / "apart"
    recordings = [nsys(folder_ / f"a.rank{n}.sqlite", text).read_bytes() for n, text in enumerate((ONE, TWO))]
    files = {f"run/a.rank{n}.sqlite": content for n, content in enumerate(recordings)}
    files |= {"run/cut.sqlite": recordings[0][:20000], "../outside.sqlite": recordings[0]}
    path = pack(tmp_path / name, files)
    trace = loader.load(path)
    assert trace.path == str(path)
    assert [(one.rank, one.label) for one in trace.processes] == [(0, "a.rank0"), (1, "a.rank1")]
    assert len(trace.gpu) == 5
    assert [reason for reason in trace.lost if f"{path}/run/cut.sqlite is cut off" in reason]
    assert list(scratch.iterdir()) == []  # nothing outside of the folder that was removed
    (tmp_path / "run").mkdir()
    path.rename(tmp_path / "run" / name)
    nsys(tmp_path / "run" / "b.rank2.sqlite", ONE)
    found = loader.load(tmp_path / "run").processes
    assert [(one.rank, one.label) for one in found] == [(0, "a.rank0"), (1, "a.rank1"), (2, "b.rank2")]


def test_archives_that_are_none_are_one_sentence(tmp_path: Path) -> None:
    empty = pack(tmp_path / "code.zip", {"a/train.py": b"x"})
    with pytest.raises(FormatError, match=r"code\.zip holds no recording; expected"):
        loader.load(empty)
    whole = pack(tmp_path / "net.zip", {"a.sqlite": nsys(tmp_path / "x" / "a.sqlite", ONE).read_bytes()})
    raw = bytearray(whole.read_bytes())
    raw[60:200] = bytes(140)
    whole.write_bytes(raw)
    with pytest.raises(FormatError, match=r"net\.zip cannot be unpacked \(.*\)\. Copy it again"):
        loader.load(whole)
    (tmp_path / "text.zip").write_text("hello")
    with pytest.raises(FormatError, match=r"text\.zip: not a recording"):
        loader.load(tmp_path / "text.zip")


def test_ranks_of_a_real_archive(recorded: Callable[[str], Profile]) -> None:
    prof = recorded("kineto/dlrm_v100_8ranks.tar.gz")
    assert list(prof.steps["worker"]) == [f"rank{number}" for number in range(8)]
    assert prof.kernels.groupby("worker", observed=True)["device"].nunique().tolist() == [1] * 8
    assert prof.kernels.groupby("worker", observed=True)["device"].first().tolist() == [str(n) for n in range(8)]
