# SPDX-License-Identifier: Apache-2.0
"""Settings of `init` from the environment: PYPROF_OUTPUT, PYPROF_STEPS and PYPROF_OPTIONS.

PYPROF_STEPS has the syntax of `pyprof run --steps`. PYPROF_OPTIONS has the other options of `pyprof run` as `init`
spells them, separated by spaces: `memory io max_events=50000`. A word that is not understood is left out, with a
message; with invalid steps nothing is recorded.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pyprof.capture import COLLECTORS, DEFAULT_MAX_EVENTS
from pyprof.capture.core.options import Given
from pyprof.capture.run_window import Plan, plan
from pyprof.core.errors import UsageError

OUTPUT, STEPS, OPTIONS = "PYPROF_OUTPUT", "PYPROF_STEPS", "PYPROF_OPTIONS"
_EXPECTED = (
    "expected words such as memory io api_backtrace=10000 sample=cpu collector=kineto max_events=50000 delay=60 "
    "duration=5"
)


class Settings(NamedTuple):
    """Settings from the environment. With a plan only a part of the run is recorded."""

    options: Given
    max_events: int = DEFAULT_MAX_EVENTS
    plan: Plan | None = None
    error: str = ""  # message about invalid settings
    disabled: bool = False  # nothing is recorded


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise ValueError
    return int(text)


def _seconds(text: str) -> float:
    number = float(text)
    if not (math.isfinite(number) and number > 0):
        raise ValueError
    return number


def _nanoseconds(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else _count("")


def _one_of(*names: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text not in names:
            raise ValueError
        return text

    return check


# Parsers of the text after `name=`.
_WITH_VALUE: dict[str, Callable[[str], Any]] = {
    "api_backtrace": _nanoseconds,
    "collector": _one_of(*COLLECTORS),
    "sample": _one_of("cpu", "none"),
    "max_events": _count,
    "delay": _seconds,
    "duration": _seconds,
}
# Options that are a word without a value.
_FLAGS = {name for name, kind in Given.__annotations__.items() if "bool" in str(kind)}


def words(text: str) -> tuple[dict[str, Any], list[str]]:
    """Return the options in a text, and the unknown words.

    >>> words("memory --max-events=5 api_backtrace colector=none")
    ({'memory': True, 'max_events': 5, 'api_backtrace': True}, ['colector=none'])
    """
    values: dict[str, Any] = {}
    wrong = []
    for word in text.split():
        name, separator, value = word.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        try:
            if separator:
                values[name] = _WITH_VALUE[name](value)
            elif name in _FLAGS:
                values[name] = True
            else:
                raise ValueError
        except (KeyError, ValueError):
            wrong.append(word)
    return values, wrong


def read(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read these variables. Never raises."""
    values, wrong = words(environment.get(OPTIONS, ""))
    times = {name: values.pop(name, None) for name in ("delay", "duration")}
    steps = environment.get(STEPS, "").strip()
    if steps:
        wrong += [f"{name} beside {STEPS}" for name, value in times.items() if value is not None]
        times = dict.fromkeys(times)
    message = f"{OPTIONS}: {', '.join(wrong)} left out; {_EXPECTED}." if wrong else ""
    max_events = values.pop("max_events", DEFAULT_MAX_EVENTS)
    recording_options: Given = values  # type: ignore[assignment]
    try:
        window = plan(steps or None, times["delay"], times["duration"])
    except UsageError:
        expected = "expected FIRST:END, such as 10:15 for the steps 10 to 14"
        message = f"{STEPS}={steps}: {expected}. Nothing is recorded."
        return Settings(recording_options, max_events, error=message, disabled=True)
    return Settings(recording_options, max_events, window, message)
