# SPDX-License-Identifier: Apache-2.0
"""Files of reports: what readers get back, hostile texts, whole or not at all."""

from __future__ import annotations

import gzip
import io
import json
import os
import sqlite3

import pandas as pd
import pyarrow.parquet as pq
import pytest

from pyprof import profiles
from pyprof.core.errors import PyProfError, UsageError
from pyprof.render.writers import FORMATS, file_name, render, write
from pyprof.reports import every, find, iteration
from tests import cli
from tests.build import call, recording, write_capture

# Reports whose columns have all types: numbers with fractions, yes and no, lists, texts, whole numbers; no rows.
KINDS = ("coverage", "detail", "iteration", "summary", "step_time", "expert_systems")
# 1.8.0's own files; of those that our recordings say nothing of, what stands for it.
DLPROF = {
    "detail": "Op ID, Op Name, Direction, Op Type, No. Calls, TC Eligible, Using TC, *., Data Type, Stack Trace",
    "op_type": "Op Type, # Ops, # Calls, *.",
    "group_node": "Name, Num Calls Aggregated, Num TC Eligible Ops, Num Ops Using TC, *.",
    "kernel": "Kernel Name, Op ID, Op Name, Direction, Uses TC, Total GPU Time (ns), Avg GPU Time (ns), "
    "Min GPU Time (ns), Max GPU Time (ns), Total API Time (ns), Avg API Time (ns), Min API Time (ns), "
    "Max API Time (ns)",
    "iteration": "Iteration, Op ID, Op Name, Direction, Op Type, Kernel Name, Device ID, GPU Start Time (ns), "
    "GPU Duration (ns), API Call Start (ns), API Call Time (ns), Uses TC, Grid X, Grid Y, Grid Z, Block X, Block Y, "
    "Block Z, Data Types, Input Shapes, Parameters, Output Shapes, Long Kernel Name",
    "tensor": "Op ID, Op Name, Direction, Op Type, Uses TC, Total GPU Time (ns), TC GPU Time (ns), "
    "Non-TC GPU Time (ns), TC Utilization (%), Total Kernel Count, TC Kernel Count, TC Kernel Names, "
    "Non-TC Kernel Count, Non-TC Kernel Names",
    "expert_systems": "Problem, Recommendation",
}
TITLES = {
    "detail": "All Iterations", "kernel": "Kernel Report", "iteration": "Iteration Report",
    "tensor": "Tensor Core Report", "op_type": "Op Type Summary Report", "group_node": "Group Op Report",
    "expert_systems": "Expert Systems Feedback",
}  # fmt: skip
SIXTEEN = [
    f"{how} {what} (ns)"
    for what in ("CPU Time", "GPU Time", "CPU Overhead", "GPU Idle")
    for how in ("Total", "Avg.", "Min", "Max")
]


def rendered(prof: profiles.Profile, name: str, form: str, style: str = "plain") -> bytes:
    out = io.BytesIO()
    render(find(name), prof.source(), form, out, style)
    return out.getvalue()


@pytest.fixture(autouse=True)
def _no_rules(monkeypatch):
    monkeypatch.setattr("pyprof.reports.expert_systems.evaluate", lambda source: [])


@pytest.mark.parametrize("name", DLPROF)
def test_dlprofs_layout_has_its_title_and_its_columns(name, prof):
    title, headings = rendered(prof, name, "csv", "dlprof").decode().splitlines()[:2]
    wanted = [h for text in DLPROF[name].split(", ") for h in (SIXTEEN if text == "*." else [text])]
    assert title == TITLES[name]
    assert headings == ",".join(f'"{heading}"' for heading in wanted)


