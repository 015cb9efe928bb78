# SPDX-License-Identifier: Apache-2.0
"""Torch's profiler is ended while no other thread runs an operator."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import torch

from pyprof.capture.collectors import gil_pause
from pyprof.capture.instrument.recorder import ThreadState, recorder
from tests.forks import Forks
from tests.waiting import until


@contextmanager
def thread(work: object) -> Iterator[int]:
    """Another thread that has called operators; yields its number."""
    numbers, ended = [], threading.Event()

    def run() -> None:
        numbers.append(threading.get_native_id())
        recorder.add(ThreadState())
        while not ended.is_set():
            work(ended)  # type: ignore[operator]

    running = threading.Thread(target=run)
    running.start()
    try:
        while not numbers:
            time.sleep(0.001)
        yield numbers[0]
    finally:
        ended.set()
        running.join()
        recorder.clear()


def multiply(ended: threading.Event) -> None:
    torch.mm(torch.ones(700, 700), torch.ones(700, 700))  # longer than a pause


def wait(ended: threading.Event) -> None:
    ended.wait(10)


def count(ended: threading.Event) -> None:
    sum(range(1000))


@pytest.mark.parametrize("work", [multiply, wait, count])
def test_a_thread_ends_its_operator_and_waits(work: object) -> None:
    with thread(work):
        assert all(gil_pause.wait_for_others(60) for _ in range(10))


def test_a_thread_that_does_not_end_its_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gil_pause, "_is_running", lambda tid: True)
    with thread(wait):
        assert not gil_pause.wait_for_others(0.01)


def test_whether_a_thread_computes() -> None:
    with thread(multiply) as number:
        assert any(gil_pause._is_running(number) or time.sleep(0.001) for _ in range(10_000))
    until(lambda: not gil_pause._is_running(number))  # the system ends it after Python has
    with thread(wait) as number:
        assert any(not gil_pause._is_running(number) or time.sleep(0.001) for _ in range(10_000))


def test_what_is_called_after_the_pause() -> None:
    with thread(count):
        assert gil_pause.call_after_pause(partial(max, 3, 4)) == 4
        with pytest.raises(ValueError, match="empty"):
            gil_pause.call_after_pause(partial(max, ()))
    assert gil_pause.call_after_pause(partial(max, 3, 4)) == 4


def test_a_system_that_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gil_pause, "_libc", None)
    with thread(count) as number:
        assert not gil_pause._is_running(number)
        assert gil_pause.wait_for_others(60)
        assert gil_pause.call_after_pause(partial(max, 3, 4)) == 4


CROWDED = """
import threading
from pyprof.capture import THREAD
from pyprof.capture.collectors import gil_pause
ended = threading.Event()
answers = [gil_pause.has_other_threads()]
for name in (THREAD, "theirs"):
    threading.Thread(target=ended.wait, name=name).start()
    answers.append(gil_pause.has_other_threads())
ours = threading.Thread(target=lambda: answers.append(gil_pause.has_other_threads()), name=THREAD)
ours.start(), ours.join(), ended.set()
print(answers)
"""


def test_threads_of_ours_are_no_crowd(forks: Forks, tmp_path: Path) -> None:
    code, done = forks.run(tmp_path, CROWDED)
    assert code == 0, done.stderr
    assert done.stdout == "[False, False, True, True]\n"
