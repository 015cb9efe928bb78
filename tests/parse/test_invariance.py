# SPDX-License-Identifier: Apache-2.0
"""What must not matter does not: the order of rows, columns that are missing, and that we read the file at all."""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from pyprof.core.errors import FormatError
from pyprof.parse import loader
from pyprof.parse.rows import rows
from tests import build
from tests.build import LONG, START_END, call, classic, examples, recording, stack
from tests.parse.test_join import recordings

TRAINING = f"""
    wait 100
    layer:encoder
        {stack("train.py:9", "net.py:4")}
            {classic("torch.nn.functional.linear", (8, 4), (5, 4), (5,))}
                {classic("torch.matmul", (8, 4), (4, 5))}
                    aten::linear, seq = 3, op_id = 1
                        aten::addmm, seq = 3, op_id = 2
                            > 40 grid=4,2,1 block=128,1,1 registers=60 static=16 dynamic=1024 volta_sgemm<float>(int)
                            + 5 stream=8 graph=4 splitKreduce
    {call("torch.relu", (8, 5), trace=["train.py:10"], module="net.act", layer="user")}
        aten::relu, seq = 4
            > 7 relu_kernel
    thread 2
    autograd::engine::evaluate_function: ReluBackward0, op_id = 7
        ReluBackward0, seq = 4, op_id = 8
            aten::threshold_backward, op_id = 9
                > 9 stream=9 threshold
    autograd::engine::evaluate_function: AddmmBackward0
        AddmmBackward0, seq = 3
            > 30 device=1 dgrad_gemm
            > 31 wgrad_gemm
    autograd::engine::evaluate_function: torch::autograd::AccumulateGrad
        torch::autograd::AccumulateGrad
            > 3 context=2 add
    foreign
        > 2 skew=-4 early
    > 1 alone
"""
OPERATORS = f"""
    {call("torch.nn.functional.linear", (8, 4), (5, 4), trace=["train.py:9"], module="net.fc")}
        op seq=3 {call("aten::linear", (8, 4), (5, 4))}
            op seq=3 {call("aten::addmm", (5,), (8, 4), (4, 5))}
                wait 200
    thread 2
    op {call("autograd::engine::evaluate_function: AddmmBackward0")}
        op seq=3 forward=1 {call("AddmmBackward0", (8, 5))}
            op {call("aten::mm", (5, 8), (8, 4))}
                wait 90
"""


def training(processes: bool) -> build.Recording:
    """Everything a format can hold: threads, processes that share numbers, copies, start/end ranges, marks."""
    what = recording(TRAINING)
    names = {kernel.name: kernel for kernel in what.kernels}
    names["alone"].correlation = None
    what.ranges.append(build.Range("layer:between", 150, 260, kind=START_END))
    what.ranges.append(build.Range("now", 170, None, kind=build.MARK))
    what.launches.append(build.Launch(what.launches[0].start + 1, what.launches[0].end - 1, 1, driver=True))
    what.kernels.append(build.Kernel("copy", 900, 950, 1, size=4096, copy_kind=1))
    what.kernels.append(build.Kernel("set", 960, 970, 2, size=64))
    if processes:
        other = recording("thread 1 process 300\naten::mul, seq = 3\n  > 6 device=1 mul_kernel")
        what.ranges += other.ranges
        what.launches += other.launches
        what.kernels += other.kernels
    return what


