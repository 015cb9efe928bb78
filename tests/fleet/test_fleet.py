# SPDX-License-Identifier: Apache-2.0
"""A fleet has the figures of `pyprof.load` of the same files, whatever happens to its workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pyprof
from pyprof import fleet
from pyprof.commands.main import main
from pyprof.core.errors import FormatError, PyProfError, UsageError
from pyprof.facts.steps.iteration_cuts import Cut, common
from pyprof.fleet import cluster as clusters
from pyprof.reports import every
from tests import build, kineto
from tests.fleet.conftest import Cluster, until
from tests.fleet.test_run import FOLDERS, mixed, planted, text_of
from tests.server import planted_ranks

Write = Callable[[Path], None]


def one_step_each(folder: Path) -> None:
    """Ranks that step their optimizer once each: two ends in the run, one on a rank."""
    for rank in range(2):
        events = [
            kineto.op("aten::mm", 0, 50_000),
            kineto.launch(10_000, 12_000, 1),
            kineto.kernel("sgemm", 20_000, 40_000, 1),
            kineto.annotation("Optimizer.step#SGD.step", 60_000, 90_000 + rank),
        ]
        kineto.write(folder / f"rank{rank}.1700000000000.pt.trace.json", events)


def one_without_marks(folder: Path) -> None:
    """Ranks of which the first has no steps, which the others have."""
    planted(folder)
    (first, *_) = sorted((folder / "run").iterdir())
    trace = json.loads(first.read_text())
    trace["traceEvents"] = [e for e in trace["traceEvents"] if not e["name"].startswith("ProfilerStep")]
    first.write_text(json.dumps(trace))


def run_of(folder: Path) -> Path:
    below = folder / "run"
    return below if below.is_dir() else folder


def assert_equal(one: fleet.Fleet, other: pyprof.Profile) -> None:
    """Every figure of the fleet is the one of the profile of all recordings, in the order of its rows."""
    for report in (report for report in every() if report.of_summary):
        for selection in [{}] + [{o.name: c} for o in report.options for c in list(o.choices)[1:]]:
            mine, expected = one.report(report.name, **selection), other.report(report.name, **selection)
            pd.testing.assert_frame_equal(mine, expected, obj=report.name)
    pd.testing.assert_frame_equal(one.steps, other.steps)
    for table in ("iteration", "iteration_part", "iteration_device", "step", "pause", "worker", "device"):
        rows, expected = (
            sorted(profile.database.rows(f"select * from {table}"), key=repr) for profile in (one.summary, other)
        )
        assert rows == expected, table


def assert_main_figures_equal(one: fleet.Fleet, other: pyprof.Profile) -> None:
    """Figures of each step and of each rank are those of the profile of all recordings."""
    for report in ("detail", "communication", "group_node"):
        pd.testing.assert_frame_equal(one.report(report), other.report(report), obj=report)
    pd.testing.assert_frame_equal(one.steps, other.steps)


@pytest.mark.parametrize(
    "write",
    [planted, mixed, one_without_marks]
    + [pytest.param(one, marks=pytest.mark.long) for one in (*FOLDERS[2:5], one_step_each)],
    ids=lambda one: one.__name__,
)
def test_its_figures_are_those_of_all_recordings_at_once(write: Write, tmp_path: Path) -> None:
    write(tmp_path)
    run = run_of(tmp_path)
    assert_equal(fleet.open(run, 1, tmp_path / "store"), pyprof.load(run))


@pytest.mark.long
def test_its_figures_are_those_of_a_published_run(data: Path, client: Any, tmp_path: Path) -> None:
    import tarfile

    with tarfile.open(data / "kineto" / "dlrm_v100_8ranks.tar.gz") as tar:
        tar.extractall(tmp_path, filter="data")
    (run,) = (path for path in tmp_path.iterdir() if path.is_dir())
    opened = fleet.open(run, client, tmp_path / "store")
    assert_equal(opened, pyprof.load(run))
    assert (opened.ranks["summary_bytes"] < 2 << 20).all()
    rank3 = opened.profile("rank3")
    path = next(path for path in run.iterdir() if "worker3" in path.name)
    alone = pyprof.load(path)
    for name in ("idle", "step_time", "operator"):
        assert text_of(rank3.report(name)) == text_of(alone.report(name))


def test_s3_holds_recordings_and_results(client: Any, s3: str, tmp_path: Path) -> None:
    import s3fs

    planted_ranks.write(tmp_path / "run")
    store = s3fs.S3FileSystem(skip_instance_cache=True)
    store.put(f"{tmp_path}/run", "fleet/run", recursive=True)
    opened = fleet.open("s3://fleet/run/*.pt.trace.json", client, "s3://fleet/results")
    assert_equal(opened, pyprof.load(tmp_path / "run"))
    names = [name.rpartition(".")[2] for name in store.ls("fleet/results", detail=False, refresh=True)]
    assert {ending: names.count(ending) for ending in names} == {
        "json": 4,
        "sqlite": 5,
        "summary": 4,
        "parquet": 5,
    }
    assert text_of(opened.profile("rank2").report("op_type")) == text_of(
        pyprof.load(tmp_path / "run" / "rank2.1700000000000.pt.trace.json").report("op_type")
    )
    again = fleet.open("s3://fleet/run", client, "s3://fleet/results")
    assert again.ranks.equals(opened.ranks)  # its CPU-seconds as well: nothing was done again
    with pytest.raises(FormatError, match=r"s3://fleet/nowhere/\* holds no recording"):
        fleet.open("s3://fleet/nowhere/*", client, "s3://fleet/results")


@pytest.mark.long
def test_a_killed_worker_costs_its_task(s3: str, tmp_path: Path) -> None:
    """It is killed while it works on a recording, when others are done."""
    (tmp_path / "run").mkdir()
    for rank in range(8):
        kineto.write(
            tmp_path / "run" / f"rank{rank}.1700000000000.pt.trace.json", kineto.training() * 4,
            baseTimeNanoseconds=1_700_000_000_000_000_000 + rank,
        )  # fmt: skip
    one = Cluster({})
    lines: list[str] = []
    try:
        with one.client() as client:
            store = tmp_path / "store"

            def kill() -> None:
                until(lambda: store.is_dir() and len(list(store.glob("*.json"))) >= 2)
                os.kill(one.workers[0].pid, signal.SIGKILL)

            killer = threading.Thread(target=kill)
            killer.start()
            opened = fleet.open(tmp_path / "run", client, store, progress=lambda what, share: lines.append(what))
            killer.join()
            assert one.workers[0].wait() == -signal.SIGKILL
            assert opened.failed == {}
            assert_main_figures_equal(opened, pyprof.load(tmp_path / "run"))
            assert lines[-1] == "8 of 8 recordings"
            assert all(line.endswith("left") for line in lines[:-1])
    finally:
        one.end()


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    planted_ranks.write(tmp_path / "run")
    first = fleet.open(tmp_path / "run", 1, tmp_path / "store")
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").glob("*.json")}
    changed = tmp_path / "run" / "rank2.1700000000000.pt.trace.json"
    changed.write_text(changed.read_text().replace(planted_ranks.GEMM, "ampere_sgemm"))
    second = fleet.open(tmp_path / "run", 1, tmp_path / "store")
    again = {path.name for path, stamp in stamps.items() if path.stat().st_mtime_ns != stamp}
    assert len(again) == 1
    assert next(iter(again)).startswith("rank2")
    assert_main_figures_equal(second, pyprof.load(tmp_path / "run"))
    assert first.report("communication").equals(second.report("communication"))


def test_a_file_that_cannot_be_read_costs_itself(tmp_path: Path) -> None:
    planted_ranks.write(tmp_path / "run")
    broken = tmp_path / "run" / "rank1.1700000000000.pt.trace.json"
    broken.write_text(broken.read_text()[:200])
    opened = fleet.open(tmp_path / "run", 1, tmp_path / "store")
    assert list(opened.failed) == [str(broken)]
    assert str(broken) in opened.failed[str(broken)]
    assert_main_figures_equal(opened, pyprof.load(tmp_path / "run"))
    for path in (tmp_path / "run").iterdir():
        path.write_text(path.read_text()[:200])
    with pytest.raises(FormatError, match=r"none of 4 recordings can be read; the first is: .*rank0"):
        fleet.open(tmp_path / "run", 1, tmp_path / "store")


def test_missing_and_unreadable_ranks_are_named_wherever_figures_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 8 ranks, one has no file, one is no trace, one is cut off."""
    run, store, database = tmp_path / "run", tmp_path / "store", tmp_path / "run.sqlite"
    run.mkdir()
    name = "rank{}.1700000000000.pt.trace.json"
    for rank in (0, 1, 2, 3, 4, 7):
        facts = {"rank": rank, "world_size": 8, "backend": "nccl"}
        kineto.write(run / name.format(rank), kineto.training(), distributedInfo=facts)
    cut, garbage = run / name.format(3), run / name.format(5)
    cut.write_text(cut.read_text()[:150])
    garbage.write_text("garbage")
    said = []
    for words in (["--scheduler", "local:1", "-o", str(store)], ["-o", str(database)]):
        assert main(["save", str(run), *words]) == 0
        said.append(capsys.readouterr().err)
    for path in (store, database, run):
        assert main(["report", str(path)]) == 0
        output = capsys.readouterr()
        said.append(output.out + output.err)
    for text in said:
        flat = "".join(text.split())
        assert "rank6of8hasnorecording" in flat
    for text in said[:3]:
        assert all(one.name in "".join(text.split()) for one in (cut, garbage))
    opened = fleet.open(run, 1, store)
    assert list(opened.failed) == [str(cut), str(garbage), "rank 6"]
    assert opened.failed["rank 6"] == "rank 6 of 8 has no recording."
    assert "not a recording" in opened.failed[str(garbage)]
    assert_main_figures_equal(opened, pyprof.load(run))


