# SPDX-License-Identifier: Apache-2.0
"""A run goes into the database one recording at a time, with the figures of all recordings read at once."""

from __future__ import annotations

import random
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

import pyprof
from pyprof.core.errors import FormatError
from pyprof.parse import loader
from pyprof.profiles import Profile
from pyprof.reports import every
from pyprof.store import files
from pyprof.store.write.parts import Part
from tests import build, kineto
from tests.server import planted_ranks

LINEAR = build.classic("linear", (2, 3), (4, 3))
RELU = build.classic("relu", (2, 4))
GPU = f"{LINEAR}\n    > 40 volta_sgemm\n    + 7 graph=5 reduce_kernel\n{RELU}\n    > 30 stream=8 relu_kernel\n"
CPU = ("op aten::relu\n    wait 50\n", "op aten::addmm\n    wait 70\n")


def planted(folder: Path) -> None:
    """Ranks on hosts whose clocks differ, one of them in the first step alone."""
    planted_ranks.write(folder / "run")


def mixed(folder: Path) -> None:
    """An export of nsys, a capture of another rank, and a capture without a GPU, as of a launcher."""
    for rank, (write, text) in enumerate([(build.write_nsys, GPU), (build.write_capture, f"wait 100\n{GPU}")]):
        write(folder / f"net.rank{rank}.sqlite", build.recording(text))
    build.write_capture(folder / "net.sqlite", build.recording("".join(CPU)))


def without_gpu(folder: Path) -> None:
    """Captures of operators alone, of two ranks that call the same in another order, and one of a range alone."""
    for rank, text in enumerate(["".join(CPU), "".join(CPU[::-1])]):
        build.write_capture(folder / f"net.rank{rank}.sqlite", build.recording(text))
    build.write_nsys(folder / "net.rank2.sqlite", build.recording("nothing"))


def unknown_process(folder: Path) -> None:
    """Exports of two processes each, with GPU events of a process that they do not name."""
    text = f"{LINEAR}\n    > 5 volta_sgemm\nthread 1 process 300\n{LINEAR}\n    > 6 volta_sgemm\n"
    for name in ("a", "b"):
        path = build.write_nsys(folder / f"{name}.sqlite", build.recording(text))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("update CUPTI_ACTIVITY_KIND_KERNEL set globalPid = null, correlationId = 999")
            connection.commit()


def clocks(folder: Path) -> None:
    """Traces of ranks whose recordings begin at other times, named in another order than their ranks."""
    for rank in range(3):
        kineto.write(
            folder / f"host{9 - rank}.1700000000000.pt.trace.json", kineto.training(),
            baseTimeNanoseconds=1_700_000_000_000_000_000 + 1000 * rank, distributedInfo={"rank": rank},
        )  # fmt: skip


def archive(folder: Path) -> None:
    """An archive of two ranks."""
    planted_ranks.write(folder / "made")
    with tarfile.open(folder / "run.tar.gz", "w:gz") as tar:
        for path in sorted((folder / "made").iterdir())[:2]:
            tar.add(path, path.name)
            path.unlink()
    for path in (folder / "made").iterdir():
        path.unlink()
    (folder / "made").rmdir()


FOLDERS: list[Callable[[Path], None]] = [planted, mixed, without_gpu, unknown_process, clocks, archive]


def text_of(frame: pd.DataFrame) -> list[str]:
    """The rows, as text, in an order of their own: rows that a report sorts by equal figures may be in any."""
    return sorted(map(repr, frame.astype(object).where(frame.notna(), None).values.tolist()))


# Of each group of tables one: events, calls and ranges, operators, ranks, sums, losses.
FEW = ("idle", "operator", "stragglers", "kernel_summary", "op_type", "coverage")


def assert_same(one: Profile, other: Profile, whole: bool = False) -> None:
    """The data frames and a few reports have the same rows; `whole`: all reports with all options."""
    for report in every():
        choices = [{o.name: c} for o in report.options for c in list(o.choices)[1:]]
        for selection in [{}, *choices] if whole else [{}] if report.name in FEW else []:
            mine, theirs = one.report(report.name, **selection), other.report(report.name, **selection)
            assert text_of(mine) == text_of(theirs), (report.name, selection)
    for name in ("kernels", "ops", "steps", "devices", "coverage"):
        assert text_of(getattr(one, name)) == text_of(getattr(other, name)), name
    assert one.database.meta.keys() == other.database.meta.keys()


def at_once(path: Path) -> Profile:
    """The profile of all recordings read at once."""
    return Profile(loader.load(path))


@pytest.mark.parametrize(
    "write",
    [planted, mixed, unknown_process]
    + [pytest.param(one, marks=pytest.mark.long) for one in (without_gpu, clocks, archive)],
    ids=lambda write: write.__name__,
)
def test_one_recording_at_a_time_has_the_figures_of_all_at_once(write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path)
    assert_same(pyprof.load(tmp_path), at_once(tmp_path))


