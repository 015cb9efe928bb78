# SPDX-License-Identifier: Apache-2.0
"""The expert systems' feedback as text for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from pyprof.core.terminal import visible
from pyprof.core.units import duration
from pyprof.rules import Finding, Outcome

_WIDTH = 100


def text(outcomes: Sequence[Outcome], wall: int | None, whole: bool = False) -> str:
    """Return the findings, the largest saving first, and the number of rules that could not be evaluated.

    `wall`: ns. `whole`: with evidence, and with the data that is missing.
    """
    return "\n".join(_lines(outcomes, wall, whole))


def _lines(outcomes: Sequence[Outcome], wall: int | None, whole: bool) -> Iterator[str]:
    findings = [(outcome.rule, outcome.finding) for outcome in outcomes if outcome.finding is not None]
    needs = [outcome for outcome in outcomes if outcome.needs]
    yield f"Expert Systems Feedback: {_count(len(findings), 'problem')} found by {_count(len(outcomes), 'rule')}"
    for rule, finding in findings:
        yield _wrapped(f"* {finding.problem} [{rule.id} {rule.name}]", "")
        yield _wrapped(finding.advice, "  ")
        saving = _saving(finding, wall)
        if saving:
            yield "  " + saving
        if finding.verify:
            yield _wrapped(f"To verify: {finding.verify}", "  ")
        for row in finding.evidence if whole else ():
            yield _wrapped(", ".join(f"{key}: {value}" for key, value in row.items()), "    ")
    if whole:
        for outcome in needs:
            yield _wrapped(f"Not evaluated: {outcome.rule.id} {outcome.rule.name}, {outcome.needs}", "")
    elif needs:
        skipped = f"{len(needs)} of {_count(len(outcomes), 'rule')} skipped"
        yield f"{skipped}: the recording lacks the data they need (docs/rules.md)."


def _saving(finding: Finding, wall: int | None) -> str:
    if finding.saving is None:
        return ""
    share = f", {100 * finding.saving / wall:.1f} % of the wall time" if wall else ""
    return f"Estimated saving: {duration(finding.saving)}{share}."


def _wrapped(words: str, indent: str) -> str:
    return textwrap.fill(
        visible(words), _WIDTH, initial_indent=indent, subsequent_indent=indent or "  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
