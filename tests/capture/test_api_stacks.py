# SPDX-License-Identifier: Apache-2.0
"""`api_backtrace=NS`: where waiting calls stand, and calls of the CUDA API by what they lie in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pyprof
from pyprof.capture.core.options import Options
from pyprof.capture.extras.api_stacks import CUDA_CLASSES, FUNCTIONS, ApiCall, ApiStacks, cuda_calls
from pyprof.capture.extras.stack_rows import StackRows
from pyprof.capture.instrument.targets import HOST
from pyprof.capture.output.merge_calls import CallRow
from pyprof.core.marker import encode
from pyprof.core.model import Call

from .conftest import Recorded

Record = Callable[..., Recorded]
FOREVER = 10**18  # ns; nothing takes so long


def stacks(recorded: Recorded) -> dict[int, list[tuple[str, str | None]]]:
    """Frames and functions of each stack, outermost first."""
    out: dict[int, list[tuple[str, str | None]]] = {}
    for number, frame, function in recorded.query(
        """select PYPROF_STACK.id, frame.value, function.value
           from PYPROF_STACK
           join StringIds frame on frameId = frame.id
           left join StringIds function on functionId = function.id
           order by PYPROF_STACK.id, depth"""
    ):
        out.setdefault(number, []).append((frame, function))
    return out


def api(recorded: Recorded) -> list[tuple[str, int | None]]:
    return recorded.query("select value, stackId from PYPROF_API join StringIds on nameId = id order by start")


def here(mark: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    return f"{__file__}:{next(i for i, text in enumerate(lines, 1) if text.endswith('# LINE ' + mark))}"


def test_an_item_has_its_line_and_what_called_it(record: Record) -> None:
    x = torch.ones(1)

    def inner() -> float:
        return x.item()  # LINE item

    def body() -> None:
        torch.empty(1)
        inner()  # LINE inner

    recorded = record(body, api_backtrace=0)
    [(name, stack)] = api(recorded)
    assert name == "Tensor.item"
    assert stack is not None
    assert stacks(recorded)[stack][-2:] == [(here("inner"), None), (here("item"), None)]


def test_a_function_that_waits_has_its_line_and_what_called_it(record: Record) -> None:
    def inner() -> None:
        torch.cpu.synchronize()  # LINE synchronize

    def body() -> None:
        torch.empty(1)
        inner()  # LINE around

    recorded = record(body, api_backtrace=0)
    [(name, stack)] = api(recorded)
    assert name == "torch.cpu.synchronize"
    function = test_a_function_that_waits_has_its_line_and_what_called_it.__name__
    assert stacks(recorded)[stack or 0][-2:] == [
        (here("around"), f"{function}.<locals>.body"),
        (here("synchronize"), f"{function}.<locals>.inner"),
    ]


def test_a_stack_goes_through_modules(record: Record) -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> bool:
            return bool(x > 0)  # LINE bool

    net = Net()
    recorded = record(lambda: net(torch.ones(1)), api_backtrace=0)  # LINE net
    [(name, stack)] = api(recorded)
    frames = [frame for frame, _ in stacks(recorded)[stack or 0]]
    assert name == "Tensor.__bool__"
    assert frames[-1] == here("bool")
    assert here("net") in frames


@pytest.mark.parametrize(
    ("name", "wait"),
    [
        ("item", lambda x: x.item()),
        ("tolist", lambda x: x.tolist()),
        ("numpy", lambda x: x.numpy()),
        ("__bool__", lambda x: "yes" if x else "no"),
        ("__int__", int),
        ("__float__", float),
        ("__complex__", complex),
        ("__index__", lambda x: [7, 8][x.long()]),
        ("__array__", np.asarray),
        ("is_nonzero", lambda x: x.is_nonzero()),
        ("__contains__", lambda x: 1 in x),
    ],
)
def test_every_way_to_a_value_is_seen(record: Record, name: str, wait: Callable[[Any], Any]) -> None:
    x = torch.ones(1)
    expected = wait(x)
    results: list[Any] = []
    found = [name for name, _ in api(record(lambda: results.append(wait(x)), api_backtrace=0))]
    assert found == [f"Tensor.{name}"]
    assert results == [expected]


def test_the_cases_above_are_all_methods() -> None:
    mark = next(mark for mark in test_every_way_to_a_value_is_seen.pytestmark if mark.name == "parametrize")
    assert sorted(case[0] for case in mark.args[1]) == sorted(HOST)


def test_functions_that_wait_are_seen(record: Record) -> None:
    def body() -> None:
        torch.empty(1)
        torch.cpu.synchronize()

    assert [name for name, _ in api(record(body, api_backtrace=0))] == ["torch.cpu.synchronize"]


def test_a_recorded_call_that_waits_has_the_stack_of_its_record(record: Record) -> None:
    x = torch.tensor([0.0, 1.0])
    recorded = record(lambda: x.nonzero(), api_backtrace=0)  # LINE nonzero
    [(name, stack)] = api(recorded)
    assert name == "Tensor.nonzero"
    assert (here("nonzero"), None) in stacks(recorded)[stack or 0]


def test_short_calls_leave_no_row(record: Record) -> None:
    x = torch.ones(1)
    recorded = record(lambda: [x.item(), torch.cpu.synchronize()], api_backtrace=FOREVER)
    assert api(recorded) == []
    assert recorded.table("PYPROF_META")["api_backtrace.threshold_ns"] == str(FOREVER)


def test_operators_and_calls_are_those_without_the_option(record: Record) -> None:
    def body() -> None:
        x = torch.ones(2, 2)
        (x @ x).sum().item()

    plain = record(body)
    names = plain.names, [op.name for op in plain.ops]
    stacked = record(body, api_backtrace=0)
    assert (stacked.names, [op.name for op in stacked.ops]) == names


def test_stacks_above_the_bound_are_counted(record: Record) -> None:
    def body() -> None:
        for _ in range(9):
            torch.cpu.synchronize()

    recorded = record(body, api_backtrace=0, max_events=4)
    assert len(api(recorded)) == 4
    assert recorded.table("PYPROF_LOST")["stacks of waiting calls after the first 4"] == 9 - 4


def test_calls_of_the_cuda_api_have_the_stack_of_the_call_around_them() -> None:
    """Records as a machine with a GPU gives them."""
    rows = StackRows()
    extra = ApiStacks(Options(api_backtrace=10), 100, rows)
    linear = encode(Call("torch.nn.functional", "linear"), trace=["a.py:1", "b.py:2"])
    calls = [CallRow(100, 200, 1, linear), CallRow(100, 200, 2, encode(Call("torch", "relu")))]
    waiting = [(300, 400, 1, "Tensor.item", rows.number([("c.py:3", "main")]))]
    records = [
        ApiCall(120, 140, 1, "cudaLaunchKernel"),  # in the call
        ApiCall(150, 160, 1, "cudaLaunchKernel"),  # exactly the threshold: not longer
        ApiCall(310, 390, 1, "cudaStreamSynchronize"),  # in the waiting one
        ApiCall(500, 600, 1, "cudaFree"),  # in neither
        ApiCall(120, 140, 2, "cudaLaunchKernel"),  # in a call without a stack
        ApiCall(120, 140, 3, "cudaLaunchKernel"),  # a thread without Python
    ]
    names = sorted({record.name for record in records})
    columns = {
        "start": [record.start for record in records], "end": [record.end for record in records],
        "globalTid": [record.tid for record in records], "nameId": [names.index(record.name) for record in records],
    }  # fmt: skip

    class Device:  # the columns of the table of CUDA calls
        def __init__(self) -> None:
            self.names = names

        def column(self, table: str, name: str) -> Any:
            assert table == "CUPTI_ACTIVITY_KIND_RUNTIME"
            return np.array(columns[name], np.int64)

    assert cuda_calls(Device()) == records
    found = extra.attach(cuda_calls(Device()), waiting, calls)
    assert [row[:4] for row in found] == [(*records[i][:3], records[i].name) for i in (0, 2, 3, 4, 5)]
    trace = rows.number([("a.py:1", None), ("b.py:2", None)])
    assert [row[4] for row in found] == [trace, waiting[0][4], None, None, None]


def test_nothing_stays(tmp_path: Path) -> None:
    owners: list[Any] = [torch.Tensor, torch.cuda, torch.cpu, torch.accelerator]
    owners += [getattr(torch.cuda, name) for name, _ in CUDA_CLASSES]
    before = [(dict(vars(owner)), type(owner)) for owner in owners]
    wait = torch.cuda.Event.synchronize
    with pyprof.profile(str(tmp_path / "net.sqlite"), api_backtrace=0):
        assert "item" in vars(torch.Tensor)
        assert type(vars(torch.cuda.Event)["synchronize"]) is not type(wait)
        assert torch.cuda.Event.synchronize is wait
        assert torch.Tensor.item is torch._C.TensorBase.item
    after = [(dict(vars(owner)), type(owner)) for owner in owners]
    assert after == before
    assert [torch.__dict__[module.split(".")[1]].__dict__[name] for module, name in FUNCTIONS]
    pyprof.shutdown()


def test_threads_have_stacks_of_their_own(record: Record) -> None:
    def work() -> None:
        torch.cpu.synchronize()  # LINE work

    def body() -> None:
        torch.empty(1)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    recorded = record(body, api_backtrace=0)
    [(_, stack)] = api(recorded)
    assert stacks(recorded)[stack or 0][-1][0] == here("work")
