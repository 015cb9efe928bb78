# SPDX-License-Identifier: Apache-2.0
"""What the expert rules say."""

from __future__ import annotations

import json

import pandas as pd

from pyprof.analysis.source import Source
from pyprof.reports import Column, View, report
from pyprof.rules.evaluation import evaluate


@report(
    "expert_systems",
    "Expert Systems Feedback",
    (
        Column("problem", "Problem", "", "What was found, with its figures.", str),
        Column("advice", "Recommendation", "", "What to do about it; what a rule needs to know.", str),
        Column("rule", "Rule", "", "Which rule; docs/rules.md.", str, True),
        Column("outcome", "Outcome", "", "found, or not evaluated: facts are missing.", str, True),
        Column("saving", "Estimated Saving (ns)", "ns", "Of the wall time; empty where nobody can tell.", int, True),
        Column("evidence", "Evidence", "", "The top rows behind it, a JSON list.", str, True),
        Column("verify", "How to Verify", "", "How to see whether it is so.", str, True),
    ),
    view=View("Summary"),
)  # fmt: skip
def expert_systems(source: Source) -> pd.DataFrame:
    """One row per finding of the expert rules, the largest estimated saving first, then one per rule that could not be
    evaluated, with the facts that it needs. Rules that found nothing have no row."""
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
