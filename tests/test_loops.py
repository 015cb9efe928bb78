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
from tests.forks import Forks
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
    """Return the number of steps in a recording, and check that each is complete, but for one with a pause: on a
    machine that is busy, the recording may have been read within a step of seconds."""
    prof = pyprof.load(path)
    if prof.aggregation.method == "none":
        return 0
    steps = prof.steps
    paused = steps["end_ns"] - steps["start_ns"] > steps["duration_ns"]
    assert not (steps["partial"] & ~paused).any()
    return len(steps)


@pytest.mark.parametrize("name", LOOPS)
def test_steps_are_turns_in_own_recordings(name: str, tmp_path: Path) -> None:
    """Of a whole program, which makes its model first."""
    with pyprof.profile(tmp_path / "all.sqlite"):
        LOOPS[name].make()()
    assert found(tmp_path / "all.sqlite") == LOOPS[name].steps


@pytest.mark.long
@pytest.mark.parametrize("name", LOOPS)
def test_steps_are_turns_in_recordings_of_the_loop_alone(name: str, tmp_path: Path) -> None:
    run = LOOPS[name].make()
    with pyprof.profile(tmp_path / "loop.sqlite"):
        run()
    assert found(tmp_path / "loop.sqlite") == LOOPS[name].steps


KINDS = {
    "bare": {},
    "shapes": {"record_shapes": True},
    "modules": {"with_stack": True, "with_modules": True},
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=[] if kind == "shapes" and not number % 3 else pytest.mark.long)
        for number, name in enumerate(LOOPS)
        for kind in KINDS
    ],
)
def test_steps_are_turns_in_traces(name: str, kind: str, tmp_path: Path) -> None:
    run, file = LOOPS[name].make(), tmp_path / "trace.json"
    with profile(activities=[ProfilerActivity.CPU], **KINDS[kind]) as recorder:
        run()
    recorder.export_chrome_trace(str(file))
    assert found(file) == (LOOPS[name].blind if kind == "bare" else LOOPS[name].steps)


SCHEDULE = """
import torch
from torch.profiler import ProfilerActivity, profile, schedule
net, files = torch.nn.Linear(4, 4), iter(("first.json", "second.json"))
with profile(
    activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
    on_trace_ready=lambda recorder: recorder.export_chrome_trace(next(files)),
) as recorder:
    for _ in range(9):
        net(torch.randn(2, 4)).sum().backward()
        recorder.step()
"""


def test_steps_of_a_schedule_are_its_active_ones(forks: Forks, tmp_path: Path) -> None:
    """Of 9 turns, 2 and 3, then 6 and 7. In a process of its own: torch 2.13 may not survive it elsewhere."""
    code, program = forks.run(tmp_path, SCHEDULE)
    assert code == 0, program.stderr
    files = [tmp_path / "first.json", tmp_path / "second.json"]
    assert [found(file) for file in files] == [2, 2]
    assert [pyprof.load(file).report("step_time")["step"].tolist() for file in files] == [[2, 3], [6, 7]]


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
