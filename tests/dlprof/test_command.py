# SPDX-License-Identifier: Apache-2.0
"""The command around a program: what goes through, what is left, what nsys does where it is asked for."""

from __future__ import annotations

import filecmp
import json
import os
import signal
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

import pyprof
from pyprof.capture.run import as_main
from pyprof.core.errors import UsageError
from pyprof.core.stages import Stages
from pyprof.dlprof import events, options
from tests.build import recording, write_nsys
from tests.conftest import ROOT
from tests.dlprof.conftest import Run, finish, start, steps

ALL = ("summary", "detailed", "kernel", "iteration", "tensor_core", "op_type", "group_node", "expert_systems")

SCRIPT = """
import sys, torch
print("in:", sys.stdin.read(), "args:", sys.argv[1:], flush=True)
print("to stderr", file=sys.stderr)
torch.relu(torch.ones(3))
sys.exit(37)
"""


@pytest.mark.long
def test_input_output_arguments_and_exit_code_are_the_application_s(tmp_path: Path):
    (tmp_path / "x.py").write_text(SCRIPT)
    words = ["-b", "-v", "quiet", "python", "-u", "x.py", "--reports=none", "-f"]
    code, out, errors = finish(start(*words, cwd=tmp_path), "hello")
    assert (code, out) == (37, "in: hello args: ['--reports=none', '-f']\n")
    assert "to stderr\n" in errors
    assert sorted(os.listdir(tmp_path)) == ["dlprof_dldb.sqlite", "nsys_profile.sqlite", "x.py"]
    assert "relu" in set(pyprof.load(tmp_path / "dlprof_dldb.sqlite").ops["type"])


@pytest.mark.long
def test_a_module_in_another_environment_and_folder(tmp_path: Path):
    package = tmp_path / "work" / "pk"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(
        "import os, sys, torch\ntorch.relu(torch.ones(3))\n"
        "print(os.environ['A'], sys.argv[1:], __package__, __spec__.name, os.path.basename(sys.path[0]), __debug__)\n"
    )
    words = ["--output_path=out", "--nsys_base_name=rec", "--profile_name=net", "-b", "--reports=op_type"]
    app = ["env", "-C", "work", "A=1", "python", "-O", "-m", "pk", "-m"]
    code, out, errors = finish(start(*words, *app, cwd=tmp_path))
    assert code == 0, errors
    assert out.startswith("1 ['-m'] pk pk.__main__ work False\nExpert Systems Feedback: ")
    assert sorted(os.listdir(tmp_path / "out")) == ["net_dldb.sqlite", "net_op_type.csv", "rec.sqlite"]


def test_a_module_by_the_command_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Which has its own folder first on the path, not the current one."""
    (tmp_path / "mine_alone.py").write_text(
        "import pathlib, sys\npathlib.Path('seen').write_text(f'{__file__} {sys.path[0]} {__spec__.name}')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["/nowhere", *sys.path])
    monkeypatch.setattr(sys, "argv", ["pyprof"])
    with as_main("mine_alone", ["-x"], module=True) as execute:
        assert sys.argv == [str(tmp_path / "mine_alone.py"), "-x"]
        assert execute() == 0
    assert (tmp_path / "seen").read_text() == f"{tmp_path / 'mine_alone.py'} {tmp_path} mine_alone"
    for name in ("no_such_module", "os.path.join"):
        with pytest.raises(UsageError, match=f"-m {name}"), as_main(name, [], module=True):
            pass


@pytest.mark.long
def test_a_program_that_fails_keeps_its_exit_code_and_its_traceback(tmp_path: Path):
    (tmp_path / "x.py").write_text("import torch\ntorch.relu(torch.ones(3))\n1 / 0\n")
    code, _, errors = finish(start("-b", "-vquiet", "python", "x.py", cwd=tmp_path))
    assert code == 1
    assert "\nZeroDivisionError: division by zero\n" in errors
    assert errors.count("Traceback") == 1
    assert (tmp_path / "dlprof_dldb.sqlite").exists()


@pytest.mark.long
def test_a_program_that_leaves_no_recording(tmp_path: Path):
    (tmp_path / "x.py").write_text("import os, sys\nsys.stdout.flush()\nos._exit(9)\n")
    for name in ("nsys_profile.sqlite", "nsys_profile.nsys-rep"):
        (tmp_path / name).write_text("of before")
    code, out, errors = finish(start("-b", "-vquiet", "-f", "python", "x.py", cwd=tmp_path))
    assert (code, out) == (9, "")
    assert errors == "dlprof: the application left no recording, so there is nothing to aggregate.\n"
    assert os.listdir(tmp_path) == ["x.py"]


WAITING = """
import pathlib, time, torch
one = torch.ones(3)
for _ in range(OPERATORS):
    torch.relu(one)
