# SPDX-License-Identifier: Apache-2.0
"""Databases of every earlier schema open and say what the PyProf that wrote them said; a newer one is refused.

tests/traces/databases has one of each schema, and the reports that the same version printed of it: a recording of four
steps, with a convolution by Winograd, aggregated over all iterations and over 1 and 2. The one of 1.4, the last without
units in the names of columns, also has collectives, copies, allocations and waits for a DataLoader.
"""

from __future__ import annotations

import gzip
import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import pyprof
from pyprof.core.errors import VersionError
from pyprof.facts import upgrade
from pyprof.profiles import Selection
from pyprof.store.files import MAJOR, MINOR, OLDER, schema
from pyprof.store.validate import damage
from tests import cli

FOLDER = Path(__file__).resolve().parents[1] / "traces" / "databases"
ORDER = {"group_node": "name", "module": "module"}
SCHEMAS = [f"{major}.{minor}" for major, minor in sorted(OLDER)]


@pytest.fixture(params=SCHEMAS)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A database, and the reports of its own time."""
    path = tmp_path / "old_dldb.sqlite"
    path.write_bytes(gzip.decompress((FOLDER / f"schema_{request.param}.sqlite.gz").read_bytes()))
    return path, json.loads((FOLDER / f"schema_{request.param}.json").read_text())


def same(new: Any, old: Any) -> bool:
    return new == old or (isinstance(new, float) and isinstance(old, float) and math.isclose(new, old, rel_tol=1e-9))


def test_reports_say_what_they_said(old: tuple[Path, dict[str, Any]]):
    path, reports = old
    before = path.read_bytes()
    prof = pyprof.load(path)
    prof.select(Selection(1, 2))
    for name in reports.keys() - {"summary"}:
        rows = json.loads(prof.report(name).to_json(orient="records"))
        assert len(rows) == len(reports[name]), name
        formers = reports[name]
        if name in ("group_node", "module"):  # they were in the order of their names
            rows, formers = (sorted(table, key=lambda row: row[ORDER[name]]) for table in (rows, formers))
        for row, former in zip(rows, formers):
            common = former.keys() & row.keys()
            assert len(common) > len(former) / 2
            if str(row.get("roofline_why")).startswith("it computes by Winograd"):
                common -= {"efficiency", "roofline_known"}  # they were of the definition's FLOPs, 231 %
            assert {key: row[key] for key in common if not same(row[key], former[key])} == {}, name
    assert path.read_bytes() == before
    # Executed FLOPs of a convolution by Winograd are unknown, as they are today.
    assert (
        prof.database.rows(
            """select e.hardware_ps from event e join kernel_name n on n.id = e.name where n.name like '%winograd%'"""
        )
        == [(None,)] * 4
    )


def test_every_cell_of_the_last_schema_without_units_is_kept(tmp_path: Path):
    """Facts are copied under their new names, and what is derived from them is computed again."""
    old, new = tmp_path / "old_dldb.sqlite", tmp_path / "new_dldb.sqlite"
    old.write_bytes(gzip.decompress((FOLDER / "schema_1.4.sqlite.gz").read_bytes()))
    upgrade.upgrade(old, str(new))
    later = {"verdict", "host_start_ns", "host_end_ns", "cut_off", "steady", "why"}
    with closing(sqlite3.connect(old)) as before, closing(sqlite3.connect(new)) as after:
        added = {
            "verdict",
            "track",
            "tile",
            "label",
            "packed",
            "place",
            "launch",
            "moment",
            "moment_operator",
            "loader_batch",
        }
        for table in schema().keys() - added - {"meta", "aggregation"}:
            query = f'select * from "{table}"'
            found = after.execute(query)
            names = [column[0] for column in found.description]
            rows = [tuple(cell for name, cell in zip(names, row) if name not in later) for row in found]
            assert rows == before.execute(query).fetchall(), table
        assert after.execute("select * from verdict").fetchall() == [(0, None, None)]
        assert after.execute("select distinct verdict from event").fetchall() == [(0,)]


def test_aggregations_are_kept_and_nothing_is_damaged(old: tuple[Path, dict[str, Any]], tmp_path: Path):
    path, _ = old
    assert not upgrade.is_current(path)
    with closing(sqlite3.connect(path)) as connection:
        former = connection.execute('select "first", "last" from aggregation order by id').fetchall()
    new = tmp_path / "new_dldb.sqlite"
    assert cli.main(["save", str(path), "-o", str(new)]) == 0
    assert upgrade.is_current(new)
    prof = pyprof.load(new)
    assert [(one.first, one.last) for one in prof.aggregations] == former == [(0, 3), (1, 2)]
    assert prof.kernels["flops"].sum() > 0
    assert damage(schema(), prof.database.rows) is None


@pytest.mark.parametrize("old", SCHEMAS[:1], indirect=True)
def test_commands_read_an_older_database(old: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]):
    path, reports = old
    assert cli.main(["report", "op_type", "--format", "json", str(path)]) == 0
    (rows,) = json.loads(capsys.readouterr().out).values()
    assert {row["Op Type"] for row in rows} == {row["type"] for row in reports["op_type"]}


@pytest.mark.parametrize(("major", "minor"), [(MAJOR, MINOR + 1), (MAJOR + 1, 0)])
def test_a_newer_one_is_refused_with_what_to_do(major: int, minor: int, tmp_path: Path, capsys):
    path = tmp_path / "new.sqlite"
    path.write_bytes(gzip.decompress((FOLDER / "schema_1.3.sqlite.gz").read_bytes()))
    set_schema(path, str(major), str(minor))
    assert cli.main(["report", "op_type", str(path)]) == 1
    sentence = capsys.readouterr().err
    assert f"was written by schema {major}.{minor}, this PyProf reads up to {MAJOR}.{MINOR}. Upgrade:" in sentence


@pytest.mark.parametrize(
    ("major", "minor"), [("0", "9"), ("1", "-1"), ("1", "5"), ("1", "x"), ("", "3"), ("1", "9" * 30)]
)
def test_a_schema_that_never_was_is_a_sentence(major: str, minor: str, tmp_path: Path):
    path = tmp_path / "odd.sqlite"
    path.write_bytes(gzip.decompress((FOLDER / "schema_1.3.sqlite.gz").read_bytes()))
    set_schema(path, major, minor)
    with pytest.raises(VersionError, match="was written by schema"):
        pyprof.load(path)


@pytest.mark.parametrize(
    "change",
    [
        "drop table kernel_name", "alter table event rename column start to begun",
        "alter table worker rename column start to begun", "update worker set start = 'x'",
        "update api set dur = 'x'",
    ],
)  # fmt: skip
def test_a_damaged_older_one_is_a_sentence(change: str, tmp_path: Path, capsys):
    path = tmp_path / "old.sqlite"
    path.write_bytes(gzip.decompress((FOLDER / "schema_1.1.sqlite.gz").read_bytes()))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(change)
    assert cli.main(["report", "op_type", str(path)]) == 1
    assert "is damaged" in capsys.readouterr().err


def set_schema(path: Path, major: str, minor: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("update meta set value = ? where name = 'schema_major'", (major,))
        connection.execute("update meta set value = ? where name = 'schema_minor'", (minor,))


def test_every_schema_has_its_database():
    assert sorted(path.name for path in FOLDER.glob("*.gz")) == [f"schema_{one}.sqlite.gz" for one in SCHEMAS]
