# SPDX-License-Identifier: Apache-2.0
"""Ranges of the user's code reach the file, by whatever name they are opened, also without CUDA."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing

import nvtx
import pytest
import torch
from torch.profiler import record_function

import pyprof

from .conftest import Recorded

Record = Callable[..., Recorded]
x = torch.ones(2, 2)


def with_annotate() -> None:
    with pyprof.annotate("layer:outer"), pyprof.annotate("layer:inner"):
        torch.tanh(x)


def with_decorator() -> None:
    @pyprof.annotate("layer:outer")
    def outer() -> None:
        with pyprof.annotate("layer:inner"):
            torch.tanh(x)

    outer()


def with_torch_push() -> None:
    torch.cuda.nvtx.range_push("layer:outer")
    torch.cuda.nvtx.range_push("layer:inner")
    torch.tanh(x)
    torch.cuda.nvtx.range_pop()
    torch.cuda.nvtx.range_pop()


def with_torch_range() -> None:
    with torch.cuda.nvtx.range("layer:{}", "outer"), torch.cuda.nvtx.range("layer:inner"):
        torch.tanh(x)


def with_nvtx_push() -> None:
    nvtx.push_range("layer:outer")
    nvtx.push_range(message="layer:inner", color="red", domain="mine")
    torch.tanh(x)
    nvtx.pop_range(domain="mine")
    nvtx.pop_range()


def with_nvtx_annotate() -> None:
    @nvtx.annotate("layer:inner")
    def inner() -> None:
        torch.tanh(x)

    with nvtx.annotate("layer:outer"):
        inner()


def with_record_function() -> None:
    with record_function("layer:outer"), record_function("layer:inner"):
        torch.tanh(x)


WAYS = [
    with_annotate, with_decorator, with_torch_push, with_torch_range, with_nvtx_push, with_nvtx_annotate,
    with_record_function,
]  # fmt: skip


@pytest.mark.parametrize("body", WAYS, ids=lambda body: body.__name__)
def test_nested_layers_are_joined_and_the_ranges_are_in_the_file(body: Callable[[], None], record: Record) -> None:
    recorded = record(body)
    assert recorded.call("torch.tanh").marker.layer == ("outer", "inner")
    assert recorded.ranges == [("layer:outer", 59), ("layer:inner", 59)]
    assert recorded.table("PYPROF_LOST") == {}


def push_and_pop() -> list[int]:
    nvtx = torch.cuda.nvtx
    return [nvtx.range_push("a"), nvtx.range_push("b"), nvtx.range_pop(), nvtx.range_pop()]


def test_depths_are_those_of_torch_and_without_cuda_those_of_our_own_count(record: Record) -> None:
    expected = push_and_pop() if hasattr(torch._C, "_nvtx") else [0, 1, 1, 0]  # the CPU build's functions raise
    found: list[list[int]] = []
    record(lambda: found.append(push_and_pop()))
    assert found == [expected]


def test_layer_ends_with_its_range_also_when_the_body_raises(record: Record) -> None:
    def body() -> None:
        with pytest.raises(ValueError, match="mine"), pyprof.annotate("layer:a"):
            raise ValueError("mine")
        torch.tanh(x)

    assert record(body).call("torch.tanh").marker.layer == ()


def test_operator_that_no_wrapper_saw_has_its_layer(record: Record) -> None:
    hidden = torch.tanh

    def body() -> None:
        with pyprof.annotate("layer:a"), pyprof.annotate("other"), pyprof.annotate("layer:b"):
            hidden(x)

    assert record(body).call("aten.aten::tanh").marker.layer == ("a", "b")


def test_marks_and_started_ranges(record: Record) -> None:
    def body() -> None:
        torch.cuda.nvtx.mark("here")
        handle = torch.cuda.nvtx.range_start("across")
        ours = nvtx.start_range("package")
        thread = threading.Thread(target=lambda: torch.cuda.nvtx.range_end(handle))
        thread.start()
        thread.join()
        nvtx.end_range(ours)

    assert sorted(record(body).ranges) == [("across", 60), ("here", 34), ("package", 60)]


def test_started_ranges_that_overlap_keep_their_names(record: Record) -> None:
    def body() -> None:
        first, second = torch.cuda.nvtx.range_start("first"), torch.cuda.nvtx.range_start("second")
        torch.cuda.nvtx.range_end(first)
        torch.tanh(x)
        torch.cuda.nvtx.range_end(second)
        outer, inner = nvtx.start_range("outer"), nvtx.start_range("inner")
        nvtx.end_range(inner)
        nvtx.end_range(outer)

    recorded = record(body)
    rows = recorded.query("select text, end from NVTX_EVENTS where eventType = 60 order by start")
    assert [text for text, _ in rows] == ["first", "second", "outer", "inner"]
    first, second, outer, inner = (end for _, end in rows)
    call = recorded.call("torch.tanh")
    assert first <= call.start
    assert call.end <= second
    assert inner <= outer


def test_range_open_before_the_window_and_after_it(record: Record) -> None:
    pyprof.init()
    torch.cuda.nvtx.range_push("layer:long")
    recorded = record(lambda: torch.tanh(x))
    torch.cuda.nvtx.range_pop()
    assert recorded.call("torch.tanh").marker.layer == ("long",)
    rows = recorded.query("select start, end, text from NVTX_EVENTS where domainId = 0")
    assert rows == [(0, None, "layer:long")]


def test_user_scopes_of_torch_are_ranges_but_optimizer_steps_are_calls(record: Record) -> None:
    def body() -> None:
        weight = torch.ones(2, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        weight.sum().backward()
        with record_function("mine"):
            optimizer.step()
        optimizer.zero_grad()

    recorded = record(body)
    assert recorded.ranges == [("mine", 59)]
    assert [name for name in recorded.names if "SGD" in name] == [
        "torch.optim.SGD.step",
        "torch.optim.SGD.zero_grad",
    ]


def test_step_of_an_optimizer_that_a_scheduler_wrapped_before_the_window_is_a_call(record: Record) -> None:
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.Adam([weight])
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    weight.sum().backward()
    recorded = record(lambda: optimizer.step())
    assert recorded.names == ["torch.optim.Adam.step"]
    assert recorded.calls[0].user_lines[-1].startswith(f"{__file__}:")


def test_exception_in_an_optimizer_step_does_not_stop_the_recording(record: Record) -> None:
    class Broken(torch.optim.SGD):
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            raise RuntimeError("mine")

    def body() -> None:
        optimizer = Broken([torch.ones(2, requires_grad=True)], lr=0.1)
        with pytest.raises(RuntimeError, match="mine"):
            optimizer.step()
        torch.tanh(x)

    assert record(body).names[-2:] == ["torch.optim.Broken.step", "torch.tanh"]


def test_annotate_without_a_window_costs_nothing_but_keeps_its_place() -> None:
    with pyprof.annotate("layer:a"):
        pass
    pyprof.shutdown()


def test_file_is_readable_by_plain_sqlite(record: Record) -> None:
    path = record(with_annotate).path
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    connection.close()
