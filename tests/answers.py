# SPDX-License-Identifier: Apache-2.0
"""Everything that a profile can be asked: no recording, however poor, may make one of it fail."""

from __future__ import annotations

from pathlib import Path

from pyprof import profiles
from pyprof.reports import every
from tests.build import LONG


def all_of(prof: profiles.Profile, folder: Path) -> None:
    """Ask for each report, prof.py's table, the ledger, the overview, an export; with PYPROF_LONG=1 the page."""
    for report in every():
        prof.report(report.name)
    for table in (prof.table, prof.coverage, prof.outcomes):
        assert len(table)
    assert str(prof.overview)
    if LONG:
        prof.page(folder / "page.html")
    prof.export("chrome", folder / "exported.json")
