# SPDX-License-Identifier: Apache-2.0
"""Pages that are generated from the code say what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyprof.prof import cpus, gpus
from pyprof.prof.columns import COLUMNS, markdown

ROOT = Path(__file__).resolve().parent.parent


def test_the_page_of_columns_is_what_the_code_generates(request: pytest.FixtureRequest):
    path = ROOT / "docs" / "columns.md"
    if request.config.getoption("--regold"):
        path.write_text(markdown(), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == markdown()


def test_the_page_of_gpus_is_what_the_code_generates(request: pytest.FixtureRequest):
    path = ROOT / "docs" / "gpus.md"
    if request.config.getoption("--regold"):
        path.write_text(gpus.markdown(), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == gpus.markdown()


def test_the_page_of_processors_is_what_the_code_generates(request: pytest.FixtureRequest):
    path = ROOT / "docs" / "cpus.md"
    if request.config.getoption("--regold"):
        path.write_text(cpus.markdown(), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == cpus.markdown()


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