pathlib.Path("ready").touch()
for _ in range(6000):
    time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("number", "group", "expected"),
    [
        pytest.param(signal.SIGINT, True, 130, marks=pytest.mark.long),
        (signal.SIGINT, False, 130),
        pytest.param(signal.SIGTERM, True, 143, marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, False, 143, marks=pytest.mark.long),
    ],
)
def test_signals_reach_the_application_and_reports_are_written(number: int, group: bool, expected: int, tmp_path: Path):
    """To the whole group, as ctrl-C and launchers do, or to the command alone. What the group has is not passed on:
    a second SIGTERM ends what writes the recording, which takes a while."""
    (tmp_path / "x.py").write_text(WAITING.replace("OPERATORS", "20000" if group else "1"))
    process = start("-b", "--reports=op_type", "python", "x.py", cwd=tmp_path)
    while not (tmp_path / "ready").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    (os.killpg if group else os.kill)(process.pid, number)
    code, _, errors = finish(process)
    assert code == expected, errors
    assert ("KeyboardInterrupt" in errors) == (number == signal.SIGINT)
    assert "relu" in set(pd.read_csv(tmp_path / "dlprof_op_type.csv")["Op Type"])


@pytest.mark.parametrize("example", ["lenet.py", pytest.param("transformer.py", marks=pytest.mark.long)])
def test_what_a_user_of_dlprof_types(example: str, dlprof: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Eight reports twice and a database; the recording aggregated again gives the same files."""
    words = ("--reports=all", "--formats=csv,json", "-b", "-v", "minimal")
    code, out, errors = finish(start(*words, "python", str(ROOT / "examples" / example), cwd=tmp_path))
    assert code == 0, errors
    assert "Expert Systems Feedback" in out
    reports = [f"dlprof_{name}.{ending}" for name in ALL for ending in ("csv", "json")]
    assert sorted(os.listdir(tmp_path)) == sorted([*reports, "dlprof_dldb.sqlite", "nsys_profile.sqlite"])
    again = ("--nsys_database=nsys_profile.sqlite", "--output_path=again", *words)
    monkeypatch.chdir(tmp_path)
    code, _, errors = dlprof(*again)
    assert code == 0, errors
    assert sorted(os.listdir(tmp_path / "again")) == sorted([*reports, "dlprof_dldb.sqlite"])
    for name in reports:
        assert filecmp.cmp(tmp_path / name, tmp_path / "again" / name, shallow=False), name


def test_an_nsys_file_of_others(data: Path, dlprof: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    source = data / "nsys" / "cifar_rtx2070_pyprof_markers.sqlite"
    words = (f"--nsys_database={source}", "--reports=all", "--formats=csv,json")
    code, out, errors = dlprof(*words, "--output_path=a")
    assert code == 0, errors
    assert "Expert Systems Feedback" in out
    assert len(os.listdir("a")) == 17
    frame = pd.read_csv("a/dlprof_group_node.csv")
    assert len(frame) > 34
    # A database aggregated again gives what the recording gives.
    code, _, errors = dlprof("--nsys_database=a/dlprof_dldb.sqlite", *words[1:], "--output_path=b")
    assert code == 0, errors
    for name in os.listdir("a"):
        if not name.endswith(".sqlite"):
            assert filecmp.cmp(f"a/{name}", f"b/{name}", shallow=False), name


NSYS = """#!/usr/bin/env python
import os, shutil, subprocess, sys
words = sys.argv[1:]
with open("nsys.log", "a") as log:
    print(*words, sep="|", file=log)
if words[0] == "export":
    output = next(word for word in words if word.startswith("--output=")).partition("=")[2]
    shutil.copy(words[-1], output)
    sys.exit(0)
base = words[words.index("-o") + 1]
application = next(i for i, word in enumerate(words) if os.path.basename(word).startswith("python"))
code = subprocess.run(words[application:], env=os.environ | {"NSYS_PROFILING_SESSION_ID": "1"}).returncode
shutil.copy("recorded.sqlite", base + ".nsys-rep")
sys.exit(code)
"""


@pytest.mark.long
def test_under_nsys_where_it_is_installed_and_asked_for(tmp_path: Path):
    """A stand-in for nsys runs the program as the tool does, and hands in a report."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nsys").write_text(NSYS)
    (tools / "nsys").chmod(0o755)
    write_nsys(tmp_path / "recorded.sqlite", recording(steps()))
    (tmp_path / "x.py").write_text("import sys\nprint('ran', sys.argv[1:])\nsys.exit(5)\n")
    opts = '"-t cuda,nvtx,osrt -s none"'
    words = [
        f"--nsys_opts={opts}",
        "--nsys_base_name=base",
        "--delay=2",
        "-d",
        "3",
        "-b",
        "--reports=op_type",
    ]
    path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
    process = start(*words, "python", "x.py", "1", cwd=tmp_path, env={"PATH": path})
    code, out, errors = finish(process)
    assert (code, out.splitlines()[0]) == (5, "ran ['1']"), errors
    profile, export = (tmp_path / "nsys.log").read_text().splitlines()
    base = tmp_path / "base"
    more = "-y|2|-d|3|python|-m|pyprof|run|x.py|1"
    assert profile == f"profile|-t|cuda,nvtx,osrt|-s|none|-o|{base}|-f|true|{more}"
    assert export.startswith("export|--type=sqlite|")
    assert (tmp_path / "base.sqlite").exists()
    assert pd.read_csv(tmp_path / "dlprof_op_type.csv")["# Calls"].sum() >= 12


