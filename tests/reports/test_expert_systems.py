# SPDX-License-Identifier: Apache-2.0
"""The report of the rules: findings first, what could not be evaluated is told, what found nothing is silent."""

from __future__ import annotations

import io
import json

from pyprof.render.writers import render
from pyprof.reports import find
from pyprof.rules import RULES, Finding, NeedsFacts, Rule
from pyprof.rules.evaluation import evaluate
from tests.reports.test_oracle import rows


def _needs(source):
    raise NeedsFacts('needs the clock; record with "pyprof run"')


FOUND = Finding("R2", "40 % wait", "wait less", 400, ({"op": "LINEAR_1", "gpu": 12},), "look again")
SMALL = Finding("R1", "1 % wait", "never mind", None)


def test_the_report_tells_findings_and_what_could_not_be_evaluated(prof, monkeypatch):
    rules = {
        "R0": Rule("R0", "silent", "", lambda source: None),
        "R1": Rule("R1", "small", "", lambda source: SMALL),
        "R2": Rule("R2", "waits", "", lambda source: FOUND),
        "R3": Rule("R3", "clock", "", _needs),
    }
    monkeypatch.setattr("pyprof.rules.evaluation.load_folder", lambda *names: None)
    monkeypatch.setattr(RULES, "_items", rules)
    assert [o.rule.id for o in evaluate(prof.source())] == ["R2", "R1", "R3", "R0"]
    found, small, needs = rows(prof.report("expert_systems"))
    assert (found["problem"], found["advice"], found["saving"]) == ("40 % wait", "wait less", 400)
    assert (found["rule"], found["outcome"], found["verify"]) == ("R2 waits", "found", "look again")
    assert json.loads(found["evidence"]) == [{"op": "LINEAR_1", "gpu": 12}]
    assert (small["saving"], small["evidence"], small["verify"]) == (None, None, None)
    assert needs["problem"] == "R3 clock: not evaluated"
    assert needs["advice"] == 'needs the clock; record with "pyprof run"'
    out = io.BytesIO()
    render(find("expert_systems"), prof.source(), "csv", out, "dlprof")
    assert out.getvalue().decode().splitlines() == [
        "Expert Systems Feedback", '"Problem","Recommendation"', '"40 % wait","wait less"', '"1 % wait","never mind"',
        '"R3 clock: not evaluated","needs the clock; record with ""pyprof run"""',
    ]  # fmt: skip


def test_no_rules_no_rows(prof, monkeypatch):
    monkeypatch.setattr("pyprof.rules.evaluation.load_folder", lambda *names: None)
    monkeypatch.setattr(RULES, "_items", {})
    assert rows(prof.report("expert_systems")) == []
