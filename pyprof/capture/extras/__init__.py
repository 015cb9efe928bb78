# SPDX-License-Identifier: Apache-2.0
"""What is recorded on request: memory, files, stacks of waiting calls, samples. All off by default, and then nothing is
imported, patched or started for them.

Each is a module here with one *extra*: an object that is started and stopped with the window and gives tables to the
file. A table exists only in files whose recording asked for it. Add one: an option in options.py, a module, a line in
`_make`, a row in docs/options.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from pyprof.capture.core.options import NOTHING, Options
from pyprof.capture.instrument.patch import Registry
from pyprof.capture.instrument.recorder import Recorder
from pyprof.capture.output.capture_file import Table

log = logging.getLogger(__name__)


class Extra(Protocol):
    """Something that is recorded on request. What it holds grows from window to window, until `clear`."""

    lost: dict[str, int]

    def start(self, registry: Registry) -> None:
        """A window opens. What is put into the registry is put back when it closes."""

    def stop(self) -> None:
        """The window closes."""

    def take(self, recorder: Recorder) -> None:
        """After `stop`, before the recorder is emptied: turn sites into texts."""

    def clear(self) -> None:
        """Forget what was recorded."""

    def tables(self) -> list[Table]:
        """What it holds."""

    def facts(self) -> dict[str, str]:
        """Rows of PYPROF_META."""


class Extras:
    """The extras of one session. A fault in one of them is counted and never reaches the program."""

    def __init__(self, chosen: Options, max_events: int):
        self._chosen = chosen
        self._all: list[Extra] = []
        self._tables: Callable[[], list[Table]] = list
        self._clear: Callable[[], object] = list
        if chosen._replace(collector=NOTHING.collector) != NOTHING:
            from pyprof.capture.extras.stack_rows import StackRows

            stacks = StackRows()
            self._clear = stacks.clear
            if chosen.sample or chosen.api_backtrace is not None:
                self._tables = stacks.tables
            self._all = [make(chosen, max_events, stacks) for make in _make(chosen)]
        self._registry = Registry()
        self._faults: dict[str, int] = {}

    @property
    def memory(self) -> Any:
        """Who reads torch's memory events (`Allocations`), None where nobody asked for them."""
        return self._all[0] if self._chosen.memory else None

    def start(self) -> None:
        for extra in self._all:
            self._safely(extra.start, self._registry)

    def stop(self) -> None:
        """Stop all of them; nothing if they are stopped. What the window changed is put back."""
        for extra in reversed(self._all):
            self._safely(extra.stop)
        self._registry.undo()

    def take(self, recorder: Recorder) -> None:
        for extra in self._all:
            self._safely(extra.take, recorder)

    def full(self) -> None:
        """Torch's profiler ends before the window: the bound is reached."""
        if self.memory is not None:
            self._faults["memory events after the operators ended (one or more)"] = 1

    def clear(self) -> None:
        for extra in self._all:
            extra.clear()
        self._clear()
        self._faults = {}

    def tables(self) -> list[Table]:
        tables = [table for extra in self._all for table in extra.tables()]
        return tables + self._tables()  # the stacks last: rows of the others number them

    def facts(self) -> dict[str, str]:
        return {name: text for extra in self._all for name, text in extra.facts().items()}

    def lost(self) -> dict[str, int]:
        lost = dict(self._faults)
        for extra in self._all:
            lost.update({reason: count for reason, count in extra.lost.items() if count})
        return lost

    def _safely(self, action: Callable[..., None], *args: Any) -> None:
        try:
            action(*args)
        except Exception as error:
            log.debug("an option does not work", exc_info=True)
            reason = f"{action.__qualname__} failed ({type(error).__name__})"
            self._faults[reason] = self._faults.get(reason, 0) + 1


def _make(chosen: Options) -> list[Callable[..., Extra]]:
    """Constructors of what was asked for: (options, max_events, stacks). The sampler starts last, and stops first."""
    made: list[Callable[..., Extra]] = []
    if chosen.memory:
        from pyprof.capture.extras.allocations import Allocations

        made.append(Allocations)
    if chosen.io:
        from pyprof.capture.extras.file_access import FileAccess

        made.append(FileAccess)
    if chosen.api_backtrace is not None:
        from pyprof.capture.extras.api_stacks import ApiStacks

        made.append(ApiStacks)
    if chosen.sample:
        from pyprof.capture.extras.sampler import Sampler

        made.append(Sampler)
    return made