@pytest.mark.long
def test_without_nsys_its_options_are_ours(tmp_path: Path):
    (tmp_path / "x.py").write_text("import torch\nopen('x.py').close()\ntorch.relu(torch.ones(3))\n")
    words = ["--nsys_opts", '"-t cuda,nvtx,osrt -s cpu"', "-v", "diagnostic", "-b", "python", "x.py"]
    path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"])
    code, _, errors = finish(start(*words, cwd=tmp_path, env={"PATH": path}))
    assert code == 0
    assert "dlprof: --nsys_opts: nsys is not installed, PyProf records with --io --sample=cpu.\n" in errors
    assert "pyprof run --io --sample=cpu -o" in errors
    assert len(pyprof.load(tmp_path / "nsys_profile.sqlite").trace.io.start)


def test_simple_mode_has_one_operator(aggregate: Run, folder: Path):
    assert aggregate("--mode=simple", "--reports=detail,kernel", "--formats=csv")[0] == 0
    detail = pd.read_csv("dlprof_detailed.csv")
    assert detail["Op Name"].tolist() == ["simple_mode_global_node_name"]
    kernel = pd.read_csv("dlprof_kernel.csv")
    assert kernel["Total GPU Time (ns)"].sum() == 4 * (40 + 10 + 5)


def test_a_database_has_no_simple_mode(aggregate: Run, dlprof: Run, folder: Path):
    assert aggregate()[0] == 0
    code, _, errors = dlprof("--nsys_database=dlprof_dldb.sqlite", "--mode=simple", "-vquiet")
    assert code == 2
    assert "need the recording" in errors


