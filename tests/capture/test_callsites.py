# SPDX-License-Identifier: Apache-2.0
"""An attribute access counts when its value is called at once, in every form that Python has for a call."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import pyprof
from pyprof.capture.instrument import call_sites
from pyprof.capture.instrument.call_sites import callee_offsets

from .conftest import Recorded

CASES = [
    ("m.f(1)", 1),
    ("x = m.f(1)", 1),
    ("x = m.f(1) + m.f(2)", 2),
    ("for _ in (1, 2): m.f(1)", 2),
    ("x = m.f(1, a=2)", 1),
    ("x = m.f(*args)", 1),
    ("x = m.f(*args, **kwargs)", 1),
    ("x = m.f(1, **kwargs)", 1),
    ("x = m.f(1, *args, a=3, **kwargs)", 1),
    ("x = m.f(1, *args, *args)", 1),
    ("x = m.f(*args, a=3)", 1),
    ("x = m.f(**kwargs)", 1),
    (f"x = m.f({'1, ' * 40})", 1),
    (f"x = m.f({', '.join(f'a{i}={i}' for i in range(20))})", 1),
    ("x = (m\n    .f(\n        1,\n        a=2,\n    ))", 1),
    ("x = (m\n    .f\n    (1))", 1),
    ("x = (m\n    .f(1, *args, a=3, **kwargs))", 1),
    ("import watched\nx = watched.f(1)", 1),
    ("import watched\ndef h(): return watched.f(1, a=2)\nx = h()", 1),
    ("import watched\nx = (watched\n    .f(1, a=2))", 1),
    ("import watched\nx = watched.f is g", 0),
    ("x = [m.f(i) for i in (1,)]", 1),
    ("x = m.f(m.f(1))", 2),
    ("x = m.f(1)(2)", 1),
    ("x = m.f(1).real", 1),
    ("x = m.f(1) if m.f(0) else m.f(2)", 2),
    ("x = m.f(1) and m.f(2)", 2),
    ("assert m.f(1)", 1),
    ("x = lambda: m.f(1)\nx()", 1),
    ("f = m.f\nx = f(1)", 0),
    ("x = m.f", 0),
    ("x = m.f is g", 0),
    ("x = m.f == g and g(1)", 0),
    ("x = {m.f: g}[m.f](1)", 0),
    ("x = (m.f, g)[0](1)", 0),
    ("x = m.f, g", 0),
    ("x = m.f, *args", 0),
    ("x = (m\n    .f, *args)", 0),
    ("x = g(*args, m.f)", 0),
    ("x = g(m\n    .f)", 0),
    ("x = (m.f or g)(1)", 0),
    ("x = (m.f)(1)", int(sys.version_info >= (3, 13))),  # before, it is seen as an operator
    ("x = g(m.f)", 0),
    ("x = g(1, key=m.f)", 0),
    ("x = m.f.__call__(1)", 0),
    ("x = getattr(m, 'f')(1)", 0),
    ("m.f\nx = g(1)", 0),
]


class Lookup(property):
    """As in patch.py: not the class that Python 3.12 takes a shortcut for."""


class Watched(SimpleNamespace):
    """Counts how often `f` was asked for by an access that counts."""

    @Lookup
    def f(self) -> Any:
        frame = sys._getframe(1)
        self.counted += frame.f_lasti in callee_offsets(frame.f_code)
        return g


def g(*args: Any, **kwargs: Any) -> Any:
    return Value(1)


class Value(int):
    def __call__(self, *args: Any) -> int:
        return 1


@pytest.mark.parametrize(("source", "count"), CASES, ids=[source for source, _ in CASES])
def test_only_an_access_that_is_called_at_once_counts(source: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    m = Watched(counted=0)
    monkeypatch.setitem(sys.modules, "watched", m)  # what is imported is not loaded as a method
    exec(source, {"m": m, "g": g, "args": (1,), "kwargs": {"b": 2}, "getattr": getattr})
    assert m.counted == count


WITHOUT_RANGES = """
from pyprof.capture.instrument.call_sites import callee_offsets, complete
codes = [compile(source, "", "exec") for source in ("x = m.f(1)", "import m; x = m.f(1, a=2)", "x = m.f")]
print(complete(), [len(callee_offsets(code)) for code in codes])
"""


@pytest.mark.parametrize("words", [[], ["-X", "no_debug_ranges"]])
def test_without_source_ranges_fewer_are_found_and_none_is_wrong(words: list[str], root: Path) -> None:
    done = subprocess.run([sys.executable, *words, "-c", WITHOUT_RANGES], cwd=root, capture_output=True, text=True)
    fewer = words and sys.version_info < (3, 13)
    assert done.stdout == ("False [1, 0, 0]\n" if fewer else "True [1, 1, 0]\n"), done.stderr


def test_calls_that_cannot_be_told_are_said_once_and_stand_in_the_file(
    record: Callable[..., Recorded], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(call_sites, "complete", lambda: False)
    for _ in range(2):
        assert record(lambda: torch.ones(1)).table("PYPROF_META")["python.debug_ranges"] == "no"
    assert capfd.readouterr().err.count("pyprof: Python runs without debug ranges") == 1
    pyprof.shutdown()
    monkeypatch.undo()
    assert "python.debug_ranges" not in record(lambda: torch.ones(1)).table("PYPROF_META")
    assert "debug ranges" not in capfd.readouterr().err
