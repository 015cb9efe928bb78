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
    """Return every rule's verdict: findings by estimated saving, then rules that lack data, then the silent ones."""
    load_folder("pyprof.rules", "pyprof.rules")
    run = Run(source)
    with source.store.translate_errors():
        outcomes = [judge(rule, run) for rule in RULES.values()]

    def rank(outcome: Outcome) -> tuple[int, int, str]:
        if outcome.finding is not None:
            return 0, -(outcome.finding.saving or 0), outcome.rule.id
        return (1 if outcome.needs else 2), 0, outcome.rule.id

    return sorted(outcomes, key=rank)


def judge(rule: Rule, run: Run) -> Outcome:
    """Return one rule's verdict."""
    try:
        for premise in rule.premises:
            premise.check(run)
        finding = rule.evaluate(run)
    except NeedsFacts as needs:
        return Outcome(rule, None, str(needs))
    if finding is not None and finding.saving is not None and finding.saving < limit("worth") * run.wall:
        finding = None
    if finding is None:
        return Outcome(rule, None, None)
    part = None if finding.saving is None else share(finding.saving, run.wall)
    return Outcome(rule, finding._replace(rule=rule.id), None, part)
