# SPDX-License-Identifier: Apache-2.0
"""CPU events of torch's profiler, as versions of torch give them that do not tell the kind of an event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._C import _autograd, _profiler

from pyprof.capture.collectors import kineto, kineto_cpu
from pyprof.capture.collectors.kineto_cpu import Reader

from .conftest import Recorded

NEW = {
    f"torch._C._autograd._KinetoEvent.{name}"
    for name in ("activity_type", "structured_input_shapes", "structured_input_strides")
}


def profile() -> Any:
    shapes, rest = True, (False, False, False, False)
    config = _profiler.ProfilerConfig(_profiler.ProfilerState.KINETO, shapes, *rest, _profiler._ExperimentalConfig())
    activities = {_profiler.ProfilerActivity.CPU}
    _autograd._prepare_profiler(config, activities)
    _autograd._enable_profiler(config, activities)
    x = torch.ones(3, 4, requires_grad=True)
    with torch.autograd.profiler.record_function("cudaMalloc"):  # a user's range may have any name
        y = torch.stack([x, x])
    y.mul(2).sum().backward()
    return _autograd._disable_profiler()


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = kineto_cpu.look_up

    def without_new(path: str, without: str, otherwise: Any = None, check: Any = None) -> Any:
        return otherwise if path in NEW else look_up(path, without, otherwise, check)

    monkeypatch.setattr(kineto_cpu, "look_up", without_new)


@pytest.mark.usefixtures("old")
def test_operators_that_the_tree_lacks_are_kept(monkeypatch: pytest.MonkeyPatch):
    # On a GPU the tree lacks what began while the kernels of a range ran: torch 2.11, H100.
    result, tree = profile(), kineto_cpu._tree
    whole = Reader(result)
    names = [whole.name(event) for event in whole.events]
    assert {
        "aten::stack",
        "cudaMalloc",
        "MulBackward0",
        "autograd::engine::evaluate_function: MulBackward0",
    } <= set(names)
    for missing in set(names):
        monkeypatch.setattr(
            kineto_cpu,
            "_tree",
            lambda *_, missing=missing: {k: v for k, v in tree(*_).items() if k[1] != missing},
        )
        part = Reader(result)
        assert [part.name(event) for event in part.events] == names, missing
        if missing in ("aten::stack", "aten::mul"):  # of a tensor alone the shape is known without the tree
            event = next(event for event in part.events if part.name(event) == missing)
            assert part.shapes(event)[0] == ([] if missing == "aten::stack" else [2, 3, 4])


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize(
    ("name", "device", "scope", "seq", "kept"),
    [
        ("aten::mm", "CPU", 0, -1, True), ("CompiledFunction", "CPU", 0, 3, True), ("MmBackward0", "CPU", 1, 3, True),
        ("Torch-Compiled Region: 0/0", "CPU", 0, -1, True), ("triton_poi_fused_0", "CPU", 0, -1, True),
        ("cudaLaunchKernel", "CPU", 7, -1, True), ("cudaLaunchKernel", "CPU", 0, -1, False),
        ("cuLaunchKernelEx", "CPU", 0, -1, False), ("hipMemcpyAsync", "CPU", 0, -1, False),
        ("Activity Buffer Request", "CPU", 0, -1, False), ("Lazy Function Loading", "CPU", 0, -1, False),
        ("INVALID", "CPU", 0, -1, False),
        ("[memory]", "CPU", 0, -1, False), ("void at::native::reduce_kernel<512>", "CUDA", 0, -1, False),
        ("my range", "CUDA", 0, -1, False), ("cudnn_convolution", "CPU", 0, -1, True),
    ],
)  # fmt: skip
def test_which_events_are_of_the_host(name: str, device: str, scope: int, seq: int, kept: bool):
    reader = Reader(profile())
    reader.name, reader.scope, reader.seq, reader.start = (
        (lambda event, value=value: value) for value in (name, scope, seq, 0)
    )
    kind = getattr(_autograd.DeviceType, device)
    events = reader._of_the_host([object()], {(1, "another"): ()}, lambda *_: lambda event: kind)
    assert bool(events) == kept


@pytest.mark.parametrize("error_ns", [-2_000_000, -4_000, 0, 4_000, 2_000_000])
def test_operators_lie_in_their_calls_when_the_times_of_torch_are_off(
    error_ns: int, record: Callable[..., Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    def off(result: Any) -> Reader:
        reader = Reader(result)
        start, end = reader.start, reader.end
        reader.start, reader.end = (
            (lambda event: start(event) + error_ns),
            (lambda event: end(event) + error_ns),
        )
        return reader

    monkeypatch.setattr(kineto, "Reader", off)
    recorded = record(lambda: torch.tanh(torch.ones(2)))
    assert recorded.names == ["torch.ones", "torch.tanh"]
    (op,) = (op for op in recorded.ops if op.name == "aten::tanh")
    call = recorded.call("torch.tanh")
    assert call.start <= op.start
    assert op.end <= call.end
