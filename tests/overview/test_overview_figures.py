# SPDX-License-Identifier: Apache-2.0
"""Every number of the overview is that of the report where it belongs."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyprof import profiles
from pyprof.overview.figures import Figures, figures, user_line
from pyprof.overview.html import Overview
from pyprof.overview.lines import MOST, lines, pauses
from tests import kineto
from tests.build import call, recording, write_capture
from tests.reports.conftest import CPU, small

PHASES = ["forward_ns", "backward_ns", "recompute_ns", "optimizer_ns", "no_phase_ns"]
OTHERS = ["dataloader_ns", "other_ns"]
IDLE = {
    "queued_ns": "queued", "data_loader_ns": "data loader", "synchronization_ns": "synchronization",
    "host_copy_ns": "host copy", "launch_bound_ns": "launch-bound", "not_recorded_ns": "not recorded",
}  # fmt: skip


def _cpu(path: Path) -> Path:
    return write_capture(path / "cpu.sqlite", recording(CPU))


def _gpu(path: Path) -> Path:
    return write_capture(path / "gpu.sqlite", small())


def _kineto(path: Path) -> Path:
    return kineto.write(path / "trace.json", kineto.training())


def _database(path: Path) -> Path:
    profiles.load(_gpu(path)).save(path / "dldb.sqlite")
    return path / "dldb.sqlite"


def _ranks(path: Path) -> Path:
    folder = path / "run"
    folder.mkdir()
    for number in (0, 1):
        write_capture(folder / f"net.rank{number}.sqlite", small())
    return folder


MADE = {"cpu": _cpu, "gpu": _gpu, "kineto": _kineto, "ranks": _ranks}


@pytest.fixture(scope="module", params=MADE)
def profile(request, tmp_path_factory) -> profiles.Profile:
    return profiles.load(MADE[request.param](tmp_path_factory.mktemp("made")))


def test_the_step_is_that_of_the_step_time_report(profile):
    found, table = figures(profile.source()), profile.report("step_time")
    phases = profile.report("step_time", categories="phase")
    length = table["total_ns"].to_numpy(np.int64)
    assert found.step.length == length.mean()  # so few steps that all are looked at
    sums = {name: int(phases[f"{name}_ns"].sum()) for name, _ in found.step.parts}
    assert dict(found.step.parts) == pytest.approx({name: 100 * t / length.sum() for name, t in sums.items()})
    assert sum(share for _, share in found.step.parts) == pytest.approx(100)
    if found.gpu:
        device = table[["kernel_ns", "memcpy_ns", "memset_ns", "communication_ns"]].to_numpy(np.int64).sum()
        assert found.step.busy == pytest.approx(100 * device / length.sum())
    else:
        assert found.step.busy is None


def test_operators_are_those_of_the_op_type_report_in_a_step(profile):
    """So few steps that all are looked at."""
    found, table = figures(profile.source()), profile.report("op_type")
    steps = found.step.number or found.step.workers
    expected = [
        (t, gpu / steps, n / steps) for t, gpu, n in zip(table["type"], table["gpu"], table["calls"]) if gpu > 0
    ]
    assert [row.name for row in found.operators] == [row[0] for row in expected[:5]]
    assert [row[1:3] for row in found.operators] == [
        (pytest.approx(time), pytest.approx(100 * time / found.step.length)) for _, time, _ in expected[:5]
    ]
    assert [row.calls for row in found.operators] == pytest.approx([calls for *_, calls in expected[:5]])


def test_modules_have_the_time_of_their_operators(profile):
    found, table = figures(profile.source()), profile.report("module")
    steps = found.step.number or found.step.workers
    each = profile.report("detail")
    times = {name: int(each["gpu"][each["module"].fillna("") == name].sum()) for name in table["module"].tolist()}
    known = any(times)  # a module, not only what is outside of modules
    expected = [(name, time / steps) for name, time in times.items() if time and known]
    most = sorted(expected, key=lambda row: -row[1])[:5]
    assert sorted((row.name, row.time) for row in found.modules) == sorted(most)
    assert sum(times.values()) == int(profile.report("op_type")["gpu"].sum())
    if found.gpu:
        assert times == dict(zip(table["module"], table["device_self_ns"].astype("int64")))


def test_the_ledger_is_the_coverage_report(profile):
    found, table = figures(profile.source()), profile.report("coverage")
    for line, (_, part) in zip(("operator", "source line", "module", "FLOPs"), found.ledger):
        mine = table[table["line"] == line]
        unknown = mine.loc[mine["part"] == "unknown", "time"].sum()
        assert part == pytest.approx(100 - 100 * int(unknown) / int(mine["time"].sum()))


def test_the_finding_is_the_first_of_the_expert_systems_report(profile):
    found, table = figures(profile.source()), profile.report("expert_systems")
    rows = table[table["outcome"] == "found"]
    if not len(rows):
        assert found.best is None
        return
    first = rows.iloc[0]
    assert first["problem"].startswith(found.best.problem)
    if found.best.saving is None:
        assert pd.isna(first["saving"])
    else:
        steps = len(profile.report("step_time")["step"].unique())
        assert found.best.saving == first["saving"] / steps


def test_phases_add_up_to_the_step_and_to_the_other_categories(profile):
    phases, kinds = (profile.report("step_time", categories=which) for which in ("phase", "8"))
    assert (phases[PHASES + OTHERS + [*IDLE]].sum(axis=1) == kinds["total_ns"]).all()
    assert list(phases["total_ns"]) == list(kinds["total_ns"])
    if kinds["kernel_ns"].notna().all():
        device = kinds[["kernel_ns", "memcpy_ns", "memset_ns", "communication_ns"]]
        assert (phases[PHASES].sum(axis=1) == device.sum(axis=1)).all()
        # Waits for the data loader come before API calls here, in the report idle before nothing.
        assert (phases["dataloader_ns"] >= kinds["dataloader_ns"]).all()
        idle = profile.report("idle", by="cause").groupby("cause")["total_ns"].sum()
        if (profile.report("gpu").groupby("worker")["busy_ns"].count() > 1).any():
            return  # only time in which all devices of a worker are idle is idle time of its steps
        for column, cause in IDLE.items():
            assert phases[column].sum() <= idle.get(cause, 0)
        assert phases[[*IDLE, "dataloader_ns"]].sum().sum() == idle.sum()


def test_phases_of_a_step_by_hand(tmp_path):
    """A forward, its backward, and a wait for the data loader with an operator inside, which belongs to the wait."""
    text = f"""
