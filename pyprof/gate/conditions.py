# SPDX-License-Identifier: Apache-2.0
"""Conditions of the gate: `METRIC>LIMIT`, a figure per iteration and the largest increase that is allowed.

>>> parse("step_time>2%")
Condition(text='step_time>2%', metric='step_time', pattern='', limit=0.02, unit='%')
>>> parse("op:attention > 0.2 ms")
Condition(text='op:attention>0.2ms', metric='op', pattern='attention', limit=200000.0, unit='ns')
>>> parse("memory>16MiB").limit, parse("idle:data loader>5%").pattern
(16777216.0, 'data loader')
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import NamedTuple

from pyprof.core.arguments import nearest
from pyprof.core.errors import UsageError
from pyprof.core.units import SIZES, TIMES
from pyprof.facts.host.gaps import CAUSES

ALONE = ("step_time", "busy", "idle", "memory")
WITH_PATTERN = ("op", "module", "kernel")
METRICS = (*ALONE, "idle:CAUSE", *(f"{name}:PATTERN" for name in WITH_PATTERN))
_UNITS = {
    "%": ("%", 0.01), "µs": ("ns", 1e3), "kB": ("B", 1e3), "MB": ("B", 1e6), "GB": ("B", 1e9),
    **{name: ("ns", length) for name, length in TIMES}, **{name: ("B", size) for name, size in SIZES},
}  # fmt: skip
# The last > is the sign: names of kernels have some.
_CONDITION = re.compile(r"\s*(.*\S)\s*>\s*(\d+\.?\d*|\.\d+)\s*(\S*)\s*", re.S)


class Condition(NamedTuple):
    """A limit. `limit`: a share of the base (unit "%"), ns or bytes. `pattern`: the cause of idle time, or part of the
    name of an operator, module or kernel."""

    text: str
    metric: str
    pattern: str
    limit: float
    unit: str

    @property
    def each(self) -> bool:
        """True if every match is compared by itself, False if their sum is."""
        return "*" in self.pattern

    def matches(self, name: str) -> bool:
        """Return whether a name matches the pattern: part of it, or all of it if the pattern has a star.

        >>> parse("op:norm>1%").matches("batch_norm"), parse("op:*norm>1%").matches("norm_backward")
        (True, False)
        """
        pattern = self.pattern.lower()
        if not self.each:
            return pattern in name.lower()
        # Of the signs of fnmatch, names of kernels contain all but the star.
        return fnmatchcase(name.lower(), re.sub(r"[\[?]", lambda sign: f"[{sign[0]}]", pattern))


def parse(text: str) -> Condition:
    """Read a condition. Raises UsageError."""
    match = _CONDITION.fullmatch(text)
    if not match:
        raise UsageError(f"condition {text!r}: expected METRIC>LIMIT, for example step_time>2% or op:attention>0.2ms.")
    metric, number, unit = match.groups()
    name, _, pattern = metric.partition(":")
    name, pattern = name.strip(), pattern.strip()
    if unit not in _UNITS:
        units = ", ".join(_UNITS)
        raise UsageError(f"condition {text!r}: the limit {number + unit} needs a unit, one of {units}.")
    kind, length = _UNITS[unit]
    if name in WITH_PATTERN and not pattern:
        raise UsageError(f"condition {text!r}: {name} needs part of a name, or * for each.")
    if name == "idle" and ":" in metric:
        pattern = _cause(text, pattern)
    elif name not in (*ALONE, *WITH_PATTERN) or (name in ALONE and ":" in metric):
        raise UsageError(
            f"condition {text!r}: there is no metric {metric}; choose from {', '.join(METRICS)}."
            f"{nearest(name, (*ALONE, *WITH_PATTERN))}"
        )
    allowed = "B" if name == "memory" else "ns"
    if kind not in ("%", allowed):
        raise UsageError(
            f"condition {text!r}: {name} is in {'bytes' if allowed == 'B' else 'units of time'}, not in {unit}."
        )
    label = name + (f":{pattern}" if pattern else "")
    return Condition(f"{label}>{number}{unit}", name, pattern, float(number) * length, kind)


def _cause(text: str, pattern: str) -> str:
    """Return the name of a cause of idle time, whatever its spelling. Raises UsageError."""

    def plain(name: str) -> str:
        return re.sub(r"[\s_-]", "", name.lower())

    for cause in CAUSES:
        if plain(cause) == plain(pattern):
            return cause
    raise UsageError(
        f"condition {text!r}: there is no cause {pattern!r} of idle time; choose from {', '.join(CAUSES)}."
    )
