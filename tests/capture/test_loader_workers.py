# SPDX-License-Identifier: Apache-2.0
"""Workers of a DataLoader: what each batch took them, and which wait of the loop was for it."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
import queue
import random
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from time import sleep
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

import pyprof
from pyprof.capture.core import worker_log
from pyprof.capture.core.worker_log import CAPACITY, Batch, SharedLog
from pyprof.capture.instrument import loader_workers
from pyprof.capture.instrument.loader_workers import Followed, Wait
from tests.forks import Forks

from .conftest import Recorded

pytestmark = pytest.mark.filterwarnings("ignore")
MS = 1_000_000
FILE = __file__
SAMPLE, COLLATE = 5 * MS, 10 * MS  # ns that they sleep, at least


class Sleeps(Dataset[torch.Tensor]):
    """Each of its samples takes 5 ms, and number 5 takes 30 ms."""

    def __init__(self, count: int = 12):
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        sleep((6 if index == 5 else 1) * SAMPLE / 1e9)
        return torch.tensor([index, random.random(), np.random.rand(), torch.rand(1).item()])


class AtOnce(Sleeps):
    """Gets all samples of a batch in one call."""

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        assert type(indices) is list
        sleep(SAMPLE / 1e9)
        return [torch.tensor(index) for index in indices]


class Stream(IterableDataset[torch.Tensor]):
    """Ten samples in each worker."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        for index in range(10):
            sleep(SAMPLE / 1e9)
            yield torch.tensor(index)


def collate(samples: list[torch.Tensor]) -> torch.Tensor:
    sleep(COLLATE / 1e9)
    return torch.stack(samples)


def start(worker: int) -> None:
    torch.rand(worker)


class Made(NamedTuple):
    """A row of PYPROF_LOADER_BATCH."""

    loader: int
    pid: int
    number: int
    samples: int
    start: int
    collate_start: int
    collate_end: int
    send_end: int
    cpu: int
    send_cpu: int
    slowest: int | None
    slowest_sample: int | None
    pin_start: int | None
    pin_end: int | None
    wait_start: int | None
    wait_end: int | None


def rows(path: Path) -> list[Made]:
    recorded = Recorded(path)
    if not recorded.query("select 1 from sqlite_master where name = 'PYPROF_LOADER_BATCH'"):
        return []
    return [Made(*row) for row in recorded.query("select * from PYPROF_LOADER_BATCH order by start")]


def facts(path: Path) -> dict[str, str]:
    return {name: text for name, text in Recorded(path).table("PYPROF_META").items() if "loader" in name}


def consume(loader: DataLoader[Any]) -> list[torch.Tensor]:
    return [torch.mul(batch, 1) for batch in loader]


def line(function: Any) -> int:
    return int(function.__code__.co_firstlineno)


SPAWNED = [pytest.param(method, marks=pytest.mark.long) for method in ("spawn", "forkserver")]


@pytest.mark.parametrize("method", ["fork", *SPAWNED])
def test_each_batch_has_its_stages_and_the_wait_for_it(method: str, tmp_path: Path) -> None:
    """12 samples in batches of 4, by two workers."""
    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path)):
        consume(DataLoader(Sleeps(), 4, num_workers=2, collate_fn=collate, multiprocessing_context=method))
    batches = rows(path)
    assert sorted(row.number for row in batches) == [0, 1, 2]
    assert len({row.pid for row in batches}) == 2
    for row in batches:
        slow = row.number == 1  # has sample 5
        assert row.samples == 4
        assert row.collate_start - row.start >= (9 if slow else 4) * SAMPLE
        assert row.collate_end - row.collate_start >= COLLATE
        assert row.slowest is not None
        assert row.slowest >= (6 if slow else 1) * SAMPLE
        assert row.slowest_sample == 5 or not slow
        assert row.collate_end <= row.send_end
        assert 0 < row.cpu < row.collate_end - row.start  # it sleeps
        assert row.wait_start is not None
        assert row.wait_end is not None
        assert row.wait_start <= row.wait_end
        assert row.collate_end <= row.wait_end
        assert row.pin_start is None
    assert facts(path).items() >= {
        "loader.0.workers_recorded": "yes", "loader_workers.0.workers": "2",
        "loader_workers.0.samples": f"Sleeps.__getitem__ ({FILE}:{line(Sleeps.__getitem__)})",
        "loader_workers.0.collate_fn": f"collate ({FILE}:{line(collate)})",
    }.items()  # fmt: skip


