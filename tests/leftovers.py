# SPDX-License-Identifier: Apache-2.0
"""State of the process that a test must leave as it found it, and connections that are to be closed by hand.

A test that leaves gradients switched off, or a range open, would fail others that happen to run after it in the same
process. Add a kind of state: a row in `_STATES`.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

_OF_OTHERS = (
    "PYTEST_CURRENT_TEST",
    "TORCHINDUCTOR_CACHE_DIR",
)  # set by pytest, and by an import of torch.compile


class State(NamedTuple):
    """Something of the whole process: how to read it, and how to put it back."""

    name: str
    module: str  # nothing is read, and nothing can be left, before somebody has imported it
    read: Callable[[], Any]
    restore: Callable[[Any], object]


def _environment() -> dict[str, str]:
    mine = {name: value for name, value in os.environ.items() if name not in _OF_OTHERS}
    return {name: value for name, value in mine.items() if not name.startswith("_TORCHINDUCTOR")}


def _set_environment(old: dict[str, str]) -> None:
    for name in _environment().keys() - old.keys():
        del os.environ[name]
    os.environ.update(old)


def _set(owner: Any, name: str) -> Callable[[Any], None]:
    return lambda old: setattr(owner, name, old)


def _torch() -> Any:
    return sys.modules["torch"]


def _open_ranges() -> list[Any]:
    from pyprof.capture.instrument.recorder import local

    return [name for name, *_ in local.state.open]


def _close_ranges(_: object) -> None:
    from pyprof.capture.instrument.user_ranges import pop

    while pop() >= 0:
        pass


def _capture() -> tuple[Any, ...]:
    """Whether something is recorded, and what stands in the way of calls of torch."""
    from pyprof.capture.controller import control
    from pyprof.capture.instrument.recorder import local, recorder

    thread = local.state.busy, local.state.context, local.state.layer
    return (
        thread,
        recorder.active,
        recorder.keeping,
        recorder.observer,
        control.session,
        control.hooks,
        control.plan,
    )


def _shutdown(_: object) -> None:
    import pyprof

    pyprof.shutdown()


_STATES = (
    State("current folder", "os", os.getcwd, os.chdir),
    State("os.environ", "os", _environment, _set_environment),
    # What torch.compile imports of setuptools adds a folder of it.
    State("sys.path", "sys", lambda: [each for each in sys.path if "_vendor" not in each], _set(sys, "path")),
    State("sys.argv", "sys", lambda: list(sys.argv), _set(sys, "argv")),
    State("SIGINT", "signal", lambda: signal.getsignal(2), lambda old: signal.signal(2, old)),
    State("SIGTERM", "signal", lambda: signal.getsignal(15), lambda old: signal.signal(15, old)),
    State("grad mode", "torch", lambda: _torch().is_grad_enabled(), lambda old: _torch().set_grad_enabled(old)),
    State(
        "default dtype", "torch", lambda: _torch().get_default_dtype(), lambda old: _torch().set_default_dtype(old)
    ),
    State("threads of torch", "torch", lambda: _torch().get_num_threads(), lambda old: _torch().set_num_threads(old)),
    State(
        "deterministic algorithms", "torch", lambda: _torch().are_deterministic_algorithms_enabled(),
        lambda old: _torch().use_deterministic_algorithms(old),
    ),
    State("profiler of torch", "torch", lambda: _torch()._C._autograd._profiler_enabled(), lambda old: None),
    State("open ranges", "pyprof.capture.instrument.user_ranges", _open_ranges, _close_ranges),
    State("capture", "pyprof.capture.controller", _capture, _shutdown),
)  # fmt: skip


def state() -> dict[str, Any]:
    """What the process is in now, of the modules that are imported."""
    return {one.name: one.read() for one in _STATES if one.module in sys.modules}


def restore(before: dict[str, Any]) -> list[str]:
    """Put back what is not as it was `before`, and say what that is: one sentence per difference."""
    out = []
    for one in _STATES:
        if one.name in before and (now := one.read()) != before[one.name]:
            out.append(f"{one.name} {_difference(before[one.name], now)}")
            one.restore(before[one.name])
    return out


def _difference(before: Any, now: Any) -> str:
    """Of a dictionary only what differs."""
    if isinstance(before, dict) and isinstance(now, dict):
        before, now = (dict(one.items() - other.items()) for one, other in ((before, now), (now, before)))
    return f"was {before!r} and is now {now!r}"


class Tracked(sqlite3.Connection):
    """A connection that warns when it goes without having been closed. Python 3.13 does that by itself."""

    _place = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        frames = traceback.extract_stack(sys._getframe(1), limit=4)
        self._place = " < ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames))
        super().__init__(*args, **kwargs)

    def close(self) -> None:
        self._place = ""
        super().close()

    def __del__(self) -> None:
        if self._place:
            warnings.warn(f"unclosed database, opened at {self._place}", ResourceWarning, stacklevel=1)


def track_connections() -> None:
    """From now on whoever leaves a connection to SQLite open is warned of, on any Python."""
    connect = sqlite3.connect

    def tracked(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        return connect(*args, **{"factory": Tracked, **kwargs})

    sqlite3.connect = tracked  # type: ignore[assignment]
