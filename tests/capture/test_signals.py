# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while a recording is read or written loses nothing of it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import pyprof
from pyprof.capture import controller, pace, recording, session
from pyprof.capture.collectors import kineto
from pyprof.capture.process.signals import held

from .conftest import Recorded


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    pyprof.shutdown()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGTERM, before[1])


def _once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function; its first call is interrupted before it does anything."""
    calls: list[int] = []

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            signal.raise_signal(signal.SIGINT)
        return function(*args, **kwargs)

    return interrupted


def _recorded(path: Path) -> tuple[int, int]:
    """Calls and operators of torch.tanh."""
    recorded = Recorded(path)
    operators = recorded.query("select value from PYPROF_OP join StringIds on nameId = id")
    return recorded.names.count("torch.tanh"), sum(name == "aten::tanh" for (name,) in operators)


def test_ctrl_c_while_torchs_records_are_read_loses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_mallinfo", None)
    monkeypatch.setattr(pace, "MOST", 150)
    monkeypatch.setattr(kineto, "arguments", _once(kineto.arguments))
    path, done, x = tmp_path / "net.sqlite", 0, torch.ones(3)
    with pyprof.profile(str(path)):
        try:
            while done < 100:
                torch.tanh(x)
                done += 1
        except KeyboardInterrupt:
            pass
        for _ in range(5):  # the program goes on
            torch.tanh(x)
    assert 8 <= done <= 11
    assert _recorded(path) == (done + 6, done + 6)  # with the call that was interrupted when it had returned


@pytest.mark.parametrize(("module", "name"), [(kineto, "arguments"), (recording, "resolve"), (session, "write")])
def test_ctrl_c_while_the_file_is_made_comes_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    monkeypatch.setattr(module, name, _once(getattr(module, name)))
    path, x = tmp_path / "net.sqlite", torch.ones(3)
    with pytest.raises(KeyboardInterrupt), pyprof.profile(str(path)):
        torch.tanh(x)
    assert _recorded(path) == (1, 1)
    assert controller.control.session is None


def test_a_second_signal_does_not_wait() -> None:
    seen = []

    @held()
    def twice() -> None:
        signal.raise_signal(signal.SIGINT)
        seen.append(1)
        signal.raise_signal(signal.SIGINT)
        seen.append(2)

    with pytest.raises(KeyboardInterrupt):
        twice()
    assert seen == [1]


def test_each_signal_is_handled_whatever_another_raises() -> None:
    seen: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))

    @held()
    def both() -> None:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert not seen

    with pytest.raises(KeyboardInterrupt):
        both()
    assert seen == [signal.SIGTERM]


def test_a_handler_set_inside_stays_and_other_threads_touch_none() -> None:
    def mine(number: int, frame: object) -> None: ...

    with held():
        signal.signal(signal.SIGTERM, mine)
    assert signal.getsignal(signal.SIGTERM) is mine
    found: list[object] = []

    def elsewhere() -> None:
        with held():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [mine]
