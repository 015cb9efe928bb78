# SPDX-License-Identifier: Apache-2.0
"""Evaluate every rule on an aggregation."""

from __future__ import annotations

from collections.abc import Iterable

from pyprof.core.registry import load_folder
from pyprof.facts.steps.source import Source
from pyprof.metrics import share
from pyprof.rules import RULES, NeedsFacts, Outcome, Rule
from pyprof.rules.context import Run
from pyprof.rules.thresholds import limit

# R03 says what the GPU waits for most of the time; a finding about that wait says the same and more.
_WAITS = {
    "launch-bound": ("R05", "R21", "R32", "R33", "R49"),
    "data loader": ("R08", "R09"),
    "synchronization": ("R07",),
}
# A rule whose time lies within that of another, and what the other counts.
_PART_OF = {"R06": ("R05", "the waits for kernel launches"), "R13": ("R12", "the products in float32")}
# Savings that are bounds: from peaks, or of work that may be needed. They come after what was measured.
BOUNDS = ("R16", "R26", "R27", "R36", "R44", "R45", "R46", "R54")
# R46 is about all short operators; where a loop has a quarter of what they cost, or nobody knows what, that says where.
_LOOP = ("R46", "R56")
FAULTS = ("R30", "R34", "R45", "R52", "R55", "R56")  # before bounds also where their saving is unknown
NOTES = ("R01", "R02", "R47")  # on the measurement: after what can be changed


def evaluate(source: Source) -> list[Outcome]:
    """Return every rule's verdict: findings by estimated saving, then faults without one, bounds, the other findings
    without a saving; notes on the measurement; rules that lack data; the silent ones."""
    load_folder("pyprof.rules", "pyprof.rules")
    run = Run(source)
    with source.store.translate_errors():
        outcomes = apart(judge(rule, run) for rule in RULES.values())

    def rank(outcome: Outcome) -> tuple[int, int, str]:
        if outcome.finding is None:
            return (5 if outcome.needs else 6), 0, outcome.rule.id
        if outcome.finding.saving is None:
            return (
                (1 if outcome.rule.id in FAULTS else 4 if outcome.rule.id in NOTES else 3),
                0,
                outcome.rule.id,
            )
        return 2 * int(outcome.rule.id in BOUNDS), -outcome.finding.saving, outcome.rule.id

    return sorted(outcomes, key=rank)


def apart(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return the outcomes with each fact in one finding: R03 is silent where a finding is about the wait that it names,
    R46 where a loop of R56 says more, and a finding whose time lies within that of another says so."""
    every = list(outcomes)
    saving = {one.rule.id: one.finding.saving or 0 for one in every if one.finding is not None}
    out = []
    for outcome in every:
        finding = outcome.finding
        other, text = _PART_OF.get(outcome.rule.id, ("", ""))
        if finding is not None and other in saving:
            finding = finding._replace(
                problem=f"{finding.problem} This is part of {text}, which have a finding of their own."
            )
        if finding is not None and outcome.rule.id == "R03":
            wait = str(finding.evidence[0].get("cause")) if finding.evidence else ""
            finding = None if saving.keys() & set(_WAITS.get(wait, ())) else finding
        short, loop = _LOOP
        if (
            outcome.rule.id == short
            and loop in saving
            and (4 * saving[loop] > saving.get(short, 0) or not saving[loop])
        ):
            finding = None
        out.append(outcome._replace(finding=finding))
    return out


def judge(rule: Rule, run: Run) -> Outcome:
    """Return one rule's verdict, worked out once."""
    if rule.id not in run.outcomes:
        run.outcomes[rule.id] = _judge(rule, run)
    return run.outcomes[rule.id]


def _judge(rule: Rule, run: Run) -> Outcome:
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
    part = None
    if finding.saving is not None and not (finding.apart and finding.saving >= run.wall):
        part = share(finding.saving, run.wall + (finding.saving if finding.apart else 0))
    return Outcome(rule, finding._replace(rule=rule.id), None, part)
