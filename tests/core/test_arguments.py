# SPDX-License-Identifier: Apache-2.0
"""Command lines: both spellings of options, the name that was typed, hints for misspelt names, lists of names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pyprof.commands import COMMANDS
from pyprof.core.arguments import Parser
from pyprof.reports import every
from tests import cli


def parser() -> Parser:
    made = Parser(prog="pyprof x")
    made.add_argument("--iter-start")
    made.add_argument("--iter-stop")
    group = made.add_mutually_exclusive_group()
    group.add_argument("--max-events")
    made.add_argument("rest", nargs="*")
    return made


@pytest.mark.parametrize(
    "words",
    [
        ["--iter-start=3", "--max-events", "4"],
        ["--iter_start=3", "--max_events", "4"],
        ["--iter-sta", "3", "--max", "4"],
        ["--iter_sta", "3", "--max_e=4"],
    ],
)
def test_both_spellings_and_their_beginnings_are_one_option(words: list[str]) -> None:
    found = parser().parse_args(words)
    assert (found.iter_start, found.max_events) == ("3", "4")


def test_values_keep_their_spelling() -> None:
    assert parser().parse_args(["--iter_start", "a_b", "--", "--max_events"]).rest == ["--max_events"]


def test_help_has_one_spelling() -> None:
    assert "--iter-start" in parser().format_help()
    assert "iter_start" not in parser().format_help()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--iter-strat=3"], "Did you mean --iter-start?"),
        (["--max_evnets", "3"], "Did you mean --max-events?"),
    ],
)
def test_an_unknown_option_names_the_nearest(words: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(words)
    assert caught.value.code == 2
    assert hint in capsys.readouterr().err


SAID: dict[str, tuple[int, str]] = {
    "reprot op_type x": (2, "Did you mean report?"),
    "report op_typ x": (2, "pyprof report: unknown report 'op_typ'. Did you mean op_type? Choose from"),
    "report x op_type": (
        2,
        "pyprof report: x is a file: the report's name comes before it, as in `pyprof report op_t",
    ),
    "report op_type x --format=cvs": (2, "unknown format 'cvs'. Did you mean csv? Choose from"),
    "prof -c kernel,flop x": (2, "pyprof prof: unknown column 'flop'. Did you mean flops? Choose from"),
    "prof --costs": (2, "usage: pyprof prof"),
    "parse nowhere.sqlite": (1, "pyprof parse: nowhere.sqlite"),
    "parse": (2, "usage: pyprof parse"),
    "info nowhere.sqlite": (1, "pyprof info: nowhere.sqlite"),
    "run --max-events=-1 x.py": (2, "invalid number '-1': expected 1 or more"),
    "run --max_events 0 x.py": (2, "invalid number '0': expected 1 or more"),
    "run --api_backtrace=x x.py": (2, "expected a number of ns"),
    "run nowhere.py": (2, "pyprof run: nowhere.py"),
}


@pytest.mark.parametrize("line", SAID)
def test_what_is_typed_wrongly_is_a_sentence_of_that_command(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").touch()
    code, text = SAID[line]
    try:
        found = cli.main(line.split())
    except SystemExit as leave:
        found = int(str(leave.code))
    assert found == code
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(("command", "name"), [(cli.prof, "prof.py"), (cli.parse, "parse.py")])
def test_a_script_of_its_own_says_its_own_name(command, name, capsys, tmp_path) -> None:
    assert command([str(tmp_path / "nowhere.sqlite")]) == 1
    assert capsys.readouterr().err.startswith(f"{name}: ")


def test_without_arguments_commands_and_reports_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    text = capsys.readouterr().out
    assert all(f"\n    {name} " in text for name in COMMANDS)
    assert cli.main(["report"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {one.name} " in text for one in every())


def test_a_pyarrow_that_needs_another_numpy_is_a_sentence(tmp_path: Path, root: Path) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ImportError('pyarrow requires NumPy 2.0 or newer, found 1.26.4')")
    code = "import sys; from pyprof.commands.main import main; sys.exit(main(['report', 'op_type', 'x.sqlite']))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": f"{tmp_path}:{root}"}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "pyprof report: pyarrow requires NumPy 2.0 or newer, found 1.26.4. Install a newer numpy (pip install "
        "'numpy>=2') or an older pyarrow ('pyarrow<26')."
    ]
