# SPDX-License-Identifier: Apache-2.0
"""Several processes: each rank its file, helpers are quiet, nobody takes another one's file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.testing._internal.distributed.fake_pg import FakeStore

import pyprof
from pyprof.capture.environment import ranks
from pyprof.parse import loader
from pyprof.parse.info import summary
from tests.forks import ROOT, Forks

from .conftest import Recorded

x = torch.ones(2, 2)


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "PYPROF_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # a group sets one that names the rank
    yield
    if distributed.is_initialized():
        distributed.destroy_process_group()
    pyprof.shutdown()


def group(rank: int, size: int) -> None:
    """A group of so many ranks, of which only this one is there: torch's own stand-in."""
    distributed.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())


def record(folder: Path, **options: Any) -> list[str]:
    with pyprof.profile(str(folder / "net.sqlite"), **options) as p:
        for _ in range(4):
            torch.tanh(x)
            p.step()
    return sorted(os.listdir(folder))


# The name of a rank's file


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({}, "net.sqlite"),
        ({"RANK": "3", "WORLD_SIZE": "8"}, "net.rank3.sqlite"),
        ({"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1"}, "net.rank9.sqlite"),  # the second node's
        ({"RANK": "0", "WORLD_SIZE": "1"}, "net.sqlite"),
        ({"RANK": "3"}, "net.sqlite"),
        ({"WORLD_SIZE": "8"}, "net.sqlite"),
        ({"RANK": "../x", "WORLD_SIZE": "8"}, "net.sqlite"),
        ({"RANK": "1", "WORLD_SIZE": "many"}, "net.sqlite"),
    ],
)
def test_the_launchers_rank_is_in_the_name(
    variables: dict[str, str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    assert record(tmp_path) == [name]


def test_windows_of_a_rank_are_numbered_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert record(tmp_path, active=1, repeat=3) == [
        "net.rank3.1.sqlite", "net.rank3.2.sqlite", "net.rank3.sqlite",
    ]  # fmt: skip


@pytest.mark.parametrize("when", ["before", "in the window", "gone", "gone and nothing recorded after"])
def test_the_group_says_which_rank_whenever_it_comes(when: str, tmp_path: Path) -> None:
    """Also where the script has imported the functions by name, before PyProf came."""
    from torch.distributed import destroy_process_group

    path = tmp_path / "net.sqlite"
    if when == "before":
        group(3, 8)
    pyprof.init(output=str(path))
    if when != "before":
        group(3, 8)
    torch.tanh(x)
    if when.startswith("gone"):
        destroy_process_group()
    if when == "gone":
        torch.tanh(x)
    pyprof.shutdown()
    assert os.listdir(tmp_path) == ["net.rank3.sqlite"]
    recorded = Recorded(tmp_path / "net.rank3.sqlite")
    facts = {name: value for name, value in recorded.table("PYPROF_META").items() if "distributed" in name}
    assert facts == {
        "distributed.rank": "3", "distributed.world_size": "8", "distributed.backend": "fake",
    }  # fmt: skip


def test_a_group_goes_before_the_launchers_variables_unless_it_is_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks that a launched rank starts itself have its variables; independent runs of one have only those."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    group(5, 6)
    assert record(tmp_path) == ["net.rank5.sqlite"]
    distributed.destroy_process_group()
    group(0, 1)
    assert record(tmp_path) == ["net.rank1.sqlite", "net.rank5.sqlite"]


def test_nothing_of_a_group_stays_after_shutdown(tmp_path: Path) -> None:
    from torch.distributed import distributed_c10d

    before = distributed_c10d._update_default_pg
    pyprof.init()
    group(3, 8)
    distributed.destroy_process_group()
    pyprof.shutdown()
    assert distributed_c10d._update_default_pg is before
    assert record(tmp_path) == ["net.sqlite"]


def test_a_ranks_file_is_read_as_any(tmp_path: Path) -> None:
    group(3, 8)
    record(tmp_path)
    trace = loader.load(tmp_path / "net.rank3.sqlite")
    assert summary(trace)["facts"]["distributed.rank"] == "3"
    assert summary(trace)["counts"]["operators"] == 4


# Helpers and ranks among the children of multiprocessing

HELPERS = """\
import multiprocessing, os, sys, torch, pyprof
pyprof.init({given})
class Data(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, i): return torch.ones(2) * i
def work(i):
    pyprof.init()
    return torch.tanh(torch.ones(2)).sum().item()
def plain(i):
    pyprof.init()
    torch.exp(torch.ones(2))
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    for batch in torch.utils.data.DataLoader(Data(), 2, num_workers=1, multiprocessing_context=context): batch.log2()
    with context.Pool(1) as pool: pool.map(work, range(2))
    process = context.Process(target=plain, args=(0,)); process.start(); process.join()
"""


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("fork", ""),
        pytest.param("spawn", "output='net.sqlite'", marks=pytest.mark.long),
        pytest.param("spawn", "", marks=pytest.mark.long),
    ],
)
def test_helpers_are_quiet(method: str, given: str, forks: Forks, tmp_path: Path) -> None:
    """Workers of a loader, of a pool, and a process that is no rank, though all of them call init()."""
    environment = {} if given else {"PYPROF_OUTPUT": "net.sqlite"}
    code, program = forks.run(tmp_path, HELPERS.format(method=method, given=given), **environment)
    assert code == 0, program.stderr
    assert sorted(os.listdir(tmp_path)) == ["net.py", "net.sqlite"]
    assert program.stderr.count("\n") == 1, program.stderr
    names = Recorded(tmp_path / "net.sqlite").names
    assert names.count("Tensor.log2") == 2
    assert not {"torch.tanh", "torch.exp", "Tensor.__mul__"} & set(names)


