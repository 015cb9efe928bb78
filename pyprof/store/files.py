# SPDX-License-Identifier: Apache-2.0
"""Files of the profile database: written whole or not at all, read without being changed.

`PRAGMA application_id` says that a file is ours, `meta` which schema it has. A newer version is refused with both
named, an older one converted (`upgrade`). A file may come from anybody: `access` says what is checked before anything
in it is read.
"""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import pyprof
from pyprof import atomic_file, inputs, scratch
from pyprof.arguments import TIMEOUT
from pyprof.errors import WHERE, FormatError, PyProfError, VersionError, install
from pyprof.model import Column, Ints
from pyprof.sqlite_file import APPLICATION_ID, check_interrupt, is_profile
from pyprof.store import access
from pyprof.store.validate import damage

MAJOR, MINOR = 1, 4
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
        with atomic_file.named(path) as name:
            yield name
            _settle(Path(path))
    except (OSError, sqlite3.Error, AdbcError, NotWrittenError) as error:
        check_interrupt(error)
        reason = str(error).partition("\n")[0]  # a second line is the query
        if isinstance(error, OSError) and error.errno:
            reason = os.strerror(error.errno)
        if isinstance(error, NotWrittenError):  # of a scratch file that nobody knows
            reason = error.reason
        where, advice = path, "Name another file."
        if top := scratch.around(path):
            where, advice = top, "Set TMPDIR to a folder with more room."
        raise PyProfError(f"{where}: the database could not be written ({reason}). {advice}") from error


def _settle(path: Path) -> None:
    """Before a file is replaced: take back what a killed process left half done in it. Its journal, applied to the new
    file, would damage that; without it the old one, if we are killed now, would be damaged."""
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
    """Fill an empty file with facts."""
    with closing(_unsafe(name)) as connection:
        connection.executescript(f"pragma page_size = {_PAGE}; pragma application_id = {APPLICATION_ID};")
        connection.executescript(files("pyprof.store").joinpath("schema.sql").read_text())
    for table, rows in tables:
        if rows.num_rows:
            ingest(name, table, rows)
    with closing(_unsafe(name)) as connection:
        facts = {
            "schema_major": str(MAJOR), "schema_minor": str(MINOR), "created_schema": f"{MAJOR}.{MINOR}",
            "writer_version": pyprof.__version__, **meta,
        }  # fmt: skip
        # A file's name may be any bytes.
        known = {name: text.encode("utf-8", "backslashreplace").decode() for name, text in facts.items()}
        connection.executemany("insert or replace into meta values (?, ?)", known.items())
        for index in _INDEXES:
            connection.execute(index)
        connection.executescript("pragma analysis_limit = 1000; analyze;")


def ingest(name: str, table: str, rows: pa.Table) -> None:
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


