# SPDX-License-Identifier: Apache-2.0
"""Columns from a SQLite file, read in batches and never written.

A recording may lack any column, hold NULL in it, or hold values of another type than declared: `read` selects only
columns that exist, casts in SQL, and marks missing numbers. Batches come as Arrow columns through ADBC, which costs
a quarter of the CPU time of `sqlite3`; without ADBC `sqlite3.fetchmany` returns the same.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from pyprof.core import arrow, scratch
from pyprof.core.errors import FormatError
from pyprof.core.model import Column, Ints

BATCH = 65536
MAGIC = b"SQLite format 3\0"
APPLICATION_ID = 0x50795072  # "PyPr": a profile database, which is the result of reading a recording
# NULL in a column of integers while it is read: no time, id or size can have this value.
_MISSING = -(2**63)
# Columns of times, and their valid range in ns: 1933 to 2079 from the epoch, so that twice a difference fits 64 bits.
_TIMES = ("start", "end", "timestamp")
_FIRST_TIME, _LAST_TIME = -(2**60), 3 * 2**60


def is_sqlite(path: Path) -> bool:
    """Return whether a file is a SQLite database."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def is_profile(path: Path) -> bool:
    """Return whether a file is a profile database, of any version."""
    with path.open("rb") as file:
        head = file.read(72)
    return head.startswith(MAGIC) and int.from_bytes(head[68:72], "big") == APPLICATION_ID


def check_interrupt(error: BaseException) -> None:
    """Raise the KeyboardInterrupt behind an error of ADBC: it handles the signal instead of Python, to cancel what its
    SQLite driver cannot cancel."""
    if isinstance(error.__cause__, KeyboardInterrupt):
        raise error.__cause__


class Batch:
    """Rows of a table: numbers as `Column`, texts as Arrow arrays ('' for NULL)."""

    def __init__(self, rows: int, numbers: dict[str, Column], texts: dict[str, pa.Array]):
        self.rows = rows
        self._numbers = numbers
        self._texts = texts

    def column(self, name: str) -> Column:
        """Return a number per row; all missing if the table has no such column."""
        numbers = self._numbers.get(name)
        return Column.missing(self.rows) if numbers is None else numbers

    def text(self, name: str) -> pa.Array:
        texts = self._texts.get(name)
        return arrow.texts([""] * self.rows) if texts is None else texts


def tables(path: Path) -> dict[str, frozenset[str]]:
    """Return the tables of a SQLite file and their columns. Raises FormatError for an unreadable file."""
    with Database(path) as database:
        return database.tables


