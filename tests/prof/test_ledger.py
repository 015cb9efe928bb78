# SPDX-License-Identifier: Apache-2.0
"""The coverage ledger: the parts of every line add up to the time of all rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from pyprof.netdict import read
from pyprof.parse import loader
from pyprof.parse.rows import rows
from pyprof.prof.columns import View
from pyprof.prof.coverage import ledger, text
from tests import build
from tests.build import call, examples, recording
from tests.parse.test_join import recordings

TEXT = f"""
    {call("torch.nn.functional.linear", (8, 4), (5, 4), trace=["train.py:9"], module="net.fc")}
        aten::addmm, seq = 10
            > 50 sgemm
    {call("mine.fused", (8, 4))}
        > 30 fused
    aten::relu
        > 15 relu
    > 4 stray
    > 1 correlation=none alone
"""


@pytest.fixture
def view(tmp_path: Path) -> View:
    return View(rows(loader.load(build.write_nsys(tmp_path / "f", recording(TEXT)))))


def test_each_line_says_what_share_of_the_time_is_known(view):
    parts = {entry.what: entry.parts for entry in ledger(view)}
    assert {what: found["known"] for what, found in parts.items() if "known" in found} == {
        "operator": 95, "shapes": 80, "source line": 50, "module": 50, "launch record": 99,
    }  # fmt: skip
    assert parts["FLOPs"] == {
        "formula": 50,
        "view": 0,
        "default": 0,
        "unknown": 50,
        "approximate": 0,
        "recorded": 0,
    }
    assert parts["bytes"]["unknown"] == 50


def test_the_text_names_the_file_the_total_and_what_was_lost(view):
    found = text(view, "net.sqlite").splitlines()
    assert found[0] == "net.sqlite: 5 kernels, 100 ns; percent of that time"
    assert "  operator      known 95.0 %, unknown 5.0 % (2 rows)" in found
    assert found[-1] == "  lost: 1 GPU events without a launch record (kept)"


def test_without_rows_the_ledger_is_empty():
    assert text(View(read([])), "net.dict").startswith("net.dict: 0 kernels, 0 ns")


@examples(40)
@given(recordings())
def test_the_parts_close(what):
    found = View(rows(loader.load(build.write_nsys(Path(build.scratch()) / "f", what))))
    total = int(found.rows.duration.sum())
    assert {sum(entry.parts.values()) for entry in ledger(found)} == {total}
    assert {sum(entry.counts.values()) for entry in ledger(found)} == {len(found.rows)}
