# SPDX-License-Identifier: Apache-2.0
"""A function is called on the main thread, between two bytecodes of the program."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pyprof.capture.process import main_thread
from tests.forks import Forks

PROGRAM = """
import threading, time
from pyprof.capture.process import main_thread


called = []
def function():
    called.append(threading.current_thread() is threading.main_thread())
    {body}

ready, ended = threading.Event(), threading.Event()
def other():
    ready.wait()
    for _ in range(3): main_thread.soon(function)
    ended.set()
threading.Thread(target=other).start()
{loop}
for _ in range(1000): pass
print(called)
"""
WHILE = "ready.set()\nwhile not ended.is_set(): pass"


def run(forks: Forks, folder: Path, body: str = "pass", loop: str = WHILE) -> tuple[str, str]:
    program = PROGRAM.format(body=body, loop=loop)
    code, done = forks.run(folder, program)
    assert code == 0, done.stderr
    return done.stdout.strip(), done.stderr


def test_it_is_called_on_the_main_thread(forks: Forks, tmp_path: Path) -> None:
    called, said = run(forks, tmp_path)
    assert set(eval(called)) == {True}
    assert not said


def test_what_it_raises_stays_here(forks: Forks, tmp_path: Path) -> None:
    called, said = run(forks, tmp_path, "raise ValueError('odd')")
    assert "True" in called
    assert said.startswith("pyprof: ")
    assert "ValueError: odd" in said
    assert "Traceback" not in said


def test_it_is_not_called_inside_pyprof(forks: Forks, tmp_path: Path) -> None:
    """A loop whose code has a name of the package's: nothing there may be interrupted."""
    loop = (
        "import pyprof\n"
        "exec(compile("
        "'ready.set()\\nwhile not ended.is_set(): pass\\nfor _ in range(1000): pass', pyprof.__file__, 'exec'))"
    )
    called, said = run(forks, tmp_path, loop=loop)
    assert called == "[]"
    assert not said


@pytest.mark.parametrize(("name", "asked"), [("__enter__", 0), ("__exit__", 0), ("other", 1)])
def test_a_range_that_is_being_entered_is_not_interrupted(name: str, asked: int) -> None:
    """Torch has begun the range and PyProf does not know of it yet: it was taken for one that does not end, and
    nothing was recorded any more."""
    file = os.path.join("site-packages", "torch", "autograd", "profiler.py")
    inside: dict[str, Any] = {}
    exec(compile(f"def {name}(ask):\n    ask()\n", file, "exec"), inside)
    called: list[int] = []
    main_thread._waiting.append(lambda: called.append(1))
    inside[name](lambda: bool(main_thread._Pending()))
    assert (len(called), main_thread._waiting) == (asked, [])