def test_dlprofs_summary_has_its_sections(prof):
    text = rendered(prof, "summary", "csv", "dlprof").decode()
    sections = [block.splitlines() for block in text.split("\n\n")]
    assert [lines[0] for lines in sections] == [
        "System Config",
        "Summary Report",
        "Iterations",
        "All Ops",
        "All Kernels",
    ]
    assert [line.split(",")[0].strip('"') for line in sections[1][1:]] == [
        "Wall Clock Time (ns)", "Tensor Core Kernel Utilization %", "GPU Utilization %",
        "Tensor Core Kernel Duration %", "Non-Tensor Core Kernel Duration %", "Memory Duration %",
        "Dataloader Duration %", "IO Duration %",
        "CPU Duration %", "Other Duration %",
    ]  # fmt: skip
    assert [line.split(",")[0].strip('"') for line in sections[2][1:]] == [
        "Total Iterations", "Aggregated Iterations", "Start Iteration", "Stop Iteration", "Average Iteration Time (ns)",
        "Iteration Time Standard Deviation",
    ]  # fmt: skip
    assert sections[3][1] == ',"GPU Time (ns)","CPU Time (ns)","# Ops"'
    assert [line.split(",")[0] for line in sections[3][2:]] == [
        '"All ops"', '"Ops using TC"', '"Ops eligible for TC but not using"', '"All other ops"',
    ]  # fmt: skip
    assert sections[4][1] == ',"GPU Time (ns)","CPU Time (ns)","# Kernels"'
    assert [line.split(",")[0] for line in sections[4][2:]] == [
        '"All kernels"', '"Kernels using TC"', '"Memory"', '"All other kernels"',
    ]  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_every_format_holds_what_the_data_frame_holds(name, prof):
    """To the last digit, through the readers that people use."""
    table = prof.report(name)
    columns = find(name).columns
    csv = pd.read_csv(io.BytesIO(rendered(prof, name, "csv")), dtype=str, keep_default_na=False)
    parquet = pq.read_table(io.BytesIO(rendered(prof, name, "parquet")))
    (title, rows), *more = json.loads(rendered(prof, name, "json")).items()
    assert title == find(name).title
    assert not more
    assert len(csv) == len(rows) == parquet.num_rows == len(table)
    for column in columns:
        cells = [None if value is pd.NA or value != value else value for value in table[column.key].tolist()]
        assert [row[column.heading] for row in rows] == cells
        assert all(type(row[column.heading]) in (column.kind, type(None)) for row in rows) or column.kind is object
        texts = ["" if value is None else str(value) for value in cells]
        assert csv[column.heading].tolist() == texts
        stored = [str(value) if column.kind is object and value is not None else value for value in cells]
        assert parquet.column(column.heading).to_pylist() == stored
        metadata = parquet.schema.field(column.heading).metadata
        assert (metadata[b"unit"], metadata[b"definition"]) == (column.unit.encode(), column.text.encode())
    assert list(csv.columns) == parquet.column_names == [column.heading for column in columns]


@pytest.mark.parametrize("form", ["csv", "json", "md", "parquet"])
def test_parts_of_any_size_make_the_same_file(form, prof, monkeypatch):
    whole = rendered(prof, "iteration", form)
    table = prof.report("iteration")
    monkeypatch.setattr(iteration, "BATCH", 3)
    parts = rendered(prof, "iteration", form)
    if form == "parquet":
        assert pq.read_table(io.BytesIO(parts)).equals(pq.read_table(io.BytesIO(whole)))
    else:
        assert parts == whole
    pd.testing.assert_frame_equal(prof.report("iteration"), table, check_categorical=False)


HOSTILE = [
    "=HYPERLINK(\"http://x\",\"y\")", "+1+1|cmd", "@SUM(A1)", "-2+3", "\t=1", "a,b\"c", "two\nlines", "esc\x1b[2Jape",
    "[bold red]x[/]", "a|b", "<script>alert(1)</script>", "`x` *y* _z_", "\u202egnp.exe", "\u2028=x", "", " ",
]  # fmt: skip


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> profiles.Profile:
    """Kernels with such names."""
    path = tmp_path_factory.mktemp("hostile") / "a.sqlite"
    text = call("torch.mm", (2, 3), (3, 4)) + "".join(f"\n    > 10 k{i}" for i in range(len(HOSTILE)))
    what = recording(text)
    for kernel, name in zip(what.kernels, HOSTILE):
        kernel.name = name
    return profiles.load(write_capture(path, what))


def test_spreadsheets_find_no_formula(hostile):
    for style in ("plain", "dlprof"):
        data = rendered(hostile, "iteration", "csv", style)
        table = pd.read_csv(io.BytesIO(data), skiprows=int(style == "dlprof"), dtype=str, keep_default_na=False)
        assert len(table) == len(HOSTILE)
        for cell in table["Long Kernel Name"]:
            assert not cell.lstrip().startswith(("=", "+", "-", "@")), cell
            assert "\x1b" not in cell
            assert "\t" not in cell
        assert '\'=HYPERLINK("http://x","y")' in set(table["Long Kernel Name"])