RANKS = """\
import multiprocessing, os, sys, torch, pyprof
from torch.testing._internal.distributed.fake_pg import FakeStore
def rank(number, how):
    if how == "init": pyprof.init(output="net.sqlite")
    if how == "environment": pyprof.init()
    torch.distributed.init_process_group("fake", rank=number, world_size=2, store=FakeStore())
    if how == "profile":
        with pyprof.profile("net.sqlite"): torch.tanh(torch.ones(2))
    else:
        torch.tanh(torch.ones(2))
    torch.distributed.destroy_process_group()
    if number and {fails!r}: raise ValueError("mine")
if __name__ == "__main__":
    {before}
    if {method!r} == "fork":
        children = [multiprocessing.get_context("fork").Process(target=rank, args=(i, {how!r})) for i in range(2)]
        for child in children: child.start()
        for child in children: child.join()
    else:
        torch.multiprocessing.spawn(rank, ({how!r},), nprocs=2)
"""


@pytest.mark.parametrize(
    ("method", "how", "before"),
    [
        pytest.param("spawn", "init", "", marks=pytest.mark.long),
        pytest.param("spawn", "environment", "", marks=pytest.mark.long),
        ("fork", "init", "pyprof.init(); torch.exp(torch.ones(2))"),
        ("fork", "environment", "torch.exp(torch.ones(2))"),
        ("fork", "init", "import pyprof.capture.controller"),
        ("fork", "profile", "pyprof.init(); torch.exp(torch.ones(2))"),
    ],
)
def test_ranks_that_the_script_starts_are_recorded(
    method: str, how: str, before: str, forks: Forks, tmp_path: Path
) -> None:
    source = RANKS.format(method=method, how=how, before=before, fails=False)
    environment = {"PYPROF_OUTPUT": "net.sqlite"} if how == "environment" else {}
    code, program = forks.run(tmp_path, source, **environment)
    assert code == 0, program.stderr
    assert sorted(set(os.listdir(tmp_path)) - {"net.py"}) == ["net.rank0.sqlite", "net.rank1.sqlite"]
    for number in range(2):
        recorded = Recorded(tmp_path / f"net.rank{number}.sqlite")
        assert recorded.names == ["torch.ones", "torch.tanh"]
        tids = {call.tid for call in recorded.calls}
        assert {op.tid for op in recorded.ops if op.name == "aten::tanh"} == tids
        assert recorded.table("PYPROF_META")["distributed.rank"] == str(number)


@pytest.mark.long
def test_the_rank_that_the_environment_had_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "7")
    look = (
        "import os; os.environ['RANK'] = '8'; from pyprof.capture.environment import ranks; print(ranks._launched_as())"
    )
    run = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout == "7\n"


def test_a_helper_of_a_launched_rank_is_none(forks: Forks, tmp_path: Path) -> None:
    """It has the rank's variables. One that is told another number is a rank."""
    source = """\
import multiprocessing, os, torch, pyprof
def work(number):
    if number: os.environ["RANK"] = number
    pyprof.init()
    torch.tanh(torch.ones(2))
for number in (None, "2"):
    child = multiprocessing.get_context("fork").Process(target=work, args=(number,))
    child.start()
    child.join()
"""
    variables = dict(RANK="1", WORLD_SIZE="4", PYPROF_OUTPUT="net.sqlite")
    prelude = "from pyprof.capture.environment import ranks; ranks._launched_as = lambda: '1'"
    code, program = forks.run(tmp_path, source, prelude=prelude, **variables)
    assert code == 0, program.stderr
    assert sorted(set(os.listdir(tmp_path)) - {"net.py"}) == ["net.rank2.sqlite"]


