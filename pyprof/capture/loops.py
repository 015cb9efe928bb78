# SPDX-License-Identifier: Apache-2.0
"""Windows of loops that others run: trainers, which report the ends of steps, and functions that are called once per
step (`pyprof.profiled`).

The schedule is that of `pyprof.profile`. A window that is never ended is written when the program ends.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, ParamSpec, TypeVar, overload

from pyprof.capture.core.options import Given
from pyprof.capture.environment import ranks as processes
from pyprof.capture.schedule import profile
from pyprof.core.errors import UsageError

if TYPE_CHECKING:
    from typing import Unpack

_P = ParamSpec("_P")
_R = TypeVar("_R")
_SCHEDULE = {"wait": 1, "warmup": 1, "active": 3}


class Schedule(Given, total=False):
    """Options of a loop; None for the default."""

    wait: int | None
    warmup: int | None
    active: int | None
    repeat: int | None
    window: tuple[int, int] | None
    ranks: Collection[int] | None
    max_events: int | None


class _Window(profile):
    """A window whose steps end only where the loop says so, not with the steps of an optimizer."""

    _marks_of_others = False


class Loop:
    """Record steps of a loop. `begin`, `step` and `end` may be called in any order and number.

    By default one step is left alone, one is recorded and thrown away, three are kept. `window=(10, 15)` in place of
    `wait`, `warmup` and `active`: the steps with the numbers 10 to 14, also when a training goes on from a checkpoint.
    `ranks`: those that record, each into a file of its own; None for all. Other options are those of `profile`.
    """

    def __init__(self, output: str | None = None, **options: Unpack[Schedule]):
        named = {name: value for name, value in options.items() if value is not None}
        self._ranks, self._window = options.get("ranks"), options.get("window")
        if self._window is not None:
            _check(self._window, named)
        self._output = output
        self._options = {
            name: value for name, value in {**_SCHEDULE, **named}.items() if name not in ("ranks", "window")
        }
        self._profile: profile | None = None
        self._create()  # raises UsageError before the training begins

    def _create(self, **schedule: int) -> profile:
        options = {**self._options, **schedule}
        return _Window(self._output, **options)  # type: ignore[arg-type]

    def begin(self, number: int = 0) -> None:
        """Begin with the step of this number; a window that is still open is ended. Raises CaptureError while another
        one is open."""
        self.end()
        if not _records(self._ranks):
            return
        if self._window is None:
            self._profile = self._create()
        else:
            first, end = max(self._window[0], number), self._window[1]
            if number >= end:
                reason = f"the loop begins with step {number}, after the window {self._window}"
                print(f"pyprof: nothing is recorded: {reason}.", file=sys.stderr)
                return
            self._profile = self._create(wait=first - number, warmup=0, active=end - first)
        self._profile.__enter__()

    def step(self, number: int | None = None) -> None:
        """Mark the end of a step, by its number in the file if that is known."""
        if self._profile is not None:
            self._profile.step(number)

    def end(self) -> None:
        """Write the file of a window that is still open."""
        window, self._profile = self._profile, None
        if window is not None:
            window.__exit__(None, None, None)


def _check(window: tuple[int, int], named: dict[str, object]) -> None:
    """Raise UsageError for a window that is none, or that has a schedule beside it."""
    beside = [name for name in (*_SCHEDULE, "repeat") if name in named]
    if beside:
        raise UsageError(f"window and {beside[0]}: name one of them, since a window is a whole schedule.")
    if not (isinstance(window, tuple) and len(window) == 2 and 0 <= window[0] < window[1]):
        raise UsageError(f"window={window}: expected the first step and the one after the last, as in (10, 15).")


def _records(ranks: Collection[int] | None) -> bool:
    """Return whether this process is one of some ranks; a run of one process is rank 0."""
    return ranks is None or (processes.rank() or 0) in ranks


@overload
def profiled(output: Callable[_P, _R]) -> Callable[_P, _R]: ...
@overload
def profiled(
    output: str | None = None, loop: bool = False, **options: Unpack[Schedule]
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]: ...
def profiled(
    output: Callable[_P, _R] | str | None = None, loop: bool = False, **options: Unpack[Schedule]
) -> Callable[_P, _R] | Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Record calls of the decorated function, each of which is one step: `@pyprof.profiled("net.sqlite", active=5)`.

    The first call begins the schedule: by default one step is left alone, one is recorded and thrown away, three are
    kept, and the file is written. `window=(10, 15)` in its place: the calls 10 to 14, counted from 0. `ranks`: those
    that record, each into a file of its own. When a call raises, the file is written and the error goes on. A window
    that never ends is written by `pyprof.stop()` or at the end of the program.

    `loop=True`: the function is the whole loop, and each call of it is recorded as `profile` does, with its schedule;
    steps are those that `pyprof.step()` ends, or those of the optimizer. Other options are those of `profile`. Raises
    UsageError for a generator or a coroutine, which return before their work is done.
    """
    path = output if isinstance(output, str) else None
    if loop and options.get("window") is not None:
        raise UsageError("profiled(): window is for calls that are steps; with loop=True use wait and active.")

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise UsageError(
                f"profiled(): {function.__qualname__} is a generator or a coroutine; use profile() around its loop."
            )
        return _whole(function, path, options) if loop else _each(function, Loop(path, **options))

    return decorate(output) if callable(output) else decorate


def _whole(function: Callable[_P, _R], path: str | None, options: Schedule) -> Callable[_P, _R]:
    """Return a function whose calls are windows."""
    ranks = options.get("ranks")
    named = {name: value for name, value in options.items() if value is not None and name != "ranks"}
    create = functools.partial(profile, path, **named)  # type: ignore[arg-type]
    create()  # raises UsageError

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if not _records(ranks):
            return function(*args, **kwargs)
        with create():
            return function(*args, **kwargs)

    return call


def _each(function: Callable[_P, _R], loop: Loop) -> Callable[_P, _R]:
    """Return a function whose calls are steps."""
    number = 0

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        nonlocal number
        if not number:
            loop.begin()
        number += 1
        try:
            result = function(*args, **kwargs)
        except BaseException:
            loop.end()
            raise
        loop.step()
        return result

    return call