# What of net.dict a column feeds: all that ranges say, all that comes with the launch.
RANGES = {
    "layer", "trace", "reprMarkers", "marker", "seqMarker", "seqId", "subSeqId", "altSeqId", "dir", "mod", "op",
    "module", "fwdThread", "phase", "call", "caller", "launcher",
}  # fmt: skip
LAUNCH = RANGES | {"tid", "launchStart", "launchEnd", "pid"}
ANY = LAUNCH | {"kDuration", "start", "end", "kShortName", "kLongName", "stream", "kind", "correlation"}
GPU = {
    "start": ANY, "end": {"kDuration", "end"}, "deviceId": {"device"}, "contextId": {"context"},
    "streamId": {"stream"}, "correlationId": LAUNCH | {"correlation"},
    "registersPerThread": {"registers"}, "staticSharedMemory": {"sharedMemory"},
    "dynamicSharedMemory": {"sharedMemory"},
    **{f"{what}{axis}": {what} for what in ("grid", "block") for axis in "XYZ"},
}  # fmt: skip
# A time can be the recording's first, from which all others count; and without times a table has no rows.
NSYS = {
    "StringIds": {"id": ANY, "value": ANY},
    "NVTX_EVENTS": {"start": ANY} | dict.fromkeys(("end", "eventType", "globalTid", "text", "textId"), RANGES),
    "CUPTI_ACTIVITY_KIND_RUNTIME": {
        "start": ANY, "end": {"launchEnd"}, "globalTid": LAUNCH, "correlationId": LAUNCH,
    },
    "CUPTI_ACTIVITY_KIND_KERNEL": GPU | {
        "globalPid": LAUNCH, "demangledName": {"kShortName", "kLongName"}, "graphNodeId": {"graph"},
    },
    "CUPTI_ACTIVITY_KIND_MEMCPY": {"start": ANY}, "CUPTI_ACTIVITY_KIND_MEMSET": {"start": ANY},
    "OSRT_API": {"start": ANY, "end": ANY},
}  # fmt: skip
FEEDS: dict[str, dict[str, dict[str, set[str]]]] = {
    "nsys": NSYS,
    "nvprof": {
        "StringTable": {"_id_": ANY, "value": ANY},
        "CUPTI_ACTIVITY_KIND_MARKER": dict.fromkeys(("timestamp", "flags"), ANY)
        | dict.fromkeys(("id", "objectId", "name"), RANGES),
        "CUPTI_ACTIVITY_KIND_RUNTIME": {
            "start": ANY, "end": {"launchEnd"}, "processId": LAUNCH, "threadId": LAUNCH, "correlationId": LAUNCH,
        },
        "CUPTI_ACTIVITY_KIND_DRIVER": {"start": ANY},
        "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL": GPU | {"name": {"kShortName", "kLongName"}},
        "CUPTI_ACTIVITY_KIND_MEMCPY": {"start": ANY}, "CUPTI_ACTIVITY_KIND_MEMSET": {"start": ANY},
    },
    "capture": NSYS | {
        "PYPROF_OP": dict.fromkeys(("start", "end", "globalTid", "nameId", "scope"), ANY)
        | dict.fromkeys(("textId", "seq", "forwardGlobalTid"), RANGES),
        "PYPROF_META": {},  # that it is there says that the file is a capture
    },
}  # fmt: skip
FILES = {
    "nsys": ("nsys", lambda path: build.write_nsys(path, training(True))),
    "nsys-ids": ("nsys", lambda path: build.write_nsys(path, training(True), registered=True)),
    "nvprof": ("nvprof", lambda path: build.write_nvprof(path, training(False))),
    "capture": ("capture", lambda path: build.write_capture(path, training(True))),
    "capture-cpu": ("capture", lambda path: build.write_capture(path, recording(OPERATORS))),
}
REAL = {
    "transformer_lm": ("nvprof", "nvprof/transformer_lm/net.sql"),
    "cifar": ("nsys", "nsys/cifar_rtx2070_pyprof_markers.sqlite"),
}


@pytest.fixture(params=[*FILES, *REAL])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """Format and file."""
    if request.param in FILES:
        format_, write = FILES[request.param]
        return format_, write(tmp_path / "source")
    format_, name = REAL[request.param]
    return format_, request.getfixturevalue("data") / name


def tables_of(path: Path) -> dict[str, list[str]]:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    names = [n for (n,) in connection.execute("select name from sqlite_master where type = 'table'")]
    found = {n: [row[1] for row in connection.execute(f'pragma table_info("{n}")')] for n in names}
    connection.close()
    return {n: c for n, c in found.items() if not n.startswith("sqlite_")}


def without(found: list[dict[str, Any]], keys: set[str]) -> Counter[str]:
    """Rows apart from some keys. A key that sorts rows may change their order, so they are compared as a bag."""
    return Counter(str({k: v for k, v in row.items() if k not in keys}) for row in found)


# Without a column, with NULL in it, with it under another name.
WAYS = {"dropped": lambda c: "", "null": lambda c: "null", "renamed": lambda c: f"as {c}_2"}


def test_the_order_of_rows_changes_no_byte(source, tmp_path):
    _, path = source
    expected = str(build.read(path, memory=True)), build.table(path), rows(loader.load(path)).lost
    for seed in range(2 if LONG else 1):
        copy = build.rewrite(path, tmp_path / f"shuffled{seed}", seed=seed)
        found = str(build.read(copy, memory=True)), build.table(copy), rows(loader.load(copy)).lost
        assert found == expected


