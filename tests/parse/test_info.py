# SPDX-License-Identifier: Apache-2.0
"""`pyprof info FILE` counts what a recording of any format holds, and says only what is known."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pyprof.commands.main import main
from pyprof.parse import loader
from pyprof.parse.info import counts, summary
from tests.build import call, classic, recording, write_capture, write_nsys, write_nvprof
from tests.reports.ranks import K, trace

MINE = call("torch.nn.functional.linear", (2, 3), (4, 3))
TEXT = f"""
mine
{MINE}
    aten::addmm, seq = 3
        > 40 volta_sgemm
        + 7 reduce_kernel
{MINE}
    > 30 volta_sgemm
{classic("torch.relu", (2, 4))}
    > 30 relu_kernel
mark here
"""


@pytest.fixture
def nsys(tmp_path: Path) -> Path:
    return write_nsys(tmp_path / "net.sqlite", recording(TEXT))


def captured(path: Path) -> Path:
    """A capture file with operators, facts, figures of overhead, and a count of what was lost."""
    what = recording(f"{MINE}\n    op seq=3 aten::addmm\n    op seq=4 aten::mm\n")
    what.steps.append((7, 5, 30))
    write_capture(path, what)
    connection = sqlite3.connect(path)
    rows = {
        "torch": "2.13.0", "cpu.name": "A chip", "cudnn.benchmark": "yes", "overhead.calls": "1",
        "overhead.per_call_ns": "1500", "overhead.sites_ns": "1500", "overhead.window_ns": "100000",
        "overhead.paused_ns": "25000",
        "command": "net.py \x1b[31mred",
    }  # fmt: skip
    connection.executemany("insert into PYPROF_META values (?, ?)", rows.items())
    connection.execute("insert into PYPROF_LOST values ('calls after the first 9 events', 12345)")
    connection.commit()
    connection.close()
    return path


def test_counts_of_each_kind(nsys: Path) -> None:
    assert counts(loader.load(nsys)) == {
        "kernels": 4, "copies": 0, "sets": 0, "launches": 3, "operators": 0, "calls": 3, "ranges": 2, "marks": 1,
        "io": 0, "steps": 0,
    }  # fmt: skip


def test_span_is_from_the_first_start_to_the_last_end(nsys: Path, tmp_path: Path) -> None:
    trace = loader.load(nsys)
    ends = [int(trace.gpu.end.max()), int(trace.ranges.end.values.max()), int(trace.launches.end.max())]
    assert summary(trace)["span_ns"] == max(ends) - int(trace.ranges.start.min())


def test_text_of_a_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = captured(tmp_path / "net.sqlite")
    assert main(["info", str(path)]) == 0
    text, error = capsys.readouterr()
    lines = text.splitlines()
    assert error == ""
    assert lines[0] == str(path)
    assert lines[1].split() == ["format", "capture", "1"]
    assert "  operators  2" in lines
    assert "  calls      1" in lines
    assert "  steps      1" in lines
    assert "  cudnn.benchmark  yes" in lines
    assert "  command          net.py \\x1b[31mred" in lines  # nothing that steers the terminal
    costs = {
        line.rpartition("  ")[0].strip(): line.rpartition("  ")[2]
        for line in lines[lines.index("cost of recording") + 1 :]
    }
    assert costs["per_call"] == "1.50 us"
    assert costs["calls, share of window, estimated"] == "1.5 %"  # 1,500 of 100,000 ns
    assert costs["pauses, share of window"] == "25.0 %"  # 25,000 of 100,000 ns
    assert costs["torch's own profiler"] == "not measured"
    assert "  calls after the first 9 events  12,345" in lines
    assert text.isascii()


@pytest.mark.parametrize(
    ("count", "shown"),
    [("'x'", 1), ("x'00'", 1), ("null", 1), ("-3", 1), ("1.5", 1), ("1 << 62", 1), ("0", 0), ("7", 7)],
)
def test_what_was_dropped_an_unknown_number_of_times_was_dropped(count: str, shown: int, tmp_path: Path) -> None:
    path = captured(tmp_path / "net.sqlite")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"update PYPROF_LOST set count = {count}")
    assert loader.load(path).lost.get("calls after the first 9 events", 0) == shown


def test_devices_are_those_of_the_facts_where_no_table_names_them(tmp_path: Path) -> None:
    trace = loader.load(captured(tmp_path / "net.sqlite"))
    trace.devices = []
    assert summary(trace)["devices"] == [{"name": "A chip"}]
    trace.meta.update({"gpu.count": "1", "gpu.0.name": "H", "gpu.0.memory_bytes": "16"})
    assert summary(trace)["devices"] == [{"number": 0, "name": "H", "memory_bytes": 16}]


def test_json_has_the_same_in_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = captured(tmp_path / "net.sqlite")
    assert main(["info", "--json", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["format"] == "capture"
    assert found["format_version"] == "1"
    assert found["processes"][0]["pid"] == 100
    assert found["counts"]["operators"] == 2
    assert found["facts"]["cudnn.benchmark"] == "yes"
    assert found["overhead"] == {
        "calls": 1,
        "per_call_ns": 1500,
        "sites_ns": 1500,
        "window_ns": 100000,
        "paused_ns": 25000,
    }
    assert found["lost"] == {"calls after the first 9 events": 12345}
    assert not [name for name in found["facts"] if name.startswith(("overhead", "EXPORT", "format"))]


@pytest.mark.parametrize("write", [write_nsys, write_nvprof])
def test_what_other_tools_do_not_say_is_not_there(
    write: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "net.file", recording(TEXT))  # type: ignore[operator]
    assert main(["info", str(path)]) == 0
    text = capsys.readouterr().out
    assert "kernels    4" in text
    assert "calls      3" in text
    assert "cost of recording" not in text
    assert text.endswith("lost\n  nothing\n")


@pytest.mark.parametrize("content", [None, b"", b"no recording"])
def test_a_file_that_is_none_is_one_sentence(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "net.sqlite"
    if content is not None:
        path.write_bytes(content)
    assert main(["info", str(path)]) == 1
    text, error = capsys.readouterr()
    assert text == ""
    assert error.startswith(f"pyprof info: {path}")
    assert error.count("\n") == 1


def test_recordings_of_others(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = sorted(path for path in data.glob("ns*/*.sqlite"))[:3]
    for path in paths:
        assert main(["info", "--json", str(path)]) == 0
        found = json.loads(capsys.readouterr().out)
        trace = loader.load(path)
        assert sum(found["counts"][kind] for kind in ("kernels", "copies", "sets")) == len(trace.gpu)
        assert sum(found["counts"][kind] for kind in ("calls", "ranges", "marks")) == len(trace.ranges)


@pytest.mark.parametrize("command", ["info", "parse"])
def test_a_profile_database_is_no_recording(
    command: str, nsys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "net_dldb.sqlite"
    main(["save", "-o", str(path), str(nsys)])
    assert main([command, str(path)]) == 1
    assert "is a profile database" in capsys.readouterr().err


def ranks(folder: Path, count: int) -> Path:
    for rank in range(count):
        kernels = [K("all_reduce", 100, 50)]
        told = json.loads(trace(rank, kernels, [(0, 1000)], host=f"node{rank // 8}", world=count))
        told["deviceProperties"] = [{"id": i, "name": "H100", "totalGlobalMem": 80 << 30} for i in range(2)]
        (folder / f"rank{rank}.1.pt.trace.json").write_text(json.dumps(told))
    return folder


def test_many_ranks_alike_have_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """16 ranks on two hosts, which see two GPUs each."""
    folder = ranks(tmp_path, 16)
    assert main(["info", str(folder)]) == 0
    text = capsys.readouterr().out
    lines = [line.split(None, 1) for line in text.splitlines() if line.startswith("  ")]
    said = [value for name, value in (line for line in lines if len(line) == 2) if name in ("process", "device")]
    assert said == ["8 ranks 0-7: host node0", "8 ranks 8-15: host node1", "32 listed, 0-1: H100, 80.0 GiB"]
    assert ["worker.*.rank", "0-15 (16 workers)"] in lines
    assert len(text.splitlines()) < 35
    assert main(["info", str(folder), "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert (len(whole["processes"]), len(whole["devices"])) == (16, 32)


def test_few_ranks_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(ranks(tmp_path, 4))]) == 0
    text = capsys.readouterr().out
    assert text.count("  process ") == 4
    assert text.count("  device ") == 8
    assert "worker.rank3.rank" in text
