# SPDX-License-Identifier: Apache-2.0
"""The stack of a call is that of this call, whatever was called before from the same place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pyprof

from .conftest import Recorded

x = torch.ones(2, 3)
_expected: list[list[str]] = []


def here() -> torch.Tensor:
    """Note where this stands, as the frames say; a part of the call's arguments, so on its line."""
    lines = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == __file__:
            lines.append(f"{__file__}:{frame.f_lineno}")
        frame = frame.f_back
    _expected.append(lines[::-1])
    return x


def function() -> None:
    torch.add(here(), 1)


def python_function() -> None:
    F.relu(here())


def method() -> None:
    here().mul(2)


def python_method() -> None:
    here().norm()


def operator() -> None:
    here() + 1


def indexing() -> None:
    here()[0]


def keywords() -> None:
    torch.sum(input=here(), dim=1)


def second(call: Callable[[], None], which: int) -> None:
    if which % 2:
        call()
    else:
        call()


def twin(call: Callable[[], None], which: int) -> None:
    if which % 2:
        call()
    else:
        call()


def third(call: Callable[[], None], which: int) -> None:
    if which // 2 % 2:
        second(call, which)
    else:
        second(call, which)


def fourth(call: Callable[[], None], which: int) -> None:
    if which // 4 % 2:
        third(call, which)
    else:
        third(call, which)


class Layer(nn.Module):
    def __init__(self, call: Callable[[], None]):
        super().__init__()
        self.call = call

    def forward(self, which: int) -> None:
        self.call()
        second(self.call, which)
        fourth(self.call, which)


KINDS = [function, python_function, method, python_method, operator, indexing, keywords]


@pytest.mark.parametrize("call", KINDS)
def test_each_call_has_its_own_stack(call: Callable[[], None], tmp_path: Path) -> None:
    model = nn.Sequential(Layer(call), Layer(call))
    callers: list[Callable[[Callable[[], None], int], None]] = [second, twin, third, fourth]
    _expected.clear()
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        for _ in range(2):
            call()
        for which in (0, 0, 1):
            for caller in callers[:2]:
                caller(call, which)
        for caller in callers:
            for which in [*range(8), 7, 0, 3, 3, 4]:
                caller(call, which)
        for which in (0, 1, 4):
            model[0](which)
            model[1](which)
    check(tmp_path / "net.sqlite")


def test_a_method_that_is_kept_is_called_where_it_is_called(tmp_path: Path) -> None:
    _expected.clear()
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        add, mul = x.__add__, x.mul
        for _ in range(3):
            add(here())
            add(here())
            mul(here())
            mul(here())
    check(tmp_path / "net.sqlite")


def test_a_call_that_waits_for_the_next_window_has_its_stack(tmp_path: Path) -> None:
    def generator() -> Iterator[None]:
        while True:
            torch.add((yield), here())  # type: ignore[call-overload]

    waiting: Any = generator()
    next(waiting)
    # The last window calls a wrapper that was found and called in the window before.
    for number, before in enumerate(([function], [function], [function, method, operator])):
        _expected.clear()
        with pyprof.profile(str(tmp_path / f"{number}.sqlite")):
            for call in before:
                call()
            for _ in range(20):  # so often that Python has settled how it calls
                waiting.send(x)
    check(tmp_path / "2.sqlite")


def test_names_of_the_programs_own_do_not_disturb(tmp_path: Path) -> None:
    scope: dict[str, Any] = {"torch": torch, "x": x}
    for name in ("len", "id", "type", "map", "RecursionError", "Exception"):
        scope[name] = None
    exec("def run():\n    torch.add(x, x)\n    x.mul(x)\n    return x + x", scope)
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        scope["run"]()
    recorded = Recorded(tmp_path / "net.sqlite")
    assert recorded.names == ["torch.add", "Tensor.mul", "Tensor.__add__"]
    assert recorded.query("select * from PYPROF_META where name like 'lost%'") == []


def check(path: Path) -> None:
    calls = [[line for line in call.user_lines if line.startswith(__file__)] for call in Recorded(path).calls]
    assert calls == _expected
