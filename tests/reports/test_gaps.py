# SPDX-License-Identifier: Apache-2.0
"""Gaps and trees of operators: their places, calls around others, and files that are older or damaged."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from pyprof import profiles
from pyprof.core.errors import FormatError
from pyprof.facts.host.gaps import Gaps
from pyprof.store import packed
from tests import kineto
from tests.build import Kernel, Launch, Op, Range, Recording, call, scratch
from tests.reports.test_oracle import load

TRACES = Path(__file__).parents[1] / "traces/gpu"


def layers(count: int) -> Recording:
    """Operators inside one another, each with two kernels, and an event around every ten of them."""
    what = Recording()
    for i in range(count):
        start = 1000 * i
        if i % 10 == 0:
            what.ops.append(Op(call("aten::linear", (4, 4), (4, 4)), start, start + 9990))
        what.ops.append(Op(call("aten::mm", (4, 4), (4, 4)), start + 10, start + 500))
        what.ranges.append(Range("data", start + 600, start + 700))
        for j in range(2):
            what.launches.append(Launch(start + 20 + 30 * j, start + 30 + 30 * j, 2 * i + j + 1))
            what.kernels.append(Kernel("sgemm", start + 200 + 300 * j, start + 250 + 300 * j, 2 * i + j + 1))
    return what


def test_rows_in_another_order_are_damage():
    path = Path(scratch()) / "order_dldb.sqlite"
    load(layers(20)).save(path)
    for table in ("range", "op"):
        other = path.with_name("other_dldb.sqlite")
        shutil.copyfile(path, other)
        with closing(sqlite3.connect(other)) as connection, connection:
            connection.execute(
                f"update {table} set start_ns = start_ns - 20000 where id = (select max(id) from {table})"
            )
        with pytest.raises(FormatError, match=f"table {table} is not in the order of its times"):
            profiles.load(other).report("critical_path")


def test_a_gap_waits_for_the_next_operator_of_its_thread(tmp_path: Path):
    """The kernel after it was launched outside of operators, and its thread begins the next one after 40 others of
    another thread."""
    events = [
        kineto.op("aten::mm", 0, 10_000), kineto.launch(2_000, 4_000, 1), kineto.kernel("gemm", 5_000, 20_000, 1),
        kineto.launch(50_000, 52_000, 2), kineto.kernel("gemm", 60_000, 70_000, 2),
        *(kineto.op("aten::add", start, start + 500, tid=202) for start in range(53_000, 93_000, 1_000)),
        kineto.op("aten::relu", 100_000, 110_000), kineto.launch(101_000, 102_000, 3),
        kineto.kernel("relu", 103_000, 104_000, 3),
    ]  # fmt: skip
    prof = profiles.load(kineto.write(tmp_path / "trace.json", events))
    (gap,) = prof.report("idle").query("longest_ns == 40_000").to_dict("records")
    assert (gap["cause"], gap["where"], gap["operator"]) == ("launch-bound", "before", "relu")


def test_a_renamed_column_of_places_is_damage(tmp_path: Path):
    """SQLite takes the old name in quotes for a text."""
    load(layers(20)).save(path := tmp_path / "net_dldb.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("alter table place rename column host to thread")
    with pytest.raises(FormatError, match="table place lacks host"):
        profiles.load(path)


@pytest.mark.parametrize(
    ("name", "value"), [("cause", 99), ("cause", -1), ("cause", None), ("start", 1 << 62), ("device", -1)]
)
def test_gaps_that_cannot_be_are_damage(name: str, value: int | None, tmp_path: Path):
    """The last gap of a device 0 is changed."""
    load(layers(20)).save(path := tmp_path / "net_dldb.sqlite")
    columns = ("id", *Gaps._fields)
    with closing(sqlite3.connect(path)) as connection, connection:
        ((rows, data),) = connection.execute("select rows, data from packed where source = 'gap'").fetchall()
        cells = {key: column.to_pylist() for key, column in packed.unpack(data, columns, rows).items()}
        cells[name][-1] = value
        table = pa.table({key: pa.array(own, pa.int64()) for key, own in cells.items()})
        connection.execute("update packed set data = ? where source = 'gap'", (packed.pack(table),))
    with pytest.raises(FormatError, match="gaps that cannot be"):
        profiles.load(path).report("idle")


@pytest.mark.parametrize("name", ["attention.sqlite", "two_streams.pt.trace.json"])
def test_gaps_of_a_file_without_their_rows_are_worked_out(name: str, tmp_path: Path):
    """A database that was written before gaps had rows."""
    recording, path = tmp_path / name, tmp_path / "net_dldb.sqlite"
    recording.write_bytes(gzip.decompress((TRACES / f"{name}.gz").read_bytes()))
    profiles.load(recording).save(path)
    expected = profiles.load(path).report("idle", by="place")
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute("delete from packed where source = 'gap'").rowcount == 1
        connection.execute("drop table place")
    assert len(expected) > 3
    assert profiles.load(path).report("idle", by="place").equals(expected)


def test_calls_around_a_border_are_counted_once(tmp_path: Path):
    """A call of an operator has others inside it, in other pieces; what they launch is the outermost one's, too."""
    events = [
        kineto.op("aten::conv2d", 0, 200_000),
        *(kineto.op("aten::mm", start, start + 8_000) for start in range(1_000, 191_000, 10_000)),
        *(kineto.launch(start + 1_000, start + 2_000, start) for start in range(1_000, 191_000, 10_000)),
        *(kineto.kernel("gemm", start + 3_000, start + 4_000, start) for start in range(1_000, 191_000, 10_000)),
    ]
    prof = profiles.load(kineto.write(tmp_path / "trace.json", events))
    table = prof.report("operator", by="name").set_index("name")
    assert (table.loc["aten::conv2d", "calls"], table.loc["aten::mm", "calls"]) == (1, 19)
    assert table.loc["aten::conv2d", "device_total_ns"] == table.loc["aten::mm", "device_total_ns"] == 19_000
    assert table.loc["aten::conv2d", "host_total_ns"] == 200_000
