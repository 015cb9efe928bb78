# SPDX-License-Identifier: Apache-2.0
"""Files of the profile database: written whole or not at all, read without being changed.

`PRAGMA application_id` says that a file is ours, `meta` which schema it has. A minor version adds tables or columns:
a file of an older one is read through a copy in memory or beside it, brought up to date; the file stays as it is. A
newer minor version, or another major one, is refused with both versions named.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import pyprof
from pyprof import place
from pyprof.db.damage import damage
from pyprof.errors import WHERE, FormatError, PyProfError, install
from pyprof.model import Column, Ints
from pyprof.parse.database import APPLICATION_ID, check_interrupt, is_profile

MAJOR, MINOR = 1, 2
SUFFIX = "_dldb.sqlite"
_PAGE = 8192
# After the rows are there: what a page asks for by something else than the id.
_INDEXES = ("create index event_by_start on event (device, stream, start)",)

is_database = is_profile  # of any version


class NotWrittenError(PyProfError):
    """A file that could not be changed; the second argument says why."""

    def __init__(self, sentence: str, reason: str):
        super().__init__(sentence)
        self.reason = reason


@contextmanager
def written(path: str) -> Iterator[str]:
    """The name of a file to fill, which becomes `path` at the end or nothing. Raises PyProfError."""
    from adbc_driver_sqlite.dbapi import Error as AdbcError

    try:
        with place.named(path) as name:
            yield name
            _settle(Path(path))
    except (OSError, sqlite3.Error, AdbcError, NotWrittenError) as error:
        check_interrupt(error)
        reason = str(error).partition("\n")[0]  # a second line is the query
        if isinstance(error, OSError) and error.errno:
            reason = os.strerror(error.errno)
        if isinstance(error, NotWrittenError):  # of a scratch file that nobody knows
            reason = error.reason
        raise PyProfError(
            f"{path}: the database could not be written ({reason}). Name another file."
        ) from error


def _settle(path: Path) -> None:
    """Before a file is replaced: take back what a killed process left half done in it. Its journal, applied to the new
    file, would damage that; without it the old one, if we are killed now, would be damaged."""
    journal = _journal(path)
    if not journal.exists():
        return
    with suppress(sqlite3.Error), closing(_connect(path, "rw")) as connection:
        connection.execute("select 1 from sqlite_master limit 1").fetchall()
    with suppress(FileNotFoundError):
        journal.unlink()


def _journal(path: Path) -> Path:
    path = path.resolve()  # beside the file, not beside a link to it
    return path.with_name(path.name + "-journal")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(str(path.resolve()))}?mode={mode}", uri=True, isolation_level=None, timeout=30,
        check_same_thread=False,
    )  # fmt: skip


def create(name: str, tables: Iterable[tuple[str, pa.Table]], meta: dict[str, str]) -> None:
    """Fill an empty file with facts."""
    with closing(_unsafe(name)) as connection:
        connection.executescript(f"pragma page_size = {_PAGE}; pragma application_id = {APPLICATION_ID};")
        connection.executescript(files("pyprof.db").joinpath("schema.sql").read_text())
    for table, rows in tables:
        if rows.num_rows:
            _ingest(name, table, rows)
    with closing(_unsafe(name)) as connection:
        facts = {
            "schema_major": str(MAJOR), "schema_minor": str(MINOR), "created_schema": f"{MAJOR}.{MINOR}",
            "writer_version": pyprof.__version__, **meta,
        }  # fmt: skip
        connection.executemany("insert or replace into meta values (?, ?)", facts.items())
        for index in _INDEXES:
            connection.execute(index)
        connection.executescript("pragma analysis_limit = 1000; analyze;")


def _ingest(name: str, table: str, rows: pa.Table) -> None:
    """Append Arrow columns: half the time of executemany."""
    import adbc_driver_sqlite.dbapi as adbc

    with adbc.connect(name, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("pragma journal_mode = off")
        cursor.execute("pragma synchronous = off")
        cursor.adbc_ingest(table, rows, mode="append")


def _unsafe(name: str) -> sqlite3.Connection:
    """A connection to a file that nobody else knows yet: nothing to protect."""
    connection = sqlite3.connect(name, isolation_level=None)
    connection.executescript("pragma journal_mode = off; pragma synchronous = off;")
    return connection


def _tables() -> dict[str, list[str]]:
    """The tables of the schema and their columns."""
    return {table: list(columns) for table, columns in _types().items()}


@cache
def _types() -> dict[str, dict[str, str]]:
    """Tables, columns and types of the schema."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(files("pyprof.db").joinpath("schema.sql").read_text())
        names = [row[0] for row in connection.execute("select name from sqlite_master where type = 'table'")]
        return {
            name: {row[1]: row[2].upper() for row in connection.execute(f"pragma table_info({name})")}
            for name in names
        }


