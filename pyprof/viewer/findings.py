# SPDX-License-Identifier: Apache-2.0
"""Findings of the rules with links to the rows behind them."""

from __future__ import annotations

from typing import Any

from pyprof.viewer import models
from pyprof.viewer.models import Evidence, Finding, Insights, Link
from pyprof.viewer.problems import Trouble


def findings(answer: Any) -> Insights:
    """What the task `insights` found."""
    body = answer[0]
    return Insights(expert=[_finding(one) for one in body["expert"]], silent=body["silent"])


def _finding(one: dict[str, Any]) -> Finding:
    evidence, rows = one.pop("evidence"), one.pop("rows")
    link = Link(report=rows["table"], title=rows["title"], filters=list(rows["filters"])) if rows else None
    return Finding(
        **one,
        link=link,
        evidence=[
            Evidence(values={key: _cell(cell) for key, cell in row.items()}, link=_row_link(row))
            for row in evidence
        ],
    )


def _cell(value: Any) -> models.Cell:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _row_link(row: dict[str, Any]) -> Link | None:
    """The rows of a report that a row of evidence is of: an operator by its path, a kernel by its name."""
    if isinstance(row.get("operator"), str):
        return Link(report="detail", title="Operator", filters=[f"name:={row['operator']}"])
    if isinstance(row.get("kernel"), str):
        return Link(report="kernel", title="Kernel", filters=[f"kernel:{row['kernel']}"])
    if isinstance(row.get("iteration"), int):
        return Link(report="iterations", title="Iteration", filters=[f"iteration:={row['iteration']}"])
    return None


def details_of(found: Insights, id: str) -> models.Details:
    """A finding for the drawer. Raises Trouble for a rule that found nothing."""
    one = next((one for one in found.expert if one.id == id), None)
    if one is None:
        raise Trouble("missing", f"Rule {id} found nothing in these iterations.")
    figures = [
        models.Figure(
            key="saving",
            heading="Estimated Saving",
            value=one.saving,
            unit="ns",
            text="Of the wall time; unknown where nobody can tell.",
        ),
        models.Figure(
            key="share",
            heading="Share",
            value=one.share,
            unit="%",
            text="The saving, of the wall time that rules look at: steady iterations of the slowest worker.",
        ),
    ]
    texts = [
        ("advice", "Recommendation", one.advice),
        ("verify", "How to Verify", one.verify),
        ("text", "Rule", one.text),
    ]
    return models.Details(
        kind="finding",
        id=one.id,
        title=one.problem,
        subtitle=f"{one.id} {one.name}",
        figures=figures,
        texts=[models.Text(key=key, heading=heading, value=value) for key, heading, value in texts if value],
        stack=[],
        partners=[],
        roofline=None,
        tables=_evidence(one),
    )


def _evidence(one: Finding) -> list[models.NamedTable]:
    keys = list(dict.fromkeys(key for row in one.evidence for key in row.values))
    if not keys:
        return []
    columns = []
    for key in keys:
        cells = [row.values.get(key) for row in one.evidence if row.values.get(key) is not None]
        kind: models.ColumnKind = (
            "bool"
            if all(isinstance(cell, bool) for cell in cells)
            else "int"
            if all(isinstance(cell, int) for cell in cells)
            else "float"
            if all(isinstance(cell, (int, float)) for cell in cells)
            else "str"
        )
        unit = "ns" if key.endswith("_ns") else ""
        heading = key.removesuffix("_ns").replace("_", " ").title()
        columns.append(models.Column(key=key, heading=heading, unit=unit, text="", kind=kind, extra=True))
    rows = [[row.values.get(key) for key in keys] for row in one.evidence]
    return [
        models.NamedTable(title="Evidence", columns=columns, rows=rows, kind=None, ids=[], total=len(rows))
    ]
