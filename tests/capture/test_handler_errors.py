# SPDX-License-Identifier: Apache-2.0
"""What a signal handler of the program raises while PyProf's code runs reaches the program, wherever it happens."""

from __future__ import annotations

import functools
import gc
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

import pyprof
from pyprof.capture import flight
from pyprof.capture.core.internal_errors import from_handler, internal, tolerated
from pyprof.capture.instrument import compiled, interruptions
from pyprof.capture.instrument.recorder import local, recorder
from pyprof.capture.process import faults, main_thread
from pyprof.capture.process.signals import held

from .test_interrupts import _CALLS, OURS, fresh


class Late(Exception):
    """What the handlers of these tests raise."""


def plain(number: int, frame: Any) -> None:
    raise Late


def any_arguments(*both: Any) -> None:
    helper()


def helper() -> None:
    raise Late


def once(number: int, frame: Any) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    raise Late


class Callee:
    """Handlers that are no functions."""

    def __call__(self, number: int, frame: Any) -> None:
        raise Late

    def method(self, number: int, frame: Any) -> None:
        helper()


def with_more(what: str, number: int, frame: Any, again: bool = False) -> None:
    raise Late(what)


HANDLERS = [plain, any_arguments, once, Callee(), Callee().method, functools.partial(with_more, "late"),
            lambda *_: helper()]  # fmt: skip


@pytest.fixture(autouse=True)
def _alarm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM)
    gc.disable()  # a collection comes when a test asks for it: what is raised in it is raised after it
    yield
    gc.enable()
    signal.signal(signal.SIGALRM, before)


def alarm(handler: Any = plain) -> None:
    signal.signal(signal.SIGALRM, handler)
    signal.raise_signal(signal.SIGALRM)


@pytest.mark.parametrize("handler", HANDLERS)
def test_error_of_a_handler_passes_and_others_do_not(handler: Any) -> None:
    for passes in (
        lambda: faults.guarded(alarm, handler),
        lambda: faults.contained(alarm)(handler),
        lambda: held()(alarm)(handler),
        lambda: faults.contained(held()(alarm))(handler),
    ):
        with pytest.raises(Late):
            passes()
    with pytest.raises(Late), tolerated():
        alarm(handler)


@pytest.mark.parametrize(
    "call",
    [helper, lambda: plain(14, None), lambda: with_more("what", 14, "frame"), lambda: (1).missing],  # type: ignore[attr-defined]
)
def test_error_of_ours_or_of_what_we_call_is_contained(
    call: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    faults.guarded(call)
    with tolerated():
        call()
    with pytest.raises((AttributeError, Late)) as caught:
        call()
    assert not from_handler(caught.value)
    assert internal() == (Exception,)
    assert "The program goes on" in capsys.readouterr().err
    recorder.lost.clear()
    faults._reported.clear()


class _Alarm:
    """Sends the signal at the n-th call that PyProf's own code makes: where Python looks for signals."""

    def __init__(self, number: int):
        self.left = number
        self.sent = False

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and not self.sent and frame.f_code.co_code[frame.f_lasti] in _CALLS:
            self.left -= 1
            if self.left < 0:
                self.sent = True
                signal.raise_signal(signal.SIGALRM)
        return self


net = nn.Sequential(nn.Linear(2, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
SOURCES = ["torch.add(x, 1)", "x.mul(2)", "x + 1", "net(x)", "optimizer.step()"]


@pytest.mark.parametrize("options", [{}, {"memory": True, "io": True, "api_backtrace": True}])
@pytest.mark.parametrize("source", [*SOURCES, "open('/dev/null').close()"])
def test_at_every_call_that_our_code_makes(source: str, options: dict[str, Any], tmp_path: Path) -> None:
    signal.signal(signal.SIGALRM, plain)
    make = fresh(source, net=net, optimizer=optimizer)
    before = sys.gettrace()
    with pyprof.profile(str(tmp_path / "net.sqlite"), **options):
        for number in range(10_000):
            run, sender, reached = make(), _Alarm(number), False
            sys.settrace(sender)
            try:
                run()
            except Late:
                reached = True
            finally:
                sys.settrace(before)
                torch.set_grad_enabled(True)  # an error in the `finally` of an optimizer's step leaves it off
            assert reached == sender.sent, number
            assert (local.state.busy, local.state.context, local.state.root) == (False, 0, None), number
            if not sender.sent:
                break
    pyprof.shutdown()


def test_in_a_call_between_two_bytecodes() -> None:
    """Of a window that opens after a delay, or that reads records because they take much memory."""

    def go_on() -> None:
        other = threading.Thread(target=main_thread.soon, args=(alarm,))
        other.start()
        other.join()
        for _ in range(100_000):
            helpless()

    def helpless() -> None: ...

    with pytest.raises(Late):
        go_on()
    assert not main_thread._waiting


def test_in_the_window_of_a_flight_record_and_of_init(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for begin in (pyprof.flight, lambda: pyprof.init(output="net.sqlite")):
        begin()
        recorder.on_full, recorder.limit = alarm, 0  # asked after each call
        with pytest.raises(Late):
            torch.tanh(torch.ones(2))
        pyprof.shutdown()


@pytest.mark.skipif(not hasattr(compiled._module, "collector_callback"), reason="not compiled")
@pytest.mark.parametrize("begin", [pyprof.flight, lambda: pyprof.init(output="net.sqlite")], ids=["flight", "init"])
def test_in_a_callback_of_the_collector(
    begin: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python only prints what is raised there: it is raised when the callback has returned."""
    monkeypatch.chdir(tmp_path)

    def late() -> int:
        if sys._getframe(1).f_code.co_name in ("_collected", "_collects"):
            alarm(once)
        return time.time_ns()

    try:
        begin()
        for module in (interruptions, flight):
            monkeypatch.setattr(module, "time_ns", late)
        with pytest.raises(Late):
            gc.collect()
    finally:
        monkeypatch.undo()
        pyprof.shutdown()
