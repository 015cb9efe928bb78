# SPDX-License-Identifier: Apache-2.0
"""Everything that a profile can be asked: no recording, however poor, may make one of it fail."""

from __future__ import annotations

from pathlib import Path

from pyprof import session
from pyprof.reports import every


def all_of(prof: session.Profile, folder: Path) -> None:
    """Ask for each report with each choice, prof.py's table, the ledger, the overview, the page, an export."""
    for report in every():
        choices = [{}] + [{option.name: value} for option in report.options for value in option.choices]
        for chosen in choices:
            prof.report(report.name, **chosen)
    for table in (prof.table, prof.coverage, prof.outcomes):
        assert len(table)
    assert str(prof.overview)
    prof.page(folder / "page.html")
    prof.export("chrome", folder / "exported.json")
