# SPDX-License-Identifier: Apache-2.0
"""All reports of one small recording, in the formats that are text."""

from __future__ import annotations

import io

import pytest

import pyprof
from pyprof.render.writers import render
from pyprof.reports import every

# DLProf's layout differs by report; of the others the writer does not know the report.
DLPROF = ("detail", "expert_systems", "group_node", "iteration", "kernel", "op_type", "summary", "tensor")
FORMS = [
    *((one.name, "csv") for one in every()),
    *((name, "dlprof") for name in DLPROF),
    *((name, form) for name in ("iteration", "summary") for form in ("json", "md", "table")),
]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_reports_of_a_small_recording(name, form, prof, golden, monkeypatch):
    report = next(one for one in every() if one.name == name)
    if name == "expert_systems":  # its rows are the rules'
        monkeypatch.setattr("pyprof.reports.expert_systems.evaluate", lambda source: [])
    out = io.BytesIO()
    render(
        report,
        prof.source(),
        "csv" if form == "dlprof" else form,
        out,
        "dlprof" if form == "dlprof" else "plain",
    )
    text = out.getvalue().decode().replace(pyprof.__version__, "VERSION")
    golden(f"reports/{name}.{form}", text)
