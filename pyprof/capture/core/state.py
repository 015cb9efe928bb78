# SPDX-License-Identifier: Apache-2.0
"""State of capture: what changes at module level, and the event that it does not outlive.

A module declares its own, beside the code that uses it: `_paths = owned({}, Until.WRITTEN)`. Nobody else knows it.
The controller calls `end`. A reset must not depend on the order of the others, and must work in the middle of a call
of the program. What lives as long as the process is not owned: `tests/capture/test_state.py` lists it, with reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


class Until(IntEnum):
    """An event ends what it names, and what an earlier one would have ended."""

    WRITTEN = 1  # the end of a recording, after its file is written
    FORKED = 2  # a fork, in the child, which has none of its parent's windows
    SHUTDOWN = 3


class Slot(Generic[_T]):
    """A value that functions of a module replace; `clear` restores the first one."""

    def __init__(self, first: _T):
        self._first = self.value = first

    def clear(self) -> None:
        self.value = self._first


_owned: list[tuple[Until, Any, Callable[[Any], object]]] = []


def _clear(item: Any) -> None:
    item.clear()


def owned(item: _T, until: Until, reset: Callable[[_T], object] | None = None) -> _T:
    """Register an object, and return it. `reset` puts it into its first state; without it, its method `clear` does."""
    _owned.append((until, item, reset or _clear))
    return item


def end(event: Until, run: Callable[[Callable[[Any], object], Any], object]) -> None:
    """Reset what does not outlive an event, the last registered first. `run` calls a reset and contains its errors."""
    for until, item, reset in reversed(_owned):
        if until <= event:
            run(reset, item)


def items() -> list[Any]:
    """Return all registered objects."""
    return [item for _, item, _ in _owned]