@pytest.mark.parametrize("method", ["fork", SPAWNED[0]])
def test_batches_are_bit_equal(method: str, tmp_path: Path) -> None:
    """With all generators of random numbers, whose states go on the same way."""

    def run() -> list[Any]:
        for seed in (torch.manual_seed, random.seed, np.random.seed):
            seed(3)
        loader = DataLoader(
            Sleeps(6), 2, shuffle=True, num_workers=2, worker_init_fn=start, multiprocessing_context=method
        )
        batches = [batch.tolist() for _ in range(2) for batch in loader]
        return [batches, torch.rand(1).item(), random.random(), np.random.rand()]

    plain = run()
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        torch.ones(2).add(1)
        recorded = run()
    assert recorded == plain
    assert len(rows(tmp_path / "net.sqlite")) == 6
    pyprof.shutdown()
    assert run() == plain


def test_an_iterable_dataset_ends_with_fewer_samples(tmp_path: Path) -> None:
    """Each of two workers makes batches of 4, 4 and 2."""
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        consume(DataLoader(Stream(), 4, num_workers=2))
    batches = rows(tmp_path / "net.sqlite")
    assert sorted(row.samples for row in batches) == [2, 2, 4, 4, 4, 4]
    assert all(row.collate_start - row.start >= row.samples * SAMPLE for row in batches)
    assert {row.slowest_sample for row in batches} == {None}
    assert all(row.slowest is not None and row.slowest >= SAMPLE for row in batches)
    assert facts(tmp_path / "net.sqlite")["loader_workers.0.samples"].startswith("Stream.__iter__ (")


@pytest.mark.parametrize(
    ("loader", "samples", "single"),
    [
        (lambda: DataLoader(AtOnce(4), 2, num_workers=1), [2, 2], False),
        (lambda: DataLoader(Sleeps(2), batch_size=None, num_workers=1), [1, 1], False),
        (lambda: DataLoader(Subset(Sleeps(4), [0, 3]), 2, num_workers=1), [2], False),
        (lambda: DataLoader(Sleeps(2), batch_sampler=[(0, 1)], num_workers=1), [2], False),
        (lambda: DataLoader(Sleeps(3), 2, num_workers=1, drop_last=True), [2], True),
    ],
)
def test_samples_are_counted(
    loader: Callable[[], DataLoader[Any]], samples: list[int], single: bool, tmp_path: Path
) -> None:
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        consume(loader())
    batches = rows(tmp_path / "net.sqlite")
    assert [row.samples for row in batches] == samples
    assert {row.slowest is not None for row in batches} == {single}


def test_workers_that_persist_begin_anew_after_a_break(tmp_path: Path) -> None:
    """The loop leaves the first epoch after one batch; those that were made ahead are of that epoch."""
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        loader = DataLoader(Sleeps(12), 2, num_workers=2, persistent_workers=True)
        for batch in loader:
            torch.mul(batch, 1)
            break
        assert len(consume(loader)) == 6
    batches = rows(tmp_path / "net.sqlite")
    waits = [row for row in batches if row.wait_end is not None]
    assert [row.number for row in sorted(waits, key=lambda row: row.wait_end or 0)] == [0, 0, 1, 2, 3, 4, 5]
    assert all(row.collate_end <= (row.wait_end or 0) for row in waits)
    assert len(batches) > len(waits)
    del loader


class Raises(Sleeps):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 3:
            raise KeyError("of the program")
        return super().__getitem__(index)


class Dies(Sleeps):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 3:
            sleep(0.1)  # until the batch before has been sent
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


@pytest.mark.parametrize(
    ("dataset", "error", "text"),
    [(Raises, KeyError, "of the program"), (Dies, RuntimeError, "killed by signal|exited unexpectedly")],
)
def test_a_worker_that_fails_leaves_what_it_has_sent(
    dataset: type[Sleeps], error: type[Exception], text: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=text), pyprof.profile(str(tmp_path / "net.sqlite")):
        consume(DataLoader(dataset(), 2, num_workers=1))
    assert [row.number for row in rows(tmp_path / "net.sqlite")][:1] == [0]
    assert 1 not in [row.number for row in rows(tmp_path / "net.sqlite")]
    assert [path.name for path in tmp_path.iterdir()] == ["net.sqlite"]


