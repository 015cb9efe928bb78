# SPDX-License-Identifier: Apache-2.0
"""Event files are what TensorBoard itself reads."""

from __future__ import annotations

import math
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

import pyprof
from pyprof import metrics
from tests.dlprof.conftest import Run

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    accumulator: Any = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="no tensorboard"
    )


@pytest.fixture
def found(aggregate: Run, folder: Path) -> Any:
    code, _, errors = aggregate("--tb_dir=tb", "--iter_start=1")
    assert code == 0, errors
    names = os.listdir(folder / "tb")
    assert [name.startswith("events.out.tfevents.") for name in names] == [True]
    read = accumulator.EventAccumulator(str(folder / "tb"), size_guidance={"scalars": 0, "tensors": 0})
    read.Reload()
    return read


def test_scalars_are_the_figures_of_the_summary(found: Any, folder: Path):
    prof = pyprof.load(folder / "dlprof_dldb.sqlite")
    window = prof.source().window
    expected = {f"summary/{each.name}": each.function(window) for each in metrics.METRICS.values()}
    expected = {name: value for name, value in expected.items() if value is not None}
    assert len(expected) > 10
    tags = {tag for tag in found.Tags()["scalars"] if tag.startswith("summary/")}
    assert tags == set(expected)
    for tag, value in expected.items():
        assert math.isclose(found.Scalars(tag)[0].value, value, rel_tol=1e-6), tag  # they are 32 bits
    prof.database.close()


def test_iterations_are_scalars_by_step(found: Any, folder: Path):
    prof = pyprof.load(folder / "dlprof_dldb.sqlite")
    steps = prof.steps[prof.steps["aggregated"]]
    assert [(e.step, e.value) for e in found.Scalars("iteration/duration_ns")] == list(
        zip(steps["step"], steps["duration_ns"])
    )
    assert [e.step for e in found.Scalars("iteration/cpu_ns")] == [1, 2, 3]
    prof.database.close()


def test_tables_are_texts(found: Any):
    tags = found.Tags()["tensors"]
    assert "reports/op_type" in tags
    assert "reports/iteration" not in tags
    event = found.Tensors("reports/op_type")[0]
    assert found.SummaryMetadata("reports/op_type").plugin_data.plugin_name == "text"
    lines = event.tensor_proto.string_val[0].decode().splitlines()
    assert lines[0].startswith("| Op Type |")
    assert sorted(line.split("|")[1].strip().replace("\\", "") for line in lines[2:]) == [
        "gelu",
        "linear",
        "relu",
    ]


def test_files_are_in_event_files_unless_suppressed(dlprof: Run, folder: Path):
    from pyprof.dlprof import command

    assert command.main(["--nsys_database=nsys.sqlite", "-vquiet", "--output_path=out"]) == 0
    assert len(os.listdir(folder / "out" / "event_files")) == 1
    assert command.main(["--nsys_database=nsys.sqlite", "-vquiet", "--suppress_tb_files=true"]) == 0
    assert not (folder / "event_files").exists()


@pytest.mark.long
def test_a_long_table_says_what_is_left_out(aggregate: Run, folder: Path, monkeypatch: pytest.MonkeyPatch):
    from pyprof.dlprof import events

    monkeypatch.setattr(events, "_ROWS", 2)
    assert aggregate("--tb_dir=tb")[0] == 0
    read = accumulator.EventAccumulator(str(folder / "tb"))
    read.Reload()
    lines = read.Tensors("reports/op_type")[0].tensor_proto.string_val[0].decode().splitlines()
    assert lines[-1] == "2 of 3 rows."
    assert len(lines) == 2 + 2 + 2


def test_a_folder_that_cannot_be(aggregate: Run, folder: Path):
    (folder / "tb").write_text("a file")
    code, _, errors = aggregate("--tb_dir=tb", "-vquiet")
    assert code == 1
    assert "tb: event files cannot be written" in errors
