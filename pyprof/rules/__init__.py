# SPDX-License-Identifier: Apache-2.0
"""Expert rules: performance problems, with evidence. Open folder: one file per family, one function per rule.

A rule takes a `Run` and returns a finding, or None if there is nothing to report. It raises `NeedsFacts` if the
recording lacks data that it needs; that is reported too. Data that a rule always needs are its premises, in the
decorator. Its docstring says what it looks for, with a case that fires and one that stays silent. Thresholds are in
`thresholds.py`. docs/rules.md is generated.

Rules look at the steady iterations of an aggregation. A saving is an estimate of wall time in ns, derived from the
recording, never more than the problem costs; savings of several rules do not add up. A finding that would save less
than `worth` of the time is not shown.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import cleandoc
from typing import Any, NamedTuple

from pyprof.core.registry import Registry


class NeedsFacts(Exception):
    """A rule cannot be evaluated. The message says what the recording lacks and how to record it."""


class Finding(NamedTuple):
    """The result of a rule.

    `saving`: an estimate in ns of the window's wall time, None if unknown. `evidence`: the top rows behind the
    finding as (name, figures). `verify`: how to check the finding. `apart`: the saving is of time that is not in the
    window, of single long steps, so that its share is of both.
    """

    rule: str
    problem: str
    advice: str
    saving: int | None
    evidence: tuple[dict[str, object], ...] = ()
    verify: str = ""
    apart: bool = False


class Premise(NamedTuple):
    """A precondition of a rule: a text, and a check that raises NeedsFacts. `context.py` has them."""

    text: str
    check: Callable[[Any], None]


class Rows(NamedTuple):
    """A link to all rows that a rule is about: a report or another table of the page, its title there, and filters in
    the page's syntax. `without_gpu`: the link in a recording without a GPU, if it is another."""

    table: str
    title: str
    filters: tuple[str, ...] = ()
    without_gpu: Rows | None = None

    def of(self, gpu: bool) -> dict[str, object]:
        """Return the link of a recording with a GPU, or of one without."""
        one = self if gpu or self.without_gpu is None else self.without_gpu
        return {"table": one.table, "title": one.title, "filters": one.filters}


_Evaluate = Callable[[Any], Finding | None]  # of a Run, which stands on this module


class Rule(NamedTuple):
    """A rule: id (R08), short name, description, function, premises, link to rows."""

    id: str
    name: str
    text: str
    evaluate: _Evaluate
    premises: tuple[Premise, ...] = ()
    rows: Rows | None = None


class Outcome(NamedTuple):
    """A rule's verdict on a window: a finding, or silence, or the data that it needs.

    `share` is the finding's saving in percent of the wall time that rules look at, mean over the workers.
    """

    rule: Rule
    finding: Finding | None
    needs: str | None
    share: float | None = None


RULES: Registry[Rule] = Registry("rule")


def rule(id_: str, name: str, *premises: Premise, rows: Rows | None = None) -> Callable[[_Evaluate], _Evaluate]:
    """Register a function as a rule, evaluated where its premises hold. `rows` links to the rows that it is about."""

    def add(function: _Evaluate) -> _Evaluate:
        RULES.register(id_)(Rule(id_, name, cleandoc(function.__doc__ or ""), function, premises, rows))
        return function

    return add