def leftovers() -> tuple[int, int, int, int]:
    gc.collect()
    memory = Path("/dev/shm")
    shared = len(list(memory.iterdir())) if memory.is_dir() else 0
    return (
        len(os.listdir("/proc/self/fd")),
        shared,
        len(multiprocessing.active_children()),
        threading.active_count(),
    )


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc")
def test_nothing_is_left_behind(tmp_path: Path) -> None:
    path = str(tmp_path / "net.sqlite")
    with pyprof.profile(path):  # whatever is opened once
        consume(DataLoader(Sleeps(2), 1, num_workers=1))
    before = leftovers()
    for _ in range(3):
        with pyprof.profile(path):
            torch.ones(2).add(1)
            for batch in DataLoader(Sleeps(), 2, num_workers=2):
                torch.mul(batch, 1)
                break
            del batch
    assert all(after <= least for after, least in zip(leftovers(), before))
    assert loader_workers.followed == []
    pyprof.shutdown()
    names = {name for name in vars(torch.utils.data._utils.worker) if "pyprof" in name}
    assert not names
    assert "pyprof" not in torch.utils.data._utils.worker._worker_loop.__class__.__module__


def test_logs_of_epochs_in_one_window_are_released(tmp_path: Path) -> None:
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        for _ in range(3):
            consume(DataLoader(Sleeps(2), 1, num_workers=1))
        gc.collect()
        loader_workers.forget_gone()
        assert [one._log for one in loader_workers.followed] == [None] * 3
    assert [row.number for row in rows(tmp_path / "net.sqlite")] == [0, 1] * 3


def test_a_window_in_the_middle_has_the_batches_from_then_on(tmp_path: Path) -> None:
    pyprof.init()
    batches = iter(DataLoader(Sleeps(40), 2, num_workers=1, prefetch_factor=2))
    for _ in range(10):
        next(batches)
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        for _ in range(5):
            torch.mul(next(batches), 1)
    numbers = [row.number for row in rows(tmp_path / "net.sqlite")]
    assert set(range(10, 15)) <= set(numbers)
    assert min(numbers) >= 9  # one may have been sent, and not yet used
    del batches


def test_workers_from_before_pyprof_are_said_not_to_be_recorded(tmp_path: Path) -> None:
    pyprof.shutdown()
    batches = iter(DataLoader(Sleeps(), 2, num_workers=1))
    next(batches)
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        torch.mul(next(batches), 1)
    assert rows(tmp_path / "net.sqlite") == []
    assert facts(tmp_path / "net.sqlite")["loader.0.workers_recorded"] == "no"
    del batches


def test_without_workers_there_is_no_table(tmp_path: Path) -> None:
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        consume(DataLoader(Sleeps(2), 1))
    assert rows(tmp_path / "net.sqlite") == []
    assert not {"loader.0.workers_recorded", "loader_workers.0.workers"} & facts(tmp_path / "net.sqlite").keys()


