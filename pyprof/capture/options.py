# SPDX-License-Identifier: Apache-2.0
"""What `init`, `start`, `profile` and `pyprof run` take besides the name of a file: who records the GPU.

What `init` or the command line says holds for later windows too, unless they say otherwise.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple, TypedDict

from pyprof.capture import COLLECTORS
from pyprof.errors import UsageError


class Given(TypedDict, total=False):
    """The options as they are given; one that is not given is what it was before."""

    collector: str | None


class Options(NamedTuple):
    """How a session records. `collector`: auto, kineto, cupti or none."""

    collector: str = "auto"


NOTHING = Options()


def options(*layers: Given) -> Options:
    """Check what was given, the later over the earlier, None for what is not; raises UsageError.

    >>> options({"collector": "cupti"}), options({"collector": "cupti"}, {"collector": "none"})
    (Options(collector='cupti'), Options(collector='none'))
    """
    given = merged(*layers)
    unknown = [name for name in given if name not in Given.__annotations__]
    if unknown:
        known = ", ".join(Given.__annotations__)
        raise UsageError(f"{unknown[0]} is not an option of a recording; there are max_events, {known}.")
    collector = given.get("collector") or "auto"
    if collector not in COLLECTORS:
        raise UsageError(f"collector={collector!r}: one of {', '.join(COLLECTORS)} was expected.")
    return Options(collector)


def merged(*layers: Given) -> Given:
    """The later over the earlier, without what is None."""
    out: Any = {name: value for layer in layers for name, value in layer.items() if value is not None}
    return out  # type: ignore[no-any-return]


def of_command(arguments: argparse.Namespace) -> Given:
    """The options of `pyprof run`."""
    return Given(collector=arguments.collector)
