# SPDX-License-Identifier: Apache-2.0
"""Options of `init`, `start`, `profile` and `pyprof run` besides the file name: the GPU collector, and the optional
recordings (`extras`). Values from `init` or the command line hold for later windows too, unless overridden.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple, TypedDict

from pyprof.capture import COLLECTORS
from pyprof.core.errors import UsageError

DEFAULT_API_NS = 10_000


class Given(TypedDict, total=False):
    """Options as `init`, `start` and `profile` receive them; None keeps the earlier value."""

    collector: str | None
    sync: bool | None
    memory: bool | None
    io: bool | None
    api_backtrace: int | bool | None
    sample: str | None


class Options(NamedTuple):
    """Settings of a session. `collector`: auto, kineto, cupti or none; `sync`: it also records synchronisations.

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
    """Merge and check options, later layers over earlier ones. Raises UsageError.

    >>> options({"memory": True, "api_backtrace": True, "sample": "cpu"}, {"memory": False, "collector": "none"})
    Options(collector='none', memory=False, io=False, api_backtrace=10000, sample=True, sync=False)
    """
    merged_options = merged(*layers)
    unknown = [name for name in merged_options if name not in Given.__annotations__]
    if unknown:
        names = ", ".join(Given.__annotations__)
        raise UsageError(f"{unknown[0]} is not an option of a recording; expected one of max_events, {names}.")
    collector = merged_options.get("collector") or "auto"
    if collector not in COLLECTORS:
        raise UsageError(f"collector={collector!r}: expected one of {', '.join(COLLECTORS)}.")
    threshold = merged_options.get("api_backtrace")
    if threshold is True:
        threshold = DEFAULT_API_NS
    if threshold is not None and threshold is not False and (not isinstance(threshold, int) or threshold < 0):
        raise UsageError(f"api_backtrace={threshold!r}: expected nanoseconds, such as {DEFAULT_API_NS}.")
    sample = merged_options.get("sample") or "none"
    if sample not in ("cpu", "none"):
        raise UsageError(f"sample={sample!r}: expected 'cpu' or 'none'.")
    return Options(
        collector,
        bool(merged_options.get("memory")),
        bool(merged_options.get("io")),
        None if threshold is False else threshold,
        sample == "cpu",
        bool(merged_options.get("sync")),
    )


def bound(max_events: int) -> int:
    """Return a limit on the number of events; raises UsageError for one below 1."""
    if max_events < 1:
        raise UsageError(f"max_events={max_events}: expected 1 or more.")
    return max_events


def merged(*layers: Given) -> Given:
    """Merge options, later layers over earlier ones, without None."""
    out: Any = {name: value for layer in layers for name, value in layer.items() if value is not None}
    return out  # type: ignore[no-any-return]


def of_command(arguments: argparse.Namespace) -> Given:
    """Return the options of `pyprof run`."""
    values: Any = {name: getattr(arguments, name) for name in Given.__annotations__}
    return merged(values)