class Database:
    """A SQLite file opened for reading, used in `with`. Nothing is written beside it. Raises FormatError, with the name
    of the file, whenever it is unreadable."""

    def __init__(self, path: Path):
        self.path = path
        try:
            with ExitStack() as on_error:
                self._uri = _uri(path.resolve(), on_error)
                self._connection = sqlite3.connect(self._uri, uri=True)
                on_error.callback(self._connection.close)
                self._connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
                # A virtual table is code and has no pages.
                names = self._connection.execute("select name from sqlite_master where type = 'table' and rootpage > 0")
                self.tables = {name: self._columns(name) for (name,) in names.fetchall()}
                self._closing = on_error.pop_all()
        # The second: its message quotes a damaged name. The third: no room for a copy, or nothing to copy.
        except (sqlite3.Error, UnicodeDecodeError, OSError, shutil.Error) as error:
            raise FormatError(f"{path}: SQLite cannot read it ({_reason(error)}). Export or copy it again.") from error

    def _columns(self, table: str) -> frozenset[str]:
        quoted = table.replace('"', '""')
        return frozenset(row[1] for row in self._connection.execute(f'pragma table_info("{quoted}")'))

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def rows(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return all rows of a small table; None for a missing value or column. Empty if there is no such table."""
        if table not in self.tables:
            return []
        have = self.tables[table]
        expressions = ", ".join(f'"{name}"' if name in have else "null" for name in columns)
        try:
            return self._connection.execute(f'select {expressions} from "{table}"').fetchall()
        except sqlite3.Error as error:
            raise self._damaged(table, error) from error

    def ends(self, table: str, columns: tuple[str, str]) -> tuple[int, ...]:
        """Return one integer of the first row and another of the last; nothing for missing ones. The rows between them
        are not read."""
        if not set(columns) <= self.tables.get(table, frozenset()):
            return ()
        try:
            rows = [
                self._connection.execute(f'select "{name}" from "{table}" order by rowid {way} limit 1').fetchone()
                for name, way in zip(columns, ("asc", "desc"))
            ]
        except sqlite3.Error as error:
            raise self._damaged(table, error) from error
        return tuple(row[0] for row in rows if row and type(row[0]) is int)

    def count(self, *tables: str) -> int:
        """Return the total number of rows of several tables; missing ones have none."""
        try:
            cursors = (self._connection.execute(f'select count(*) from "{t}"') for t in tables if t in self.tables)
            return sum(cursor.fetchone()[0] for cursor in cursors)
        except sqlite3.Error as error:
            raise self._damaged(tables[0], error) from error

    def read(
        self,
        table: str,
        numbers: Sequence[str | tuple[str, ...]],
        texts: Sequence[str] = (),
        hexes: Sequence[str] = (),
    ) -> Iterator[Batch]:
        """Yield the rows of a table in batches. `hexes` are binary columns, returned as hexadecimal text.

        Of several columns in a tuple the first that is not NULL counts; the batch has it under the first name.
        """
        have = self.tables.get(table, frozenset())
        groups = [(name,) if isinstance(name, str) else name for name in numbers]
        casts = {group[0]: [f'cast("{c}" as integer)' for c in group if c in have] for group in groups}
        casts = {name: columns for name, columns in casts.items() if columns}
        texts, hexes = ([name for name in names if name in have] for names in (texts, hexes))
        fields = [f"coalesce({', '.join(columns)}, {_MISSING})" for columns in casts.values()]
        fields += [f"coalesce(cast(\"{name}\" as text), '')" for name in texts]
        fields += [f'hex("{name}")' for name in hexes]
        if not fields:
            return
        query = f'select {", ".join(fields)} from "{table}"'
        try:
            for columns in self._batches(query, len(casts)):
                yield _batch(columns, list(casts), [*texts, *hexes])
        except (sqlite3.Error, pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise self._damaged(table, error) from error

    def _batches(self, query: str, numbers: int) -> Iterator[list[pa.Array]]:
        try:
            import adbc_driver_manager as adbc
            import adbc_driver_sqlite
        except ImportError:  # ADBC has no wheel for every platform
            yield from self._fetch(query, numbers)
            return
        # Not through its dbapi, which imports pandas.
        with (
            adbc_driver_sqlite.connect(self._uri) as database,
            adbc.AdbcConnection(database) as connection,
            adbc.AdbcStatement(connection) as statement,
        ):
            statement.set_options(**{"adbc.sqlite.query.batch_rows": str(BATCH)})
            statement.set_sql_query(query)
            try:
                for batch in pa.RecordBatchReader.from_stream(statement.execute_query()[0]):
                    yield list(batch.columns)
            except adbc.Error as error:
                raise sqlite3.DatabaseError(str(error)) from error

    def _fetch(self, query: str, numbers: int) -> Iterator[list[pa.Array]]:
        cursor = self._connection.execute(query)
        while rows := cursor.fetchmany(BATCH):
            columns = list(zip(*rows))
            yield [pa.array(c, pa.int64() if i < numbers else pa.string()) for i, c in enumerate(columns)]

    def _damaged(self, table: str, error: Exception) -> FormatError:
        return FormatError(f"{self.path}: table {table} is damaged ({_reason(error)}). Export or copy the file again.")


def _uri(file: Path, closing: ExitStack) -> str:
    """Return the URI by which a file is opened: itself, without a lock if nobody writes to it; or, if it has a log, a
    copy of both until `closing`, because SQLite makes an index of the log beside it."""
    log = file.with_name(file.name + "-wal")
    if log.exists() and (log.is_symlink() or log.stat().st_size):
        folder = Path(closing.enter_context(scratch.Folder()))
        for one in (file, log):
            shutil.copyfile(one, folder / one.name, follow_symlinks=False)  # SQLite follows no link to a log
        file = folder / file.name
    elif not file.with_name(file.name + "-journal").exists():
        return f"file:{quote(os.fsencode(file))}?mode=ro&immutable=1"
    return f"file:{quote(os.fsencode(file))}?mode=ro"


def _reason(error: Exception) -> str:
    """Return SQLite's message in one line of ASCII: it quotes names, and a damaged file may contain any."""
    return ascii(" ".join(str(error).split())[:120])[1:-1]


def _batch(columns: list[pa.Array], numbers: list[str], texts: list[str]) -> Batch:
    out: dict[str, Column] = {}
    for name, column in zip(numbers, columns):
        values = arrow.numbers(column).astype(np.int64)  # a copy: a view would keep the batch alive
        missing = values == _MISSING
        if name in _TIMES:
            missing |= (values < _FIRST_TIME) | (values >= _LAST_TIME)
        out[name] = Column(np.where(missing, 0, values), ~missing) if missing.any() else Column(values)
    return Batch(len(columns[0]), out, dict(zip(texts, map(_utf8, columns[len(numbers) :]))))


def _utf8(column: pa.Array) -> pa.Array:
    """Replace invalid UTF-8: a text may be in any encoding, a path for instance."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raw = column.cast(pa.binary()).to_pylist()
        return arrow.texts([text.decode("utf-8", "replace") for text in raw])
    return column


def concat(columns: Sequence[Column], dtype: Any = np.int64) -> Column:
    """Join the batches of a column."""
    if not columns:
        return Column(np.empty(0, dtype))
    values = np.concatenate([c.values for c in columns], dtype=dtype)
    if all(c.present is None for c in columns):
        return Column(values)
    if not any(c.present is None or c.present.any() for c in columns):
        return Column.missing(len(values))
    return Column(values, np.concatenate([c.mask() for c in columns]))


def required(column: Column, fallback: int = 0) -> Ints:
    """Return the numbers of a column, with `fallback` for missing ones."""
    return column.values if column.present is None else np.where(column.present, column.values, fallback)
