# SPDX-License-Identifier: Apache-2.0
"""parse.py and prof.py as a person at the terminal uses them: exit codes, streams, pipes, files."""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests import build, cli
from tests.build import call, recording
from tests.waiting import HANG

ROOT = Path(__file__).resolve().parents[2]
PARSE, PROF = ROOT / "pyprof/parse/parse.py", ROOT / "pyprof/prof/prof.py"
TRAINING = f"""
    {call("torch.nn.functional.linear", (8, 4), (5, 4), trace=["train.py:9"], module="fc")}
        aten::addmm, seq = 10
            > 50 sgemm
            > 7 reduce_kernel
    > 5 correlation=none stray
"""


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    what = recording(TRAINING)
    what.kernels.append(build.Kernel("copy", 500, 509, 1, size=64, copy_kind=1))
    return build.write_nsys(tmp_path_factory.mktemp("recording") / "net.sqlite", what)


@pytest.fixture(scope="module")
def netdict(sqlite: Path) -> Path:
    path = sqlite.with_name("net.dict")
    path.write_text("".join(f"{row}\n" for row in build.read(sqlite)), encoding="utf-8")
    return path


def run(*command: str | Path, cwd: Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd, input=stdin, capture_output=True, text=True, timeout=HANG, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.mark.parametrize("command", [[PARSE], ["-m", "pyprof.parse"]], ids=["path", "module"])
def test_parse_prints_net_dict_and_nothing_else_on_stdout(command, sqlite, netdict, tmp_path):
    done = run(*command, sqlite, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout == netdict.read_text(encoding="utf-8")
    assert done.stderr == f"{sqlite}: 1 GPU events without a launch record (kept)\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [[PROF], ["-m", "pyprof.prof"]], ids=["path", "module"])
def test_prof_prints_the_table_on_stdout_and_the_ledger_on_stderr(command, netdict, tmp_path):
    done = run(*command, "--csv", "-c", "kernel,op,sil,tc,flops", netdict, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        '"Kernel","Op","Sil(ns)","TC","FLOPs"',
        '"sgemm","linear","50","0","320"',
        '"reduce_kernel","linear","7","-","0"',
        '"stray","na","5","na","na"',
    ]
    assert done.stderr.startswith(f"{netdict}: 3 kernels, 62 ns; percent of that time\n")


def test_a_reader_that_stops_early_ends_both_quietly(tmp_path):
    text = "".join(f"layer:{i}\n  > 5 kernel{i}\n" for i in range(3000))
    path = build.write_nsys(tmp_path / "net.sqlite", recording(text))
    for script in (PARSE, PROF):
        shell = subprocess.run(
            ["bash", "-c", 'set -o pipefail; "$0" "$1" "$2" | head -n 1', sys.executable, str(script), str(path)],
            capture_output=True, text=True, timeout=HANG,
        )  # fmt: skip
        assert shell.returncode == 0
        assert len(shell.stdout.splitlines()) == 1
        assert "Error" not in shell.stderr
        assert "Traceback" not in shell.stderr


def test_prof_reads_stdin(netdict, tmp_path):
    done = run(PROF, "--csv", "-c", "op", cwd=tmp_path, stdin=netdict.read_text(encoding="utf-8"))
    assert (done.returncode, done.stdout) == (0, '"Op"\n"linear"\n"linear"\n"na"\n')
    assert done.stderr.startswith("stdin: 3 kernels")


# From here on in this process: the same functions, without the second that Python and pandas take to start.


@pytest.mark.parametrize("arguments", [[], ["--csv"], ["-w", "200"]], ids=str)
def test_prof_of_a_recording_is_prof_of_its_net_dict(arguments, sqlite, netdict, capsys):
    assert cli.prof([*arguments, str(netdict)]) == 0
    two_steps = capsys.readouterr()
    assert cli.prof([*arguments, str(sqlite)]) == 0
    one_step = capsys.readouterr()
    assert one_step.out == two_steps.out
    assert "GPU events without a launch record" in one_step.err


def test_the_default_is_eight_columns_for_awk(netdict, capsys):
    assert cli.prof([str(netdict)]) == 0
    heading, first, *_ = capsys.readouterr().out.splitlines()
    assert heading.split(" ") == ["Idx", "Direction", "Sub", "Module", "Op", "Kernel", "Params", "Sil(ns)"]
    assert first.split(" ") == [
        "1", "fprop", "0", "torch.nn.functional", "linear", "sgemm", "M=8,N=5,K=4,float32", "50",
    ]  # fmt: skip


def test_memory_adds_copies_and_sets(sqlite, capsys):
    assert cli.parse(["--memory", str(sqlite)]) == 0
    kinds = [ast.literal_eval(line)["kind"] for line in capsys.readouterr().out.splitlines()]
    assert sorted(kinds) == ["kernel", "kernel", "kernel", "memcpy"]
    assert cli.prof(["--memory", "-c", "kernel", str(sqlite)]) == 0
    assert "memcpy_HtoD" in capsys.readouterr().out


def test_json_lines_hold_what_the_literals_hold(sqlite, netdict, capsys):
    assert cli.parse(["--format", "jsonl", str(sqlite)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    literals = [ast.literal_eval(line) for line in netdict.read_text(encoding="utf-8").splitlines()]
    assert rows == json.loads(json.dumps(literals))


def test_output_is_written_whole_with_the_users_permissions(sqlite, netdict, tmp_path, capsys):
    out = tmp_path / "out.dict"
    out.write_text("old")
    assert cli.parse(["-f", "-o", str(out), str(sqlite)]) == 0
    assert out.read_bytes() == netdict.read_bytes()
    assert capsys.readouterr().out == ""
    assert stat.S_IMODE(out.stat().st_mode) == stat.S_IMODE(netdict.stat().st_mode)
    assert [p.name for p in tmp_path.iterdir()] == ["out.dict"]


def test_a_failure_while_writing_leaves_nothing(sqlite, tmp_path, monkeypatch):
    """Neither half a file nor a temporary one, and what was there before stays."""
    out = tmp_path / "out.dict"
    out.write_text("old")

    def breaks(rows, style):
        yield b"{'kShortName': 'first'}"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyprof.core.netdict.blocks", breaks)
    assert cli.parse(["-f", "-o", str(out), str(sqlite)]) == 1
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("out.dict", "old")]


def test_a_folder_that_does_not_exist_is_one_sentence(sqlite, tmp_path, capsys):
    out = tmp_path / "missing" / "out.dict"
    assert cli.parse(["-o", str(out), str(sqlite)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"parse.py: {out} cannot be written")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-c", "kernel,nothing"], "unknown column 'nothing'. Choose from idx,seq,"),
        (["-c", "op,op"], "named twice"),
        (["-w", "10"], "-w 10 is too small"),
        (["-w", "0"], "-w 0 is too small"),
        (["-w", "-5"], "-w -5 is too small"),
    ],
)
def test_usage_errors_are_exit_code_2(arguments, words, netdict, capsys):
    assert cli.prof([*arguments, str(netdict)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert len(captured.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("main", "arguments"),
    [
        (cli.prof, ["--csv", "-w", "99"]),
        (cli.prof, ["-w", "x"]),
        (cli.parse, []),
        (cli.parse, ["--format", "x", "f"]),
    ],
)
def test_what_argparse_refuses_is_exit_code_2(main, arguments, netdict):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2


def test_help_begins_with_an_example_and_lists_every_column(capsys):
    from pyprof.costs.columns import COLUMNS

    for main in (cli.parse, cli.prof):
        with pytest.raises(SystemExit):
            main(["--help"])
        text = capsys.readouterr().out
        assert "Example: " in text
    assert all(f"  {key} " in text for key in COLUMNS)


def test_csv_of_names_with_quotes_commas_and_line_breaks(tmp_path, capsys):
    what = recording("layer:x\n  > 5 kernel")
    what.ranges[0].text = 'layer:a "b",\nc'
    what.kernels[0].name = 'k"1", 2'
    path = build.write_nsys(tmp_path / "f", what)
    assert cli.prof(["--csv", "-c", "layer,kernel", str(path)]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out, newline="")))
    assert rows == [["Layer", "Kernel"], ['a "b",\nc', 'k"1", 2']]


LATIN = call("torch.relu", (4,), trace=["caf\udce9.py:3"])  # Python's text for a path that is not UTF-8
FROM_ANYWHERE = f"layer:é漢\n  {LATIN}\n    > 5 kernel"


@pytest.mark.parametrize(
    "command",
    [
        [PARSE],
        [PARSE, "--format", "jsonl"],
        [PROF, "-c", "layer,trace"],
    ],
)
def test_text_of_any_language_passes_a_terminal_of_none(command, tmp_path):
    """LC_ALL=C, or a file name that is not UTF-8, must not end in a traceback."""
    path = build.write_nsys(tmp_path / "f", recording(FROM_ANYWHERE))
    done = subprocess.run(
        [sys.executable, *map(str, command), str(path)],
        capture_output=True, timeout=HANG, env={**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode("utf-8")
    assert "é漢" in text
    assert "caf\\udce9.py:3" in text
    assert cli.parse(["-o", str(tmp_path / "out"), "--format", "jsonl", str(path)]) == 0
    assert json.loads((tmp_path / "out").read_text(encoding="utf-8"))["layer"] == ["é漢"]


def test_the_file_of_2020_is_read(data, capsys):
    """Its linear layers have the FLOPs 2·M·N·K of their markers, once per call and product."""
    path = data / "nvprof/transformer_lm/net.dict"
    assert cli.prof(["--csv", "-c", "idx,op,dir,kernel,params,sil,flops", str(path)]) == 0
    captured = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(captured.out)))
    assert (len(rows), sum(int(row["Sil(ns)"]) for row in rows)) == (160, 7_296_770)
    linear = [row for row in rows if row["Op"] == "linear"]
    products = [row for row in linear if "gemm" in row["Kernel"]]
    for row in products:
        sizes = dict(part.split("=") for part in row["Params"].split(",") if "=" in part)
        assert int(row["FLOPs"]) == 2 * int(sizes["M"]) * int(sizes["N"]) * int(sizes["K"])
    assert [row["Direction"] for row in products] == ["fprop"] * 3 + ["bprop"] * 6
    assert {row["FLOPs"] for row in linear if row not in products} == {"0"}
    assert "160 kernels, 7.30 ms" in captured.err


def test_both_ways_to_the_file_of_2020_cost_the_same(data, capsys):
    """Our own parse of the recording, and what the tools of 2020 parsed: the calls are the same.

    Those found no forward for the three kernels of `chunk`'s backward (rows 95 to 97).
    """
    tables = []
    for name in ("net.sql", "net.dict"):
        assert cli.prof(["--csv", "-c", "kernel,sil,flops,bytes", str(data / "nvprof/transformer_lm" / name)]) == 0
        tables.append(capsys.readouterr().out.splitlines())
    different = [i for i, (ours, theirs) in enumerate(zip(*tables, strict=True)) if ours != theirs]
    assert different == [95, 96, 97]  # the first line is the heading
    assert all(tables[1][i].endswith('"na","na"') for i in different)
