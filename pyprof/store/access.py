# SPDX-License-Identifier: Apache-2.0
"""Connections to profile databases from untrusted sources.

Before a file is opened, anything that would make SQLite write or delete is refused: a journal that names another
file, which SQLite deletes, and a write-ahead log. Then a file that holds code is refused: views, triggers and
virtual tables, which no profile database has. An authorizer allows only the kinds of statements that PyProf uses,
and a progress handler ends those that take too long.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from pyprof.core.errors import DamagedError, FormatError
from pyprof.core.sqlite_file import MAGIC

_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")  # at both ends of the name of a super-journal, too
_INSTRUCTIONS = 20_000  # SQLite instructions between two checks of the clock, well under a millisecond
_BUSY_TIMEOUT = 30  # seconds to wait for another process that writes
_MAX_TEXT = 1 << 28  # bytes of a text; SQLite's own limit is 10^9
_READ = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, getattr(sqlite3, "SQLITE_RECURSIVE", 33)}
_WRITE = _READ | {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE, sqlite3.SQLITE_TRANSACTION}
_REFUSED = {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"}
_PRAGMAS = ("trusted_schema = off", "cell_size_check = on")
_READING = ("query_only = on", "cache_size = -8000")


def uri(path: Path, mode: str) -> str:
    """Return the URI of a file for SQLite; the file's name may be any bytes."""
    return f"file:{quote(os.fsencode(path.resolve()))}?mode={mode}"


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """Open a file that has been checked."""
    return sqlite3.connect(
        uri(path, mode), uri=True, isolation_level=None, timeout=_BUSY_TIMEOUT, check_same_thread=False
    )


def journal(path: Path) -> Path:
    """Return the path of the rollback journal of a database."""
    path = path.resolve()  # beside the file, not beside a link to it
    return path.with_name(path.name + "-journal")


def check_head(path: Path) -> None:
    """Raise DamagedError for a file that is no profile database, judged by its first bytes.

    Raises OSError if it cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(100)
        size = file.seek(0, os.SEEK_END)
    page = int.from_bytes(head[16:18], "big")
    page = 65536 if page == 1 else page
    pages, encoding = (int.from_bytes(head[at : at + 4], "big") for at in (28, 56))
    fault = ""
    if len(head) < 100 or head[:16] != MAGIC or page < 512 or page & (page - 1):
        fault = "it has no SQLite header"
    elif head[18:20] != b"\1\1" or path.resolve().with_name(path.resolve().name + "-wal").exists():
        fault = "it has a write-ahead log, which no profile database has"
    elif encoding != 1:
        fault = "its text is not in UTF-8"
    elif pages * page > size and not journal(path).exists():
        fault = f"expected {pages * page} bytes, found {size}"
    if fault:
        raise DamagedError(f"{path} is damaged ({fault}). Build it again from the recording.")


def check_journal(path: Path) -> None:
    """Raise FormatError if the journal of a database names another file.

    SQLite deletes that file after it has used the journal. Such a journal is one of a transaction over several
    databases, which PyProf never makes. (https://sqlite.org/fileformat.html 3)
    """
    file = journal(path)
    try:
        with file.open("rb") as content:
            content.seek(max(0, content.seek(0, os.SEEK_END) - len(_JOURNAL_MAGIC)))
            named = content.read() == _JOURNAL_MAGIC
    except FileNotFoundError:
        return
    if named:
        raise FormatError(
            f"{path}: its journal {file.name} names another file, which SQLite would delete. PyProf writes no such "
            "journal: do not open this database with other tools, and build it again from the recording."
        )


def code(connection: sqlite3.Connection) -> str | None:
    """Return the name of an entry of the schema that is neither a table nor an index, None without one.

    SQLite compares the type without case. An entry without pages is code, whatever its type.
    """
    row = connection.execute(
        "select name from sqlite_master where lower(type) not in ('table', 'index') or typeof(type) <> 'text' "
        "or typeof(rootpage) <> 'integer' or rootpage < 1 limit 1"
    ).fetchone()
    return None if row is None else str(row[0])


def end_when(connection: sqlite3.Connection, is_over: Callable[[], object]) -> None:
    """End each statement with sqlite3.OperationalError as soon as `is_over` returns true."""
    connection.set_progress_handler(lambda: int(bool(is_over())), _INSTRUCTIONS)


def restrict(connection: sqlite3.Connection, writing: bool = False) -> None:
    """Restrict a connection to reading, and to inserting if it is `writing`."""
    for pragma in _PRAGMAS if writing else (*_PRAGMAS, *_READING):
        connection.execute(f"pragma {pragma}")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_TEXT)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 0)
    allowed = _WRITE if writing else _READ

    def authorize(action: int, first: str | None, name: str | None, *_: object) -> int:
        if action == sqlite3.SQLITE_PRAGMA:
            is_allowed = first == "table_info"
        else:
            is_allowed = action in allowed and (
                action != sqlite3.SQLITE_FUNCTION or (name or "").lower() not in _REFUSED
            )
        return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY

    connection.set_authorizer(authorize)