op seq=1 {call("torch.mm", (2, 3), (3, 4))}
    op seq=1 aten::mm
        wait 50
enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__
    op aten::stack
        wait 10
op seq=1 forward=1 MmBackward0
    op aten::mm
        wait 70
"""
    made = recording(text)
    [wait] = [one for one in made.ranges if one.text.startswith("enumerate")]
    mm, _, stack, backward, _ = made.ops
    profile = profiles.load(write_capture(tmp_path / "net.sqlite", made))
    row = profile.report("step_time", categories="phase").iloc[0]
    assert wait.start < stack.start < stack.end < wait.end
    expected = {"dataloader": wait, "forward": mm, "backward": backward}
    assert {name: row[f"{name}_ns"] for name in expected} == {k: one.end - one.start for k, one in expected.items()}
    assert row["other_ns"] == row["total_ns"] - sum(one.end - one.start for one in expected.values())


def test_python_in_an_operator_is_the_operators(tmp_path):
    """As torch.compile has it, and optimizers: 30 ns before and 20 after what torch records in the call."""
    made = recording(f"""
{call("torch.mm", (2, 3), (3, 4))}
    wait 30
    op aten::mm
        wait 50
    wait 20
""")
    row = profiles.load(write_capture(tmp_path / "net.sqlite", made)).report("step_time", categories="phase").iloc[0]
    (whole,) = made.ranges
    assert row["forward_ns"] == whole.end - whole.start
    assert row["other_ns"] == row["total_ns"] - row["forward_ns"]


@pytest.mark.parametrize(
    ("stack", "line"),
    [
        (None, None),
        ("", None),
        ("train.py:9", "train.py:9"),
        ("train.py:9\nnet.py:3\n/x/lib/python3.12/site-packages/timm/vit.py:4", "net.py:3"),
        (
            "/x/lib/python3.12/site-packages/a.py:1\n/usr/lib/python3/dist-packages/b.py:2",
            "/usr/lib/python3/dist-packages/b.py:2",
        ),
        ("C:\\me\\train.py:9\nC:\\py\\Lib\\site-packages\\timm\\vit.py:4", "C:\\me\\train.py:9"),
        ("/work-of-mine/site-packages-study/net.py:3", "/work-of-mine/site-packages-study/net.py:3"),
    ],
)
def test_the_users_line(stack, line):
    assert user_line(stack) == line


def test_the_line_of_an_operator_is_the_one_with_most_time(tmp_path):
    one, two = (call("torch.mm", (n, 3), (3, 4), trace=(f"net.py:{n}",)) for n in (1, 2))
    text = f"{one}\n    > 10 a\n{two}\n    > 30 b\n{one}\n    > 10 a\n"
    found = figures_of(tmp_path, text)
    assert [(row.line, row.more) for row in found.operators if row.name == "mm"] == [("net.py:2", 1)]


def figures_of(path: Path, text: str) -> Figures:
    profile = profiles.load(write_capture(path / "net.sqlite", recording(text)))
    return figures(profile.source())


def test_a_rank_knows_how_many_there_are(tmp_path):
    path = write_capture(tmp_path / "net.rank1.sqlite", small())
    with closing(sqlite3.connect(path)) as connection, connection:
        facts = [("distributed.world_size", "4"), ("distributed.rank", "1")]
        connection.executemany("insert into PYPROF_META values (?, ?)", facts)
    profile = profiles.load(path)
    found = figures(profile.source())
    assert (found.rank, found.ranks) == (1, 4)


@pytest.fixture(scope="module")
def database(tmp_path_factory) -> Path:
    return _database(tmp_path_factory.mktemp("paused"))


@pytest.mark.parametrize(("paused", "window", "number", "sentence"), [
    (5_800_000_000, 12_300_000_000, 4, "Recording took 5.80 s of 12.3 s (47.2 %) in 4 pauses, which are left out."),
    (6_000_000, 100_000_000, 1, "Recording took 6.00 ms of 100 ms (6.0 %) in 1 pause, which is left out."),
    (5_000_000, 100_000_000, 3, ""),  # 5 %: little
    (9, 5, 1, ""),  # more than the window: of a damaged file
    ("x", 5, 1, ""), ("9" * 5000, 5, 1, ""),
])  # fmt: skip
def test_what_recording_took_is_said_above_5_percent(database, tmp_path, paused, window, number, sentence):
    path = tmp_path / "net_dldb.sqlite"
    shutil.copyfile(database, path)
    with closing(sqlite3.connect(path)) as connection, connection:
        facts = {"paused_ns": paused, "window_ns": window, "pauses": number}
        rows = [(f"overhead.{name}", str(value)) for name, value in facts.items()]
        connection.executemany("insert or replace into meta values (?, ?)", rows)
    profile = profiles.load(path)
    found = figures(profile.source())
    assert pauses(found) == sentence
    assert [line for line in lines(found, 120) if line.startswith("Recording")] == [sentence] * bool(sentence)
    assert sentence in Overview(found, "net.sqlite")._repr_html_().replace("\xa0", " ")
    assert len(lines(found, 60)) <= MOST