@cache
def schema() -> dict[str, dict[str, str]]:
    """Return the tables of the schema, their columns and types."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(files("pyprof.store").joinpath("schema.sql").read_text())
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

    timeout: ClassVar[float] = TIMEOUT  # seconds that a query may take, of a file that is opened from now on

    def __init__(
        self,
        path: str | os.PathLike[str],
        own: bool = False,
        shown: str | None = None,
        any_schema: bool = False,
    ):
        """`own`: this process wrote it, and its queries may take any time. `shown`: the file that sentences name.
        `any_schema`: for the one who upgrades it. Raises FormatError, VersionError for another schema than ours."""
        self.path = self._file = Path(path)
        self.shown = str(path) if shown is None else shown
        self._seconds = math.inf if own else self.timeout
        self._known: dict[Any, Any] = {}
        self._began = time.monotonic()
        self._closing = ExitStack()
        with ExitStack() as unless_sound:
            unless_sound.callback(self.close)
            _check(self.path)
            self.connection = self._open()
            self._closing.callback(self.connection.close)
            if not any_schema:
                self.check_schema()
            unless_sound.pop_all()

    def _open(self) -> sqlite3.Connection:
        try:
            try:
                return self._checked("ro")
            except sqlite3.OperationalError as error:
                if _code(error) == sqlite3.SQLITE_BUSY:
                    raise PyProfError(
                        f"{self.shown}: is being changed by another process. Try again when that has ended."
                    ) from error
                if not access.journal(self._file).exists():
                    raise
                self._recover()
                return self._checked("ro")
        except (sqlite3.DatabaseError, UnicodeDecodeError, OSError) as error:
            if _code(error) == sqlite3.SQLITE_INTERRUPT:
                raise self._ended() from error
            if isinstance(error, (sqlite3.OperationalError, OSError)):
                raise FormatError(f"{self.shown}: SQLite cannot read it ({error}).") from error
            raise self.damaged(error) from error

    def _checked(self, mode: str) -> sqlite3.Connection:
        """Connect for what ours do, and no more. Raises FormatError for a database that holds code."""
        connection = access.connect(self._file, mode)
        with ExitStack() as unless_sound:
            unless_sound.callback(connection.close)
            self._began = time.monotonic()
            access.end_when(connection, self._over)
            code = access.code(connection)
            if code is not None:
                raise FormatError(
                    f"{self.shown}: holds code ({code}), which no profile does. Make it anew from the recording."
                )
            access.restrict(connection, mode == "rw")
            unless_sound.pop_all()
        return connection

    def _over(self) -> bool:
        """Whether the query takes too long."""
        return time.monotonic() - self._began > self._seconds

    def _ended(self) -> PyProfError:
        return PyProfError(
            f"{self.shown}: a query took more than {self._seconds:g} s and was ended. Give it more with --timeout, or "
            "make the database anew from the recording."
        )

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

    def _recover(self) -> None:
        """A process was killed while it added to the file: put back what it was before, in a copy. The file is opened
        for writing only by the one who adds to it."""
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
        """The schema's major and minor number, -1 for what is none."""
        meta = self.meta
        parts = [meta.get(f"schema_{part}", "") for part in ("major", "minor")]
        major, minor = (
            int(part) if part.isascii() and part.isdecimal() and len(part) < 9 else -1 for part in parts
        )
        return major, minor

    def check_schema(self, oldest: int = MINOR) -> None:
        """Raise VersionError for another schema than ours, or one before `oldest`; FormatError for damage."""
        major, minor = self.schema
        if major != MAJOR or not oldest <= minor <= MINOR:
            newer = (major, minor) > (MAJOR, MINOR)
            advice = (
                f"Upgrade: {install()} {WHERE} of a later version"
                if newer
                else "Make it anew from the recording"
            )
            raise VersionError(
                f"{self.shown} was written by schema {major}.{minor}, this PyProf reads up to {MAJOR}.{MINOR}. "
                f"{advice}.",
                newer,
            )
        if minor == MINOR:
            self._check_columns()
        there = self.tables()
        for table in there.intersection(_NUMBERED):  # of which work makes arrays
            if self._has_gaps(table):
                raise self.damaged(f"table {table} has numbers with gaps")

    def tables(self) -> set[str]:
        """Return the names of the tables."""
        return {name for (name,) in self.rows("select name from sqlite_master where type = 'table'")}

    def _check_columns(self) -> None:
        for table, columns in schema().items():
            # Without columns that compute.
            there = {row[1] for row in self.rows(f"pragma table_info({table})")}
            if missing := [column for column in columns if column not in there]:
                raise self.damaged(f"table {table} lacks {', '.join(missing)}")

    def _has_gaps(self, table: str) -> bool:
        ((least, most),) = self.rows(f"select min(id), max(id) from {table}")
        if most is None:
            return False
        return bool(
            least < 0 or (most > _GAPS and most > 2 * self.rows(f"select count(*) from {table}")[0][0])
        )

    def damaged(self, reason: object) -> FormatError:
        """The error to raise for what the file should not hold, or lacks."""
        text = str(reason).partition("\n")[0]
        return FormatError(f"{self.shown}: is damaged ({text}). Make it anew from the recording.")

    @property
    def uri(self) -> str:
        """The file for SQLite, to be read."""
        return access.uri(self._file, "ro")

    def close(self) -> None:
        self._closing.close()

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
        return dict(self.rows("select name, value from meta"))

    def rows(self, query: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query of ours. Raises FormatError where the file is damaged."""
        return self.named(query, parameters)[1]

    def named(
        self, query: str, parameters: Sequence[Any] | dict[str, Any] = ()
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Names of the columns, and all rows of a query of ours. Raises FormatError where the file is damaged."""
        with self._query():
            cursor = self.connection.execute(query, parameters)
            return [column[0] for column in cursor.description], cursor.fetchall()

    def each(self, query: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Rows of a query of ours, one after another. Raises FormatError where the file is damaged."""
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
            raise self.damaged(error) from error

    def columns(self, query: str, parameters: Sequence[Any] = ()) -> dict[str, Column]:
        """Integer columns of a query by name; NULL is missing. Raises FormatError where the file is damaged."""
        import adbc_driver_sqlite.dbapi as adbc

        self._began = time.monotonic()
        try:
            with adbc.connect(self.uri, autocommit=True) as connection, connection.cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": "65536"})
                cursor.execute(query, list(parameters) or None)
                reader = cursor.fetch_record_batch()
                batches = []
                for (
                    batch
                ) in reader:  # no progress handler: the file holds no code, so that a row comes at some time
                    if self._over():
                        raise self._ended()
                    batches.append(batch)
                table = pa.Table.from_batches(batches, reader.schema)
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
        except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError) as error:
            if isinstance(error, PyProfError):
                raise
            if found := damage(schema(), self.rows):
                raise self.damaged(found) from error
            if isinstance(error, MemoryError):  # the file is too large for this machine
                raise
            raise PyProfError(
                f"{self.shown}: this could not be worked out ({type(error).__name__}: {error}): the file holds what "
                "no profile does, or PyProf has a fault. Make it anew from the recording, or report it."
            ) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it or nothing, whatever happens."""
        try:
            if self._file != self.path:  # it was recovered in a copy: now in place
                _settle(self.path)
                self._closing.close()
                self._file = self.path
                self.connection = self._open()
                self._closing.callback(self.connection.close)
            with closing(self._checked("rw")) as connection:
                connection.execute("begin immediate")
                yield connection
                connection.execute("commit")
        except sqlite3.OperationalError as error:
            raise NotWrittenError(f"{self.shown}: cannot be changed ({error}).", str(error)) from error


# In place of the table of events: those whose ids are in spans, given as a parameter, "[[first, last], ...]" in JSON.
EVENTS_OF_SPANS = """(select value ->> 0 as first_id, value ->> 1 as last_id from json_each(?))
                     cross join event on id >= first_id and id < last_id"""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Give each query of a file that is opened meanwhile so much time."""
    former, Store.timeout = Store.timeout, seconds
    try:
        yield
    finally:
        Store.timeout = former


def _code(error: Exception) -> int | None:
    """SQLite's; None for an error of Python's own, a text that is no UTF-8 for instance."""
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
        raise FormatError(f"{path}: is a directory; give the path of a profile database.")
    if not is_database(path):
        raise FormatError(f"{path}: not a profile database.")
    access.check_head(path)
