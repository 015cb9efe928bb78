# SPDX-License-Identifier: Apache-2.0
"""Columns of large tables as Parquet: they say what the rows say, and a file without them is read from its rows."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import pyprof
from pyprof.core.errors import FormatError
from pyprof.core.model import Column
from pyprof.reports import every
from pyprof.store import packed
from pyprof.store.files import Store, schema
from pyprof.store.ids import LAST_ID
from tests.build import Kernel, Launch, Op, Range, Recording, call, write_capture

ROWS = 7  # of a piece


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """A database with pieces of 7 rows. Not to be changed."""
    what = Recording()
    for i in range(40):
        start = 1000 * i
        what.steps.append((i, start, start + 900))
        what.ranges.append(Range("## forward ##", start + 5, start + 500))
        what.ops.append(Op(call("aten::mm", (4, 4 + i % 3), (4 + i % 3, 4)), start + 10, start + 100))
        what.launches.append(Launch(start + 20, start + 30, i + 1))
        what.kernels.append(Kernel(f"sgemm{i % 2}", start + 40 + i % 5, start + 90, i + 1))
    folder = tmp_path_factory.mktemp("packed")
    path = folder / "net_dldb.sqlite"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "LEAST_ROWS", 1)
        patch.setattr(packed, "MOST_ROWS", ROWS)
        pyprof.load(write_capture(folder / "net.sqlite", what)).save(path)
    return path


@pytest.fixture
def without(database, tmp_path):
    """The same without pieces."""
    path = tmp_path / "rows_dldb.sqlite"
    shutil.copyfile(database, path)
    change(path, "delete from packed")
    return path


def change(path, statement, *values):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


def cells(columns):
    return {name: np.where(column.mask(), column.values, -99).tolist() for name, column in columns.items()}


@pytest.mark.parametrize("table", packed.TABLES)
@pytest.mark.parametrize("ids", [(0, LAST_ID), (0, 7), (3, 25), (7, 14), (13, 15), (39, 40), (5, 5), (500, 900)])
def test_pieces_have_the_rows(table, ids, database, without):
    names = list(schema()[table])
    query = f"select {', '.join(names)} from {table} where id >= ? and id < ? order by id"
    with Store(database) as store, Store(without) as rows:
        assert store.is_packed(table)
        assert not rows.is_packed(table)
        expected = cells(rows.columns(query, ids))
        for one in (store, rows):
            assert cells(one.table(table, names, *ids)) == expected
            parts = [cells(part) for part in one.parts(table, names, *ids)]
            whole = {name: [cell for part in parts for cell in part[name]] for name in names}
            assert whole == expected


def test_a_few_rows_of_a_piece_do_not_keep_it(database):
    """With many workers a piece has rows of many of them, and the columns of each are cached."""
    with Store(database) as store:
        for ids, rows in (((8, 10), 2), ((7, 14), 7)):
            for column in store.table("event", ("id", "start_ns"), *ids).values():
                assert len(column.values) == rows
                base = column.values if column.values.base is None else column.values.base
                assert base.nbytes < 2 * column.values.nbytes + 1


def test_parts_are_bounded(database, without, monkeypatch):
    monkeypatch.setattr(packed, "MOST_ROWS", ROWS)
    for path in (database, without):
        with Store(path) as store:
            sizes = [len(part["id"].values) for part in store.parts("range", ("id", "text"), 0, LAST_ID)]
        assert len(sizes) > 3
        assert max(sizes) <= ROWS


def test_reports_are_those_of_the_rows(database, without):
    one, other = pyprof.load(database), pyprof.load(without)
    for report in every():
        assert one.report(report.name).equals(other.report(report.name)), report.name


def test_small_tables_have_no_pieces(tmp_path, without):
    with Store(without) as store:
        pyprof.load(without).save(tmp_path / "again_dldb.sqlite")
        assert not store.rows("select 1 from packed")


def table(*ids):
    return pa.table({"id": list(ids), "name": [None if one % 3 == 0 else one * 10 for one in ids]})


def test_parts_of_any_size_become_pieces(monkeypatch):
    monkeypatch.setattr(packed, "LEAST_ROWS", 8)
    monkeypatch.setattr(packed, "MOST_ROWS", 4)
    packer = packed.Packer()
    parts = [table(*range(a, b)) for a, b in pairwise((0, 1, 3, 14, 15))]
    pieces = [piece for part in parts for piece in packer.add("api", part)]
    pieces += packer.end()
    assert [(piece.first, piece.last, piece.rows) for piece in pieces] == [
        (0, 3, 4),
        (4, 7, 4),
        (8, 11, 4),
        (12, 14, 3),
    ]
    assert packed.unpack(pieces[1].data, ["name"], 4)["name"].to_pylist() == [40, 50, None, 70]


def test_rows_out_of_order_are_read_from_the_table(monkeypatch):
    monkeypatch.setattr(packed, "LEAST_ROWS", 1)
    for parts in ([table(0, 2, 1)], [table(0, 5), table(5, 6)], [table(4), table(3)]):
        packer = packed.Packer()
        assert not [piece for part in parts for piece in packer.add("op", part)]
        assert not list(packer.end())
        assert packer.unordered == {"op"}


@pytest.mark.parametrize(
    "data",
    [
        b"", b"PAR1", b"no parquet" * 9, None, 5, "text",
        packed.pack(packed.integers(table(0, 1))),  # fewer rows than the table
        packed.pack(pa.table({"id": list(range(ROWS))})),  # fewer columns
    ],
)  # fmt: skip
def test_damaged_pieces_are_named(data, database, tmp_path):
    path = tmp_path / "odd_dldb.sqlite"
    shutil.copyfile(database, path)
    change(path, "update packed set data = ? where source = 'api'", data)
    with Store(path) as store, pytest.raises(FormatError, match=r"odd_dldb\.sqlite is damaged"):
        store.table("api", ("id", "start_ns"), 0, LAST_ID)


def test_a_file_from_before_opens(database, without):
    change(without, "drop table packed")
    with Store(database) as store, Store(without) as rows:
        assert not rows.is_packed("event")
        expected = store.table("event", ("id", "name"), 0, LAST_ID)
        assert cells(rows.table("event", ("id", "name"), 0, LAST_ID)) == cells(expected)
        assert isinstance(expected["id"], Column)
