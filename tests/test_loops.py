# SPDX-License-Identifier: Apache-2.0
"""One turn of a loop is one step, however the loop is written and recorded."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

import pyprof
from tests.loops import LOOPS

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the libraries


@pytest.fixture(autouse=True)
def _libraries_leave_nothing() -> Iterator[None]:
    with mock.patch.dict(os.environ):
        yield
    pyprof.shutdown()
    if dist.is_initialized():
        dist.destroy_process_group()


def found(path: Path) -> int:
    """Return the number of steps in a recording, and check that they are complete."""
    prof = pyprof.load(path)
    if prof.aggregation.method == "none":
        return 0
    assert not prof.steps["partial"].any()
    return len(prof.steps)


@pytest.mark.parametrize("name", LOOPS)
def test_steps_are_turns_in_own_recordings(name: str, tmp_path: Path) -> None:
    run = LOOPS[name].make()
    with pyprof.profile(tmp_path / "loop.sqlite"):
        run()
    with pyprof.profile(tmp_path / "all.sqlite"):
        LOOPS[name].make()()
    assert {file: found(tmp_path / file) for file in ("loop.sqlite", "all.sqlite")} == {
        "loop.sqlite": LOOPS[name].steps,
        "all.sqlite": LOOPS[name].steps,
    }


@pytest.mark.parametrize("name", LOOPS)
def test_steps_are_turns_in_traces(name: str, tmp_path: Path) -> None:
    """With and without shapes, and with modules."""
    expected, steps = LOOPS[name].steps, {}
    for kind in ({}, {"record_shapes": True}, {"with_stack": True, "with_modules": True}):
        run = LOOPS[name].make()
        with profile(activities=[ProfilerActivity.CPU], **kind) as recorder:
            run()
        file = tmp_path / f"{len(steps)}.json"
        recorder.export_chrome_trace(str(file))
        steps[file.name] = found(file)
    assert steps == {"0.json": LOOPS[name].blind, "1.json": expected, "2.json": expected}


@pytest.mark.parametrize("name", ["inference", "passes_of_equal_layers", "recurrent_cells"])
def test_a_pause_changes_no_count(name: str, tmp_path: Path) -> None:
    """The machine does something else for 0.2 s, in the first, middle or last product."""
    run = LOOPS[name].make()
    with profile(activities=[ProfilerActivity.CPU], with_stack=True, with_modules=True) as recorder:
        run()
    file = tmp_path / "trace.json"
    recorder.export_chrome_trace(str(file))
    trace = json.loads(file.read_text())
    events = [event for event in trace["traceEvents"] if "ts" in event]
    products = sorted(event["ts"] for event in events if event["name"] == "aten::linear")
    assert products
    for place in (0, len(products) // 2, -1):
        moment = products[place] + 0.5
        for event in events:
            if event["ts"] < moment < event["ts"] + event.get("dur", 0):
                event["dur"] += 200_000
        for event in events:
            event["ts"] += 200_000 * (event["ts"] > moment)
        file.write_text(json.dumps(trace))
        assert found(file) == LOOPS[name].steps
        products = [time + 200_000 * (time > moment) for time in products]
