# SPDX-License-Identifier: Apache-2.0
"""The capture file of a small training step holds what the reader is promised."""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pyprof
from pyprof.core.marker import CallMarker, decode
from pyprof.core.model import Tensor

from .conftest import OURS, Recorded

Record = Callable[..., Recorded]
# An export of Nsight Systems 2024.6
NVTX_COLUMNS = [
    "start", "end", "eventType", "rangeId", "category", "color", "text", "globalTid", "endGlobalTid", "textId",
    "domainId", "uint64Value", "int64Value", "doubleValue", "uint32Value", "int32Value", "floatValue", "jsonTextId",
    "jsonText", "binaryData",
]  # fmt: skip


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.body = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv(x))  # LINE relu
        out: torch.Tensor = self.body(x.mean((2, 3)))
        return out


def line(mark: str) -> str:
    """`path:line` of the line of this file that ends with a comment `LINE mark`."""
    lines = Path(__file__).read_text().splitlines()
    return f"{__file__}:{next(i for i, text in enumerate(lines, 1) if text.endswith('# LINE ' + mark))}"


def train(steps: int = 1) -> None:
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    x, y = torch.randn(2, 3, 8, 8), torch.tensor([1, 2])
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)  # LINE loss
        loss.backward()
        optimizer.step()  # LINE step


@pytest.fixture
def step(record: Record) -> Recorded:
    return record(train)


def test_calls_are_the_outermost_ones_in_the_users_spelling(step: Recorded) -> None:
    names = step.names
    first = names.index("torch.optim.AdamW.zero_grad")
    assert names[first:] == [
        "torch.optim.AdamW.zero_grad",
        "torch.nn.functional.conv2d",
        "torch.nn.functional.relu",
        "Tensor.mean",
        "torch.nn.functional.linear",
        "torch.nn.functional.gelu",
        "torch.nn.functional.linear",
        "torch.nn.functional.cross_entropy",
        "torch.ones_like",
        "torch.optim.AdamW.step",
    ]


def test_call_numbers_count_in_start_order(step: Recorded) -> None:
    assert [call.number for call in step.calls] == list(range(len(step.calls)))
    assert [call.start for call in step.calls] == sorted(call.start for call in step.calls)


def test_arguments_and_module_path_of_a_convolution(step: Recorded) -> None:
    call = step.call("torch.nn.functional.conv2d")
    assert call.shapes == [(2, 3, 8, 8), (8, 3, 3, 3), (8,)]
    assert [arg.value for arg in call.marker.call.args[3:]] == [(1, 1), (0, 0), (1, 1), 1]
    assert call.marker.module == "conv"


def test_module_paths_are_dotted_and_the_root_is_its_class(step: Recorded) -> None:
    assert [call.marker.module for call in step.calls if call.marker.module] == [
        "conv", "Net", "Net", "body.0", "body.1", "body.2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "mark"),
    [
        ("torch.nn.functional.relu", "relu"),
        ("torch.nn.functional.cross_entropy", "loss"),
        ("torch.optim.AdamW.step", "step"),
    ],
)
def test_the_innermost_user_frame_is_the_calling_line(step: Recorded, name: str, mark: str) -> None:
    assert step.call(name).user_lines[-1] == line(mark)


def test_a_trace_goes_from_the_script_through_modules(step: Recorded) -> None:
    trace = step.call("torch.nn.functional.conv2d").marker.trace
    assert trace.index(line("loss")) < trace.index(line("relu"))
    assert "torch/nn/modules/conv.py" in trace[-1]
    assert not [frame for frame in trace if frame.startswith(OURS)]


def test_operators_lie_in_a_call_or_in_the_backward(step: Recorded) -> None:
    calls = [(call.start, call.end) for call in step.calls]
    nodes = [(op.start, op.end) for op in step.ops if decode(op.text).call.mod == "autograd"]  # type: ignore[union-attr]
    outside = [
        op.name for op in step.ops if not any(start <= op.start and op.end <= end for start, end in calls + nodes)
    ]
    assert outside == []
    assert len(step.ops) > 100


def test_backward_events_name_the_thread_and_number_of_their_forward(step: Recorded) -> None:
    here = os.getpid() << 24 | threading.get_native_id()
    forward = {op.seq for op in step.ops if op.scope == 0 and op.name == "aten::addmm"}
    nodes = [op for op in step.ops if op.name == "AddmmBackward0"]
    assert len(nodes) == 2
    assert {op.seq for op in nodes} == forward
    assert {op.forward for op in nodes} == {here}
    assert {op.scope for op in nodes} == {1}
    assert all(op.forward is None for op in step.ops if op.name.startswith("aten::"))
    accumulate = [op for op in step.ops if op.name == "torch::autograd::AccumulateGrad"]
    assert len(accumulate) == 6
    assert all(op.seq is None and op.forward is None for op in accumulate)


