# SPDX-License-Identifier: Apache-2.0
"""Pages that are generated from the code say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyprof.costs.columns import COLUMNS
from pyprof.metrics import FIGURES, METRICS
from pyprof.reference import pages
from pyprof.reference.__main__ import main as reference
from pyprof.reports import every
from pyprof.store.files import schema

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("name", pages())
def test_a_reference_page_is_what_the_code_generates(name: str, request: pytest.FixtureRequest):
    path, text = ROOT / "docs" / f"{name}.md", pages()[name]()
    if request.config.getoption("--regold"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def test_the_command_prints_pages_and_their_names(capsys):
    assert reference([]) == 0
    assert capsys.readouterr().out.split() == list(pages())
    assert reference(["columns"]) == 0
    assert capsys.readouterr().out == (ROOT / "docs" / "columns.md").read_text(encoding="utf-8")
    assert reference(["colums"]) == 2
    assert "Did you mean columns?" in capsys.readouterr().err


@pytest.mark.parametrize("spec", COLUMNS.values(), ids=list(COLUMNS))
def test_every_column_is_documented(spec):
    assert spec.doc.endswith("."), f"column {spec.key} has no sentence that says what it holds"
    assert f"| `{spec.key}` | {spec.heading} |" in (ROOT / "docs" / "columns.md").read_text(encoding="utf-8")


def test_the_twenty_columns_of_the_original_come_first_with_its_headings():
    original = (
        "idx Idx, seq SeqId, altseq AltSeqId, tid TId, layer Layer, trace Trace, dir Direction, sub Sub, mod Module, "
        "op Op, kernel Kernel, params Params, sil Sil(ns), tc TC, device Device, stream Stream, grid Grid, "
        "block Block, flops FLOPs, bytes Bytes"
    )
    assert ", ".join(f"{spec.key} {spec.heading}" for spec in list(COLUMNS.values())[:20]) == original
    assert len({spec.heading for spec in COLUMNS.values()}) == len(COLUMNS)


def test_every_figure_and_column_of_a_report_says_what_it_is():
    for one in [
        *METRICS.values(),
        *FIGURES.values(),
        *every(),
        *(c for report in every() for c in report.all_columns),
    ]:
        assert one.text.endswith("."), one
        assert "|" not in one.text
    units = {"", "ns", "%", "count", "B", "events", "FLOP/s", "GB/s", "FLOP/B", "ppm"}
    assert {one.unit for one in [*METRICS.values(), *FIGURES.values()]} <= units
    assert {c.unit for report in every() for c in report.all_columns} <= units
    for report in every():
        assert (
            len({c.heading for c in report.all_columns})
            == len({c.key for c in report.all_columns})
            == len(report.all_columns)
        )


def test_every_view_of_the_page_is_described():
    views = (ROOT / "frontend" / "src" / "lib" / "views.ts").read_text(encoding="utf-8")
    labels = re.findall(r'\blabel: "([^"]+)"', views)
    text = (ROOT / "docs" / "viewer.md").read_text(encoding="utf-8")
    assert len(labels) == views.count('import("../views/')
    assert [label for label in labels if f"\n| {label} | " not in text] == []


def test_names_in_the_glossary_exist():
    """Of the database, of `prof.py`, and of reports and figures; the data frames take a recording."""
    keys = {*METRICS, *COLUMNS, *(report.name for report in every())}
    keys |= {column.key for report in every() for column in report.all_columns}
    head, rows = [], 0
    for line in (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            head = []
        elif not head:
            head = [cell.strip("`") for cell in cells]
        elif set(line) - set("|-"):
            row, rows = dict(zip(head, cells, strict=True)), rows + 1
            for name in re.findall(r"`([^`]+)`", row["database"]):
                table, _, column = name.partition(".")
                assert column in schema()[table] or not column, name
            names = row["prof.py"] + (row.get("reports") or row.get("reports and figures") or "")
            for name in re.findall(r"`([^`]+)`", names):
                assert name in keys or name == "na", name
            assert cells[-1].endswith("."), cells[0]
    assert rows > 60
