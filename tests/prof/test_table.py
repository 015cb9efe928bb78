# SPDX-License-Identifier: Apache-2.0
"""The table as text and as a data frame: quoting, widths, what unknown looks like."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyprof.core.errors import UsageError
from pyprof.costs.columns import COLUMNS, View
from pyprof.parse import loader
from pyprof.parse.rows import rows
from pyprof.prof.table import DEFAULT, frame, lines, select
from pyprof.profiles import load
from tests import build
from tests.build import call, recording

# -c and heading of the original, in its order.
ORIGINAL = {
    "idx": "Idx", "seq": "SeqId", "altseq": "AltSeqId", "tid": "TId", "layer": "Layer", "trace": "Trace",
    "dir": "Direction", "sub": "Sub", "mod": "Module", "op": "Op", "kernel": "Kernel", "params": "Params",
    "sil": "Sil(ns)", "tc": "TC", "device": "Device", "stream": "Stream", "grid": "Grid", "block": "Block",
    "flops": "FLOPs", "bytes": "Bytes",
}  # fmt: skip
HOSTILE = 'layer:a "b", c\\'
TEXT = f"""
    {HOSTILE}
        {call("torch.nn.functional.linear", (8, 4), (5, 4), trace=["train.py:9", "a, b.py:3"], module='m["x"]')}
            aten::addmm, seq = 10
                aten::mm, seq = 9
                    > 50 grid=3,2,1 my "kernel", two
    > 5 unknown
"""


@pytest.fixture
def view(tmp_path: Path) -> View:
    return View(rows(loader.load(build.write_nsys(tmp_path / "f", recording(TEXT)))))


def test_the_first_twenty_columns_are_the_originals_with_its_headings():
    assert [(key, spec.heading) for key, spec in COLUMNS.items()][:20] == list(ORIGINAL.items())
    assert {"phase", "module", "dtype", "start", "gflops", "gbs"} <= set(COLUMNS)
    assert DEFAULT == ("idx", "dir", "sub", "mod", "op", "kernel", "params", "sil")


def test_headings_are_unique_and_every_column_is_documented():
    assert len({spec.heading for spec in COLUMNS.values()}) == len(COLUMNS)
    assert all(spec.doc.endswith(".") for spec in COLUMNS.values())


def test_csv_reads_back_with_the_csv_module(view):
    text = "".join(line + "\n" for line in lines(view, list(COLUMNS.values()), "csv"))
    assert all(line.startswith('"') and line.endswith('"') for line in text.splitlines())
    linear, unknown = csv.DictReader(io.StringIO(text))
    assert {
        "Layer": 'a "b", c\\', "Trace": "train.py:9,a, b.py:3", "Kernel": 'my "kernel", two', "ModulePath": 'm["x"]',
        "SeqId": "9", "AltSeqId": "10", "Direction": "fprop", "Module": "torch.nn.functional", "Op": "linear",
        "Params": "M=8,N=5,K=4,float32", "Sil(ns)": "50", "TC": "na", "Device": "0", "Stream": "7", "Grid": "3,2,1",
        "Block": "32,1,1", "FLOPs": "320", "Bytes": "368", "Idx": "1", "Sub": "0", "TId": "1", "Phase": "forward",
        "DType": "float32", "GFLOP/s": "6.4", "GB/s": "7.4",
    }.items() <= linear.items()  # fmt: skip
    assert {
        "Direction": "na", "Op": "na", "Module": "na", "Params": "na", "FLOPs": "na", "Bytes": "na", "Trace": "na",
        "Layer": "-", "SeqId": "-", "AltSeqId": "-", "Phase": "none", "GFLOP/s": "na", "DType": "na",
    }.items() <= unknown.items()  # fmt: skip


def test_line_breaks_in_names_stay_in_their_field(tmp_path):
    what = recording("layer:x\n  > 5 kernel")
    what.ranges[0].text = "layer:two\nlines\r\n"
    view = View(rows(loader.load(build.write_nsys(tmp_path / "f", what))))
    text = "".join(line + "\n" for line in lines(view, select("layer,kernel"), "csv"))
    assert list(csv.reader(io.StringIO(text, newline=""))) == [
        ["Layer", "Kernel"],
        ["two\nlines\\r\n", "kernel"],
    ]
    for style in ("blank", "width"):
        assert all(len(line.splitlines()) == 1 for line in lines(view, select("layer,kernel"), style, 80))


def test_fixed_width_prints_no_control_characters(tmp_path):
    """A name is text of a stranger: it must not clear the reader's terminal."""
    what = recording("layer:x\n  > 5 kernel")
    what.ranges[0].text = "layer:\x1b[2J\x07"
    view = View(rows(loader.load(build.write_nsys(tmp_path / "f", what))))
    assert all(line.isprintable() for line in lines(view, select("layer,kernel"), "width", 80))


def test_blank_separated_fields_hold_no_blanks(view):
    heading, *body = lines(view, select("op,layer,kernel,params"), "blank")
    assert [len(line.split(" ")) for line in (heading, *body)] == [4, 4, 4]
    assert body[0].split(" ")[2] == 'my_"kernel",_two'


@pytest.mark.parametrize("width", [60, 61, 133, 400])
def test_fixed_width_is_kept_and_numbers_stand_right(width, view):
    text = list(lines(view, select("idx,dir,op,kernel,params,sil"), "width", width))
    assert len({len(line) for line in text}) == 1
    assert width - 2 <= len(text[0]) <= width
    assert text[1].endswith(" 50")
    assert text[1].startswith("      1 fprop linear ")
    assert text[0].startswith("Idx     Direc Op ")


def test_fixed_width_shows_the_last_frame(view):
    assert "b.py:3" in list(lines(view, select("trace,sil"), "width", 60))[1]


@pytest.mark.parametrize("columns", ["nothing", "idx,idx", "", "idx,,sil", "IDX"])
def test_columns_that_do_not_exist_are_named(columns):
    with pytest.raises(UsageError):
        select(columns)


def test_too_small_a_width_says_the_smallest(view):
    with pytest.raises(UsageError, match=r"-w 20 is too small .* at least 33"):
        list(lines(view, select("idx,op,kernel"), "width", 20))


def test_a_data_frame_holds_numbers_and_missing_values(tmp_path):
    path = build.write_nsys(tmp_path / "f", recording(TEXT))
    table = load(path).table
    assert list(table) == list(COLUMNS)
    assert table["flops"].tolist() == [320, pd.NA]
    assert table["op"].isna().tolist() == [False, True]
    assert table.groupby("op", observed=True)["sil"].sum().to_dict() == {"linear": 50}
    assert np.isnan(table["gflops"][1])


def test_a_table_without_rows_is_its_heading(tmp_path):
    from pyprof.core.netdict import read

    assert list(lines(View(read([])), list(COLUMNS.values()), "csv"))[1:] == []
    assert len(frame(View(read([])), list(COLUMNS.values()))) == 0
