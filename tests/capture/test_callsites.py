# SPDX-License-Identifier: Apache-2.0
"""An attribute access counts when its value is called at once, in every form that Python has for a call."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from pyprof.capture.callsites import callee_offsets

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
    ("x = (m.f or g)(1)", 0),
    ("x = (m.f)(1)", 0),  # seen as an operator
    ("x = g(m.f)", 0),
    ("x = g(1, key=m.f)", 0),
    ("x = m.f.__call__(1)", 0),
    ("x = getattr(m, 'f')(1)", 0),
    ("m.f\nx = g(1)", 0),
]


class Watched(SimpleNamespace):
    """Counts how often `f` was asked for by an access that counts."""

    @property
    def f(self) -> Any:
        frame = sys._getframe(1)
        self.counted += frame.f_lasti in callee_offsets(frame.f_code)
        return g


def g(*args: Any, **kwargs: Any) -> Any:
    return Value(1)


class Value(int):
    def __call__(self, *args: Any) -> int:
        return 1


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="instructions have no source ranges before Python 3.11"
)
@pytest.mark.parametrize(("source", "count"), CASES, ids=[source for source, _ in CASES])
def test_only_an_access_that_is_called_at_once_counts(source: str, count: int) -> None:
    m = Watched(counted=0)
    exec(source, {"m": m, "g": g, "args": (1,), "kwargs": {"b": 2}, "getattr": getattr})
    assert m.counted == count


def test_without_source_ranges_nothing_breaks() -> None:
    code = compile("x = m.f(1)\ny = m.f", "<text>", "exec")
    assert len(callee_offsets(code)) <= 1