@pytest.mark.long
def test_ranks_of_a_published_run_have_the_figures_of_all_at_once(data: Path) -> None:
    path = data / "kineto" / "dlrm_v100_8ranks.tar.gz"
    assert_same(pyprof.load(path), at_once(path), whole=True)


def test_operators_are_numbered_by_what_they_are(tmp_path: Path) -> None:
    """Two ranks call the same operators in another order: each is one operator, named after the first rank's order."""
    lines = [build.stack(f"train.py:{line}") for line in (3, 9)]
    relu = [f"{line}\n    {RELU}\n        > {10 + i} relu_kernel\n" for i, line in enumerate(lines)]
    for rank, order in enumerate([(0, 1), (1, 0)]):
        text = "".join(relu[i] for i in order)
        build.write_capture(tmp_path / f"net.rank{rank}.sqlite", build.recording(text))
    prof = pyprof.load(tmp_path)
    ops = prof.ops[prof.ops["kernels"] > 0]
    names = ops.groupby("worker", observed=True)["name"].agg(list).to_dict()
    assert names["rank0"] == names["rank1"][::-1]
    assert len(set(names["rank0"])) == 2
    assert text_of(prof.ops) == text_of(at_once(tmp_path).ops)


def test_a_saved_run_can_be_saved_again_and_read_as_a_recording(tmp_path: Path) -> None:
    planted_ranks.write(tmp_path / "run")
    prof = pyprof.load(tmp_path / "run")
    for name in ("one", "two"):
        prof.save(tmp_path / f"{name}.sqlite")
    one, two = (pyprof.load(tmp_path / f"{name}.sqlite") for name in ("one", "two"))
    assert text_of(one.kernels) == text_of(two.kernels)
    assert len(prof.trace.processes) == planted_ranks.RANKS


def test_a_recording_that_cannot_be_read_costs_itself(tmp_path: Path) -> None:
    planted_ranks.write(tmp_path / "run")
    broken = tmp_path / "run" / "rank1.1700000000000.pt.trace.json"
    broken.write_text(broken.read_text()[:200])
    prof = pyprof.load(tmp_path / "run")
    assert set(prof.devices["worker"]) == {"rank0", "rank2", "rank3"}
    lost = prof.coverage.astype(str).to_string()
    assert "rank1.1700000000000.pt.trace.json" in lost
    for path in (tmp_path / "run").iterdir():
        path.write_text(path.read_text()[:200])
    with pytest.raises(FormatError, match=r"none of its 4 recordings can be read; the first is: .*rank0"):
        pyprof.load(tmp_path / "run")


def test_a_run_of_nothing_says_so(tmp_path: Path) -> None:
    for rank in range(2):
        build.write_nsys(tmp_path / f"net.rank{rank}.sqlite", build.recording("nothing"))
    with pytest.raises(FormatError, match=r"none of its 2 recordings can be read"):
        pyprof.load(tmp_path)


def test_progress_names_the_recordings(tmp_path: Path) -> None:
    planted_ranks.write(tmp_path / "run")
    stages: list[tuple[str, float]] = []
    Profile.open(tmp_path / "run", progress=lambda what, share: stages.append((what, share)))
    assert ("reading, 3 of 4 recordings", 0.75) in stages


@pytest.mark.parametrize("cut", [0, 3, 20, 4000])
def test_a_damaged_part_is_refused(cut: int, tmp_path: Path) -> None:
    """Parts of a fleet lie in a store, where anything may have happened to them."""
    from pyprof.store.write import parts

    trace = loader.load(build.write_nsys(tmp_path / "net.sqlite", build.recording(GPU)))
    with open(tmp_path / "part", "wb") as file:
        parts.write(trace, file)
    content = (tmp_path / "part").read_bytes()
    damaged: list[bytes] = [content[:cut], content[cut + 1 :] if cut else b""]
    noise = random.Random(cut)
    damaged += [bytes(noise.randrange(256) for _ in range(cut))]
    for one in damaged:
        with pytest.raises(FormatError, match=r"rank3 is no part of a run"), Part(one, "rank3") as part:
            _ = [part.whole(piece.table) for piece in part.pieces]


def test_every_table_is_combined_by_intent() -> None:
    """A new one: what its columns refer to is said in combine.py, and whether a fleet needs it in summary.py."""
    derived = {
        "meta",
        "lost",
        "packed",
        "track",
        "tile",
        "label",
        "place",
    }  # written once, of the whole database
    known = {
        "worker", "thread", "device", "stack", "source", "string", "operator", "op", "api", "kernel_name", "geometry",
        "verdict", "site", "event", "range", "replayed", "memory", "collective", "io", "dataloader", "loader_batch",
        "step", "pause", "iteration_set", "iteration", "iteration_part", "iteration_device", "aggregation",
        "op_stat", "op_kernel_stat", "launch", "moment", "moment_operator",
    }  # fmt: skip
    assert files.schema().keys() == derived | known
    assert files.schema(of_summary=True).keys() == derived | known | {"recording"}
