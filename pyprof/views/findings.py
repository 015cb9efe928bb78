# SPDX-License-Identifier: Apache-2.0
"""Findings of the rules with links to the rows behind them."""

from __future__ import annotations

from typing import Any

from pyprof.metrics import share
from pyprof.reports import find
from pyprof.views import models
from pyprof.views.models import Breakdown, Evidence, Finding, Insights, Link, Part, Step
from pyprof.views.problems import Trouble


def findings(answer: Any) -> Insights:
    """Convert the result of the task `insights`."""
    body = answer[0]
    return Insights(
        expert=[_finding(item, body["steps"]) for item in body["expert"]],
        silent=body["silent"],
        headline=body["headline"],
        cut=body["cut"],
        step=_step(body["step"]),
    )


def _step(item: dict[str, Any]) -> Step:
    """Return the mean of the steady steps; its parts add up to it, but for the rounding to ns."""
    columns = {column.key: column for column in find("step_time", categories="phase").columns}
    sums, recordings = dict(item["sums"]), max(item["workers"], item["spans"])
    count = recordings if item["number"] is None else item["number"]
    total = sum(sums.values())
    headings = {key: columns[f"{key}_ns"].heading.removesuffix(" (ns)") for key in sums}
    # Without a GPU the parts are operators' own time, so that the rest is more than Other of step_time.
    if item["busy"] is None:
        headings["other"] = "Outside Operators"
    return Step(
        count=count, first=item["first"], last=item["last"], steady=item["steady"], used=item["used"],
        breakdown=Breakdown(
            key="step_time", title="Mean Step", total=round(total / count) if count else None, unit="ns",
            parts=[
                Part(
                    key=key, heading=headings[key],
                    value=round(amount / count) if count else None, unit="ns", share=share(amount, total),
                    text=columns[f"{key}_ns"].text,
                )
                for key, amount in sums.items()
            ],
        ),
    )  # fmt: skip


def _finding(item: dict[str, Any], steps: int) -> Finding:
    evidence, rows = item.pop("evidence"), item.pop("rows")
    link = Link(report=rows["table"], title=rows["title"], filters=list(rows["filters"])) if rows else None
    return Finding(
        **item,
        saving_per_step=None if item["saving"] is None else round(item["saving"] / max(steps, 1)),
        link=link,
        evidence=[
            Evidence(values={key: _cell(cell) for key, cell in row.items()}, link=_row_link(row)) for row in evidence
        ],
    )


def _cell(value: Any) -> models.Cell:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _row_link(row: dict[str, Any]) -> Link | None:
    """Return a link to the report rows behind a row of evidence: an operator by its path, a kernel by its name."""
    if isinstance(row.get("operator"), str):
        return Link(report="detail", title="Operator", filters=[f"name:={row['operator']}"])
    if isinstance(row.get("kernel"), str):
        return Link(report="kernel", title="Kernel", filters=[f"kernel:{row['kernel']}"])
    if isinstance(row.get("iteration"), int):
        return Link(report="iterations", title="Iteration", filters=[f"iteration:={row['iteration']}"])
    return None


def details_of(insights: Insights, id: str) -> models.Details:
    """Return a finding for the drawer. Raises Trouble for a rule without a finding."""
    finding = next((finding for finding in insights.expert if finding.id == id), None)
    if finding is None:
        raise Trouble("missing", f"Rule {id} has no finding in these iterations.")
    a_step = " a Step" if insights.cut else ""
    figures = [
        models.Figure(
            key="saving",
            heading=f"Estimated Saving{a_step}",
            value=finding.saving_per_step,
            unit="ns",
            text="Estimated saving of wall time; unknown if it cannot be estimated.",
        ),
        models.Figure(
            key="share",
            heading="Share",
            value=finding.share,
            unit="%",
            text="The saving as a share of the steady steps of the slowest worker.",
        ),
    ]
    texts = [
        ("advice", "Recommendation", finding.advice),
        ("verify", "How to Verify", finding.verify),
        ("text", "Rule", finding.text),
    ]
    return models.Details(
        kind="finding",
        id=finding.id,
        title=finding.problem,
        subtitle=f"{finding.id} {finding.name}",
        figures=figures,
        texts=[models.Text(key=key, heading=heading, value=value) for key, heading, value in texts if value],
        stack=[],
        partners=[],
        roofline=None,
        tables=_evidence(finding),
    )


def _evidence(finding: Finding) -> list[models.NamedTable]:
    keys = list(dict.fromkeys(key for row in finding.evidence for key in row.values))
    if not keys:
        return []
    columns = []
    for key in keys:
        cells = [row.values.get(key) for row in finding.evidence if row.values.get(key) is not None]
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
    rows = [[row.values.get(key) for key in keys] for row in finding.evidence]
    return [models.NamedTable(title="Evidence", columns=columns, rows=rows, kind=None, ids=[], total=len(rows))]
