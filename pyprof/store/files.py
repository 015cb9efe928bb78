# SPDX-License-Identifier: Apache-2.0
"""Files of the profile database: written atomically, read without being changed.

`PRAGMA application_id` marks a file as PyProf's, `meta` has the schema version. A newer version is refused with both
versions named; an older one is converted (`pyprof.facts.upgrade`). A file may come from an untrusted source:
`access` describes the checks before anything in it is read.
"""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import pyprof
from pyprof.core import atomic_file, inputs, scratch
from pyprof.core.arguments import TIMEOUT
from pyprof.core.errors import (
    WHERE,
    DamagedError,
    FormatError,
    PyProfError,
    UsageError,
    VersionError,
    install,
)
from pyprof.core.model import Bools, Column, Ints
from pyprof.core.sqlite_file import APPLICATION_ID, check_interrupt, is_profile
from pyprof.store import access, packed
from pyprof.store.validate import damage

MAJOR, MINOR = 2, 4
OLDER = frozenset(
    {*((1, minor) for minor in range(5)), *((2, minor) for minor in range(4))}
)  # schemas that `pyprof.facts.upgrade` converts
SUFFIX = "_dldb.sqlite"
_PAGE = 8192
# Created after the rows are written: for queries of the page by other columns than the id.
_INDEXES = ("create index event_by_start on event (device, stream, start_ns)",)

is_database = is_profile  # of any version


class NotWrittenError(PyProfError):
    """A file could not be changed; the second argument is the reason."""

    def __init__(self, sentence: str, reason: str):
        super().__init__(sentence)
        self.reason = reason


@contextmanager
def written(path: str) -> Iterator[str]:
    """Yield the name of a file to fill, which replaces `path` at the end or not at all. Raises PyProfError."""
    from adbc_driver_sqlite.dbapi import Error as AdbcError

    try:
        with atomic_file.named(path) as name:
            yield name
            _roll_back(Path(path))
    except (OSError, sqlite3.Error, AdbcError, NotWrittenError) as error:
        check_interrupt(error)
        reason = str(error).partition("\n")[0]  # the second line is the query
        if isinstance(error, OSError) and error.errno:
            reason = os.strerror(error.errno)
        if isinstance(error, NotWrittenError):  # the scratch file's name means nothing to the user
            reason = error.reason
        where, advice = path, "Name another file."
        if "Could not load" in reason:  # ADBC, of the driver that is installed with it
            raise PyProfError(f"a library of SQLite could not be loaded ({reason}); memory may be short.") from error
        if top := scratch.around(path):
            where, advice = top, "Set TMPDIR to a folder with more room."
        raise PyProfError(f"{where}: the database could not be written ({reason}). {advice}") from error


def _roll_back(path: Path) -> None:
    """Roll back what a killed process left half done in a file, before the file is replaced.

    Its journal, applied to the new file, would damage that. Without the journal, the old file would be damaged if
    this process were killed now.
    """
    journal = access.journal(path)
    if not journal.exists():
        return
    access.check_journal(path)
    with suppress(sqlite3.Error), closing(access.connect(path, "rw")) as connection:
        connection.execute(_FIRST).fetchall()
    with suppress(FileNotFoundError):
        journal.unlink()


_FIRST = "select 1 from sqlite_master limit 1"  # rolls a journal back


def create(name: str, tables: Iterable[tuple[str, pa.Table]], meta: dict[str, str]) -> None:
    """Fill an empty file with facts. Those of the summary of a fleet have SUMMARY."""
    with closing(unsafe(name)) as connection:
        connection.executescript(f"pragma page_size = {_PAGE}; pragma application_id = {APPLICATION_ID};")
        connection.executescript(_statements(SUMMARY in meta))
    packer = packed.Packer()
    for table, rows in tables:
        if rows.num_rows:
            ingest(name, table, rows)
            insert_packed(name, packer.add(table, rows))
    insert_packed(name, packer.end())
    with closing(unsafe(name)) as connection:
        connection.executemany("delete from packed where source = ?", [(table,) for table in packer.unordered])
        facts = {
            "schema_major": str(MAJOR), "schema_minor": str(MINOR), "created_schema": f"{MAJOR}.{MINOR}",
            "writer_version": pyprof.__version__, **meta,
        }  # fmt: skip
        # A file's name may be any bytes.
        encoded = {name: text.encode("utf-8", "backslashreplace").decode() for name, text in facts.items()}
        connection.executemany("insert or replace into meta values (?, ?)", encoded.items())
        for index in _INDEXES:
            connection.execute(index)
        connection.executescript("pragma analysis_limit = 1000; analyze;")