@pytest.mark.long
@examples(40)
@given(recordings())
def test_the_order_of_rows_changes_no_byte_of_any_recording(what):
    """Ranges and launches that coincide in everything but their text or number."""
    folder = Path(build.scratch())
    path = build.write_nsys(folder / "file", what)
    assert build.read(build.rewrite(path, folder / "shuffled", seed=1)) == build.read(path)


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_columns_that_feed_nothing_change_nothing(way, source, tmp_path):
    """launchType, gridId, cluster sizes, colours and payloads of ranges, names of APIs ..."""
    format_, path = source
    changes = {
        table: {c: WAYS[way](c) for c in columns if c not in FEEDS[format_].get(table, {})}
        for table, columns in tables_of(path).items()
    }
    changes["PYPROF_META"] = {}
    assert build.read(build.rewrite(path, tmp_path / "copy", changes)) == build.read(path)


@pytest.mark.long
def test_a_column_feeds_only_what_it_feeds(source, tmp_path):
    """One column at a time; a file that becomes unreadable by it has to say so in a sentence."""
    format_, path = source
    reference, tables = build.read(path), tables_of(path)
    for table, feeds in FEEDS[format_].items():
        for column in set(feeds) & set(tables.get(table, ())):
            for way in WAYS:
                copy = build.rewrite(path, tmp_path / "copy", {table: {column: WAYS[way](column)}})
                if feeds[column] is ANY:
                    with suppress(FormatError):
                        build.read(copy)
                else:
                    same = without(build.read(copy), feeds[column]) == without(reference, feeds[column])
                    assert same, (table, column, way)
                copy.unlink()


@pytest.mark.long
def test_tables_that_only_some_versions_write_may_be_missing(source, tmp_path):
    format_, path = source
    missing = {t: dict.fromkeys(columns, "") for t, columns in tables_of(path).items() if t not in FEEDS[format_]}
    assert missing
    assert build.read(build.rewrite(path, tmp_path / "copy", missing)) == build.read(path)


def test_the_name_of_a_file_does_not_matter(source, tmp_path):
    _, path = source
    copy = tmp_path / "no extension, 100% é?#"
    copy.write_bytes(path.read_bytes())
    assert build.read(copy) == build.read(path)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_reading_leaves_the_file_and_its_folder_alone(mode, source, tmp_path):
    _, path = source
    folder = tmp_path / "folder"
    folder.mkdir()
    copy = folder / "net.sqlite"
    copy.write_bytes(path.read_bytes())
    connection = sqlite3.connect(copy)
    connection.execute(f"pragma journal_mode = {mode}")
    connection.close()
    before = hashlib.sha256(copy.read_bytes()).digest()
    assert build.read(copy) == build.read(path)
    assert hashlib.sha256(copy.read_bytes()).digest() == before
    assert [p.name for p in folder.iterdir()] == ["net.sqlite"]


def test_what_a_writer_has_not_merged_yet_is_read(tmp_path):
    """A recording whose last rows still stand in the write-ahead log."""
    path = build.write_nsys(tmp_path / "f", recording("aten::mm\n  > 5 one\n  > 6 two"))
    connection = sqlite3.connect(path)
    connection.execute("pragma journal_mode = wal")
    connection.execute(
        "delete from CUPTI_ACTIVITY_KIND_KERNEL where start = (select max(start) from CUPTI_ACTIVITY_KIND_KERNEL)"
    )
    connection.commit()
    assert [row["kShortName"] for row in build.read(path)] == ["one"]
    connection.close()


def test_text_in_another_encoding_is_replaced_not_refused(tmp_path):
    path = build.write_nsys(tmp_path / "f", recording("layer:x\n  aten::mm\n    > 5 kernel"))
    connection = sqlite3.connect(path)
    latin = "cast(X'6c617965723ae9' as text)"  # layer:é
    connection.execute(f"update NVTX_EVENTS set text = {latin} where text like 'layer%'")
    connection.execute(f"update PROCESSES set name = {latin}")
    connection.commit()
    connection.close()
    (row,) = build.read(path)
    assert (row["layer"], row["op"]) == (["\ufffd"], ["aten::mm"])


@pytest.mark.long
def test_without_adbc_the_rows_are_the_same(source, monkeypatch):
    _, path = source
    expected = build.read(path)
    monkeypatch.setitem(__import__("sys").modules, "adbc_driver_sqlite", None)
    assert build.read(path) == expected
