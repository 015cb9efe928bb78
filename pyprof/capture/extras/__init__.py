# SPDX-License-Identifier: Apache-2.0
"""Optional recordings: memory, files, stacks of waiting calls, samples. All are off by default, and then nothing is
imported, patched or started for them. Batches of loader workers are always recorded.

Each is a module here with one *extra*: an object that is started and stopped with the window and adds tables to the
file. A table exists only in files whose recording requested it, or has rows for it. To add one: a module here, a branch
in `_constructors`, and the option, for which docs/architecture.md lists the files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from pyprof.capture.core.internal_errors import internal
from pyprof.capture.core.options import NOTHING, Options
from pyprof.capture.extras.loader_batches import LoaderBatches
from pyprof.capture.instrument.attribute_registry import Registry
from pyprof.capture.instrument.recorder import Recorder
from pyprof.capture.output.capture_file import Table

log = logging.getLogger(__name__)


class Extra(Protocol):
    """Optional recording. Its contents grow from window to window, until `clear`."""

    lost: dict[str, int]

    def start(self, registry: Registry) -> None:
        """Start with a window. Entries of the registry are restored when it closes."""

    def stop(self) -> None:
        """Stop with the window."""

    def take(self, recorder: Recorder) -> None:
        """Turn sites into texts, after `stop` and before the recorder is emptied."""

    def clear(self) -> None:
        """Forget all records."""

    def tables(self) -> list[Table]:
        """Return its tables."""

    def facts(self) -> dict[str, str]:
        """Return its rows of PYPROF_META."""


class Extras:
    """Extras of one session. An error in one of them is counted and never reaches the program."""

    def __init__(self, options: Options, max_events: int):
        self._options = options
        self._all: list[Extra] = [LoaderBatches()]
        self._tables: Callable[[], list[Table]] = list
        self._clear: Callable[[], object] = list
        if options._replace(collector=NOTHING.collector) != NOTHING:
            from pyprof.capture.extras.stack_rows import StackRows

            stacks = StackRows()
            self._clear = stacks.clear
            if options.sample or options.api_backtrace is not None:
                self._tables = stacks.tables
            self._all += [make(options, max_events, stacks) for make in _constructors(options)]
        self._registry = Registry()
        self._faults: dict[str, int] = {}

    @property
    def memory(self) -> Any:
        """Reader of torch's memory events (`Allocations`), None if they were not requested."""
        return self._all[1] if self._options.memory else None

    def start(self) -> None:
        for extra in self._all:
            self._safely(extra.start, self._registry)

    def stop(self) -> None:
        """Stop all extras; does nothing if they are stopped. Changes made for the window are undone."""
        for extra in reversed(self._all):
            self._safely(extra.stop)
        self._registry.undo()

    def take(self, recorder: Recorder) -> None:
        for extra in self._all:
            self._safely(extra.take, recorder)

    def full(self) -> None:
        """Note that torch's profiler ends before the window: the limit is reached."""
        if self.memory is not None:
            self._faults["memory events after the operators ended (one or more)"] = 1

    def clear(self) -> None:
        for extra in self._all:
            extra.clear()
        self._clear()
        self._faults = {}

    def tables(self) -> list[Table]:
        tables = [table for extra in self._all for table in extra.tables()]
        return tables + self._tables()  # stacks last: rows of the other tables number them

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
        except internal() as error:
            log.debug("an optional recording failed", exc_info=True)
            reason = f"{action.__qualname__} failed ({type(error).__name__})"
            self._faults[reason] = self._faults.get(reason, 0) + 1


def _constructors(options: Options) -> list[Callable[..., Extra]]:
    """Return the constructors of the requested extras: (options, max_events, stacks). The sampler starts last, and
    stops first."""
    constructors: list[Callable[..., Extra]] = []
    if options.memory:
        from pyprof.capture.extras.allocations import Allocations

        constructors.append(Allocations)
    if options.io:
        from pyprof.capture.extras.file_access import FileAccess

        constructors.append(FileAccess)
    if options.api_backtrace is not None:
        from pyprof.capture.extras.api_stacks import ApiStacks

        constructors.append(ApiStacks)
    if options.sample:
        from pyprof.capture.extras.sampler import Sampler

        constructors.append(Sampler)
    return constructors