def test_pyprof_run_records_the_ranks_of_its_script(forks: Forks, tmp_path: Path) -> None:
    """One of them fails: its file is there as well."""
    source = RANKS.format(method="fork", how="environment", before="", fails=True)
    code, program = forks.run(tmp_path, source, "run", "-o", "runs.sqlite")
    assert code == 0, program.stderr
    assert "ValueError: mine" in program.stderr
    assert {"runs.rank0.sqlite", "runs.rank1.sqlite"} < set(os.listdir(tmp_path))
    assert ranks.OUTPUT_OF_RUN not in os.environ


def test_pyprof_run_names_the_files_of_ranks_and_writes_none_for_who_only_starts_them(
    forks: Forks, tmp_path: Path
) -> None:
    source = RANKS.format(method="fork", how="environment", before="", fails=False)
    (tmp_path / "net.rank7.sqlite").write_text("of an earlier run")
    code, program = forks.run(tmp_path, source, "run")
    assert code == 0, program.stderr
    files = {"net.py", "net.rank0.sqlite", "net.rank1.sqlite", "net.rank7.sqlite"}
    assert set(os.listdir(tmp_path)) - {"store"} == files
    *others, last = program.stderr.splitlines()
    assert last == "pyprof: the script's ranks were recorded in net.rank0.sqlite, net.rank1.sqlite."
    assert not any(line.startswith("net.sqlite") for line in others)


def test_a_run_that_starts_ranks_and_computes_has_its_own_file(forks: Forks, tmp_path: Path) -> None:
    source = RANKS.format(method="fork", how="environment", before="", fails=False) + "    torch.ones(2)\n"
    code, program = forks.run(tmp_path, source, "run")
    assert code == 0, program.stderr
    assert Recorded(tmp_path / "net.sqlite").names == ["torch.ones"]
    assert program.stderr.splitlines()[-1].endswith("in net.rank0.sqlite, net.rank1.sqlite.")


def test_a_worker_of_a_script_without_a_guard_gives_no_hint(forks: Forks, tmp_path: Path) -> None:
    """Python ends it with an error of its own; how to record is said once, by the parent."""
    source = (
        "import multiprocessing, torch, pyprof\npyprof.init()\ndef work(): pass\n"
        "context = multiprocessing.get_context('spawn')\n"
        "child = context.Process(target=work)\nchild.start()\nchild.join()\n"
    )
    _, program = forks.run(tmp_path, source)
    assert program.stderr.count("bootstrapping phase") == 1
    assert program.stderr.count("nothing was recorded") == 1


@pytest.mark.long
def test_a_program_that_the_script_starts_takes_no_file(forks: Forks, tmp_path: Path) -> None:
    """It is no rank of the run: it would replace the file."""
    (tmp_path / "other.py").write_text("import pyprof, torch; pyprof.init(); torch.exp(torch.ones(2))\n")
    source = "import subprocess, sys, torch\ntorch.ones(2)\nsubprocess.run([sys.executable, 'other.py'])\n"
    code, program = forks.run(tmp_path, source, "run")
    assert code == 0, program.stderr
    assert Recorded(tmp_path / "net.sqlite").names == ["torch.ones"]
    assert sorted(os.listdir(tmp_path)) == ["net.py", "net.sqlite", "other.py"]
    assert program.stderr.count("net.sqlite: ") == 1  # nor did it write before


def test_a_terminated_rank_has_its_file(forks: Forks, tmp_path: Path) -> None:
    """torchrun and torch.multiprocessing terminate the others when one fails."""
    source = (
        "import os, signal, time, torch, pyprof\npyprof.init()\ntorch.tanh(torch.ones(2))\n"
        "os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)\n"
    )
    code, _ = forks.run(tmp_path, source, PYPROF_OUTPUT="net.sqlite", RANK="1", WORLD_SIZE="2")
    assert code == -signal.SIGTERM
    assert Recorded(tmp_path / "net.rank1.sqlite").names == ["torch.ones", "torch.tanh"]


# One folder for all


def test_ranks_and_runs_share_a_folder(forks: Forks, tmp_path: Path) -> None:
    source = "import torch\nfor i in range({count}): torch.tanh(torch.ones(2))\n"
    programs = [
        forks.start(tmp_path, source.format(count=50), "run", RANK=str(number % 2), WORLD_SIZE="2")
        for number in range(4)
    ]
    assert [program.wait() for program in programs] == [0] * 4
    files = [f"net.rank{number}{kept}.sqlite" for number in range(2) for kept in (".1", "")]
    assert sorted(os.listdir(tmp_path)) == ["net.py", *files]
    for name in files:
        assert Recorded(tmp_path / name).query("pragma integrity_check") == [("ok",)]
        assert Recorded(tmp_path / name).names.count("torch.tanh") == 50
