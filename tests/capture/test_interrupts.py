# SPDX-License-Identifier: Apache-2.0
"""ctrl-C and a full stack at every place inside PyProf's own code: the thread records on, as if nothing had been."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

import pyprof
from pyprof.capture.instrument import arguments, compiled, lookups, modules, patch, user_ranges, wrappers
from pyprof.capture.instrument.recorder import local, recorder

from .conftest import Recorded

# Not stacks.py: the end of `with self.lock` is a call to Python's tracer, but no place where Python looks for signals.
OURS = tuple(str(module.__file__) for module in (patch, modules, user_ranges, wrappers, lookups, compiled, arguments))
_CALLS = {code for name, code in dis.opmap.items() if name.startswith("CALL")}


class _Interrupt:
    """Raises KeyboardInterrupt at the n-th call that PyProf's own code makes: where Python looks for signals."""

    def __init__(self, number: int):
        self.left = number
        self.raised = False

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not (frame.f_code.co_filename.startswith(OURS) or frame.f_code.co_name in ("add", "mul", "__add__")):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and not self.raised and frame.f_code.co_code[frame.f_lasti] in _CALLS:
            self.left -= 1
            if self.left < 0:
                self.raised = True
                raise KeyboardInterrupt
        return self


def interrupt_everywhere(body: Callable[[], Callable[[], Any]]) -> int:
    """Interrupt a body at each place in turn; `body` makes a fresh one, whose places were not met. Returns how many."""
    before = sys.gettrace()
    for number in range(10_000):
        run, interrupt = body(), _Interrupt(number)
        sys.settrace(interrupt)
        try:
            run()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
            torch.set_grad_enabled(True)  # ctrl-C in the `finally` of an optimizer's step leaves it off
        state = local.state
        assert (state.busy, state.context, state.root) == (False, 0, None), number
        if not interrupt.raised:
            return number
    raise AssertionError("no end")


def fresh(source: str, **names: Any) -> Callable[[], Callable[[], Any]]:
    """A function that was never called, as often as asked."""

    def make() -> Callable[[], Any]:
        scope = {"torch": torch, "x": torch.ones(1, 2), **names}
        exec(f"def run():\n    return {source}", scope)
        return scope["run"]  # type: ignore[no-any-return]

    return make


net = nn.Sequential(nn.Linear(2, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.0)


@pytest.mark.parametrize("source", ["torch.add(x, 1)", "x.mul(2)", "x + 1", "net(x)", "optimizer.step()"])
def test_ctrl_c_in_our_code_leaves_the_thread_as_it_was(source: str, tmp_path: Path) -> None:
    path = tmp_path / "net.sqlite"
    make = fresh(source, net=net, optimizer=optimizer)
    known = make()
    with pyprof.profile(str(path)):
        assert interrupt_everywhere(make) > 5  # met for the first time
        known()
        again = interrupt_everywhere(lambda: known)
        assert again > 2 or compiled.WATCH is not None  # met before; compiled, no Python runs then
        torch.tanh(torch.ones(1))
        net(torch.ones(1, 2))
    recorded = Recorded(path)
    assert recorded.call("torch.tanh").marker.module is None
    assert recorded.calls[-1].marker.module == "0"
    assert recorded.table("PYPROF_LOST") == {}
    pyprof.shutdown()


class _Writer:
    """Stands in for the nvtx package."""

    full = False

    def push(self, *_: Any) -> int:
        return 1

    def pop(self, depth: int) -> None:
        assert depth == 1


def test_ctrl_c_where_calls_are_nvtx_ranges(tmp_path: Path) -> None:
    call = wrappers.emitting(torch.tanh, recorder.function("torch", "tanh"))
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        recorder.ranges = _Writer()
        assert interrupt_everywhere(fresh("call(x)", call=call)) > 5
        recorder.ranges = None
    pyprof.shutdown()


@pytest.mark.parametrize("source", ["torch.add(x, 1)", "x.mul(2)", "x + 1", "net(x)", "optimizer.step()"])
def test_a_full_stack_in_our_code_leaves_the_thread_as_it_was(source: str, tmp_path: Path) -> None:
    path = tmp_path / "net.sqlite"
    run = fresh(source, net=net, optimizer=optimizer)()
    ran: list[int] = []

    def down() -> None:
        """To the bottom; from there upwards until there is room enough, which passes every depth of our code."""
        try:
            down()
        except RecursionError:
            run()
            ran.append(1)

    limit = sys.getrecursionlimit()
    with pyprof.profile(str(path)):
        sys.setrecursionlimit(200)
        try:
            down()
        finally:
            sys.setrecursionlimit(limit)
        assert ran
        state = local.state
        assert (state.busy, state.context, state.root) == (False, 0, None)
        torch.tanh(torch.ones(1))
    assert Recorded(path).call("torch.tanh").marker.module is None
    lost = Recorded(path).table("PYPROF_LOST")
    assert {reason.rpartition(" ")[2] for reason in lost} <= {"(RecursionError)"}, lost
    pyprof.shutdown()


def test_an_error_while_tracing_has_no_error_of_ours_behind_it(tmp_path: Path) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    def chain() -> list[str]:
        with FakeTensorMode(), pytest.raises(Exception) as raised:  # noqa: PT011
            torch.ones(2, 3).view(5)
        error: BaseException | None = raised.value
        names = []
        while error is not None:
            names.append(type(error).__name__)
            error = error.__context__
        return names

    plain = chain()
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        assert chain() == plain
    pyprof.shutdown()
