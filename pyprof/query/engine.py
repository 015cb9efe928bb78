# SPDX-License-Identifier: Apache-2.0
"""Queries of a profile: one SELECT over the views, its rows in pages.

The connection can only read: SQLite asks an authorizer for each action of a statement, and all but SELECT, reading and
functions without side effects are refused (store/access.py). A query that takes too long is stopped between two
instructions of SQLite; one that may come from anyone runs in a process that is killed (`process`).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyprof.core.arguments import nearest
from pyprof.core.errors import PyProfError, UsageError
from pyprof.core.marker import readable
from pyprof.query.views import VIEWS, statements
from pyprof.store import access
from pyprof.store.files import Store

if TYPE_CHECKING:
    import pandas as pd

    from pyprof.reports import Column

_UNKNOWN = re.compile(r"no such (table|column|function): (.+)")
_CORRUPT = {"SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_IOERR"}
_TOGETHER = 1 << 20  # characters of rows that are read at a time
_LENGTH = 40  # characters of the length that stands for the rest of a text


class Answer(NamedTuple):
    """Rows of a query: names of the columns, cells (integers, floats, texts, None), whether there are more rows."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    more: bool

    def frame(self) -> pd.DataFrame:
        """Return the rows with the numbers of the columns as their names, which need not be unique in SQL."""
        import pandas as pd

        return pd.DataFrame(self.rows, columns=list(map(str, range(len(self.columns)))), dtype=object)


class Bounds(NamedTuple):
    """Rows of a query that are read: at most `limit`, from `offset` on, until they have more than `characters`,
    with texts cut after `text` of them. None is no bound."""

    limit: int | None = None
    offset: int = 0
    characters: int | None = None
    text: int | None = None


ALL = Bounds()


class Queries(Store):
    """A profile database that is open for queries."""

    def __init__(self, path: Path, label: str, seconds: float, advice: str = "Select fewer rows."):
        """Open a database; `seconds`: that a query may take, `advice`: what to do where that is too little. Raises
        FormatError."""
        super().__init__(path, label=label)
        self._seconds, self._advice = seconds, advice
        with self._query():
            self.connection.set_authorizer(None)
            self.connection.execute("pragma query_only = off")  # it forbids temporary views as well
            self.connection.create_function("readable", 1, _readable, deterministic=True)
            for statement in statements():
                self.connection.execute(statement)
        access.restrict(self.connection)

    def answer(self, text: str, bounds: Bounds = ALL) -> Answer:
        """Return rows of a SELECT. Raises UsageError for another statement, or one that SQLite does not understand;
        PyProfError when time is up."""
        return gathered(self.stream(text, bounds))

    def stream(self, text: str, bounds: Bounds) -> Iterator[Any]:
        """Yield the names of the columns, lists of rows, and whether there are more; raises as `answer`."""
        try:
            with self._query():
                cursor = self.connection.execute(text)
                if cursor.description is None:
                    raise UsageError("the query is empty; expected a SELECT, as in: select * from kernels limit 10.")
                yield [column[0] for column in cursor.description]
                yield from _read(cursor, bounds)
        except UnicodeEncodeError:
            raise UsageError("the query is not a text that UTF-8 can express.") from None
        except MemoryError:
            raise PyProfError("the query needs more memory than there is; select fewer rows or columns.") from None

    def _ended(self) -> PyProfError:
        return time_is_up(self._seconds, self._advice)

    def damaged(self, reason: object) -> Any:
        """Return the error for what SQLite says: mostly the query is wrong, and not the file."""
        name = getattr(reason, "sqlite_errorname", "")
        if not isinstance(reason, sqlite3.Error) or name.startswith(tuple(_CORRUPT)):
            return super().damaged(reason)
        return UsageError(_sentence(str(reason).partition("\n")[0]))


def time_is_up(seconds: float, advice: str) -> PyProfError:
    """Return the error for a query whose time is up."""
    return PyProfError(f"the query took more than {seconds:g} s and was stopped. {advice}")


def gathered(parts: Iterator[Any]) -> Answer:
    """Return the answer whose parts these are."""
    columns: list[str] = []
    rows: list[tuple[Any, ...]] = []
    more = False
    for part in parts:
        if isinstance(part, bool):
            more = part
        elif columns:
            rows += part
        else:
            columns = part
    return Answer(columns, rows, more)


def _read(cursor: sqlite3.Cursor, bounds: Bounds) -> Iterator[Any]:
    """Yield lists of rows and whether there are more. Each row is one by itself: together they may be too large."""
    rows: list[tuple[Any, ...]] = []
    size = waiting = 0
    for count, row in enumerate(islice(cursor, bounds.offset, None)):
        if count == bounds.limit or (bounds.characters is not None and size > bounds.characters):
            yield from (rows, True)
            return
        rows.append(tuple(_cell(cell, bounds.text) for cell in row))
        length = sum(len(cell) if isinstance(cell, str) else 8 for cell in rows[-1])
        size, waiting = size + length, waiting + length
        if waiting > _TOGETHER:
            yield rows
            rows, waiting = [], 0
    yield from (rows, False)


def _sentence(text: str) -> str:
    """Return what is wrong with a query.

    >>> _sentence("no such table: kernel")
    'no such table: kernel. Did you mean kernels?'
    """
    if any(word in text for word in ("not authorized", "prohibited", "readonly", "read-only", "cannot modify")):
        return f"a query can only read: expected one SELECT over the views {', '.join(VIEWS)}."
    if "one statement at a time" in text:
        return "expected one statement; found several."
    if match := _UNKNOWN.match(text):
        what, name = match.groups()
        near = nearest(name, VIEWS) if what == "table" else nearest(name.rpartition(".")[2], _columns())
        views = "" if near else f" Views: {', '.join(VIEWS)}."
        where = {"table": views, "column": " Columns: docs/sql.md."}.get(what, "")
        return f"{text}.{near}{where}"
    return f"the query is wrong: {text}."


def _columns() -> set[str]:
    return {field.name for view in VIEWS.values() for field in view.fields}


def _readable(text: Any) -> Any:
    return readable(text) if isinstance(text, str) else text


def _cell(value: Any, most: int | None) -> Any:
    return f"<{len(value):,} bytes>" if isinstance(value, bytes) else shortened(value, most)


def shortened(value: Any, most: int | None) -> Any:
    """Return a value, a text cut to so many characters and its length, unless that would be about as long.

    >>> shortened("ab" * 1000, 2), shortened("abcd", 2), shortened("ab" * 1000, None) == "ab" * 1000, shortened(5, 0)
    ('ab... (2,000 characters)', 'abcd', True, 5)
    """
    if most is None or not isinstance(value, str) or len(value) <= most + _LENGTH:
        return value
    return f"{value[:most]}... ({len(value):,} characters)"


def described(answer: Answer) -> tuple[Column, ...]:
    """Return the columns of an answer as those of a report: unit by the name, kind by the values."""
    from pyprof.reports import Column

    out = []
    for number, name in enumerate(answer.columns):
        kinds = {type(row[number]) for row in answer.rows if row[number] is not None}
        kind: type = kinds.pop() if len(kinds) == 1 else float if kinds == {int, float} else object if kinds else str
        out.append(Column(str(number), name, _unit(name), "", kind))
    return tuple(out)


def _unit(name: str) -> str:
    """Return the unit that a column has in its name.

    >>> _unit("duration_ns"), _unit("copied_bytes"), _unit("mfu_percent"), _unit("name")
    ('ns', 'B', '%', '')
    """
    units = {"ns": "ns", "bytes": "B", "percent": "%"}
    return units.get(name.rpartition("_")[2], "")
