# SPDX-License-Identifier: Apache-2.0
"""Evaluate every rule on an aggregation."""

from __future__ import annotations

from pyprof.analysis.source import Source
from pyprof.metrics import share
from pyprof.registry import load_folder
from pyprof.rules import RULES, NeedsFacts, Outcome, Rule
from pyprof.rules.context import Run
from pyprof.rules.thresholds import limit


def evaluate(source: Source) -> list[Outcome]:
    """Every rule's verdict: findings by estimated saving, then what was not evaluated, then the silent ones."""
    load_folder("pyprof.rules", "pyprof.rules")
    run = Run(source)
    with source.store.translate_errors():
        found = [judge(each, run) for each in RULES.values()]

    def rank(outcome: Outcome) -> tuple[int, int, str]:
        if outcome.finding is not None:
            return 0, -(outcome.finding.saving or 0), outcome.rule.id
        return (1 if outcome.needs else 2), 0, outcome.rule.id

    return sorted(found, key=rank)


def judge(each: Rule, run: Run) -> Outcome:
    """One rule's verdict."""
    try:
        for premise in each.premises:
            premise.check(run)
        finding = each.evaluate(run)
    except NeedsFacts as needs:
        return Outcome(each, None, str(needs))
    if finding is not None and finding.saving is not None and finding.saving < limit("worth") * run.wall:
        finding = None
    if finding is None:
        return Outcome(each, None, None)
    part = None if finding.saving is None else share(finding.saving, run.wall)
    return Outcome(each, finding._replace(rule=each.id), None, part)
