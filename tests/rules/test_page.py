# SPDX-License-Identifier: Apache-2.0
"""The page of rules says what the code says, and each threshold is one that a rule asks for."""

from __future__ import annotations

import re
from pathlib import Path

from pyprof.reference.rules import docstring_parts, markdown
from pyprof.rules import RULES
from pyprof.rules.thresholds import LIMITS

ROOT = Path(__file__).resolve().parents[2]


def test_every_rule_says_what_it_looks_for_when_it_fires_and_when_not():
    page = markdown()
    for rule in RULES.values():
        assert all(text.endswith(".") for text in docstring_parts(rule)), rule.id
        assert f"## {rule.id}\n" in page


def test_every_threshold_is_asked_for_by_its_name_and_no_other():
    sources = "".join(path.read_text() for path in (ROOT / "pyprof" / "rules").glob("*.py"))
    asked = set(re.findall(r"""limit\(["']([\w.]+)["']\)""", sources))
    assert asked == set(LIMITS)


def test_no_finding_advertises_or_calls_tensor_cores_impossible():
    sources = "".join(path.read_text() for path in (ROOT / "pyprof" / "rules").glob("*.py")).lower()
    assert not re.search(r"\bdali\b|nvidia dali|cannot use tensor cores|not eligible", sources)
