# SPDX-License-Identifier: Apache-2.0
"""Iterations and sums over them: found as the recording says, and the same however they are asked for."""

from __future__ import annotations

import hashlib
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import pyprof
from pyprof.core.errors import UsageError
from pyprof.facts.steps.aggregation import Aggregation, aggregate
from pyprof.profiles import Profile
from pyprof.store import packed
from pyprof.store.files import MAJOR, MINOR, Store
from tests import build

LINEAR = build.classic("linear", (2, 3), (4, 3))
RELU = build.classic("relu", (2, 4))
STEP = "{'mod': 'torch.optim', 'op': 'SGD.step', 'args': []}"
Load = Callable[[str], Profile]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    return lambda text: pyprof.load(build.write_nsys(tmp_path / "net.sqlite", build.recording(text)))


def body(indent: str = "") -> str:
    lines = f"{LINEAR}\n    > 30 volta_sgemm\n{RELU}\n    > 20 stream=8 relu_kernel\n"
    return "".join(f"{indent}{line}\n" for line in lines.splitlines())


def method(prof: Profile) -> tuple[str, int]:
    return prof.aggregation.method, len(prof.steps)


def test_without_any_sign_of_steps_the_run_is_one(load: Load) -> None:
    assert method(load(body())) == ("none", 1)


@pytest.mark.parametrize("name", ["ProfilerStep#{}", "step {}", "train_batch_{}"])
def test_ranges_named_like_steps_cut_from_start_to_start(load: Load, name: str) -> None:
    prof = load("".join(f"{name.format(i)}\n{body('    ')}wait 100\n" for i in range(3)))
    steps = prof.steps
    assert method(prof) == ("ranges", 3)
    assert steps["end_ns"][:2].tolist() == steps["start_ns"][1:].tolist()
    assert steps["kernels"].tolist() == [2, 2, 2]


def test_the_optimizer_cuts_at_its_ends_and_leaves_a_part(load: Load) -> None:
    prof = load("".join(f"{body()}{STEP}\n    > 5 sgd\n" for _ in range(3)) + body())
    steps = prof.steps
    assert method(prof) == ("optimizer", 4)
    assert steps["partial"].tolist() == [False, False, False, True]
    assert steps["kernels"].tolist() == [3, 3, 3, 2]


def test_the_data_loader_cuts_at_its_starts(load: Load) -> None:
    wait = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    prof = load("".join(f"{wait}\n    wait 40\n{body()}" for _ in range(3)))
    assert method(prof) == ("dataloader", 3)
    assert prof.steps["kernels"].tolist() == [2, 2, 2]
    assert (prof.steps["dataloader_ns"] > 0).all()


def test_passes_over_a_network_cut_the_rest(load: Load) -> None:
    prof = load("".join(body() for _ in range(5)))
    assert method(prof) == ("operator", 5)
    assert prof.aggregation.key == "linear"  # a pass begins with it
    assert prof.steps["kernels"].tolist() == [2, 2, 2, 2, 2]
    assert not prof.steps["partial"].any()


def test_a_key_operator_is_found_by_name_id_and_type(load: Load) -> None:
    prof = load("".join(body() for _ in range(3)))
    found = [prof.aggregate(key=key) for key in ("relu", "RELU_1")]
    assert [one.method for one in found] == ["key", "key"]
    with pytest.raises(UsageError, match=r"'rely' was not found; the nearest names are 'relu', "):
        prof.aggregate(key="rely")


@pytest.mark.parametrize(
    ("first", "last", "text"),
    [
        (0, 3, "iteration 3 does not exist, the run has iterations 0 to 2"),
        (-1, 2, "iteration -1 does not exist"),
        (2, 1, "2, is after the last, 1"),
    ],
)
def test_iterations_that_do_not_exist_are_refused(load: Load, first: int, last: int, text: str) -> None:
    prof = load("".join(f"step {i}\n{body('    ')}" for i in range(3)))
    with pytest.raises(UsageError, match=text):
        prof.aggregate(first, last)


