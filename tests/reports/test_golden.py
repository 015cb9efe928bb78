# SPDX-License-Identifier: Apache-2.0
"""All reports of one small recording, in the formats that are text."""

from __future__ import annotations

import io

import pytest

import pyprof
from pyprof.render.writers import render
from pyprof.reports import every


@pytest.mark.parametrize("name", [one.name for one in every()])
@pytest.mark.parametrize("form", ["csv", "dlprof", "json", "md", "table"])
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