_Value = TypeVar("_Value")
_KEPT = 2_000_000  # events of a recording whose columns several reports share; of more they are read again each time


# Tables whose rows are numbered from 0; of numbers up to _GAPS nobody counts.
_NUMBERED = (
    "worker", "thread", "stack", "source", "string", "operator", "kernel_name", "geometry", "site", "iteration_set",
    "aggregation",
)  # fmt: skip
_GAPS = 100_000


class Store:
    """A database opened for reading; `writing` is for the one who adds an aggregation. Close it, or use `with`."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = self._file = Path(path)
        self._recovered: tempfile.TemporaryDirectory[str] | None = None
        self._known: dict[Any, Any] = {}
        _check(self.path)
        self.connection = self._open("ro")
        try:
            self._check_version()
        except BaseException:
            self.close()
            raise

    def _open(self, mode: str) -> sqlite3.Connection:
        connection = None
        try:
            connection = _connect(self._file, mode)
            try:
                connection.execute("select 1 from sqlite_master limit 1").fetchall()
            except sqlite3.OperationalError:
                if not _journal(self._file).exists():
                    raise
                connection.close()
                connection = self._recover(mode)
            return connection
        except (sqlite3.DatabaseError, OSError) as error:
            if connection is not None:
                connection.close()
            if isinstance(error, (sqlite3.OperationalError, OSError)):
                raise FormatError(f"{self.path}: SQLite cannot read it ({error}).") from error
            raise FormatError(
                f"{self.path}: is damaged ({error}). Make it anew from the recording."
            ) from error

    def once(self, key: Any, make: Callable[[], _Value]) -> _Value:
        """What several reports work out of facts, which never change: once, while the recording is small enough to keep
        it. It is shared: not to be written to."""
        if key in self._known:
            value: _Value = self._known[key]
            return value
        value = make()
        if self.once("events", self._events) <= _KEPT:
            self._known[key] = value
        return value

    def _events(self) -> int:
        count = int(self.rows("select coalesce(sum(calls), 0) from event_block")[0][0])
        self._known["events"] = count
        return count

    def _recover(self, mode: str) -> sqlite3.Connection:
        """A process was killed while it added to the file: put back what it was before, which a connection that only
        reads cannot. Where the file may not be written that is done to a copy."""
        try:
            with closing(_connect(self._file, "rw")) as connection:
                connection.execute("select 1 from sqlite_master limit 1").fetchall()
        except sqlite3.OperationalError:
            self._recovered = tempfile.TemporaryDirectory(prefix="pyprof-")
            copy = Path(self._recovered.name) / "profile.sqlite"
            shutil.copyfile(_journal(self._file), _journal(copy))
            shutil.copyfile(self._file, copy)
            self._file = copy
            with closing(_connect(copy, "rw")) as connection:
                connection.execute("select 1 from sqlite_master limit 1").fetchall()
        return _connect(self._file, mode)

    def _check_version(self) -> None:
        try:
            meta = dict(self.connection.execute("select name, value from meta"))
        except sqlite3.DatabaseError as error:
            raise self.damaged(error) from error
        found = f"{meta.get('schema_major', '?')}.{meta.get('schema_minor', '?')}"
        if found != f"{MAJOR}.{MINOR}":
            raise FormatError(
                f"{self.path} was written by schema {found}, this PyProf reads {MAJOR}.{MINOR}. "
                f"Make it anew from the recording, or upgrade: {install()} {WHERE} of a later version."
            )
        for table, columns in _tables().items():
            there = {row[1] for row in self.connection.execute(f"pragma table_info({table})")}
            if missing := [column for column in columns if column not in there]:
                raise self.damaged(f"table {table} lacks {', '.join(missing)}")
        for table in _NUMBERED:  # of which work makes arrays
            if self._has_gaps(table):
                raise self.damaged(f"table {table} has numbers with gaps")

    def _has_gaps(self, table: str) -> bool:
        def ask(what: str) -> tuple[Any, ...]:
            found: tuple[Any, ...] = self.connection.execute(f"select {what} from {table}").fetchone()
            return found

        try:
            least, most = ask("min(id), max(id)")
            return most is not None and (least < 0 or (most > _GAPS and most > 2 * ask("count(*)")[0]))
        except sqlite3.DatabaseError as error:
            raise self.damaged(error) from error

    def damaged(self, reason: object) -> FormatError:
        """The error to raise for what the file should not hold, or lacks."""
        text = str(reason).partition("\n")[0]
        return FormatError(f"{self.path}: is damaged ({text}). Make it anew from the recording.")

    @property
    def uri(self) -> str:
        """The file for SQLite, to be read."""
        return f"file:{quote(str(self._file.resolve()))}?mode=ro"

    def close(self) -> None:
        self.connection.close()
        if self._recovered is not None:
            self._recovered.cleanup()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def copy(self, name: str) -> None:
        """Fill an empty file with all that is here, as one moment has it, whoever is writing."""
        with closing(_unsafe(name)) as target:
            self.connection.backup(target)

    @property
    def meta(self) -> dict[str, str]:
        return dict(self.connection.execute("select name, value from meta"))

    def rows(self, query: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query of ours. Raises FormatError where the file is damaged."""
        return self.named(query, parameters)[1]

    def named(
        self, query: str, parameters: Sequence[Any] | dict[str, Any] = ()
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Names of the columns, and all rows of a query of ours. Raises FormatError where the file is damaged."""
        try:
            cursor = self.connection.execute(query, parameters)
            return [column[0] for column in cursor.description], cursor.fetchall()
        except sqlite3.DatabaseError as error:
            raise self.damaged(error) from error

    def columns(self, query: str, parameters: Sequence[Any] = ()) -> dict[str, Column]:
        """Integer columns of a query by name; NULL is missing. Raises FormatError where the file is damaged."""
        import adbc_driver_sqlite.dbapi as adbc

        try:
            with adbc.connect(self.uri, autocommit=True) as connection, connection.cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": "65536"})
                cursor.execute(query, list(parameters) or None)
                table = cursor.fetch_arrow_table()
            return {name: _column(table.column(name)) for name in table.column_names}
        except (adbc.Error, pa.ArrowException, OSError, ValueError) as error:  # text where a number belongs
            check_interrupt(error)
            raise self.damaged(error) from error

    @contextmanager
    def sound(self) -> Iterator[None]:
        """Around work with what the file holds. Where that fails and the file holds what no profile does, the file is
        at fault: FormatError. Else nobody knows: PyProfError."""
        try:
            yield
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, PyProfError):
                raise
            if found := damage(_types(), self.rows):
                raise self.damaged(found) from error
            raise PyProfError(
                f"{self.path}: this could not be worked out ({type(error).__name__}: {error}): the file holds what "
                "no profile does, or PyProf has a fault. Make it anew from the recording, or report it."
            ) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it or nothing, whatever happens."""
        connection = self._open("rw")
        try:
            connection.execute("begin immediate")
            yield connection
            connection.execute("commit")
        except sqlite3.OperationalError as error:
            raise NotWrittenError(f"{self.path}: cannot be changed ({error}).", str(error)) from error
        finally:
            connection.close()


def _column(array: pa.ChunkedArray) -> Column:
    values: npt.NDArray[np.int64]
    if array.null_count == 0:
        values = array.to_numpy().astype(np.int64, copy=False)
        return Column(values)
    present: Ints = ~np.asarray(array.is_null().to_numpy(zero_copy_only=False), bool)
    return Column(array.fill_null(0).to_numpy().astype(np.int64, copy=False), present.astype(bool))


def _check(path: Path) -> None:
    if not path.exists():
        raise FormatError(f"{path}: no such file; give the path of a profile database.")
    if path.is_dir():
        raise FormatError(f"{path}: is a directory; give the path of a profile database.")
    if not is_database(path):
        raise FormatError(f"{path}: not a profile database.")
