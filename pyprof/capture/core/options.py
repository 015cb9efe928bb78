# SPDX-License-Identifier: Apache-2.0
"""What `init`, `start`, `profile` and `pyprof run` take besides the name of a file: who records the GPU, and what is
recorded on request (`extras`). What `init` or the command line says holds for later windows too, unless they say
otherwise.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple, TypedDict

from pyprof.capture import COLLECTORS
from pyprof.errors import UsageError

DEFAULT_API_NS = 10_000


class Given(TypedDict, total=False):
    """The options as `init`, `start` and `profile` take them; None is what was said before."""

    collector: str | None
    sync: bool | None
    memory: bool | None
    io: bool | None
    api_backtrace: int | bool | None
    sample: str | None


class Options(NamedTuple):
    """How a session records. `collector`: auto, kineto, cupti or none; `sync`: it also records synchronisations.

    `api_backtrace`: ns, None for no stacks.
    """

    collector: str = "auto"
    memory: bool = False
    io: bool = False
    api_backtrace: int | None = None
    sample: bool = False
    sync: bool = False


NOTHING = Options()


def options(*layers: Given) -> Options:
    """Check what was given, the later over the earlier; raises UsageError.

    >>> options({"memory": True, "api_backtrace": True, "sample": "cpu"}, {"memory": False, "collector": "none"})
    Options(collector='none', memory=False, io=False, api_backtrace=10000, sample=True, sync=False)
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
        bool(given.get("sync")),
    )


def bound(max_events: int) -> int:
    """A number of events to keep; raises UsageError for one below 1."""
    if max_events < 1:
        raise UsageError(f"max_events={max_events}: expected 1 or more.")
    return max_events


def merged(*layers: Given) -> Given:
    """The later over the earlier, without what is None."""
    out: Any = {name: value for layer in layers for name, value in layer.items() if value is not None}
    return out  # type: ignore[no-any-return]


def of_command(arguments: argparse.Namespace) -> Given:
    """The options of `pyprof run`."""
    given: Any = {name: getattr(arguments, name) for name in Given.__annotations__}
    return merged(given)