def test_iterations_are_chosen(aggregate: Run, folder: Path):
    assert aggregate("--iter_start=1", "--iter_stop=2", "--reports=op_type")[0] == 0
    frame = pd.read_csv("dlprof_op_type.csv")
    assert set(frame["# Calls"]) == {2}


@pytest.mark.long
def test_each_level_of_verbosity_says_more(aggregate: Run, folder: Path):
    said = []
    for level in options.VERBOSITY:
        code, out, errors = aggregate("-f", f"--verbosity={level}", "--reports=op_type,summary")
        assert code == 0
        assert bool(out) == (level != "quiet")
        said.append(Counter(line[line.find("]") :] for line in errors.splitlines()))
    assert not said[0]
    for less, more in pairwise(said):
        assert less < more
    assert "] wrote dlprof_op_type.csv" in said[1]
    assert "] iterations 0 to 3 (ranges 'step #')" in said[2]
    assert "] 12 rows of event" in said[3]
    assert "took" in "".join(said[4])


def test_without_tensorboard_a_line_names_the_extra(aggregate: Run, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(events, "available", lambda: False)
    code, _, errors = aggregate("--tb_dir=tb", "-vminimal")
    assert code == 0
    assert "pip install '.[tensorboard]'" in errors
    assert not (folder / "tb").exists()
    assert "tensorboard" not in aggregate("-b", "-vminimal")[2]


def test_the_dump_of_the_model_data_is_the_database(aggregate: Run, folder: Path):
    from pyprof.dlprof import model_data

    assert aggregate("--dump_model_data=true", "--profile_name=net", "--iter_start=1", "--iter_stop=2")[0] == 0
    found = json.loads((folder / "net_model_data.json").read_text())
    assert found["pyprof_model_data"] == model_data.VERSION
    assert set(found) == {
        "pyprof_model_data",
        "meta",
        "aggregation",
        *(table.name for table in model_data.TABLES),
    }
    for table in model_data.TABLES:
        assert all(list(row) == [field.name for field in table.fields] for row in found[table.name])
    assert (found["aggregation"]["iter_start"], found["aggregation"]["iter_stop"]) == (1, 2)
    assert [row["aggregated"] for row in found["iterations"]] == [False, True, True, False]
    names = {row["id"]: row["type"] for row in found["operators"]}
    launched = [(names[row["operator"]], row["name"], row["duration_ns"], row["grid"]) for row in found["kernels"]]
    assert launched == 4 * [
        ("linear", "volta_sgemm", 40, [1, 1, 1]), ("relu", "relu_kernel", 10, [1, 1, 1]),
        ("gelu", "gelu_kernel", 5, [1, 1, 1]),
    ]  # fmt: skip
    assert {type(row["uses_tc"]) for row in found["kernels"]} <= {bool, type(None)}
    assert len(found["api_calls"]) == 12


@pytest.mark.parametrize("stage", ["reading", "writing op", "aggregating"])
def test_ctrl_c_ends_the_aggregation_and_leaves_nothing(
    stage: str, aggregate: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    def progress(self: Stages, what: str, share: float) -> None:
        if what == stage:
            raise KeyboardInterrupt

    assert aggregate()[0] == 0
    before = (folder / "dlprof_dldb.sqlite").read_bytes()
    monkeypatch.setattr(Stages, "progress", progress)
    code, out, errors = aggregate("-f", "-vminimal", "--key_op=relu", "--reports=all")
    assert (code, out) == (130, "")
    assert errors == "dlprof: interrupted; files that were not finished are not there.\n"
    assert sorted(os.listdir(folder)) == ["dlprof_dldb.sqlite", "nsys.sqlite"]
    assert (folder / "dlprof_dldb.sqlite").read_bytes() == before
