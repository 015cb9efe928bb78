# SPDX-License-Identifier: Apache-2.0
"""`memory=True`: each allocation and free of torch's allocators, and the call it happened in."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

import pyprof
from pyprof.capture.collectors.kineto import Kineto
from pyprof.capture.extras.allocations import Allocations
from pyprof.parse import loader

from .conftest import Recorded

Record = Callable[..., Recorded]


class Event(NamedTuple):
    time: int
    tid: int
    address: int
    bytes: int
    allocated: int
    reserved: int | None
    device: str
    number: int | None
    call: int | None
    operator: str | None


def events(recorded: Recorded) -> list[Event]:
    rows = recorded.query(
        """select time, globalTid, address, bytes, allocated, reserved, device, deviceId, call, value
           from PYPROF_MEMORY left join StringIds on opNameId = id
           order by PYPROF_MEMORY.rowid"""
    )
    return [Event(*row) for row in rows]


def test_a_tensor_is_one_allocation_of_its_bytes_and_one_free_of_the_same_block(record: Record) -> None:
    addresses = []

    def body() -> None:
        x = torch.empty(1000, dtype=torch.float64)
        addresses.append(x.data_ptr())
        y = torch.empty(7, dtype=torch.uint8)
        addresses.append(y.data_ptr())
        del x, y

    found = events(record(body, memory=True))
    # The processor's allocator hands out what it is asked for; no caching, so nothing is held back.
    assert [(event.address, event.bytes) for event in found] == [
        (addresses[0], 1000 * 8), (addresses[1], 7), (addresses[0], -1000 * 8), (addresses[1], -7),
    ]  # fmt: skip
    assert {(event.device, event.reserved) for event in found} == {("cpu", None)}


def test_totals_follow_the_events(record: Record) -> None:
    def body() -> None:
        x = torch.randn(64, 64)
        for _ in range(5):
            x = x @ x + 1.0

    found = events(record(body, memory=True))
    assert len(found) > 10
    start = found[0].allocated - found[0].bytes
    total = start
    for event in found:
        total += event.bytes
        assert event.allocated == total
    assert [event.time for event in found] == sorted(event.time for event in found)


def test_every_free_gives_back_a_block_that_was_handed_out(record: Record) -> None:
    def body() -> None:
        step(nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4)))

    found = events(record(body, memory=True))
    living: dict[int, int] = {}
    for event in found:
        if event.bytes > 0:
            assert event.address not in living
            living[event.address] = event.bytes
        else:
            assert living.pop(event.address) == -event.bytes
    assert sum(event.bytes < 0 for event in found) > 10


def step(net: nn.Module) -> None:
    net(torch.randn(16, 8)).square().mean().backward()


def test_after_a_step_what_is_allocated_is_what_lives(record: Record) -> None:
    """The gradients: parameters were there before the window, everything else is gone."""
    net = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4))
    gc.collect()
    found = events(record(lambda: step(net), memory=True))
    gradients = [parameter.grad for parameter in net.parameters()]
    living: dict[int, int] = {}
    for event in found:
        if event.bytes > 0:
            living[event.address] = event.bytes
        else:
            living.pop(event.address)
    expected = {g.untyped_storage().data_ptr(): g.untyped_storage().nbytes() for g in gradients if g is not None}
    assert living == expected
    assert found[-1].allocated - (found[0].allocated - found[0].bytes) == sum(expected.values())


def test_an_event_knows_its_call_and_its_operator(record: Record) -> None:
    held: list[Any] = []

    def body() -> None:
        held.append(torch.zeros(3, 5))
        held.clear()

    recorded = record(body, memory=True)
    allocation, free = events(recorded)
    assert allocation.call == recorded.call("torch.zeros").number
    assert allocation.operator == "aten::empty"
    assert (free.call, free.operator) == (None, None)
    assert allocation.tid == recorded.call("torch.zeros").tid


def test_allocations_of_the_backward_have_an_operator_and_no_call(record: Record) -> None:
    weight = torch.randn(6, 6, requires_grad=True)
    x = torch.randn(6, 6)
    recorded = record(lambda: (x @ weight).sum().backward(), memory=True)
    products = [event for event in events(recorded) if event.operator == "aten::mm" and event.bytes > 0]
    assert [event.bytes for event in products] == [6 * 6 * 4] * 2  # forward, gradient of the weight
    assert [event.call is None for event in products] == [False, True]


def test_events_above_the_bound_are_counted() -> None:
    allocations = Allocations(None, 5, None)
    kineto = Kineto(allocations)
    kineto.start()
    for _ in range(4):
        torch.empty(10)
    kineto.stop()
    assert len(allocations) == 5
    assert allocations.lost == {"memory events after the first 5": 2 * 4 - 5}


def test_events_after_the_operators_ended_are_told(record: Record) -> None:
    def body() -> None:
        for _ in range(200):
            torch.empty(10)

    lost = record(body, memory=True, max_events=20).table("PYPROF_LOST")
    assert "memory events after the operators ended (one or more)" in lost


def test_without_the_option_there_is_no_table(record: Record) -> None:
    recorded = record(lambda: torch.empty(10))
    names = {name for (name,) in recorded.query("select name from sqlite_master")}
    assert not names & {"PYPROF_MEMORY", "PYPROF_IO", "PYPROF_API", "PYPROF_SAMPLE", "PYPROF_STACK"}


def test_operators_are_recorded_as_without_it(record: Record, torch_seed: None) -> None:
    net = nn.Linear(8, 2)
    plain = [op.name for op in record(lambda: step(net)).ops]
    net.zero_grad()
    assert [op.name for op in record(lambda: step(net), memory=True).ops] == plain


def test_several_windows_go_to_one_file(tmp_path: Path) -> None:
    path = str(tmp_path / "net.sqlite")
    try:
        pyprof.init(output=path, memory=True)
        torch.cuda.profiler.start()
        x = torch.empty(100)
        torch.cuda.profiler.stop()
        torch.empty(300)  # between the windows
        torch.cuda.profiler.start()
        del x
        torch.cuda.profiler.stop()
    finally:
        pyprof.shutdown()
    assert [event.bytes for event in events(Recorded(Path(path)))] == [400, -400]


def test_a_window_that_another_thread_closes_is_told_and_the_next_one_works(tmp_path: Path) -> None:
    """Torch ends a recording of memory only on the thread that began it."""
    path = tmp_path / "net.sqlite"
    try:
        pyprof.start(str(path), memory=True)
        torch.empty(10)
        thread = threading.Thread(target=pyprof.stop)
        thread.start()
        thread.join()
        lost = Recorded(path).table("PYPROF_LOST")
        assert lost == {"operators and memory: the window was closed by another thread than the one that opened it": 1}
        pyprof.start(str(path), memory=True)
        x = torch.empty(20)
        del x
        pyprof.stop()
    finally:
        pyprof.shutdown()
    assert [event.bytes for event in events(Recorded(path))] == [80, -80]
    assert not torch._C._autograd._profiler_enabled()


def test_what_is_read_back_is_what_was_recorded(record: Record) -> None:
    def body() -> None:
        x = torch.randn(64, 64)
        (x @ x).sum()

    recorded = record(body, memory=True)
    trace = loader.load(recorded.path)
    found, memory = events(recorded), trace.memory
    assert len(found) > 2
    columns = memory.time, memory.address.values, memory.bytes, memory.allocated.values
    read = [tuple(map(int, row)) for row in zip(*columns)]
    assert read == [(e.time - trace.t0, e.address, e.bytes, e.allocated) for e in found]
    assert not memory.device.mask().any()
    assert not memory.reserved.mask().any()
    curve = pyprof.load(recorded.path).report("memory", show="curve")
    assert curve["allocated"].tolist() == [e.allocated for e in found]
