# SPDX-License-Identifier: Apache-2.0
"""Whatever the file is: one sentence that names it and exit code 1, or a table. Never a traceback or half an output."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import chain
from pathlib import Path

import pytest

from tests import build, cli
from tests.build import LONG, PARTS, call, recording
from tests.parse.test_invariance import OPERATORS, tables_of, training
from tests.waiting import HANG

ROOT = Path(__file__).resolve().parent.parent
WRITERS: dict[str, Callable[[Path], Path]] = {
    "nsys": lambda path: build.write_nsys(path, training(True), registered=True),
    "nvprof": lambda path: build.write_nvprof(path, training(False)),
    "capture": lambda path: build.write_capture(path, training(True)),
    "capture-cpu": lambda path: build.write_capture(path, recording(OPERATORS)),
}
Say = Callable[[Path], str]
Try = Callable[[Path], bool]


@pytest.fixture
def attempt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Try:
    """Run parse and prof on a file; whether it could be read. Anything but a table or one sentence fails."""

    def run(path: Path) -> bool:
        out = tmp_path / "out.dict"
        outcomes = []
        for command, main, arguments in (
            ("parse.py", cli.parse, ["-o", str(out), str(path)]),
            (
                "prof.py",
                cli.prof,
                ["--csv", "-c", "idx,op,kernel,params,sil,flops,bytes,start,gbs", str(path)],
            ),
        ):
            code = main(arguments)
            captured = capsys.readouterr()
            outcomes.append(code)
            if code:
                assert code == 1
                assert captured.out == ""
                (line,) = captured.err.splitlines()
                assert line.startswith(f"{command}: {path}")
                assert line.endswith(".")
                assert not out.exists()
            else:
                assert "Traceback" not in captured.err
        assert outcomes[0] == outcomes[1]
        out.unlink(missing_ok=True)
        assert not list(tmp_path.glob("out.dict*"))
        return outcomes[0] == 0

    return run


@pytest.fixture
def sentence(attempt: Try, capsys: pytest.CaptureFixture[str]) -> Say:
    """What is said about a file that cannot be read."""

    def run(path: Path) -> str:
        assert not attempt(path)
        assert cli.parse([str(path)]) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        return captured.err

    return run


def database(path: Path, *statements: str) -> Path:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


def without_starts(copies: int) -> Callable[[Path], None]:
    """An export whose kernel has no start, with some copies."""

    def make(path: Path) -> None:
        what = recording("layer:x\n  > 5 kernel")
        what.kernels += [build.Kernel("copy", 900, 950, 1, size=4096, copy_kind=1) for _ in range(copies)]
        build.write_nsys(path, what)
        database(path, "alter table CUPTI_ACTIVITY_KIND_KERNEL rename column start to begin")

    return make


def contents(data: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(data) and None


# What stands at the path, and words that have to be said about it.
NO_RECORDINGS = {
    "missing": (lambda path: None, "no such file"),
    "empty": (lambda path: path.touch(), "is empty"),
    "an empty folder": (lambda path: path.mkdir(), "holds no recording"),
    "text": (contents(b"hello\nworld\n"), "not a recording"),
    "binary": (contents(bytes(range(256)) * 40), "not a recording"),
    "almost SQLite": (contents(b"SQLite format 3\0" + b"\0" * 84), ""),
    "SQLite's first bytes": (contents(b"SQLite format 3\0"), ""),
    "foreign SQLite": (lambda path: database(path, "create table places (url text)"), "not a recording"),
    "SQLite without tables": (lambda path: database(path, "create table x (a)", "drop table x"), "not a recording"),
    "nsys without kernels": (
        lambda path: build.write_nsys(path, recording("layer:x\n  wait 5")), "no kernels found, 1 NVTX ranges",
    ),
    "nsys whose kernels have no start": (
        without_starts(0), "no kernels found, 1 NVTX ranges, 1 GPU events without a start. Record",
    ),
    "nsys with copies alone": (
        without_starts(2), "no kernels found, 2 copies and sets, 1 GPU events without a start. --memory",
    ),
    "nvprof without kernels": (lambda path: build.write_nvprof(path, recording("layer:x\n  wait 5")), "no kernels"),
    "capture without operators": (
        lambda path: build.write_capture(path, recording("layer:x\n  wait 5")), "no operators",
    ),
    "a capture of tomorrow": (
        lambda path: build.write_capture(path, recording("op aten::mm"), version="3"), "written in format 3",
    ),
    "a report of nsys": (contents(b"QDSTRM"), ""),
}  # fmt: skip


@pytest.mark.parametrize("what", NO_RECORDINGS)
def test_what_is_no_recording_is_named_in_a_sentence(what, sentence, tmp_path):
    path = tmp_path / ("report.nsys-rep" if "report" in what else "net.sqlite")
    make, words = NO_RECORDINGS[what]
    make(path)
    said = sentence(path)
    assert words in said
    assert said.count(". ") + said.count("; ") >= 1, "what was found, and what to do"


def test_json_is_no_recording_to_parse_and_no_net_dict_to_prof(tmp_path, capsys):
    path = tmp_path / "trace.json"
    path.write_text('{\n"traceEvents": []\n}\n')
    assert cli.parse([str(path)]) == 1
    assert "no operators and no kernels among 0 events" in capsys.readouterr().err
    path.write_text('{\n"kernels": []\n}\n')
    assert cli.parse([str(path)]) == 1
    assert "is JSON without a list of trace events" in capsys.readouterr().err
    assert cli.prof([str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{path} is JSON without a list of trace events" in captured.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(sentence, tmp_path):
    path = build.write_nsys(tmp_path / "net.sqlite", recording("> 5 kernel"))
    path.chmod(0)
    assert "cannot be read (Permission denied)" in sentence(path)


def test_a_command_ends_with_code_1_and_a_line_not_a_traceback(tmp_path):
    path = tmp_path / "net.sqlite"
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    for script in ("parse/parse.py", "prof/prof.py"):
        done = subprocess.run(
            [sys.executable, str(ROOT / "pyprof" / script), str(path)],
            capture_output=True,
            text=True,
            timeout=HANG,
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert len(done.stderr.splitlines()) == 1
        assert str(path) in done.stderr


@pytest.mark.parametrize("format_", WRITERS)
def test_a_file_cut_off_anywhere(format_, attempt, tmp_path):
    data = WRITERS[format_](tmp_path / "whole").read_bytes()
    path = tmp_path / "net.sqlite"
    page = int.from_bytes(data[16:18], "big")
    sizes = [*range(0, len(data), page), 1, 15, 16, 17, 99, 100, 101, len(data) - 1, len(data) // 2]
    for size in sizes:
        path.write_bytes(data[:size])
        assert not attempt(path), size


@pytest.mark.parametrize("format_", WRITERS)
def test_a_file_cut_off_that_claims_to_be_whole(format_, attempt, tmp_path):
    """Pages are missing though the header counts none of them: SQLite itself runs into the hole, table by table."""
    data = WRITERS[format_](tmp_path / "whole").read_bytes()
    path = tmp_path / "net.sqlite"
    page = int.from_bytes(data[16:18], "big")
    for size in range(page, len(data), page):
        header = bytearray(data[:size])
        header[28:32] = (size // page).to_bytes(4, "big")
        path.write_bytes(header)
        attempt(path)


@pytest.mark.counts
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("format_", WRITERS)
def test_bytes_that_changed_on_the_way(format_, part, attempt, tmp_path):
    data = WRITERS[format_](tmp_path / "whole").read_bytes()
    path = tmp_path / "net.sqlite"
    for seed in range(part, 100 if LONG else 25, PARTS):
        dice = random.Random(f"{format_} {seed}")
        damaged = bytearray(data)
        # In the first page too, where tables are declared: there most changes are noticed.
        places = dice.sample(range(100, len(data)), dice.choice([1, 8, 64]))
        for place in [*places, dice.randrange(100, 4096)]:
            damaged[place] = dice.randrange(256)
        path.write_bytes(damaged)
        attempt(path)


ODD = ["null", "9223372036854775807", "'text'", "-9223372036854775807", "x'00ff'", "-1", "1e300", "''", "0.5"]


@pytest.mark.counts
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("format_", WRITERS)
def test_columns_that_hold_anything(format_, part, attempt, tmp_path):
    """Every table in turn full of one odd value; in the long form of each, and then each column in turn of one."""
    source = WRITERS[format_](tmp_path / "whole")
    path = tmp_path / "net.sqlite"
    for table, columns in list(tables_of(source).items())[part::PARTS]:
        few = zip([columns[::2], columns[1::2], columns], ODD[1:])
        alone = (([column], value) for i, column in enumerate(columns) for value in ODD[i % 9 :: 9])
        for group, value in chain(((columns, value) for value in ODD), alone) if LONG else few:
            build.rewrite(source, path, {table: dict.fromkeys(group, value)})
            attempt(path)
            path.unlink()


def test_a_kernel_of_which_only_the_start_is_known(tmp_path):
    source = build.write_nsys(tmp_path / "whole", recording("aten::mm\n  > 5 kernel"))
    columns = [c for c in tables_of(source)["CUPTI_ACTIVITY_KIND_KERNEL"] if c != "start"]
    changes = {"CUPTI_ACTIVITY_KIND_KERNEL": dict.fromkeys(columns, "null")}
    (row,) = build.read(build.rewrite(source, tmp_path / "null", changes))
    assert (row["kShortName"], row["kDuration"], row["kind"]) == ("", 0, "kernel")
    for key in (
        "device",
        "stream",
        "grid",
        "block",
        "correlation",
        "launchStart",
        "registers",
        "sharedMemory",
        "tid",
    ):
        assert row[key] is None


def test_kernels_without_a_start_are_counted(tmp_path, capsys):
    path = build.write_nsys(tmp_path / "f", recording("> 5 kept\n> 5 lost"))
    database(path, "update CUPTI_ACTIVITY_KIND_KERNEL set start = null where rowid = 2")
    assert cli.parse([str(path)]) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 1
    assert captured.err.splitlines() == [
        f"{path}: 1 GPU events without a start",
        f"{path}: 1 launches by cudaLaunchKernel whose work is not in the file",
    ]


def test_kernels_without_an_end_are_told(tmp_path, capsys):
    path = build.write_nsys(tmp_path / "f", recording("> 5 kept\n> 5 lost"))
    database(path, "update CUPTI_ACTIVITY_KIND_KERNEL set end = null where rowid = 2")
    assert cli.parse([str(path)]) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 2
    assert captured.err == f"{path}: 1 GPU events without an end (kept, time 0)\n"


@pytest.mark.parametrize("column", ["start", "end", "globalTid"])
def test_operators_whose_place_is_unknown_are_counted(column, tmp_path, capsys):
    path = build.write_capture(tmp_path / "f", recording(OPERATORS))
    with closing(sqlite3.connect(path)) as connection:
        (many,) = connection.execute("select count(*) from PYPROF_OP").fetchone()
    database(path, f"update PYPROF_OP set {column} = null where rowid = 2")
    assert cli.parse([str(path)]) == 0
    told = "1 operators without a start, an end or a thread"
    assert told in capsys.readouterr().err
    database(path, f"alter table PYPROF_OP rename column {column} to something")
    assert cli.parse([str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{many} operators without a start, an end or a thread" in captured.err


def test_times_that_no_clock_shows_are_as_good_as_missing(tmp_path, capsys):
    """Differences of such times would not fit 64 bits, and turn into other times."""
    path = build.write_nsys(tmp_path / "f", recording("layer:x\n  > 5 kept\n> 5 far\n> 5 before"))
    database(
        path,
        f"update NVTX_EVENTS set end = {2**63 - 1}",
        f"update CUPTI_ACTIVITY_KIND_KERNEL set start = {2**63 - 9}, end = {2**63 - 1} where rowid = 2",
        f"update CUPTI_ACTIVITY_KIND_KERNEL set start = {-(2**63) + 9} where rowid = 3",
    )
    (row,) = build.read(path)
    assert (row["layer"], row["kDuration"], row["start"]) == (["x"], 5, 25)
    assert cli.parse([str(path)]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"{path}: 2 GPU events without a start",
        f"{path}: 2 launches by cudaLaunchKernel whose work is not in the file",
        f"{path}: 1 ranges that were never closed (taken to last to the end, kept)",
    ]


def test_times_before_zero_only_move_the_origin(tmp_path):
    source = build.write_nsys(tmp_path / "whole", training(True))
    tables = [t for t, columns in tables_of(source).items() if "start" in columns]
    earlier = {table: {"start": "start - 10000000", "end": "end - 10000000"} for table in tables}
    moved = build.rewrite(source, tmp_path / "moved", earlier)
    assert build.read(moved) == build.read(source)


@pytest.mark.parametrize(
    "text",
    [
        call("torch.relu", (4,))[:-9], "{'mod': 'torch', 'op': 'relu', 'args': [{'name': '", "{'", "{{{{", "'\"'\"\\",
        "{'mod': 'torch', 'op': '''", '{"mod": "torch"}', "{" + "(" * 3000, "{'pyprof': 1}", "{1: 2}", "layer:",
        "", " ", ", seq = 1", "aten::mm, seq = ", "aten::mm, sizes = [[", "x" * 100_000, "\x00",
        "{'pyprof': 9, 'mod': 'torch', 'op': 'relu', 'args': [], 'layer': 5, 'trace': 'x', 'module': []}",
        "{'mod': 'torch', 'op': 'mm', 'args': [{'type': 'tensor', 'shape': (9, -1), 'dtype': 7}, 5, {}, {'type': []}]}",
    ],
    ids=lambda text: text[:30].encode("unicode_escape").decode(),
)  # fmt: skip
def test_a_marker_cut_off_or_full_of_quotes_is_no_error(text, attempt, tmp_path):
    what = recording("layer:x\n  aten::add\n    > 5 kernel")
    what.ranges[0].text = text
    for name, write in build.WRITERS.items():
        assert attempt(write(tmp_path / name, what))
        (row,) = build.read(tmp_path / name)
        assert row["seqMarker"] == []


@pytest.mark.parametrize(
    "line",
    [
        "{'kShortName': __import__('os').system('touch VICTIM')}",
        "{'kShortName': 'a', 'kDuration': open('VICTIM', 'w').write('x')}",
        "{'kShortName': 'a', 'kDur",
        "{'kShortName': 'a'}}",
        "{'kShortName': 'a', 'marker': [",
        "{" * 2000,
        "{'a': " + "-" * 5000 + "1}",
        "{'a': " + "-" * 200_000 + "1}",
        "{**{}}",
        "{'kDuration': " + "9" * 5000 + "}",
    ],
    ids=lambda text: text[:40],
)
def test_a_line_of_net_dict_that_is_none_is_named(line, tmp_path, capsys):
    victim = tmp_path / "victim"
    path = tmp_path / "net.dict"
    path.write_text("{'kShortName': 'fine', 'kDuration': 3}\n" + line.replace("VICTIM", str(victim)) + "\n")
    assert cli.prof([str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"prof.py: {path}: line 2 is not a kernel")
    assert len(captured.err.splitlines()) == 1
    assert not victim.exists()


@pytest.mark.counts
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("format_", WRITERS)
def test_a_net_dict_with_letters_changed(format_, part, tmp_path, capsys):
    text = "".join(f"{row}\n" for row in build.read(WRITERS[format_](tmp_path / "f")))
    path = tmp_path / "net.dict"
    for seed in range(part, 320 if LONG else 30, PARTS):
        dice = random.Random(f"{format_} {seed}")
        letters = list(text)
        for place in dice.sample(range(len(text)), dice.choice([1, 2, 5])):
            letters[place] = dice.choice("'\"\\,:{}[]()0123456789-N \n\x00é")
        path.write_text("".join(letters), encoding="utf-8")
        code = cli.prof(["--csv", "-c", "idx,op,seq,kernel,params,sil,flops,grid,start,gbs", str(path)])
        captured = capsys.readouterr()
        assert code in (0, 1)
        if code:
            assert captured.out == ""
            assert captured.err.startswith(f"prof.py: {path}")
            assert len(captured.err.splitlines()) == 1


def test_bytes_that_are_no_text_in_a_net_dict(tmp_path, capsys):
    path = tmp_path / "net.dict"
    path.write_bytes(b"{'kShortName': '\xff\xfe', 'kDuration': 3}\n")
    assert cli.prof(["-c", "kernel,sil", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "\ufffd\ufffd 3"


def test_a_virtual_table_in_the_place_of_a_table(tmp_path, capsys):
    """It is code, which would run when it is read."""
    path = build.write_nsys(tmp_path / "net.sqlite", training(True))
    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    with closing(sqlite3.connect(path)) as connection, connection:
        columns = [row[1] for row in connection.execute(f"pragma table_info({table})")]
        connection.execute(f"alter table {table} rename to was")
        connection.execute(f"create virtual table {table} using fts5({', '.join(columns)})")
        connection.execute(f"insert into {table} select * from was")
    assert cli.parse([str(path)]) == 1
    assert "no kernels found" in capsys.readouterr().err


def test_times_of_a_net_dict_that_no_sum_can_hold(tmp_path, capsys):
    path = tmp_path / "net.dict"
    path.write_text("{'kShortName': 'a', 'kDuration': 999999999999999999}\n" * 50)
    assert cli.prof([str(path)]) == 1
    assert f"{path}: its times add up to more than 146 years" in capsys.readouterr().err
    path.write_text("{'kShortName': 'a', 'kDuration': 9223372036854775807}\n{'kShortName': 'b', 'kDuration': 4}\n")
    assert cli.prof(["-c", "kernel,sil", str(path)]) == 0  # the first is no time
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1:] == ["a 0", "b 4"]
    assert "2 kernels, 4 ns" in captured.err


@pytest.mark.parametrize("late", ["kernels that are long", "kernels that begin long after their launch"])
def test_times_of_a_recording_that_no_sum_can_hold(late, tmp_path, capsys):
    what = recording("".join(f"aten::mm, seq = {i}\n    > 5 kernel\n" for i in range(12)))
    for kernel in what.kernels:
        kernel.end += 2**60
        kernel.start += 2**60 if "begin" in late else 0
    path = build.write_nsys(tmp_path / "net.sqlite", what)
    for words in (
        ["report"],
        ["report", "kernel"],
        ["save", "-o", str(tmp_path / "out")],
        ["prof"],
        ["parse"],
    ):
        code = cli.main([*words, str(path)])
        captured = capsys.readouterr()
        if "begin" in late and words[0] in ("prof", "parse"):  # which do not add delays up
            assert code == 0
            continue
        assert (code, captured.out) == (1, "")
        assert captured.err.startswith(f"pyprof {words[0]}: {path}: its times add up to more than 146 years")
        assert len(captured.err.splitlines()) == 1


def test_facts_of_a_device_that_are_none(tmp_path, capsys):
    path = build.write_nvprof(tmp_path / "net.sql", training(False))
    for value in ("'=1+1'", "1e300", "x'00'"):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"update CUPTI_ACTIVITY_KIND_DEVICE set numMultiprocessors = {value}")
        for words in (["report", "kernel"], ["info"]):
            assert cli.main([*words, str(path)]) == 0
            lines = capsys.readouterr().err.splitlines()
            assert all("launches by cudaLaunchKernel whose work is not in the file" in line for line in lines)