def insert_packed(name: str, pieces: Iterable[packed.Piece]) -> None:
    """Append pieces to a file that no other process knows yet."""
    for piece in pieces:
        with closing(unsafe(name)) as connection:
            connection.execute("insert into packed values (?, ?, ?, ?, ?)", piece)


def ingest(name: str, table: str, rows: pa.Table) -> None:
    """Append Arrow columns, in half the time of executemany."""
    import adbc_driver_sqlite.dbapi as adbc

    with adbc.connect(name, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("pragma journal_mode = off")
        cursor.execute("pragma synchronous = off")
        cursor.adbc_ingest(table, rows, mode="append")


def unsafe(name: str) -> sqlite3.Connection:
    """Return a connection without a journal to a file that no other process knows yet."""
    connection = sqlite3.connect(name, isolation_level=None)
    connection.executescript("pragma journal_mode = off; pragma synchronous = off;")
    return connection


def _statements(of_summary: bool) -> str:
    """Return the statements that create the tables."""
    names = ["schema.sql", "summary.sql"] if of_summary else ["schema.sql"]
    return "".join(files("pyprof.store").joinpath(name).read_text() for name in names)


@cache
def schema(of_summary: bool = False) -> dict[str, dict[str, str]]:
    """Return the tables of a profile database, or of the summary of a fleet, their columns and types."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_statements(of_summary))
        names = [row[0] for row in connection.execute("select name from sqlite_master where type = 'table'")]
        return {
            name: {row[1]: row[2].upper() for row in connection.execute(f"pragma table_info({name})")} for name in names
        }


_Value = TypeVar("_Value")
# Reports share the columns of recordings with up to this many events; larger ones are read again each time.
_MAX_CACHED_EVENTS = 2_000_000


# Tables whose rows are numbered from 0. Gaps do not matter for numbers up to _MAX_GAP.
_NUMBERED = (
    "worker", "thread", "stack", "source", "string", "operator", "kernel_name", "geometry", "site", "iteration_set",
    "aggregation", "track", "label",
)  # fmt: skip
_MAX_GAP = 100_000
_SELECT = "select {} from {} where id >= ? and id < ? order by id"
SUMMARY = "fleet.summary"  # fact of a database that has the events of collectives alone (pyprof/fleet/summary.py)
# Tables that files of this schema lack if they were written before these were added.
_OPTIONAL = {"packed", "place", "loader_batch", "launch", "moment", "moment_operator"}


class Store:
    """A database opened for reading; `writing` adds an aggregation. Close it, or use `with`."""

    timeout: ClassVar[float] = TIMEOUT  # seconds that a query may take, of a file that is opened from now on

    def __init__(
        self,
        path: str | os.PathLike[str],
        own: bool = False,
        label: str | None = None,
        any_schema: bool = False,
        summary: bool = False,
    ):
        """Open a database.

        `own`: this process wrote it, and its queries may take any time. `label`: the name of the file in messages.
        `any_schema`: accept other schemas, for an upgrade. `summary`: accept the summary of a fleet.
        Raises FormatError, and VersionError for another schema.
        """
        self.path = self._file = Path(path)
        self.label = str(path) if label is None else label
        self._seconds = math.inf if own else self.timeout
        self._known: dict[Any, Any] = {}
        self._began = time.monotonic()
        self._closing = ExitStack()
        with ExitStack() as on_error:
            on_error.callback(self.close)
            _check(self.path)
            self.connection = self._open()
            self._closing.callback(self.connection.close)
            if not any_schema:
                self.check_schema()
                if not summary and self.is_summary:
                    raise FormatError(
                        f"{self.label} is the summary of a fleet, which has no single events; show it with "
                        "pyprof view or pyprof report, or open the database of a rank beside it (docs/fleet.md)."
                    )
            on_error.pop_all()

    def _open(self) -> sqlite3.Connection:
        try:
            try:
                return self._checked("ro")
            except sqlite3.OperationalError as error:
                if _code(error) == sqlite3.SQLITE_BUSY:
                    raise PyProfError(
                        f"{self.label} is being changed by another process. Try again when it has finished."
                    ) from error
                if not access.journal(self._file).exists():
                    raise
                self._recover()
                return self._checked("ro")
        except (sqlite3.DatabaseError, UnicodeDecodeError, OSError) as error:
            if _code(error) == sqlite3.SQLITE_INTERRUPT:
                raise self._ended() from error
            if isinstance(error, (sqlite3.OperationalError, OSError)):
                raise FormatError(f"{self.label}: SQLite cannot read it ({error}).") from error
            raise self.damaged(error) from error

    def _checked(self, mode: str) -> sqlite3.Connection:
        """Connect with the permitted kinds of statements only. Raises FormatError for a database that holds code."""
        connection = access.connect(self._file, mode)
        with ExitStack() as on_error:
            on_error.callback(connection.close)
            self._began = time.monotonic()
            access.end_when(connection, self._over)
            code = access.code(connection)
            if code is not None:
                raise DamagedError(
                    f"{self.label} holds code ({code}), which no profile database does. Build it again from the "
                    "recording."
                )
            access.restrict(connection, mode == "rw")
            on_error.pop_all()
        return connection

    def _over(self) -> bool:
        """Return whether the query takes too long."""
        return time.monotonic() - self._began > self._seconds

    def _ended(self) -> PyProfError:
        return PyProfError(
            f"{self.label}: a query took more than {self._seconds:g} s and was stopped. Raise the limit with "
            "--timeout, or build the database again from the recording."
        )

    def cached(self, key: Any, make: Callable[[], _Value], small: bool = False) -> _Value:
        """Return a value that several reports compute from facts, which never change.

        It is cached if the recording is small enough, or if the value is `small` for any recording. The value is
        shared: do not modify it.
        """
        if key in self._known:
            value: _Value = self._known[key]
            return value
        value = make()
        if small or self.cached("events", self._events) <= _MAX_CACHED_EVENTS:
            self._known[key] = value
        return value

    def _events(self) -> int:
        count = self._known["events"] = int(self.rows("select count(*) from event")[0][0])
        return count

    def _recover(self) -> None:
        """Restore the state before an interrupted write, in a copy: a process was killed while it added to the file.

        The file itself is opened for writing only to add to it.
        """
        access.check_journal(self._file)
        folder = self._closing.enter_context(scratch.Folder())
        copy = Path(folder) / "profile.sqlite"
        shutil.copyfile(access.journal(self._file), access.journal(copy))
        shutil.copyfile(self._file, copy)
        self._file = copy
        access.check_journal(copy)
        with closing(access.connect(copy, "rw")) as connection:
            connection.execute(_FIRST).fetchall()

    @property
    def schema(self) -> tuple[int, int]:
        """The schema's major and minor number, -1 for one that is not a number."""
        meta = self.meta
        parts = [str(meta.get(f"schema_{part}", "")) for part in ("major", "minor")]  # a damaged file has any type
        major, minor = (int(part) if part.isascii() and part.isdecimal() and len(part) < 9 else -1 for part in parts)
        return major, minor

    def check_schema(self, older: bool = False) -> None:
        """Raise VersionError for another schema, unless it is an `older` one to convert; FormatError for damage."""
        major, minor = self.schema
        current = (major, minor) == (MAJOR, MINOR)
        if not current and not (older and (major, minor) in OLDER):
            newer = (major, minor) > (MAJOR, MINOR)
            advice = (
                f"Upgrade: {install()} {WHERE} of a later version" if newer else "Build it again from the recording"
            )
            raise VersionError(
                f"{self.label} was written by schema {major}.{minor}, this PyProf reads up to {MAJOR}.{MINOR}. "
                f"{advice}.",
                newer,
            )
        if current:
            self._check_columns()
            # What is wrong in them changes figures without an error. They are small.
            if fault := damage({table: schema()[table] for table in ("iteration", "pause")}, self.rows):
                raise self.damaged(fault)
        present = self.tables()
        for table in present.intersection(_NUMBERED):  # they become arrays of this size
            if self._has_gaps(table):
                raise self.damaged(f"table {table} has numbers with gaps")

    def tables(self) -> set[str]:
        """Return the names of the tables."""
        return {name for (name,) in self.rows("select name from sqlite_master where type = 'table'")}

    def _check_columns(self) -> None:
        existing = self.tables()
        for table, columns in schema(self.is_summary).items():
            if table in _OPTIONAL - existing:
                continue
            # table_info omits generated columns.
            present = {row[1] for row in self.rows(f"pragma table_info({table})")}
            if missing := [column for column in columns if column not in present]:
                raise self.damaged(f"table {table} lacks {', '.join(missing)}")

    def _has_gaps(self, table: str) -> bool:
        ((least, most),) = self.rows(f"select min(id), max(id) from {table}")
        if most is None:
            return False
        if not (isinstance(least, int) and isinstance(most, int)):  # its column has no type any more
            raise self.damaged(f"table {table} has a number of the wrong type")
        return bool(least < 0 or (most > _MAX_GAP and most > 2 * self.rows(f"select count(*) from {table}")[0][0]))

    def damaged(self, reason: object) -> DamagedError:
        """Return the error to raise for a file with invalid or missing content."""
        text = str(reason).partition("\n")[0]
        return DamagedError(f"{self.label} is damaged ({text}). Build it again from the recording.")

    @property
    def uri(self) -> str:
        """The URI of the file, for reading."""
        return access.uri(self._file, "ro")

    def close(self) -> None:
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def copy(self, name: str) -> None:
        """Copy the database, as of one moment, into an empty file, even while another process writes."""
        with closing(unsafe(name)) as target:
            self.connection.backup(target)

    @property
    def meta(self) -> dict[str, str]:
        return dict(self.rows("select name, value from meta"))

    @cached_property
    def is_summary(self) -> bool:
        """Flag for the summary of a fleet, which has no events but those of collectives."""
        return SUMMARY in self.meta

    def rows(self, query: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query. Raises FormatError if the file is damaged."""
        return self.named(query, parameters)[1]

    def named(
        self, query: str, parameters: Sequence[Any] | dict[str, Any] = ()
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return the names of the columns and all rows of a query. Raises FormatError if the file is damaged."""
        with self._query():
            cursor = self.connection.execute(query, parameters)
            return [column[0] for column in cursor.description], cursor.fetchall()

    def each(self, query: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query one by one. Raises FormatError if the file is damaged."""
        with self._query():
            yield from self.connection.execute(query, parameters)

    @contextmanager
    def _query(self) -> Iterator[None]:
        self._began = time.monotonic()
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if _code(error) == sqlite3.SQLITE_INTERRUPT:
                raise self._ended() from error
            if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
                raise UsageError(f"{self.label} is closed: keep its profile while you use its source.") from error
            raise self.damaged(error) from error

    def columns(self, query: str, parameters: Sequence[Any] = ()) -> dict[str, Column]:
        """Return the integer columns of a query by name; NULL is missing. Raises FormatError if the file is damaged."""
        import adbc_driver_sqlite.dbapi as adbc

        self._began = time.monotonic()
        try:
            with adbc.connect(self.uri, autocommit=True) as connection, connection.cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": "65536"})
                cursor.execute(query, list(parameters) or None)
                reader = cursor.fetch_record_batch()
                batches = []
                # There is no progress handler here. The file holds no code, so rows keep coming.
                for batch in reader:
                    if self._over():
                        raise self._ended()
                    batches.append(batch)
                table = pa.Table.from_batches(batches, reader.schema)
            return {name: _column(table.column(name)) for name in table.column_names}
        except (adbc.Error, pa.ArrowException, OSError, ValueError) as error:  # text where a number belongs
            check_interrupt(error)
            raise self.damaged(error) from error

    def table(self, table: str, names: Sequence[str], first: int, last: int) -> dict[str, Column]:
        """Return integer columns of the rows with first <= id < last of a table in `packed.TABLES`, in the order of the
        ids. Raises FormatError if the file is damaged."""
        pieces = self._packed(table, first, last)
        if pieces is None:
            return self.columns(_SELECT.format(", ".join(names), table), (first, last))
        size, filled = sum(rows for *_, rows in pieces), 0
        values = {name: np.empty(size, np.int64) for name in names}
        present: dict[str, Bools] = {}
        for piece in pieces:
            part = self._unpack(table, names, piece, first, last)
            count = len(part[names[0]].values)
            for name, column in part.items():
                values[name][filled : filled + count] = column.values
                if column.present is not None:
                    mask = present.setdefault(name, np.ones(size, bool))
                    mask[filled : filled + count] = column.present
            filled += count
        if 2 * filled < size:  # a piece has rows of many workers: their columns must not keep it
            values = {name: array[:filled].copy() for name, array in values.items()}
        return {
            name: Column(array[:filled], present[name][:filled] if name in present else None)
            for name, array in values.items()
        }

    def parts(self, table: str, names: Sequence[str], first: int, last: int) -> Iterator[dict[str, Column]]:
        """Yield what `table` returns, in parts of a bounded size."""
        pieces = self._packed(table, first, last)
        if pieces is not None:
            for piece in pieces:
                yield self._unpack(table, names, piece, first, last)
            return
        query = f"select min(id) from {table} where id >= ? and id < ?"
        low = self.rows(query, (first, last))[0][0]
        while low is not None:
            high = min(low + packed.MOST_ROWS, last)
            yield self.columns(_SELECT.format(", ".join(names), table), (low, high))
            low = self.rows(query, (high, last))[0][0]

    def is_packed(self, table: str) -> bool:
        """Return whether a few columns of a table cost less than all of them."""
        if "packed" not in self.__dict__.setdefault("_tables", self.tables()):
            return False
        return bool(self.rows("select 1 from packed where source = ? limit 1", (table,)))

    def _packed(self, table: str, first: int, last: int) -> list[tuple[int, int, int]] | None:
        """Return first and last id and number of rows of the pieces that have rows of a range; None if the table has
        none."""
        if not self.is_packed(table):
            return None
        return self.rows(
            """select first_id, last_id, rows from packed
               where source = ? and last_id >= ? and first_id < ? order by first_id""",
            (table, first, last),
        )

    def _unpack(
        self, table: str, names: Sequence[str], piece: tuple[int, int, int], first: int, last: int
    ) -> dict[str, Column]:
        begin, end, rows = piece
        data = self.rows("select data from packed where source = ? and first_id = ?", (table, begin))[0][0]
        inside = first <= begin and end < last
        try:
            arrays = packed.unpack(data, names if inside else list(dict.fromkeys([*names, "id"])), rows)
        except (pa.ArrowException, OSError, TypeError, ValueError) as error:
            raise self.damaged(error) from error
        out = {name: _column(array) for name, array in arrays.items()}
        if inside:
            return out
        low, high = np.searchsorted(out["id"].values, (first, last))
        return {name: out[name].take(slice(low, high)) for name in names}

    @contextmanager
    def translate_errors(self, types: dict[str, dict[str, str]] | None = None) -> Iterator[None]:
        """Turn exceptions raised while processing this database into PyProf errors.

        Raises FormatError if validation finds corrupt data, otherwise PyProfError (likely a bug). `types`: the tables
        and columns of another schema.
        """
        try:
            yield
        except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError) as error:
            if isinstance(error, PyProfError):
                raise
            if fault := damage(types or schema(self.is_summary), self.rows):
                raise self.damaged(fault) from error
            if isinstance(error, MemoryError):  # the file is too large for this machine
                raise
            raise PyProfError(
                f"{self.label}: this could not be computed ({type(error).__name__}: {error}): the file has invalid "
                "content, or PyProf has a bug. Build it again from the recording, or report it."
            ) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection with one transaction, which is committed as a whole or not at all."""
        try:
            if self._file != self.path:  # recovered in a copy: recover in place now
                _roll_back(self.path)
                self._closing.close()
                self._file = self.path
                self.connection = self._open()
                self._closing.callback(self.connection.close)
            with closing(self._checked("rw")) as connection:
                connection.execute("begin immediate")
                yield connection
                connection.execute("commit")
        except sqlite3.OperationalError as error:
            raise NotWrittenError(f"{self.label} cannot be changed ({error}).", str(error)) from error


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Limit each query of a file that is opened meanwhile to this time."""
    former, Store.timeout = Store.timeout, seconds
    try:
        yield
    finally:
        Store.timeout = former


def _code(error: Exception) -> int | None:
    """Return SQLite's error code; None for an error of Python's own, such as text that is not UTF-8."""
    return getattr(error, "sqlite_errorcode", None)


def _column(array: pa.ChunkedArray) -> Column:
    values: npt.NDArray[np.int64]
    if array.null_count == 0:
        values = array.to_numpy().astype(np.int64, copy=False)
        return Column(values)
    present: Ints = ~np.asarray(array.is_null().to_numpy(zero_copy_only=False), bool)
    return Column(array.fill_null(0).to_numpy().astype(np.int64, copy=False), present.astype(bool))


def _check(path: Path) -> None:
    inputs.check(path, "a profile database")
    if path.is_dir():
        raise FormatError(f"{path} is a directory; give the path of a profile database.")
    if not is_database(path):
        raise FormatError(f"{path}: not a profile database.")
    access.check_head(path)
