# SPDX-License-Identifier: Apache-2.0
"""Options are read as DLProf reads them, and each wrong one is a sentence, with nothing written."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pyprof.core.errors import UsageError
from pyprof.dlprof import application, model_data, options
from pyprof.dlprof.options import OPTIONS, read
from pyprof.store import files
from tests.build import recording, write_nsys
from tests.dlprof.conftest import Run, steps

# Every option of `dlprof --help`, and of release 1.8.
OF_DLPROF = [
    "-h", "--help", "-V", "--version", "-f", "--force", "-v", "--verbosity", "-m", "--mode", "--nsys_database",
    "--nsys_base_name", "--nsys_opts", "-y", "--delay", "-d", "--duration", "--key_node", "--key_op", "--iter_start",
    "--iter_stop", "--output_path", "--profile_name", "--reports", "--formats", "--domains", "--dump_model_data",
    "--tb_dir", "-b", "--suppress_tb_files", "--database", "--graphdef",
]  # fmt: skip


def test_every_option_of_dlprof_is_there():
    assert set(OF_DLPROF) <= {name for option in OPTIONS for name in option.names}


def test_defaults_are_those_of_dlprof():
    found = read(["python", "x.py"])
    assert (found.force, found.verbosity, found.mode, found.nsys_base_name) == (
        False, "normal", "pytorch", "nsys_profile",
    )  # fmt: skip
    assert (found.delay, found.duration, found.iter_start, found.iter_stop, found.key_node) == (
        0,
        0,
        None,
        None,
        "",
    )
    assert (found.output_path, found.profile_name, found.reports, found.formats) == (
        ".",
        "dlprof",
        (),
        ("csv",),
    )
    assert (found.domains, found.dump_model_data, found.tb_dir) == ((), False, "event_files")
    assert not found.suppress_tb_files


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        ("--force=true", "force", True),
        ("-f true", "force", True),
        ("-ftrue", "force", True),
        ("-f=TRUE", "force", True),
        ("-f", "force", True),
        ("--force python x.py", "force", True),
        ("-f false", "force", False),
        ("-v quiet", "verbosity", "quiet"),
        ("-m simple", "mode", "simple"),
        ("--iter_start 200", "iter_start", 200),
        ("--iter-stop=400", "iter_stop", 400),
        ("--delay=1.5", "delay", 1.5),
        ("-y 2 -d 3", "duration", 3.0),
        ("--key_op=layer/linear", "key_node", "layer/linear"),
        ("--key_node=global_step", "key_node", ""),
        ("--database=x.sqlite", "nsys_database", "x.sqlite"),
        ("--formats=json,csv,json", "formats", ("json", "csv")),
        ("--reports=summary,op_type", "reports", ("summary", "op_type")),
        ("--domains=all", "domains", ()),
        ("--domains=a,b", "domains", ("a", "b")),
        ("-b true", "suppress_tb_files", True),
        ("python -f x", "application", ("python", "-f", "x")),
        ("-- -odd", "application", ("-odd",)),
    ],
)
def test_values(words: str, key: str, value: object):
    assert getattr(read(words.split()), key) == value


def test_all_reports_are_those_of_dlprof():
    found = read(["--reports=all"]).reports
    assert read(["--reports=gpu,all,detail"]).reports == ("gpu", *found)
    assert set(found) == {
        "summary", "detail", "kernel", "iteration", "tensor", "op_type", "group_node", "expert_systems",
    }  # fmt: skip


# What is typed, and what the sentence must name.
WRONG = {
    "--reports=sumary": ["--reports=sumary", "summary"],
    "--reports=summary,": ["--reports=summary,", "commas only"],
    "--formats=xml": ["--formats=xml", "csv, json"],
    "--csv_style=excel": ["excel", "plain, dlprof"],
    "--iter_start=-1": ["--iter_start=-1", "iteration"],
    "--iter_start=two": ["--iter_start=two", "iteration"],
    "--iter_stop=1e3": ["--iter_stop=1e3", "iteration"],
    "--iter_start=3 --iter_stop=1": ["--iter_start=3", "--iter_stop=1", "after"],
    "--iter_start=4": ["iteration 4", "0 to 3"],
    "--iter_stop=4": ["iteration 4", "0 to 3"],
    "--key_op=relo": ["'relo'", "'relu'", "nearest"],
    "--delay=soon": ["--delay=soon", "seconds"],
    "-y nan": ["nan", "seconds"],
    "--duration=-1": ["--duration=-1", "seconds"],
    "--force=maybe": ["--force=maybe", "true or false"],
    "--verbosity=loud": ["loud", "quiet, minimal"],
    "--mode=tensorflow2": ["--mode=tensorflow2", "PyTorch"],
    "--mode=keras": ["keras", "simple, pytorch"],
    "--profile_name=a/b": ["a/b", "--output_path"],
    "--profile_name=": ["--profile_name=", "name"],
    "--nsys_base_name=../x": ["../x", "--output_path"],
    "--output_path=nowhere/again": ["nowhere/again", "does not exist"],
    "--output_path=nsys.sqlite": ["nsys.sqlite", "is a file"],
    "--domains=nobody": ["nobody", "default"],
    "--domains=a,,b": ["--domains=a,,b", "commas only"],
    "--frmats=csv": ["--frmats", "--formats"],
    "-q": ["-q", "--help"],
    "--help=yes": ["--help=yes"],
    "--iter_stop": ["--iter_stop", "missing"],
}  # fmt: skip


def the_sentence(errors: str, words: list[str]) -> None:
    assert re.fullmatch(r"dlprof: [^\n]+\n", errors), errors
    for word in words:
        assert word in errors


@pytest.mark.parametrize("typed", WRONG)
def test_what_is_wrong_is_a_sentence_and_nothing_is_written(typed: str, aggregate: Run, folder: Path):
    before = sorted(os.listdir(folder))
    code, out, errors = aggregate("--verbosity=minimal", *typed.split())
    assert (code, out) == (2, "")
    the_sentence(errors, WRONG[typed])
    assert sorted(os.listdir(folder)) == before


def test_the_five_nearest_names_of_a_key_operator(aggregate: Run):
    _, _, errors = aggregate("-vquiet", "--key_op=relo")
    assert len(re.findall(r"'[^']+'", errors.partition("nearest")[2])) == 5


def foreign(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


def sqlite(*statements: str) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        connection = sqlite3.connect(path)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()

    return make


FILES = {
    "missing": (lambda path: None, ["no such file"]),
    "folder": (lambda path: path.mkdir(), ["holds no recording"]),
    "empty": (foreign(""), ["is empty"]),
    "text": (foreign("hello"), ["not a recording"]),
    "foreign": (sqlite("create table a (b)"), ["not a recording"]),
    "of DLProf": (sqlite("create table read_only_ops (id)", "create table ops (id)"),
                  ["is a DLProf database", "dlprof --nsys_database", "nsys_profile.sqlite"]),
    "without tables": (sqlite(f"pragma application_id = {files.APPLICATION_ID}", "create table a (b)"),
                       ["is damaged"]),
    "newer": (sqlite(f"pragma application_id = {files.APPLICATION_ID}", "create table meta (name, value)",
                     "insert into meta values ('schema_major', '9'), ('schema_minor', '4')"),
              ["9.4", f"{files.MAJOR}.{files.MINOR}", "pip install '.'"]),
}  # fmt: skip


@pytest.mark.parametrize("what", FILES)
def test_files_that_are_none(what: str, dlprof: Run, folder: Path):
    make, words = FILES[what]
    make(folder / "x.sqlite")
    before = sorted(os.listdir(folder))
    code, out, errors = dlprof("--database=x.sqlite", "-vminimal", "--reports=all", "--output_path=new")
    assert (code, out) == (1, "")
    the_sentence(errors, ["x.sqlite", *words])
    assert sorted(os.listdir(folder)) == before


def test_a_database_that_is_there_is_kept(aggregate: Run, folder: Path):
    for name in ("dlprof_dldb.sqlite", "dlprof_dldb_1.sqlite", "dlprof_dldb_2.sqlite"):
        assert not (folder / name).exists()
        assert aggregate()[0] == 0
        assert (folder / name).exists()
    before = (folder / "dlprof_dldb.sqlite").read_bytes()
    assert aggregate("-f", "--key_op=relu")[0] == 0
    assert (folder / "dlprof_dldb.sqlite").read_bytes() != before
    assert not (folder / "dlprof_dldb_3.sqlite").exists()


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (["--reports=op_type"], "dlprof_op_type.csv"),
        (["--reports=all", "--formats=csv,json"], "dlprof_summary.json"),
        (["--dump_model_data=true"], "dlprof_model_data.json"),
        (["--reports=op_type", "--domains=default"], "dlprof_default_op_type.csv"),
    ],
)
def test_a_file_that_is_there_needs_force(options: list[str], name: str, aggregate: Run, folder: Path):
    (folder / name).write_text("mine")
    before = sorted(os.listdir(folder))
    code, _, errors = aggregate(*options)
    assert code == 2
    the_sentence(errors, [name, "--force"])
    assert sorted(os.listdir(folder)) == before
    assert (folder / name).read_text() == "mine"
    assert aggregate(*options, "--force=true")[0] == 0
    assert (folder / name).read_text() != "mine"


def test_what_is_read_is_not_replaced(dlprof: Run, folder: Path):
    shutil.move("nsys.sqlite", "dlprof_dldb.sqlite")
    code, _, errors = dlprof("--nsys_database=dlprof_dldb.sqlite", "-f")
    assert code == 2
    the_sentence(errors, ["dlprof_dldb.sqlite", "--profile_name"])


def test_a_database_is_aggregated_anew_in_a_copy(aggregate: Run, dlprof: Run, folder: Path):
    assert aggregate()[0] == 0
    before = (folder / "dlprof_dldb.sqlite").read_bytes()
    words = ("--nsys_database=dlprof_dldb.sqlite", "--key_op=relu", "--iter_start=1", "--iter_stop=2")
    assert dlprof(*words)[0] == 0
    assert (folder / "dlprof_dldb.sqlite").read_bytes() == before
    from pyprof import load

    for name, expected in (("dlprof_dldb.sqlite", [(0, 3)]), ("dlprof_dldb_1.sqlite", [(0, 3), (1, 2)])):
        found = load(name)
        assert [(one.first, one.last) for one in found.aggregations] == expected
        found.database.close()
    assert dlprof(*words, "--force")[0] == 0  # the file itself is replaced by what has both
    found = load("dlprof_dldb.sqlite")
    assert len(found.aggregations) == 2
    found.database.close()


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of files")
@pytest.mark.parametrize("share", [0.1, 0.8, 0.9, 0.98])
def test_a_folder_without_room(share: float, folder: Path, dlprof: Run):
    """For less than the database: not for tables without rows, for all facts, or for the aggregation."""
    import resource
    import signal

    os.unlink("nsys.sqlite")
    write_nsys(folder / "nsys.sqlite", recording(steps(400)))
    assert dlprof("--nsys_database=nsys.sqlite", "--profile_name=all")[0] == 0
    room = int(os.path.getsize("all_dldb.sqlite") * share)
    os.unlink("all_dldb.sqlite")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        code, out, errors = dlprof("--nsys_database=nsys.sqlite", "--reports=all", "-vminimal", "--output_path=new")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert (code, out) == (1, "")
    the_sentence(errors, ["new/dlprof_dldb.sqlite", "could not be written"])
    assert os.listdir(folder) == ["nsys.sqlite"]


NO_APPLICATION = {
    "": ["no application", "--nsys_database"],
    "nosuchprogram x": ["nosuchprogram", "no such command"],
    "sh -c true": ["sh", "does not run Python"],
    "python nosuchfile.py": ["nosuchfile.py", "no such file"],
    "python": ["expected a script"],
    "python -c pass": ["python -c", "script"],
    "python -m": ["a module"],
    "python -": ["stdin"],
    "torchrun --nproc-per-node 2 x.py": ["torchrun", "-m pyprof run", "--nsys_database"],
    "python -m torch.distributed.run x.py": ["torch.distributed.run", "-m pyprof run"],
    "python -I -S nsys.sqlite": ["no pyprof", "pip install"],
}


@pytest.mark.parametrize("typed", NO_APPLICATION)
def test_applications_that_cannot_be(typed: str, dlprof: Run, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    code, out, errors = dlprof(*typed.split())
    assert (code, out) == (2, "")
    the_sentence(errors, NO_APPLICATION[typed])
    assert os.listdir(folder) == ["nsys.sqlite"]


def test_with_a_database_the_application_is_not_run(aggregate: Run, folder: Path):
    code, _, errors = aggregate("-vminimal", "sh", "-c", "touch ran")
    assert code == 0
    assert "sh -c 'touch ran' is not run" in errors
    assert not (folder / "ran").exists()


def test_options_of_tensorflow_are_said_to_be_ignored(aggregate: Run):
    code, _, errors = aggregate("-vminimal", "--graphdef=x.pbtxt")
    assert code == 0
    assert "--graphdef is for TensorFlow 1 and is ignored" in errors


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("python x.py -m a", "python -m pyprof run R x.py -m a"),
        ("/opt/py/bin/python3.12 -u x.py", "/opt/py/bin/python3.12 -u -m pyprof run R x.py"),
        ("python -OOum pkg.mod -c", "python -OOu -m pyprof run R -m pkg.mod -c"),
        ("python -mmod", "python -m pyprof run R -m mod"),
        ("python -X dev -Wignore x.py", "python -X dev -Wignore -m pyprof run R x.py"),
        ("env -i A=1 python x.py", "env -i A=1 python -m pyprof run R x.py"),
        ("numactl -N 0 python3 x.py", "numactl -N 0 python3 -m pyprof run R x.py"),
    ],
)
def test_the_command_that_records(typed: str, expected: str):
    assert " ".join(application.split(typed.split()).recorded(["R"])) == expected


def test_a_python_script_on_the_path_is_run_by_its_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    script = tmp_path / "trainer"
    script.write_text("#!/opt/py/bin/python3 -s\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = application.split(["trainer", "-x"])
    assert found.recorded([]) == ["/opt/py/bin/python3", "-s", "-m", "pyprof", "run", str(script), "-x"]
    script.write_text("#!/usr/bin/env python3\n")
    assert application.split(["trainer"]).interpreter == "python3"


@pytest.mark.parametrize("text", ["-t cuda", "-s none", "", '"-t cuda,nvtx'])
def test_options_of_nsys_must_trace_what_is_needed(text: str):
    with pytest.raises(UsageError, match="cuda,nvtx"):
        application.nsys_options(text)


def test_help_and_version(dlprof: Run):
    code, out, _ = dlprof("--help")
    assert code == 0
    assert out.splitlines()[3] == "Example: dlprof --reports=all python train.py --epochs 1"
    for name in OF_DLPROF:
        assert name in out
    assert dlprof("-V")[1].startswith("dlprof of PyProf ")


def test_the_page_is_what_the_code_generates(root: Path, request: pytest.FixtureRequest):
    """Its options, and the schema of the dump."""
    path = root / "docs" / "dlprof.md"
    text = path.read_text(encoding="utf-8")
    for name, generated in (("options", options.page()), ("tables", model_data.page())):
        begin, end = f"<!-- {name}: generated -->\n\n", f"\n<!-- end of {name} -->"
        assert text.count(begin) == text.count(end) == 1
        text = text.partition(begin)[0] + begin + generated + end + text.partition(end)[2]
    if request.config.getoption("--regold"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text
