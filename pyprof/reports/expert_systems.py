# SPDX-License-Identifier: Apache-2.0
"""Findings of the expert rules."""

from __future__ import annotations

import json

import pandas as pd

from pyprof.facts.steps.source import Source
from pyprof.reports import Column, View, report
from pyprof.rules.evaluation import evaluate


@report(
    "expert_systems",
    "Expert Systems Feedback",
    (
        Column("problem", "Problem", "", "Finding, with its figures.", str),
        Column(
            "advice", "Recommendation", "",
            "Recommended change; for a rule that was not evaluated, the data it needs.", str,
        ),
        Column("rule", "Rule", "", "Number and name of the rule: docs/rules.md.", str, True),
        Column("outcome", "Outcome", "", "found, or not evaluated if data are missing.", str, True),
        Column(
            "saving", "Estimated Saving (ns)", "ns",
            "Estimated saving of wall time by this finding alone; empty if it cannot be estimated. Savings overlap and "
            "do not add up.", int, True,
        ),
        Column("evidence", "Evidence", "", "Top rows behind the finding, as a JSON list.", str, True),
        Column("verify", "How to Verify", "", "How to check the finding.", str, True),
    ),
    view=View("Summary"),
)  # fmt: skip
def expert_systems(source: Source) -> pd.DataFrame:
    """One row per finding of the expert rules, largest estimated saving first, then one per rule that could not be
    evaluated, with the data that it needs. Rules without a finding have no row."""
    rows = []
    for outcome in evaluate(source):
        finding = outcome.finding
        rule = f"{outcome.rule.id} {outcome.rule.name}"
        if finding is not None:
            evidence = json.dumps(finding.evidence, default=str) if finding.evidence else None
            rows.append((
                finding.problem, finding.advice, rule, "found", finding.saving, evidence, finding.verify or None,
            ))  # fmt: skip
        elif outcome.needs:
            rows.append((f"{rule}: not evaluated", outcome.needs, rule, "not evaluated", None, None, None))
    columns = ["problem", "advice", "rule", "outcome", "saving", "evidence", "verify"]
    return pd.DataFrame(rows, columns=columns, dtype=object)
