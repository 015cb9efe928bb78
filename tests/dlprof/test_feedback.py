# SPDX-License-Identifier: Apache-2.0
"""What the terminal shows of the rules' verdicts."""

from __future__ import annotations

from pyprof.dlprof import feedback
from pyprof.rules import Finding, Outcome, Rule


def rule(number: int) -> Rule:
    return Rule(f"R{number:02}", f"name{number}", "text", lambda source: None)


FOUND = Finding("R01", "The loader is slow.", "Use workers.", 250_000_000, ({"what": "wait", "ns": 7},), "Look again.")
OUTCOMES = [
    Outcome(rule(1), FOUND, None),
    Outcome(rule(2), FOUND._replace(saving=None, verify="", problem="Nobody knows."), None),
    Outcome(rule(3), None, "needs a GPU."),
    Outcome(rule(4), None, None),
]


def test_findings_with_what_they_save_and_what_was_not_evaluated():
    assert feedback.text(OUTCOMES, 1_000_000_000).splitlines() == [
        "Expert Systems Feedback: 2 problems found by 4 rules",
        "* The loader is slow. [R01 name1]",
        "  Use workers.",
        "  Estimated saving: 250 ms, 25.0 % of the wall time.",
        "  To verify: Look again.",
        "* Nobody knows. [R02 name2]",
        "  Use workers.",
        "1 of 4 rules skipped: the recording lacks the data they need (docs/rules.md).",
    ]


def test_evidence_and_missing_facts_on_request():
    lines = feedback.text(OUTCOMES, None, whole=True).splitlines()
    assert "    what: wait, ns: 7" in lines
    assert "  Estimated saving: 250 ms." in lines
    assert lines[-1] == "Not evaluated: R03 name3, needs a GPU."


def test_silence_is_said():
    assert feedback.text([OUTCOMES[3]], 1) == "Expert Systems Feedback: 0 problems found by 1 rule"