def test_the_first_convolution_has_no_input_gradient(step: Recorded) -> None:
    (backward,) = [op for op in step.ops if op.name == "aten::convolution_backward"]
    assert backward.args[:3] == [
        Tensor((2, 8, 6, 6), "float32"),
        Tensor((2, 3, 8, 8), "float32"),
        Tensor((8, 3, 3, 3), "float32"),
    ]
    assert backward.args[-1] == (False, True, True)


def test_operator_arguments_bind_in_the_order_of_the_schema(record: Record) -> None:
    x = torch.ones(4, 3)
    ops = record(lambda: (torch.addmm(x[:, 0], x, x.t()), torch.cat([x, x], 1), x.half(), x.sum(0, keepdim=True))).ops
    found = {op.name: op.args for op in ops}
    assert found["aten::addmm"] == [
        Tensor((4,), "float32", (3,)), Tensor((4, 3), "float32"), Tensor((3, 4), "float32", (1, 3)), 1, 1,
    ]  # fmt: skip
    assert found["aten::cat"] == [(Tensor((4, 3), "float32"), Tensor((4, 3), "float32")), 1]
    assert found["aten::sum"][1:] == [(0,), True, None]
    assert found["aten::copy_"][:2] == [Tensor((4, 3), "float16"), Tensor((4, 3), "float32")]


def test_file_has_the_tables_of_an_export_and_ours(step: Recorded) -> None:
    tables = {name for (name,) in step.query("select name from sqlite_master where type = 'table'")}
    assert tables == {
        "META_DATA_EXPORT", "StringIds", "ThreadNames", "PROCESSES", "TARGET_INFO_SESSION_START_TIME",
        "ANALYSIS_DETAILS", "NVTX_EVENTS", "PYPROF_OP", "PYPROF_STEP", "PYPROF_PAUSE", "PYPROF_META", "PYPROF_LOST",
        "PYPROF_SOURCE", "PYPROF_SOURCE_TEXT", "PYPROF_CALL_STACK",
    }  # fmt: skip
    assert [row[1] for row in step.query("pragma table_info(NVTX_EVENTS)")] == NVTX_COLUMNS
    assert [row[1] for row in step.query("pragma table_info(PYPROF_OP)")] == [
        "start", "end", "globalTid", "nameId", "scope", "textId", "seq", "forwardGlobalTid",
    ]  # fmt: skip


def test_file_says_who_wrote_it_and_on_what(step: Recorded) -> None:
    assert step.table("META_DATA_EXPORT") == {
        "EXPORT_PRODUCT_NAME": "PyProf",
        "EXPORT_PRODUCT_VERSION": pyprof.__version__,
        "EXPORT_SCHEMA_VERSION": "3.16.1",
    }
    meta = step.table("PYPROF_META")
    assert meta["format_version"] == "2"
    assert meta["layers"] == "sites+operators"
    assert meta["torch"] == torch.__version__
    pid = os.getpid()
    assert step.query("select globalPid, pid from PROCESSES") == [(pid << 24, pid)]
    assert step.query("select text, domainId, start from NVTX_EVENTS where eventType = 75") == [("pyprof", 1, 0)]
    assert step.query("select count(*), count(distinct value) from StringIds")[0][0] > 0
    assert step.query("select value from StringIds group by value having count(*) > 1") == []
    assert step.table("PYPROF_LOST") == {}


def test_times_count_from_the_start_of_the_session(step: Recorded) -> None:
    ((epoch,),) = step.query("select utcEpochNs from TARGET_INFO_SESSION_START_TIME")
    assert 1_700_000_000e9 < epoch < 4_000_000_000e9
    assert 0 <= min(op.start for op in step.ops) < 1e9
    assert all(call.start >= 0 and call.end > call.start for call in step.calls)


def test_nothing_is_left_in_the_folder_but_the_file(step: Recorded) -> None:
    assert os.listdir(step.path.parent) == ["net.sqlite"]


def test_folder_that_vanishes_is_one_line_and_the_training_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    with pyprof.profile(str(folder / "net.sqlite")):
        torch.ones(1)
        folder.rmdir()
    assert "could not be written" in capsys.readouterr().err
    pyprof.shutdown()


def test_call_markers_hold_what_the_code_object_knows(record: Record) -> None:
    """A call through a helper stands at the helper's line, inside of its caller's."""

    def helper(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)

    def twice() -> None:
        helper(torch.ones(2))
        helper(torch.ones(2))

    first = inspect.getsourcelines(twice)[1]
    calls = [call for call in record(twice).calls if call.name == "torch.tanh"]
    assert [call.user_lines[-2].rsplit(":", 1)[1] for call in calls] == [str(first + 1), str(first + 2)]


def test_unknown_arguments_do_not_stop_a_call(record: Record) -> None:
    class Odd:
        def __index__(self) -> int:
            return 1

    x: Any = torch.ones(3, 2)
    call = record(lambda: x[Odd(), slice(0, 1), None]).call("Tensor.__getitem__")
    assert isinstance(call.marker, CallMarker)
    assert call.shapes == [(3, 2)]
