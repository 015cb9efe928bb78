# SPDX-License-Identifier: Apache-2.0
"""What `init`, `start`, `profile` and `pyprof run` take besides the name of a file: who records the GPU, and what is
recorded on request: memory, files, stacks of waiting calls, samples. These are off by default, and then nothing is
imported, patched or started for them. What `init` or the command line says holds for later windows too, unless they
say otherwise.

Each is a module of its own with one *extra*: an object that is started and stopped with the window and gives tables to
the file. A table exists only in files whose recording asked for it. Add one: an option below, a module, a line in
`_make`, a row in docs/options.md.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypedDict

from pyprof.capture import COLLECTORS
from pyprof.capture.patch import Registry
from pyprof.errors import UsageError

if TYPE_CHECKING:  # the writer knows extras by their tables alone
    from pyprof.capture.recorder import Recorder
    from pyprof.capture.writer import Recording

log = logging.getLogger(__name__)
DEFAULT_API_NS = 10_000


class Given(TypedDict, total=False):
    """The options as `init`, `start` and `profile` take them; None is what was said before."""

    collector: str | None
    memory: bool | None
    io: bool | None
    api_backtrace: int | bool | None
    sample: str | None


class Options(NamedTuple):
    """How a session records. `collector`: auto, kineto, cupti or none. `api_backtrace`: ns, None for no stacks."""

    collector: str = "auto"
    memory: bool = False
    io: bool = False
    api_backtrace: int | None = None
    sample: bool = False


NOTHING = Options()


def options(*layers: Given) -> Options:
    """Check what was given, the later over the earlier; raises UsageError.

    >>> options({"memory": True, "api_backtrace": True, "sample": "cpu"}, {"memory": False, "collector": "none"})
    Options(collector='none', memory=False, io=False, api_backtrace=10000, sample=True)
    """
    given = merged(*layers)
    unknown = [name for name in given if name not in Given.__annotations__]
    if unknown:
        known = ", ".join(Given.__annotations__)
        raise UsageError(f"{unknown[0]} is not an option of a recording; there are max_events, {known}.")
    collector = given.get("collector") or "auto"
    if collector not in COLLECTORS:
        raise UsageError(f"collector={collector!r}: one of {', '.join(COLLECTORS)} was expected.")
    least = given.get("api_backtrace")
    if least is True:
        least = DEFAULT_API_NS
    if least is not None and least is not False and (not isinstance(least, int) or least < 0):
        raise UsageError(f"api_backtrace={least!r}: expected nanoseconds, such as {DEFAULT_API_NS}.")
    sample = given.get("sample") or "none"
    if sample not in ("cpu", "none"):
        raise UsageError(f"sample={sample!r}: expected 'cpu' or 'none'.")
    return Options(
        collector,
        bool(given.get("memory")),
        bool(given.get("io")),
        None if least is False else least,
        sample == "cpu",
    )


def merged(*layers: Given) -> Given:
    """The later over the earlier, without what is None."""
    out: Any = {name: value for layer in layers for name, value in layer.items() if value is not None}
    return out  # type: ignore[no-any-return]


def of_command(arguments: argparse.Namespace) -> Given:
    """The options of `pyprof run`."""
    given: Any = {name: getattr(arguments, name) for name in Given.__annotations__}
    return merged(given)


class Table(NamedTuple):
    """A table of the file: its definition, and its rows as (recording, code of a text, globalTid of the process)."""

    create: str
    insert: str
    rows: Callable[[Recording, Callable[[str], int], int], Iterable[tuple[object, ...]]]


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
            from pyprof.capture.stack_rows import StackRows

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
        from pyprof.capture.allocations import Allocations

        made.append(Allocations)
    if chosen.io:
        from pyprof.capture.file_access import FileAccess

        made.append(FileAccess)
    if chosen.api_backtrace is not None:
        from pyprof.capture.api_stacks import ApiStacks

        made.append(ApiStacks)
    if chosen.sample:
        from pyprof.capture.sampler import Sampler

        made.append(Sampler)
    return made