def test_what_was_aggregated_is_found_again(load: Load) -> None:
    prof = load("".join(f"step {i}\n{body('    ')}" for i in range(3)))
    one = prof.aggregate(1, 2)
    assert prof.aggregate(1, 2) == one
    assert len(prof.aggregations) == 2
    assert prof.aggregation == one


def random_run(rng: random.Random) -> str:
    """Steps of random bodies on several streams, threads and processes."""
    out = []
    for number in range(rng.randint(2, 6)):
        lines = [f"step {number}"]
        for _ in range(rng.randint(1, 5)):
            lines += [f"    {rng.choice((LINEAR, RELU))}"]
            for _ in range(rng.randint(0, 3)):
                kernel = rng.choice(("volta_sgemm", "relu_kernel", "ncclAllReduce"))
                lines += [
                    f"        > {rng.randint(1, 60)} stream={rng.randint(7, 9)} device={rng.randint(0, 1)} {kernel}"
                ]
        lines += [f"wait {rng.randint(0, 90)}"]
        out += lines
    return "\n".join(out) + "\n"


@pytest.mark.parametrize("seed", range(2))
def test_statistics_are_sums_over_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Any range of iterations, four rows at a time: what SQL adds up."""
    monkeypatch.setattr(packed, "MOST_ROWS", 4)
    rng = random.Random(seed)
    path = build.write_nsys(tmp_path / "net.sqlite", build.recording(random_run(rng)))
    prof = pyprof.load(path)
    store, count = prof.database, len(prof.steps)
    for first in range(count):
        for last in range(first, count):
            check(store, prof.aggregate(first, last))


def check(store: Store, one: Aggregation) -> None:
    bounds = store.rows(
        """select min(first_op), max(last_op), min(first_event), max(last_event) from iteration
           where iteration_set = ? and number between ? and ?""",
        (one.iteration_set, one.first, one.last),
    )[0]
    expected = store.rows(
        """select operator, count(*), sum(kernels), sum(kernel_ns), sum(cpu_ns), sum(gpu_ns), sum(cpu_ns - api_ns),
                  sum(idle_ns), min(cpu_ns), max(cpu_ns), min(gpu_ns), max(gpu_ns)
           from op where id >= ? and id < ? group by operator order by operator""",
        bounds[:2],
    )
    found = store.rows(
        """select operator, calls, kernels, kernel_ns, cpu_ns, gpu_ns, overhead_ns, idle_ns, cpu_min_ns, cpu_max_ns,
                  gpu_min_ns, gpu_max_ns
           from op_stat where aggregation = ? order by operator""",
        (one.id,),
    )
    assert found == expected
    expected = store.rows(
        """select e.operator, e.name, coalesce(e.tc, 3), count(*), sum(e.duration_ns), sum(a.duration_ns),
                  min(e.duration_ns), max(e.duration_ns), min(a.duration_ns), max(a.duration_ns)
           from event e left join api a on a.id = e.api where e.id >= ? and e.id < ?
           group by 1, 2, 3 order by 1, 2, 3""",
        bounds[2:],
    )
    found = store.rows(
        """select operator, name, tc, calls, gpu_ns, api_ns, gpu_min_ns, gpu_max_ns, api_min_ns, api_max_ns
           from op_kernel_stat where aggregation = ? order by 1, 2, 3""",
        (one.id,),
    )
    assert found == expected


@pytest.mark.parametrize("seed", range(2))
def test_the_parts_of_iterations_are_their_lengths(tmp_path: Path, seed: int) -> None:
    path = build.write_nsys(tmp_path / "net.sqlite", build.recording(random_run(random.Random(seed))))
    prof = pyprof.load(path)
    for parts, length in prof.database.rows(
        """select tc_ns + kernel_ns + memory_ns + dataloader_ns + io_ns + cpu_ns + other_ns, end_ns - start_ns
           from iteration_part join iteration i using (iteration_set, worker, number)"""
    ):
        assert parts == length


def test_reading_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "net_dldb.sqlite"
    pyprof.load(build.write_nsys(tmp_path / "net.sqlite", build.recording(body()))).save(path)
    before = hashlib.sha256(path.read_bytes()).digest()
    prof = pyprof.load(path)
    prof.kernels, prof.ops, prof.steps, prof.devices, prof.findings, prof.coverage, prof.report("op_type")
    prof._repr_html_()
    prof.database.close()
    assert hashlib.sha256(path.read_bytes()).digest() == before
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith("net_dldb")] == [path.name]


def test_an_aggregation_that_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "net_dldb.sqlite"
    text = "".join(f"step {i}\n{body('    ')}" for i in range(3))
    pyprof.load(build.write_nsys(tmp_path / "net.sqlite", build.recording(text))).save(path)
    before = path.read_bytes()

    def stop(share: float) -> None:
        if share > 0.9:
            raise KeyboardInterrupt

    with Store(path) as store, pytest.raises(KeyboardInterrupt):
        aggregate(store, 1, 2, progress=stop)
    assert path.read_bytes() == before


def test_every_event_belongs_to_one_execution(tmp_path: Path) -> None:
    """Copies, kernels outside of operators and those without a launch record among them: the sums close."""
    path = build.write_nsys(
        tmp_path / "net.sqlite",
        build.recording(body() + "> 9 lonely\n> 8 correlation=none lost\n" + body()),
    )
    prof = pyprof.load(path)
    store = prof.database
    assert store.rows("select count(*) from event where op is null or operator is null") == [(0,)]
    total = store.rows("select sum(duration_ns) from event where kind = 0")
    assert store.rows("select sum(kernel_ns) from op_stat") == total
    assert store.rows("select sum(gpu_ns) from op_kernel_stat") == total
    names = [name for (name,) in store.rows("select name from operator where unassociated order by name")]
    assert names == ["unassociated_cudaLaunchKernel", "unassociated_gpu_event"]


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table t (a)")
    with pytest.raises(pyprof.PyProfError, match="not a profile database"):
        Store(path)
    with pytest.raises(pyprof.PyProfError, match="no such file"):
        Store(tmp_path / "absent")


@pytest.mark.parametrize(("name", "version"), [("schema_major", f"3.{MINOR}"), ("schema_minor", "2.7")])
def test_another_version_is_refused_with_both_named(tmp_path: Path, name: str, version: str) -> None:
    path = tmp_path / "net_dldb.sqlite"
    pyprof.load(build.write_nsys(tmp_path / "net.sqlite", build.recording(body()))).save(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        value = version.partition(".")[0] if name == "schema_major" else version.partition(".")[2]
        connection.execute("update meta set value = ? where name = ?", (value, name))
    with pytest.raises(pyprof.PyProfError, match=rf"schema {version}, this PyProf reads up to {MAJOR}\.{MINOR}\."):
        pyprof.load(path)


DAMAGE = [
    ("alter table event rename column duration_ns to length", "table event lacks duration_ns"),
    ("drop table iteration", "table iteration lacks iteration_set"),
    ("update event set start_ns = 'x'", ""),
    ("update op set cpu_ns = 'x'", ""),
]


@pytest.mark.parametrize(("change", "text"), DAMAGE)
def test_a_damaged_database_is_a_sentence(tmp_path: Path, change: str, text: str) -> None:
    """Whatever is asked of it: a figure, or one of our own errors that names the file."""
    path = tmp_path / "net_dldb.sqlite"
    run = "".join(f"step {i}\n{body('    ')}" for i in range(3))
    pyprof.load(build.write_nsys(tmp_path / "net.sqlite", build.recording(run))).save(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(change)
    with pytest.raises(pyprof.PyProfError, match=f"net_dldb.sqlite is damaged .*{text}"):
        ask_everything(path)


def ask_everything(path: Path) -> None:
    prof = pyprof.load(path)
    prof.kernels, prof.ops, prof.report("iteration"), prof.report("detail")
    prof.aggregate(key="relu")


def test_a_process_that_has_a_node_of_autograd_alone(load: Load) -> None:
    """Without a number, as an older torch names it: it is an operator, and its process a worker."""
    node = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    prof = load(f"{body()}thread 1 process 300\n{node}\n    wait 9")
    workers = "select worker.pid, count(*) from op join worker on worker.id = op.id >> 40 group by 1 order by 1"
    assert prof.database.rows(workers) == [(100, 2), (300, 1)]
