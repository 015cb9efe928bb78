# SPDX-License-Identifier: Apache-2.0
"""Recordings whose facts exclude each other are separate runs; ranks and spans of one run never are."""

from __future__ import annotations

import gzip
import json
import sqlite3
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

import pyprof
from pyprof.commands.main import main
from pyprof.core.errors import FormatError, UsageError
from pyprof.parse import folder, formats
from pyprof.parse.heads import QUARTER_NS, Head
from pyprof.parse.separation import Worker, separate
from tests import build, kineto

NOW, HOUR = 1_700_000_000_000_000_000, 3600 * 10**9
H100, V100 = frozenset({"H100"}), frozenset({"V100"})


def at(hours: float, **facts: Any) -> Head:
    start = NOW + int(hours * HOUR)
    return Head(start=start, end=start + 10**9, **facts)


def rank(number: int, size: int = 2, hours: float = 0, **facts: Any) -> Head:
    return at(hours, distributed=True, rank=number, world_size=size, **facts)


def cyclic(hours: float) -> Head:
    start = int(hours * HOUR) % QUARTER_NS
    return Head(start=start, end=start, cyclic=True)


CASES: dict[str, tuple[dict[str, Head | list[Head]], list[set[str]], str]] = {
    "ranks": ({"a": rank(0), "b": rank(1)}, [{"a", "b"}], ""),
    "ranks of two hosts with two models": (
        {"a": rank(0, host="x", gpus=H100), "b": rank(1, host="y", gpus=V100)}, [{"a", "b"}], "",
    ),
    "rank clash": ({"a": rank(0), "b": rank(0)}, [{"a"}, {"b"}], "rank 0 is in 2 of them"),
    "two runs of two ranks, by time": (
        {"a": rank(0), "b": rank(0, hours=0.2), "c": rank(1, hours=0.2), "d": rank(1)}, [{"a", "d"}, {"b", "c"}],
        "rank 0 is in 2 of them",
    ),
    "two runs of two ranks, by name": (
        {f"{name}.rank{number}": Head(rank=number) for number in (0, 1) for name in "ab"},
        [{"a.rank0", "a.rank1"}, {"b.rank0", "b.rank1"}], "rank 0 is in 2 of them",
    ),
    "hours apart": ({"a": at(0), "b": at(5)}, [{"a"}, {"b"}], "recordings are up to 4 hours apart"),
    "years apart": ({"a": at(0), "b": at(30000)}, [{"a"}, {"b"}], "recordings are up to 3 years apart"),
    "within an hour": ({"a": at(0), "b": at(0.9)}, [{"a", "b"}], ""),
    "a chain of hours": ({"a": at(0), "b": at(0.9), "c": at(1.8)}, [{"a", "b", "c"}], ""),
    "one without a time": ({"a": at(0), "b": Head()}, [{"a", "b"}], ""),
    "times of compressed files": (
        {"a": cyclic(100), "b": cyclic(100.5), "c": cyclic(300)}, [{"a", "b"}, {"c"}],
        "recordings are at least 8 days apart",
    ),
    "compressed beside plain": (
        {"a": at(0), "b": cyclic(NOW / HOUR), "c": cyclic(NOW / HOUR + 9)}, [{"a", "b"}, {"c"}],
        "recordings are at least 9 hours apart",
    ),
    "the turn of a quarter": ({"a": cyclic(0.2), "b": cyclic(-0.2)}, [{"a", "b"}], ""),
    "world sizes": ({"a": rank(0), "b": rank(1, 8)}, [{"a"}, {"b"}], "world sizes are 2 and 8"),
    "a process group beside none": (
        {"a": rank(0), "b": at(0, distributed=False)}, [{"a"}, {"b"}], "1 belongs to a process group and 1 does not",
    ),
    "a process group beside a format that does not say": ({"a": rank(0), "b": at(0)}, [{"a", "b"}], ""),
    "a launcher": ({"net": at(0, distributed=False), "net.rank0": rank(0), "net.rank1": rank(1)},
                   [{"net", "net.rank0", "net.rank1"}], ""),
    "spans": ({"host_7": [at(0, rank=0), at(9, rank=0), at(30, rank=0)]}, [{"host_7"}], ""),
    "spans of two ranks": (
        {"a": [rank(0), rank(0, hours=9)], "b": [rank(1, hours=0), rank(1, hours=9)]}, [{"a", "b"}], "",
    ),
    "a process twice": (
        {"a": at(0, host="x", pid=7), "b": at(0, host="x", pid=7)}, [{"a"}, {"b"}], "process 7 of x is in 2 of them",
    ),
    "equal pids of two hosts": ({"a": at(0, host="x", pid=7), "b": at(0, host="y", pid=7)}, [{"a", "b"}], ""),
    "equal pids in containers": ({"a": rank(0, host="x", pid=7), "b": rank(1, host="x", pid=7)}, [{"a", "b"}], ""),
    "two models of one host": ({"a": at(0, host="x", gpus=H100), "b": at(0, host="x", gpus=V100)}, [{"a", "b"}], ""),
    "two models of two hosts": (
        {"a": at(0, host="x", gpus=H100), "b": at(0, host="y", gpus=V100)}, [{"a"}, {"b"}],
        "hosts differ, and so do their GPUs (H100 and V100)",
    ),
    "two hosts of one model": (
        {"a": at(0, host="x", gpus=H100), "b": at(0, host="y", gpus=H100)}, [{"a", "b"}], "",
    ),
    "programs": (
        {"a": at(0, program="train.py"), "b": at(0, program="test.py")}, [{"a"}, {"b"}],
        "programs are test.py and train.py",
    ),
    "programs of one group": (
        {"a": rank(0, program="server.py"), "b": rank(1, program="train.py")}, [{"a", "b"}], "",
    ),
    "no facts": ({"a": Head(), "b": Head()}, [{"a", "b"}], ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_facts_that_separate(case: str) -> None:
    heads, runs, reason = CASES[case]
    names = [*heads]
    found = separate([
        Worker(name, None, head if isinstance(head, list) else [head]) for name, head in heads.items()
    ])  # fmt: skip
    assert [{names[index] for index in run} for run in found.runs] == runs
    assert found.reasons[:1] == ([reason] if reason else [])


def trace(path: Path, start: int = NOW, **facts: Any) -> Path:
    """A trace of torch.profiler of one operator."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(kineto.document([kineto.op("aten::mm", start, start + 5000)], **facts))
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def group(number: int, size: int = 2) -> dict[str, Any]:
    return {"distributedInfo": {"backend": "nccl", "rank": number, "world_size": size}}


def test_the_head_of_a_trace(tmp_path: Path) -> None:
    gpu = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100"}], "host_name": "node1"}
    path = trace(tmp_path / "a.json.gz", **group(3, 8), **gpu)
    assert formats.head(path) == Head(
        True,
        3,
        8,
        "node1",
        kineto.PID,
        frozenset({"NVIDIA H100"}),
        None,
        NOW // 1000 * 1000,
        NOW // 1000 * 1000,
    )
    # The base of times is behind the events.
    path = trace(tmp_path / "b.json", 86400 * 10**9 * 9)
    path.write_text(path.read_text()[:-1] + ', "baseTimeNanoseconds": 1751410836000000000}')
    head = formats.head(path)
    assert (head.start, head.cyclic, head.distributed) == (
        1751410836000000000 + 86400 * 10**9 * 9,
        False,
        False,
    )
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(path.read_bytes()))
    head = formats.head(tmp_path / "b.json.gz")
    assert (head.start, head.cyclic) == (86400 * 10**9 * 9, True)
    assert formats.head(trace(tmp_path / "c.json", 5000)).start is None  # from its own zero
    (tmp_path / "d.json").write_bytes(b'{"traceEvents": [{"ts": ' + b"9" * 400)
    assert formats.head(tmp_path / "d.json").start is None


def test_the_head_of_a_capture(tmp_path: Path) -> None:
    path = build.write_capture(tmp_path / "a.sqlite", build.recording(f"{build.classic('relu', (2, 4))}\n    > 5 k\n"))
    with sqlite3.connect(path) as connection:
        facts = {
            "distributed.rank": "1",
            "distributed.world_size": "4",
            "host": "n1",
            "command": "x/train.py -n 3",
        }
        connection.executemany("insert or replace into PYPROF_META values (?, ?)", facts.items())
        connection.execute("drop table if exists TARGET_INFO_SESSION_START_TIME")
        connection.execute("create table TARGET_INFO_SESSION_START_TIME (utcEpochNs integer)")
        connection.execute("insert into TARGET_INFO_SESSION_START_TIME values (?)", (NOW,))
    connection.close()
    head = formats.head(path)
    assert (head.distributed, head.rank, head.world_size, head.host, head.program) == (
        True,
        1,
        4,
        "n1",
        "train.py",
    )
    assert NOW < (head.start or 0) < (head.end or 0) < NOW + 10**6
    path.write_bytes(path.read_bytes()[:5000])
    assert formats.head(path) == Head()  # its fault is reported when it is read


def test_a_folder_of_several_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ranks 0 and 1 of a run, rank 0 of another, and a trace of a day later."""
    for name, number in (("a.rank0", 0), ("a.rank1", 1), ("b.rank0", 0)):
        trace(tmp_path / f"{name}.json", **group(number))
    trace(tmp_path / "later.json", NOW + 24 * HOUR)
    reason = (
        "4 files are 3 runs: rank 0 is in 2 of them, recordings are up to 1 day apart and "
        "3 belong to a process group and 1 does not"
    )
    sources, reasons = folder.sources(tmp_path)
    assert sources == {
        "a.rank0.json and 1 more": folder.Source(tmp_path, ("a.rank0.json", "a.rank1.json")),
        "b.rank0.json": folder.Source(tmp_path / "b.rank0.json"),
        "later.json": folder.Source(tmp_path / "later.json"),
    }
    assert reasons == [f"{reason}."]
    with pytest.raises(FormatError) as caught:
        pyprof.load(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: {reason}. Choose one with --run NAME; `pyprof view` of the folder shows all. The runs: "
        "a.rank0.json and 1 more; b.rank0.json; later.json."
    )
    out = str(tmp_path / "out.sqlite")
    for words in (
        ["info"],
        ["report", "op_type"],
        ["save", "-o", out],
        ["prof"],
        ["parse"],
        ["export", "-o", out],
    ):
        assert main([*words, str(tmp_path)]) == 1
        assert reason in capsys.readouterr().err
    assert not (tmp_path / "out.sqlite").exists()
    (tmp_path / "later.json").unlink()
    (tmp_path / "b.rank0.json").unlink()
    assert len(pyprof.load(tmp_path).steps) == 2


def test_an_archive_of_several_runs_and_one_beside_others(tmp_path: Path) -> None:
    paths = [trace(tmp_path / "in" / f"{name}.json", **group(0)) for name in "ab"]
    with tarfile.open(tmp_path / "two.tar.gz", "w:gz") as archive:
        for path in paths:
            archive.add(path, path.name)
    with pytest.raises(
        FormatError, match=r"two\.tar\.gz: 2 files are 2 runs: rank 0 is in 2 of them\. Unpack it, and choose"
    ):
        pyprof.load(tmp_path / "two.tar.gz")
    trace(tmp_path / "c.json")
    assert folder.sources(tmp_path)[1] == ["in: 2 files are 2 runs: rank 0 is in 2 of them."]
    trace(tmp_path / "d.json", NOW + 2 * HOUR)
    assert folder.sources(tmp_path)[1] == [
        "3 files are 3 runs: recordings are up to 2 hours apart and an archive of several recordings is a run by "
        "itself.",
        "in: 2 files are 2 runs: rank 0 is in 2 of them.",
    ]


def test_a_file_that_changes_is_looked_at_again(tmp_path: Path) -> None:
    trace(tmp_path / "a.json", **group(0))
    trace(tmp_path / "b.json", **group(0))
    assert len(folder.sources(tmp_path)[0]) == 2
    trace(tmp_path / "b.json", **group(1), host_name="other")
    assert len(folder.sources(tmp_path)[0]) == 1


def test_the_ranks_of_a_real_run_are_one(data: Path, tmp_path: Path) -> None:
    """As they are, and compressed."""
    archive = data / "kineto" / "dlrm_v100_8ranks.tar.gz"
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    sources, reasons = folder.sources(tmp_path)
    assert (sources, reasons) == ({"dlrm_kineto": folder.Source(tmp_path / "dlrm_kineto")}, [])
    run = tmp_path / "dlrm_kineto"
    for path in list(run.iterdir()):
        (run / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 1))
        path.unlink()
    assert folder.sources(tmp_path)[1] == []


def test_twelve_unrelated_traces(data: Path, tmp_path: Path) -> None:
    """No two of one run but two of the same machine within minutes, which nothing in them tells apart."""
    paths = [path for path in (data / "kineto").rglob("*.json.gz") if path.parent.name != "capture_traces"]
    assert len(paths) == 12
    for path in paths:
        (tmp_path / path.name).symlink_to(path)
    start = time.process_time()
    sources, (reason,) = folder.sources(tmp_path)
    assert time.process_time() - start < 3
    assert [name for name in sources if "more" in name] == ["h100_bert_small.json.gz and 1 more"]
    assert reason.startswith("12 files are 11 runs: rank 0 is in 5 of them, recordings are up to 5 years apart, ")


def server(folder_: Path, ranks: int = 2) -> Path:
    """The folder of a server: ranks of a process group, and the front end's trace, which is of none."""
    for number in range(ranks):
        trace(folder_ / f"dp0_tp{number}_rank{number}.17{number}.pt.trace.json", **group(number))
    trace(folder_ / "host_90.async_llm.17.pt.trace.json", NOW + 10**9)
    return folder_


def test_a_front_end_beside_its_ranks_is_named_and_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = pyprof.load(server(tmp_path))
    reason = "recordings of no rank (--run NAME reads one): host_90.async_llm.17.pt.trace.json"
    assert dict(loaded.database.rows("select reason, count from lost")) == {reason: 1}
    assert loaded.database.rows("select rank from worker order by rank") == [(0,), (1,)]
    assert main(["report", "op_type", str(tmp_path)]) == 0
    assert reason in capsys.readouterr().err
    assert len(folder.sources(tmp_path)[0]) == 2  # the page shows both


def test_a_run_is_chosen_by_a_part_of_a_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyprof.parse.reader_process.cores", lambda: 1)
    server(tmp_path)
    for name in ("host_90.async_llm.17.pt.trace.json", "async_llm"):
        assert pyprof.load(tmp_path, run=name).database.rows("select rank from worker") == [(None,)]
    out = str(tmp_path.parent / f"{tmp_path.name}.out")
    commands = [
        ["info"], ["parse"], ["prof"], ["report", "op_type"], ["save", "-o", out],
        ["export", "--format", "chrome", "-o", f"{out}.json"], ["query", "select 1"],
    ]  # fmt: skip
    for words in commands:
        order = [words[0], str(tmp_path), *words[1:]] if words[0] == "query" else [*words, str(tmp_path)]
        assert main([*order, f"--run={name}"]) == 0, words
    assert "no rank" not in capsys.readouterr().err


def test_a_name_of_no_run_or_of_several(tmp_path: Path) -> None:
    server(tmp_path)
    with pytest.raises(UsageError, match=r"no run of .* by the name 'x'\. The runs: .*and 1 more; host_90"):
        pyprof.load(tmp_path, run="x")
    with pytest.raises(UsageError, match=r"2 runs of .* by the name 'trace'"):
        pyprof.load(tmp_path, run="trace")
    with pytest.raises(UsageError, match=r"is none\."):
        pyprof.load(next(tmp_path.iterdir()), run="x")


def test_two_process_groups_or_other_hours_are_refused(tmp_path: Path) -> None:
    server(tmp_path)
    trace(tmp_path / "dp1_rank0.json", **group(0))
    with pytest.raises(FormatError, match=r"rank 0 is in 2 of them.*--run NAME"):
        pyprof.load(tmp_path)
    (tmp_path / "dp1_rank0.json").unlink()
    trace(tmp_path / "yesterday.json", NOW - 24 * HOUR)
    with pytest.raises(FormatError, match=r"1 day apart.*--run NAME"):
        pyprof.load(tmp_path)