def test_terminals_and_pages_get_texts_alone(hostile):
    table = rendered(hostile, "iteration", "table").decode()
    assert all(line.isprintable() for line in table.splitlines())
    assert "[bold red]x[/]" in table
    page = rendered(hostile, "iteration", "md").decode()
    lines = page.splitlines()
    assert len(lines) == len(HOSTILE) + 2
    bars = {line.replace("\\|", "").count("|") for line in lines}
    assert bars == {len(find("iteration").columns) + 1}
    assert "<script>" not in page
    assert "\\<script\\>" in page
    assert "two<br>lines" in page


def test_json_and_parquet_keep_hostile_texts_as_they_are(hostile):
    names = hostile.report("iteration")["long_name"].astype(object).fillna("").tolist()
    rows = json.loads(rendered(hostile, "iteration", "json"))["Iteration Report"]
    assert [row["Long Kernel Name"] or "" for row in rows] == names
    stored = pq.read_table(io.BytesIO(rendered(hostile, "iteration", "parquet")))
    assert [name or "" for name in stored.column("Long Kernel Name").to_pylist()] == names
    assert "esc\x1b[2Jape" in names


def test_files_are_named_as_dlprof_names_them(prof, tmp_path):
    names = [
        os.path.basename(n) for one in every() for n in write(one, prof.source(), tmp_path, "run", ["csv", "json"])
    ]
    suffixes = [one.suffix for one in every() if one.name not in ("detail", "tensor")]
    suffixes += ["detailed", "tensor_core"]
    assert sorted(names) == sorted(f"run_{suffix}.{end}" for suffix in suffixes for end in ("csv", "json"))
    assert sorted(os.listdir(tmp_path)) == sorted(names)
    for name in names:
        one = next(r for r in every() if file_name(r, "run", "csv").split(".")[0] == name.split(".")[0])
        assert (tmp_path / name).read_bytes() == rendered(prof, one.name, name.rpartition(".")[2])


def test_a_file_is_whole_or_not_there(prof, tmp_path, monkeypatch):
    old = tmp_path / "run_iteration.csv"
    old.write_text("mine")
    report = find("iteration")

    def fails(source):
        yield from report.make(source)
        raise sqlite3.OperationalError("disk I/O error")

    with pytest.raises(sqlite3.OperationalError):
        write(report._replace(make=fails), prof.source(), tmp_path, "run", list(FORMATS))
    assert os.listdir(tmp_path) == ["run_iteration.csv"]
    assert old.read_text() == "mine"


def test_what_cannot_be_written_is_told_in_a_sentence(prof, tmp_path):
    report = find("op_type")
    with pytest.raises(PyProfError, match=r"nowhere/run_op_type\.csv: the report could not be written \(the folder"):
        write(report, prof.source(), tmp_path / "nowhere", "run")
    with pytest.raises(UsageError, match=r"unknown format 'xls'\. Choose from csv, json, table, md, parquet"):
        write(report, prof.source(), tmp_path, "run", ["csv", "xls"])
    with pytest.raises(UsageError, match="unknown style 'old'; choose from plain, dlprof"):
        write(report, prof.source(), tmp_path, "run", ["csv"], "old")
    with pytest.raises(UsageError, match="'a/b' is not a file name"):
        write(report, prof.source(), tmp_path, "a/b")
    with pytest.raises(
        UsageError, match=r"unknown report 'ops'\. Choose from account, alive, api_calls, categories, clocks"
    ):
        find("ops")
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_told(prof, monkeypatch, tmp_path):
    monkeypatch.setattr("builtins.open", lambda *a, real=open, **k: real("/dev/full", *a[1:], **k))
    with pytest.raises(PyProfError, match="No space left on device"):
        write(find("iteration"), prof.source(), tmp_path, "run", ["csv"])
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("names", [["operator"], []], ids=["report", "overview"])
def test_a_recording_that_was_cut_off_is_called_incomplete(names, tmp_path, capfd):
    whole = gzip.compress(json.dumps({"traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10 * at, "dur": 5}
        for at in range(200)
    ]}).encode())  # fmt: skip
    path = tmp_path / "net.pt.trace.json.gz"
    for size, complete in ((len(whole), True), (len(whole) * 3 // 4, False)):
        path.write_bytes(whole[:size])
        assert cli.main(["report", *names, str(path)]) == 0
        shown = capfd.readouterr()
        assert "mm" in shown.out
        assert (f"{path} is incomplete: 1 " in shown.err) is not complete
