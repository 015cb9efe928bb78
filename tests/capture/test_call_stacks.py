# SPDX-License-Identifier: Apache-2.0
"""A stack of calls is stored once in a file, and is whole in the texts that are read."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import pyprof
from pyprof.core.marker import CallMarker, cut_stack, decode, encode, refer, with_stack
from pyprof.core.model import Arg, Call
from pyprof.parse.formats import capture

from .conftest import Recorded

CALL = Call("torch", "relu", (Arg("", 1),))


@pytest.mark.parametrize("module", [None, "net.0", "it's", '"', "a, 'trace': ['b", "x, 'trace': 5}"])
@pytest.mark.parametrize("layer", ["", "a, 'trace': ['b'", "}", "\\"])
@pytest.mark.parametrize(
    "trace", [["a.py:7"], ["it's.py:1", 'b".py:2'], ["x, 'trace': ['y:1"], ["\udc80.py:1", "\n:2"], []]
)
def test_a_text_without_its_stack_becomes_the_text_again(module: str | None, layer: str, trace: list[str]) -> None:
    text = encode(CALL, layer, trace, module)
    head, stack = cut_stack(text)
    assert head + stack == text
    if stack:
        short = refer(head, 3)
        assert with_stack(short, {3: stack}) == text
        assert with_stack(short, {}) == short
    assert with_stack(text, {5: "wrong"}) == text
    marker = decode(text)
    assert isinstance(marker, CallMarker)
    assert (list(marker.trace), marker.module) == (trace, module)


def loop() -> None:
    x = torch.ones(64)
    for number in range(64):
        x[number]


def test_a_stack_of_many_different_calls_is_stored_once(record: Callable[..., Recorded]) -> None:
    recorded = record(loop)
    calls = [call for call in recorded.calls if call.name == "Tensor.__getitem__"]
    assert len({call.marker.call for call in calls}) == 64
    assert {call.user_lines[-1] for call in calls} == {f"{__file__}:{loop.__code__.co_firstlineno + 3}"}
    stacks = recorded.query("select text from PYPROF_CALL_STACK")
    assert len(stacks) == len({call.marker.trace for call in recorded.calls}) == 2
    assert recorded.query("select count(*) from StringIds where value like '%.py:%'") == [(0,)]
    read = pyprof.load(recorded.path).table
    (trace,) = set(read[read.op == "__getitem__"].trace)
    assert trace.endswith(f",{calls[0].user_lines[-1]}")


def test_a_file_that_lacks_a_stack_says_so(record: Callable[..., Recorded], monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = record(loop)
    monkeypatch.setattr(capture, "MOST_STACKS", 0)
    trace = capture.Capture.load(recorded.path)
    monkeypatch.undo()
    with sqlite3.connect(recorded.path) as connection:
        connection.execute("update PYPROF_CALL_STACK set id = id + 100 where id = 0")
        connection.execute("insert into PYPROF_CALL_STACK values (1000, x'00')")
    connection.close()
    (reason,) = [reason for reason in trace.lost if reason.startswith("stacks of calls")]
    assert trace.lost[reason] == 65
    assert capture.Capture.load(recorded.path).lost[reason] == 1


def test_a_file_of_before_is_read_as_ever(record: Callable[..., Recorded]) -> None:
    recorded = record(loop)
    traces = pyprof.load(recorded.path).table.trace
    stacks = recorded.table("PYPROF_CALL_STACK")
    with sqlite3.connect(recorded.path) as connection:
        for number, text in recorded.query("select * from StringIds"):
            connection.execute("update StringIds set value = ? where id = ?", (with_stack(text, stacks), number))
        connection.execute("drop table PYPROF_CALL_STACK")
        connection.execute("update PYPROF_META set value = '1' where name = 'format_version'")
    connection.close()
    before = Path(f"{recorded.path}.before.sqlite")
    recorded.path.rename(before)
    assert list(pyprof.load(before).table.trace) == list(traces)
