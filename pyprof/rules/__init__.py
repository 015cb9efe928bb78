# SPDX-License-Identifier: Apache-2.0
"""Expert rules: what could be faster, with evidence. Open folder: one file per family, one function per rule.

A rule takes a `Run` and returns a finding, or None where there is nothing to say; it raises `NeedsFacts` where the
recording lacks what it would have to know, which is told, never passed over. What it has to know in any case are its
premises, in the decorator. Its docstring says what it looks for, with
a case that fires and one that stays silent. Thresholds stand in `limits.py`. docs/rules.md is generated.

Rules look at the steady iterations of an aggregation. A saving is an estimate of wall time in ns, derived by hand from
what the recording holds, never more than what the thing costs; savings of several rules do not add up. A finding that
would save less than `worth` of the time is not shown.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import cleandoc
from typing import TYPE_CHECKING, NamedTuple

from pyprof.registry import Registry

if TYPE_CHECKING:
    from pyprof.rules.context import Run


class NeedsFacts(Exception):
    """A rule cannot be evaluated: what the recording lacks, and how to record it."""


class Finding(NamedTuple):
    """What a rule found. `saving` is an estimate in ns of the window's wall time, None where nobody can tell;
    `evidence` the top rows behind it as (what, figures); `verify` how to see whether it is so."""

    rule: str
    problem: str
    advice: str
    saving: int | None
    evidence: tuple[dict[str, object], ...] = ()
    verify: str = ""


class Premise(NamedTuple):
    """What a rule rests on: a text, and a check that raises NeedsFacts. `premises.py` has them."""

    text: str
    check: Callable[[Run], None]


class Rows(NamedTuple):
    """Where all is seen that a rule speaks of: a report or another table of the page, its title there, and filters, as
    the page has them."""

    table: str
    title: str
    filters: tuple[str, ...] = ()


_Evaluate = Callable[["Run"], "Finding | None"]


class Rule(NamedTuple):
    """A rule: R08, a short name, what it looks for, what must be known first."""

    id: str
    name: str
    text: str
    evaluate: _Evaluate
    premises: tuple[Premise, ...] = ()
    rows: Rows | None = None


class Outcome(NamedTuple):
    """A rule's verdict on a window: a finding, or silence, or what it needs. `share` is the finding's saving in percent
    of the wall time that rules look at, that of the slowest worker."""

    rule: Rule
    finding: Finding | None
    needs: str | None
    share: float | None = None


RULES: Registry[Rule] = Registry("rule")


def rule(
    id_: str, name: str, *premises: Premise, rows: Rows | None = None
) -> Callable[[_Evaluate], _Evaluate]:
    """Decorator: the function evaluates a rule where its premises hold. `rows` are those that it speaks of."""

    def add(function: _Evaluate) -> _Evaluate:
        RULES.register(id_)(Rule(id_, name, cleandoc(function.__doc__ or ""), function, premises, rows))
        return function

    return add
