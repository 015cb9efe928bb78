# SPDX-License-Identifier: Apache-2.0
"""The verdict as text for a terminal, JSON, Markdown for a summary on a page, and JUnit XML for a list of tests.

Names come from recordings: control characters are escaped, and so are signs with a meaning in Markdown and XML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

from pyprof import __version__
from pyprof.core.terminal import visible
from pyprof.core.units import duration, size
from pyprof.gate.significance import ALPHA
from pyprof.gate.verdict import FAIL, PASS, UNKNOWN, Comparison, Outcome, Verdict

_SHOWN = 10  # comparisons of one condition; JSON has all
_MARKS = {FAIL: "FAIL", PASS: "pass", UNKNOWN: "?"}


def _value(outcome: Outcome, value: float | None) -> str:
    if value is None:
        return "na"
    return size(value) if outcome.condition.metric == "memory" else duration(value)


def _change(comparison: Comparison) -> str:
    if comparison.change is None:
        return "na"
    return f"{100 * comparison.change:+.1f} %"


def _margin(comparison: Comparison) -> str:
    """Return the least change that is significant."""
    if comparison.margin is None or not comparison.base:
        return "na"
    return f"{100 * comparison.margin / comparison.base:.1f} %"


def _cells(outcome: Outcome, comparison: Comparison) -> tuple[str, ...]:
    return (
        comparison.name, _value(outcome, comparison.base), _value(outcome, comparison.other), _change(comparison),
        _margin(comparison), comparison.reason,
    )  # fmt: skip


def _shown(outcome: Outcome) -> list[Comparison]:
    """Return the comparisons that matter: all that fail or are unknown, of those that pass the largest change."""
    matter = [one for one in outcome.comparisons if one.status != PASS]
    return (matter or outcome.comparisons[:1])[:_SHOWN]


def _rest(outcome: Outcome) -> str:
    """Return how many comparisons are not listed, as a sentence, or an empty text."""
    parts = []
    rest = len(outcome.comparisons) - len(_shown(outcome))
    if rest:
        parts.append(f"{rest} more compared")
    if outcome.omitted:
        parts.append(f"{outcome.omitted} with less than 1 % of the device time left out")
    if not outcome.comparisons:
        parts.insert(0, "nothing to compare")
    return ", ".join(parts)


def _basis(verdict: Verdict) -> str:
    base, other = verdict.samples
    block = f" of {verdict.block} iterations each" if verdict.block > 1 else ""
    unit = "blocks" if block else f"{verdict.unit}s"
    return f"{base} and {other} {unit}{block}"


def _alone(verdict: Verdict) -> list[tuple[str, str]]:
    """Return sentences about operators of one run alone: a heading and their names with times."""
    return [
        (heading, ", ".join(f"{name} ({duration(time)})" for name, time in list(names.items())[:_SHOWN]))
        for heading, names in (("Only in the other", verdict.new), ("Only in the base", verdict.removed))
        if names
    ]


def text(verdict: Verdict) -> str:
    """Return the verdict for a terminal."""
    lines = [f"{verdict.status}: {_basis(verdict)}"]
    for outcome in verdict.outcomes:
        lines.append(f"{_MARKS[outcome.status]:<5} {visible(outcome.condition.text)}")
        for comparison in _shown(outcome):
            name, base, other, change, margin, reason = map(visible, _cells(outcome, comparison))
            figures = "" if comparison.base is None else f"  {base} -> {other}  {change}"
            bound = "" if margin == "na" else f" (noise {margin})"
            lines.append(f"      {name}{figures}{bound}{'  ' + reason if reason else ''}")
        if rest := _rest(outcome):
            lines.append(f"      {rest}")
    lines += [visible(f"{heading}: {names}") for heading, names in _alone(verdict)]
    return "\n".join(lines) + "\n"


def data(verdict: Verdict) -> dict[str, Any]:
    """Return the verdict as values for JSON: times in ns, sizes in bytes, changes as shares of the base."""
    return {
        "verdict": verdict.status, "version": __version__, "alpha": ALPHA, "unit": verdict.unit,
        "block": verdict.block,
        "samples": dict(zip(("base", "other"), verdict.samples)),
        "iterations": dict(zip(("base", "other"), verdict.iterations)),
        "conditions": [
            {"condition": outcome.condition.text, "status": outcome.status, "omitted": outcome.omitted,
             "comparisons": [{**one._asdict(), "change": one.change} for one in outcome.comparisons]}
            for outcome in verdict.outcomes
        ],
        "new_ns": verdict.new, "removed_ns": verdict.removed,
    }  # fmt: skip


def _escaped(text: str) -> str:
    r"""Return a text that Markdown shows as it is.

    >>> _escaped("a|b `c`\n<b>")
    'a&#124;b &#96;c&#96;&#92;n&#60;b&#62;'
    """
    return re.sub(r"[^\w\s.,:;()/+%-]|_", lambda sign: f"&#{ord(sign[0])};", visible(text), flags=re.ASCII)


def markdown(verdict: Verdict) -> str:
    """Return the verdict as Markdown: a heading and a table."""
    lines = [
        f"### PyProf: {verdict.status}", "", f"Compared: {_basis(verdict)}.", "",
        "| | condition | figure | base | other | change | noise | |", "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for outcome in verdict.outcomes:
        condition = _escaped(outcome.condition.text)
        for comparison in _shown(outcome):
            cells = map(_escaped, _cells(outcome, comparison))
            lines.append(f"| {_MARKS[comparison.status]} | {condition} | {' | '.join(cells)} |")
        if rest := _rest(outcome):
            lines.append(f"| {_MARKS[outcome.status]} | {condition} | | | | | | {rest} |")
    for heading, names in _alone(verdict):
        lines += ["", f"{heading}: {_escaped(names)}."]
    return "\n".join(lines) + "\n"


def junit(verdict: Verdict) -> str:
    """Return the verdict as JUnit XML: one test per condition; one that cannot be told is skipped."""
    count = {status: sum(outcome.status == status for outcome in verdict.outcomes) for status in _MARKS}
    numbers = {
        "tests": str(len(verdict.outcomes)), "failures": str(count[FAIL]), "errors": "0",
        "skipped": str(count[UNKNOWN]), "time": "0",
    }  # fmt: skip
    root = ElementTree.Element("testsuites", {"name": "pyprof", **numbers})
    suite = ElementTree.SubElement(root, "testsuite", {"name": "pyprof diff", **numbers})
    for outcome in verdict.outcomes:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            {"classname": "pyprof.diff", "name": visible(outcome.condition.text), "time": "0"},
        )
        lines = [_sentence(outcome, comparison) for comparison in _shown(outcome)] + [_rest(outcome)]
        detail = "\n".join(filter(None, lines))
        first = lines[0]
        if outcome.status == FAIL:
            ElementTree.SubElement(case, "failure", {"message": first, "type": "regression"}).text = detail
        elif outcome.status == UNKNOWN:
            ElementTree.SubElement(case, "skipped", {"message": first})
        elif detail:
            ElementTree.SubElement(case, "system-out").text = detail
    ElementTree.indent(root)
    return "<?xml version='1.0' encoding='utf-8'?>\n" + ElementTree.tostring(root, encoding="unicode") + "\n"


def _sentence(outcome: Outcome, comparison: Comparison) -> str:
    """Return a comparison in one line.

    Example: `op:mm fprop: 1.2 ms -> 1.3 ms, +8.3 % (noise 1.1 %)`.
    """
    name, base, other, change, margin, reason = map(visible, _cells(outcome, comparison))
    if comparison.base is None:
        return f"{name}: {reason}"
    bound = "" if margin == "na" else f" (noise {margin})"
    return f"{name}: {base} -> {other}, {change}{bound}{', ' + reason if reason else ''}"


def unknowns(verdict: Verdict) -> list[str]:
    """Return, in sentences, what could not be told."""
    return [
        f"{outcome.condition.text}: cannot tell: {_sentence(outcome, outcome.comparisons[0])}"
        for outcome in verdict.outcomes
        if outcome.status == UNKNOWN
    ]


def describe(outcome: Outcome) -> str:
    """Return a failed or unknown condition with its comparisons, for an error message."""
    return "\n".join(
        [
            f"{outcome.condition.text}: {outcome.status}",
            *(f"  {_sentence(outcome, one)}" for one in _shown(outcome)),
        ]
    )


def _json(verdict: Verdict) -> str:
    return json.dumps(data(verdict), indent=1) + "\n"


# Option of the command line -> the form that it writes.
FORMS: dict[str, Callable[[Verdict], str]] = {"verdict": _json, "summary": markdown, "junit": junit}