@pytest.mark.parametrize("name", ["_timed", "SharedLog", "follow"])
def test_a_fault_of_pyprof_reaches_neither_worker_nor_loop(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("injected")

    if name == "SharedLog":
        monkeypatch.setattr(loader_workers, name, broken)
    elif name == "_timed":
        monkeypatch.setattr(worker_log, name, broken)
    else:
        monkeypatch.setattr(worker_log._Worker, "_sent", broken)
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        assert len(consume(DataLoader(Sleeps(4), 2, num_workers=1))) == 2
    assert rows(tmp_path / "net.sqlite") == []


def test_a_spawned_worker_gets_the_log_by_its_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """What pickle makes of the loop: it writes to the memory that the parent reads."""
    log = SharedLog(2)
    loop = loader_workers._WorkerLoop(worker_log.torch_loop())
    assert loop.__reduce__()[0] is worker_log.torch_loop
    monkeypatch.setattr(loader_workers._starting, "log", log)
    assert loop.__reduce__()[0] is worker_log.torch_loop  # nothing is spawned

    class Spawning:
        class DupFd(NamedTuple):
            number: int

            def detach(self) -> int:
                return os.dup(self.number)

        def duplicate_for_child(self, number: int) -> int:
            return number

    monkeypatch.setattr(multiprocessing.context._tls, "spawning_popen", Spawning(), raising=False)
    function, arguments = loop.__reduce__()
    attached = function(*arguments)
    assert isinstance(attached, functools.partial)
    attached.args[1].append(1, 0, range(10))
    assert log.read(1, 0) == ([Batch(*range(10))], 1)


def test_a_log_keeps_the_last_batches_and_counts_the_others() -> None:
    """Of 10 more than it holds, the first 10 are lost."""
    log = SharedLog(1)
    for number in range(CAPACITY + 10):
        log.append(0, number, (number,) * 10)
    batches, end = log.read(0, 0)
    assert end == CAPACITY + 10
    assert [batch.number for batch in batches] == list(range(11, CAPACITY + 10))  # 10 may be half overwritten

    class Iterator:
        _workers = (threading.current_thread(),)
        _prefetch_factor = 2
        _pin_memory = False
        _dataset = Sleeps()
        _collate_fn = staticmethod(collate)

    threading.current_thread().pid = 1  # type: ignore[attr-defined]
    iterator = Iterator()
    followed = Followed(SharedLog(1), iterator)
    followed._log = log
    assert len(followed.rows(0)) == CAPACITY - 1
    assert followed.lost == 11


def test_memory_that_is_pinned_is_timed() -> None:
    """The thread's loop is a stand-in: it takes a batch, 'pins' it for 5 ms, and hands it on."""

    def loop(in_queue: Any, out_queue: Any, device: int) -> None:
        for _ in range(2):
            item = in_queue.get(timeout=1)
            sleep(SAMPLE / 1e9)
            out_queue.put(item, timeout=1)

    incoming: queue.Queue[Any] = queue.Queue()
    outgoing: queue.Queue[Any] = queue.Queue()
    incoming.put(("an epoch begins", None))
    incoming.put((7, "batch"))
    loader_workers.recorder.keeping = True
    try:
        loader_workers._pinning(loop)(incoming, outgoing, 0)
    finally:
        loader_workers.recorder.keeping = False
    assert [outgoing.get(), outgoing.get()] == [("an epoch begins", None), (7, "batch")]
    (pinned,) = vars(outgoing)[loader_workers._PINS]
    assert pinned.number == 7
    assert pinned.end - pinned.start >= SAMPLE


def test_a_wait_is_for_the_last_batch_of_its_number() -> None:
    """Epochs of workers that persist: number 0 was made at 10 and never used, and again at 50."""
    batches = [Batch(0, 1, 0, 5, ready, 0, 0, 0, ready, 0) for ready in (10, 50)]
    assert loader_workers._joined(batches, [Wait(0, 40, 60)]) == {1: Wait(0, 40, 60)}
    assert loader_workers._joined(batches, [Wait(0, 5, 12), Wait(0, 40, 60)]).keys() == {0, 1}


def test_a_run_records_them_too(tmp_path: Path, forks: Forks) -> None:
    source = """
import torch
from torch.utils.data import DataLoader, TensorDataset
for batch, in DataLoader(TensorDataset(torch.ones(6, 2)), 2, num_workers=2, multiprocessing_context="fork"):
    batch.add(1)
print("done")
"""
    code, program = forks.run(tmp_path, source, "run", "--quiet", "-o", "net.sqlite")
    assert (code, program.stdout) == (0, "done\n")
    assert program.stderr.count("\n") == 1
    assert sorted(row.number for row in rows(tmp_path / "net.sqlite")) == [0, 1, 2]


class Unusual(Sleeps):
    def __getitem__(self, index: int) -> torch.Tensor:
        raise KeyError("of the program")


def broken(samples: list[torch.Tensor]) -> torch.Tensor:
    raise KeyError("of the program")


@pytest.mark.parametrize(("dataset", "function"), [(Unusual(2), collate), (Sleeps(2), broken)])
def test_tracebacks_are_the_programs_own(
    dataset: Sleeps, function: Callable[[list[torch.Tensor]], torch.Tensor], tmp_path: Path
) -> None:
    """In the worker, whose traceback is text, and in the loop."""
    with (
        pytest.raises(KeyError, match="of the program") as raised,
        pyprof.profile(str(tmp_path / "net.sqlite")),
    ):
        consume(DataLoader(dataset, 2, num_workers=1, collate_fn=function))
    files = [frame.filename for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert FILE in files
    own = str(Path(pyprof.__file__).parent)
    assert not [name for name in files if name.startswith(own)]
    assert own not in str(raised.value)
    assert FILE in str(raised.value)