def test_the_command_writes_a_fleet(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planted_ranks.write(tmp_path / "run")
    store = tmp_path / "store"
    words = ["save", str(tmp_path / "run"), "-o", str(store), "--scheduler"]
    assert main([*words, cluster.address]) == 0
    whole = pyprof.load(tmp_path / "run")
    pd.testing.assert_frame_equal(pd.read_parquet(store / "steps.parquet"), whole.steps, check_dtype=False)
    assert text_of(pd.read_parquet(store / "communication.parquet")) == text_of(whole.report("communication"))
    with pytest.raises(FormatError, match="is the summary of a fleet, which has no single events; show it with"):
        pyprof.load(store / fleet.SUMMARY)
    assert main([*words, "nowhere"]) == 2
    assert "expected tcp://HOST:PORT, local or local:N" in capsys.readouterr().err
    assert main([*words, "local:0"]) == 2
    assert main([*words, cluster.address, "--iter-start", "1"]) == 2


def _alive(group: int) -> list[int]:
    """The processes of a group that have not ended."""
    import psutil  # distributed needs it

    out = []
    for one in psutil.process_iter(["pid", "status"]):
        try:
            if one.info["status"] != psutil.STATUS_ZOMBIE and os.getpgid(one.pid) == group:
                out.append(one.pid)
        except ProcessLookupError:
            continue
    return out


@pytest.mark.long
def test_ctrl_c_ends_the_workers_and_says_that_it_can_go_on(tmp_path: Path) -> None:
    """The terminal sends it to the workers as well."""
    (tmp_path / "run").mkdir()
    for rank in range(60):
        kineto.write(tmp_path / "run" / f"rank{rank}.1700000000000.pt.trace.json", kineto.training() * 4)
    store = tmp_path / "store"
    command = [
        sys.executable,
        "-m",
        "pyprof",
        "save",
        str(tmp_path / "run"),
        "--scheduler",
        "local:1",
        "-o",
        str(store),
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    until(lambda: len(list(store.glob("*.json"))) >= 2)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert said == f"pyprof save: interrupted; what is done is in {store}, the same command goes on from there.\n"
    until(lambda: not _alive(process.pid))


@pytest.mark.parametrize("package", ["python", "pandas", "distributed", "pyprof"])
@pytest.mark.parametrize("where", ["the scheduler", "tcp"])
def test_other_versions_are_refused(package: str, where: str, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = client.get_versions(check=False, packages=["pandas", "pyarrow"])
    clusters.check_versions(client)
    name = where if where == "the scheduler" else next(iter(answer["workers"]))
    changed = json.loads(json.dumps(answer))
    machine = changed["scheduler"] if where == "the scheduler" else changed["workers"][name]
    if package == "pyprof":

        def fails(*_: Any, **__: Any) -> dict[str, Exception]:
            if where == "the scheduler":
                raise ModuleNotFoundError("No module named 'pyprof'")
            return {name: ModuleNotFoundError("No module named 'pyprof'")}

        monkeypatch.setattr(client, "run_on_scheduler" if where == "the scheduler" else "run", fails)
    machine["packages"][package] = "2.1.0"
    monkeypatch.setattr(client, "get_versions", lambda **_: changed)
    other = "not installed" if package == "pyprof" else "2.1"
    with pytest.raises(PyProfError, match=rf"^{name} has {package} {other}.*, this process \d"):
        clusters.check_versions(client)


def test_a_scheduler_without_workers_says_so(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = client.get_versions(check=False, packages=["pandas", "pyarrow"])
    monkeypatch.setattr(client, "get_versions", lambda **_: {**answer, "workers": {}})
    with pytest.raises(PyProfError, match="the scheduler has no workers"):
        clusters.check_versions(client)


def test_without_the_extra_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "find_spec", lambda name: None)
    with pytest.raises(PyProfError, match=r"a fleet needs fsspec: pip install '\.\[fleet\]'"):
        fleet.open("runs")
    with pytest.raises(PyProfError, match=r"a fleet needs fsspec: pip install '\.\[fleet\]'"):
        fleet.open("runs", Any)


def test_reports_of_events_and_unknown_ranks_are_refused(tmp_path: Path) -> None:
    planted_ranks.write(tmp_path / "run")
    opened = fleet.open(tmp_path / "run", 1, tmp_path / "store")
    with pytest.raises(
        UsageError, match="report 'idle' needs the events of the ranks, which the summary of a fleet does not"
    ):
        opened.report("idle")
    with pytest.raises(UsageError, match="worker rank9: there is no such worker; the fleet has rank0, rank1"):
        opened.profile("rank9")
    with pytest.raises(UsageError, match="is named twice"):
        fleet.open([str(tmp_path / "a.json")] * 2, 1)
    with pytest.raises(FormatError, match=r"nowhere: no such file; expected the path of"):
        fleet.open(tmp_path / "nowhere", 1)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"file is a file; expected the folder for databases"):
        fleet.open(tmp_path / "run", 1, tmp_path / "file")


_WITNESS = """
import os, sys
def note(event, arguments):
    if event in ("socket.bind", "socket.connect"):
        with open({file!r}, "a") as file:
            file.write(event + "\\n")
with open({file!r}, "a") as file:
    file.write("started\\n")
sys.addaudithook(note)
"""


@pytest.mark.parametrize(
    ("words", "processes"),
    [
        (["-m", "pyprof", "save", "run", "--scheduler", "local:2", "-o", "store"], 3),
        pytest.param(  # a run as small as this one
            ["-c", "import pyprof.fleet; pyprof.fleet.open('run', store='store')"], 1, marks=pytest.mark.long
        ),
    ],
)
def test_processes_of_this_machine_have_no_port(words: list[str], processes: int, tmp_path: Path) -> None:
    """Who reaches a port that a scheduler listens at may do what its user may."""
    planted_ranks.write(tmp_path / "run")
    log = tmp_path / "log"
    (tmp_path / "sitecustomize.py").write_text(_WITNESS.format(file=str(log)))
    root = str(Path(pyprof.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"}
    subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, check=True)
    assert log.read_text().split() == ["started"] * processes
    assert_main_figures_equal(fleet.open(tmp_path / "run", 2, tmp_path / "store"), pyprof.load(tmp_path / "run"))


def test_a_folder_of_several_runs_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        for rank in range(2):
            name = f"rank{rank}.{number}.json"
            kineto.write(tmp_path / name, kineto.training(), distributedInfo={"rank": 0, "world_size": 1})
    monkeypatch.setattr(clusters.Processes, "run", None)
    with pytest.raises(FormatError, match="4 files are"):
        fleet.open(tmp_path)


def test_an_operator_that_takes_longer_on_one_rank_is_named(tmp_path: Path) -> None:
    """On five ranks it takes 1000 to 1004 ns, on the sixth 1500: the median is 1003, and the limit 5.19 deviations."""
    times = [1000, 1001, 1500, 1002, 1003, 1004]
    folder = tmp_path / "run"
    folder.mkdir()
    for rank, ns in enumerate(times):
        text = f"{build.classic('relu', (2, 4))}\n    > {ns} relu_kernel\n"
        build.write_nsys(folder / f"net.rank{rank}.sqlite", build.recording(text))
    table = fleet.open(tmp_path / "run", 1, tmp_path / "store").operators()
    (row,) = table.to_dict("records")
    assert (row["worst"], row["outliers"]) == ("rank2", "rank2")
    assert (row["min_ns"], row["max_ns"], row["total_ns"], row["ranks"]) == (1000, 1500, sum(times), 6)
    assert row["mean_ns"] == sum(times) / 6
    assert row["std_ns"] == pytest.approx(np.std(times))


@pytest.mark.parametrize(
    ("cuts", "singles", "expected"),
    [
        ("marks marks", " ", "marks"),
        ("none marks", " ", "marks"),
        ("none optimizer", " ", "optimizer"),
        ("none none", "optimizer ", "none"),
        ("none operator", "dataloader dataloader", "dataloader"),
        ("marks marks", "optimizer optimizer", "marks"),
    ],
)
def test_a_run_is_cut_by_the_first_way_that_any_rank_has(cuts: str, singles: str, expected: str) -> None:
    ways = [Cut(method, None, method) for method in cuts.split()]
    assert common(ways, [one.split() for one in singles.split(" ")]).method == expected
