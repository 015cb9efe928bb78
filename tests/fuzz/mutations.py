# SPDX-License-Identifier: Apache-2.0
"""Changes of a file: of its bytes, of its structure, and neutral ones, which must not change what a command says.

A change takes the path of a file, which it rewrites, and dice. Add one: a function in the table of its kind.
"""

from __future__ import annotations

import ast
import gzip
import json
import random
import sqlite3
import struct
import zipfile
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from tests import build
from tests.fuzz import seeds
from tests.fuzz.seeds import SEEDS, SQLITE

Change = Callable[[Path, random.Random], None]

# --- bytes


def flipped(path: Path, dice: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(dice.choice((1, 1, 10, 100))):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    path.write_bytes(data)


def cut(path: Path, dice: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: dice.randrange(len(data))])


def overwritten(path: Path, dice: random.Random) -> None:
    """Some stretches replaced, dropped, doubled or put in."""
    data = bytearray(path.read_bytes())
    for _ in range(dice.choice((1, 1, 10))):
        at, length = dice.randrange(len(data)), dice.choice((1, 4, 8, 100, 1000))
        new = (
            b"",
            bytes(length),
            b"\xff" * length,
            dice.randbytes(length),
            bytes(data[at : at + length]) * 2,
        )
        data[at : at + length * dice.randrange(2)] = dice.choice(new)
        data = data or bytearray(b"x")
    path.write_bytes(data)


def numbers(path: Path, dice: random.Random) -> None:
    """Numbers of one to eight bytes at any place, such as lengths and counts in a head."""
    data = bytearray(path.read_bytes())
    for _ in range(dice.choice((1, 5))):
        at = dice.randrange(min(len(data), dice.choice((100, 5000, 1 << 30))))
        kind = dice.choice(("B", ">H", ">I", ">Q", "<I"))
        most = (1 << 8 * struct.calcsize(kind)) - 1
        data[at : at + struct.calcsize(kind)] = struct.pack(kind, dice.choice((0, 1, most, most >> 1, most // 3)))
    path.write_bytes(data)


BYTES: tuple[Change, ...] = (flipped, cut, overwritten, numbers)

# --- values

NAMES = (
    "",
    "\x1b[2J",
    "=1+1",
    "\u202e",
    "a\nb",
    "\x00",
    "x" * 5000,
    "nccl",
    "ProfilerStep#1",
    "layer:a",
    "é\U0001f600",
)
NUMBERS = (
    0, 1, -1, 2, 7, 255, 65536, 2**31 - 1, -(2**31), 2**32, 2**53 + 1, 2**60, 2**62, 2**63 - 1, -(2**63),
)  # fmt: skip


def value(dice: random.Random) -> Any:
    """What JSON can hold, SQLite mostly too."""
    kind = dice.randrange(8)
    if kind < 3:
        return dice.choice(NUMBERS)
    if kind == 3:
        return dice.choice((0.5, -1e300, 1e308, 1e-300, 3.0, 1e18))
    if kind == 4:
        return None
    return dice.choice(NAMES) if kind < 7 else str(dice.choice(NUMBERS))


# --- SQLite


def _names(connection: sqlite3.Connection) -> list[str]:
    """Tables, the ones with rows twice as likely."""
    out = []
    for (name,) in connection.execute("select name from sqlite_master where type = 'table' order by name"):
        rows = connection.execute(f'select exists (select 1 from "{name}")').fetchone()[0]
        out += [name] * (1 + rows)
    return [name for name in out if not name.startswith("sqlite_")]


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f'pragma table_info("{table}")')]


def _cell(dice: random.Random) -> Any:
    found = dice.choice((value(dice), value(dice), dice.randbytes(dice.choice((0, 3, 12, 100)))))
    return found.replace("\x00", "") if isinstance(found, str) and dice.random() < 0.8 else found


def _change_cells(connection: sqlite3.Connection, table: str, dice: random.Random) -> None:
    column = dice.choice(_columns(connection, table))
    last = connection.execute(f'select coalesce(max(rowid), 0) from "{table}"').fetchone()[0]
    for _ in range(dice.choice((1, 1, 3))):
        row = dice.randint(1, max(1, min(last, 10_000)))
        connection.execute(f'update or ignore "{table}" set "{column}" = ? where rowid = ?', (_cell(dice), row))


def _change_column(connection: sqlite3.Connection, table: str, dice: random.Random) -> None:
    column = dice.choice(_columns(connection, table))
    connection.execute(f'update or ignore "{table}" set "{column}" = ?', (_cell(dice),))


def _shift_column(connection: sqlite3.Connection, table: str, dice: random.Random) -> None:
    column = dice.choice(_columns(connection, table))
    with suppress(sqlite3.OperationalError):  # an overflow
        connection.execute(f'update or ignore "{table}" set "{column}" = "{column}" + ?', (dice.choice(NUMBERS),))


def _swap_columns(connection: sqlite3.Connection, table: str, dice: random.Random) -> None:
    first, second = dice.choice(_columns(connection, table)), dice.choice(_columns(connection, table))
    connection.execute(f'update or ignore "{table}" set "{first}" = "{second}", "{second}" = "{first}"')


def _drop_rows(connection: sqlite3.Connection, table: str, dice: random.Random) -> None:
    connection.execute(f'delete from "{table}" where rowid % ? = 0', (dice.choice((1, 2, 3)),))


def _double_rows(connection: sqlite3.Connection, table: str, dice: random.Random) -> None:
    connection.execute(f'insert or ignore into "{table}" select * from "{table}" limit 5')


def _drop_column(connection: sqlite3.Connection, table: str, dice: random.Random) -> None:
    column = dice.choice(_columns(connection, table))
    connection.execute(f'alter table "{table}" drop column "{column}"')


def _rename_column(connection: sqlite3.Connection, table: str, dice: random.Random) -> None:
    column = dice.choice(_columns(connection, table))
    connection.execute(f'alter table "{table}" rename column "{column}" to "{dice.choice(("other", "a b", "é"))}"')


def _drop_table(connection: sqlite3.Connection, table: str, dice: random.Random) -> None:
    connection.execute(f'drop table "{table}"')


def _drop_index(connection: sqlite3.Connection, table: str, dice: random.Random) -> None:
    found = connection.execute("select name from sqlite_master where type = 'index' and sql not null").fetchall()
    if found:
        connection.execute(f'drop index "{dice.choice(found)[0]}"')


def _view(connection: sqlite3.Connection, table: str, dice: random.Random) -> None:
    """A view in the place of a table, one that does not end among them."""
    columns = ", ".join(f'"{name}"' for name in _columns(connection, table))
    connection.execute(f'alter table "{table}" rename to was')
    endless = "with recursive c (x) as (values (1) union all select x + 1 from c) select x from c"
    query = dice.choice((f"select {columns} from was", f"select {columns} from was, ({endless})"))
    connection.execute(f'create view "{table}" as {query}')


def _trigger(connection: sqlite3.Connection, table: str, dice: random.Random) -> None:
    event = dice.choice(("insert", "update", "delete"))
    connection.execute(f'create trigger evil after {event} on "{table}" begin delete from "{table}"; end')


def _schema(connection: sqlite3.Connection, table: str, dice: random.Random) -> None:
    """Another type, text or root of an object, which SQLite finds when it reads the schema."""
    connection.execute("pragma writable_schema = on")
    what = dice.choice((
        "type = 'VIEW'", "type = 'table'", "rootpage = 0", "rootpage = 2", "rootpage = 99999",
        "sql = replace(sql, 'integer', 'blob')", "sql = substr(sql, 1, length(sql) / 2)", "sql = null",
        "sql = cast(x'ff' || sql as text)", "name = name || x'ff'", "sql = sql || ' strict'",
    ))  # fmt: skip
    connection.execute(f"update sqlite_master set {what} where name = ?", (table,))


def _user_version(connection: sqlite3.Connection, table: str, dice: random.Random) -> None:
    pragma = dice.choice(("user_version", "application_id"))
    connection.execute(f"pragma {pragma} = {dice.choice((0, 1, -1, 2**31 - 1))}")


def _journal_mode(connection: sqlite3.Connection, table: str, dice: random.Random) -> None:
    connection.execute("pragma journal_mode = wal")


def _encoding(connection: sqlite3.Connection, table: str, dice: random.Random) -> None:
    """The same in UTF-16."""
    path = connection.execute("pragma database_list").fetchone()[2]
    lines = list(connection.iterdump())
    version = connection.execute("pragma application_id").fetchone()[0]
    connection.close()
    Path(path).unlink()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.executescript(f"pragma encoding = 'UTF-16'; pragma application_id = {version};")
        other.executescript("\n".join(lines))


_OF_SQLITE = (
    _change_cells, _change_cells, _change_cells, _change_cells, _change_column, _change_column, _shift_column,
    _swap_columns, _drop_rows, _drop_rows, _double_rows, _drop_column, _rename_column, _drop_table, _drop_index, _view,
    _trigger, _schema, _user_version, _journal_mode, _encoding,
)  # fmt: skip


def sqlite(path: Path, dice: random.Random) -> None:
    """One to three changes of tables."""
    for _ in range(dice.choice((1, 1, 2, 3))):
        with (
            suppress(sqlite3.Error, UnicodeDecodeError),
            closing(sqlite3.connect(path, isolation_level=None)) as connection,
        ):
            connection.executescript("pragma journal_mode = off; pragma synchronous = off;")
            change = dice.choice(_OF_SQLITE)
            change(connection, dice.choice(_names(connection)), dice)


def page(path: Path, dice: random.Random) -> None:
    """Bytes of the head of a page, or of any place in it."""
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[16:18], "big")
    size = 65536 if size == 1 else size
    for _ in range(dice.choice((1, 3))):
        start = size * dice.randrange(len(data) // size)
        at = start + (100 if not start else 0) + dice.randrange(dice.choice((12, 60, size - 100)))
        data[at] = dice.choice((0, 1, 2, 5, 10, 13, 127, 128, 255, dice.randrange(256)))
    path.write_bytes(data)


# --- JSON and net.dict


def _places(node: Any) -> list[tuple[Any, Any]]:
    """Containers and the keys in them, of a whole document."""
    out: list[tuple[Any, Any]] = []
    open_ = [node]
    while open_:
        one = open_.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
        for key in keys:
            out.append((one, key))
            open_.append(one[key])
    return out


def changed(document: Any, dice: random.Random) -> Any:
    """A value of a document changed, dropped, doubled, nested or given another key."""
    for _ in range(dice.choice((1, 1, 2, 5, 30))):
        places = _places(document)
        if not places:
            return value(dice)
        owner, key = dice.choice(places)
        kind = dice.randrange(8)
        if kind < 4:
            owner[key] = value(dice)
        elif kind == 4:
            del owner[key]
        elif kind == 5 and isinstance(owner, list):
            owner.insert(dice.randrange(len(owner) + 1), json.loads(json.dumps(owner[key])))
        elif kind == 5:
            owner[dice.choice(("ts", "dur", "args", "cat", "pid", "other", ""))] = owner[key]
        elif kind == 6:
            for _ in range(dice.choice((1, 3, 300))):
                owner[key] = [owner[key]] if dice.random() < 0.5 else {"a": owner[key]}
        else:
            other, name = dice.choice(places)
            with suppress(LookupError):  # one that is not there any more
                owner[key], other[name] = json.loads(json.dumps([other[name], owner[key]]))
    return document


def _load(path: Path) -> Any:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def _store(path: Path, text: str) -> None:
    raw = text.encode("utf-8", "surrogatepass")
    path.write_bytes(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)


def trace(path: Path, dice: random.Random) -> None:
    """Values of a trace; sometimes one that JSON has not, or a key that comes twice."""
    text = json.dumps(changed(_load(path), dice))
    if dice.random() < 0.1:
        text = text.replace(
            dice.choice(("1", "100", "null")), dice.choice(("NaN", "-Infinity", "1e999", "01", "9" * 400)), 1
        )
    if dice.random() < 0.1:
        text = text.replace('"ts":', f'"{dice.choice(("ts", "pid", "name", "args"))}": 1, "ts":', 3)
    _store(path, text)


def inside(path: Path, dice: random.Random) -> None:
    """Bytes of a compressed trace, before it is compressed."""
    plain = path.with_suffix(".plain")
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    dice.choice(BYTES)(plain, dice)
    path.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    plain.unlink()


def net_dict(path: Path, dice: random.Random) -> None:
    """Values of lines of net.dict."""
    lines = path.read_text().splitlines()
    for at in dice.sample(range(len(lines)), dice.choice((1, 1, 3))):
        fields = {key: list(one) if isinstance(one, tuple) else one for key, one in ast.literal_eval(lines[at]).items()}
        text = repr(changed(fields, dice))
        if dice.random() < 0.1:
            text = text.replace("None", dice.choice(("__import__('os').abort()", "-" * 3000 + "1", "1e999", "b'a'")), 1)
        lines[at] = text.replace("\n", " ")
    path.write_text("".join(f"{line}\n" for line in lines))


# --- archives


def archive(path: Path, dice: random.Random) -> None:
    """Members of other names and contents, twice, or not there."""
    members = seeds._members(path.parent)
    for _ in range(dice.choice((1, 2))):
        at = dice.randrange(len(members))
        name, content = members[at]
        kind = dice.randrange(5)
        if kind == 0:
            names = (
                "../../evil.json",
                "/evil.json",
                "run/rank0.pt.trace.json.gz",
                "a" * 300,
                "a/" * 200,
                "\u202e.json",
                "é.json",
                "run",
            )
            name = dice.choice(names)
        elif kind == 1:
            del members[at]
            if not members:
                break
            continue
        elif kind == 2:
            members.append((name, content))
            continue
        else:
            part = path.with_suffix(".part")
            part.write_bytes(content)
            if name.endswith(".sqlite"):
                dice.choice((sqlite, page, *BYTES))(part, dice)
            else:
                dice.choice(BYTES)(part, dice)
            content = part.read_bytes()
            part.unlink()
        members[at] = (name, content)
    methods = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    data = (
        seeds.tar(members, dice.random() < 0.8) if "tar" in path.name else seeds.zipped(members, dice.choice(methods))
    )
    path.write_bytes(data)


# --- neutral ones


def _vacuum(path: Path, dice: random.Random) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"pragma page_size = {dice.choice((512, 1024, 4096, 65536))}")
        connection.execute("vacuum")


def _unknown_table(path: Path, dice: random.Random) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table unknown (a, b text)")
        connection.execute("insert into unknown values (?, ?)", (value(dice) if dice.random() < 0.5 else None, "text"))


def _unknown_column(path: Path, dice: random.Random) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f'alter table "{dice.choice(_names(connection))}" add column unknown default 7')


def _unknown_index(path: Path, dice: random.Random) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        table = dice.choice(_names(connection))
        connection.execute(f'create index unknown on "{table}" ("{dice.choice(_columns(connection, table))}")')


def _row_order(path: Path, dice: random.Random) -> None:
    old = path.with_suffix(".old")
    path.rename(old)
    build.rewrite(old, path, seed=dice.randrange(1000))
    old.unlink()


def _spelling(path: Path, dice: random.Random) -> None:
    """Keys in another order, other blanks, escapes in place of letters."""
    document = _load(path)
    for owner, key in _places(document):
        if isinstance(owner[key], dict):
            items = list(owner[key].items())
            dice.shuffle(items)
            owner[key].clear()
            owner[key].update(items)
    text = json.dumps(document, indent=dice.choice((None, 1, 7)), ensure_ascii=dice.random() < 0.5)
    _store(path, dice.choice(("", "\n\n  ")) + text + dice.choice(("", "\n")))


def _event_order(path: Path, dice: random.Random) -> None:
    document = _load(path)
    dice.shuffle(document["traceEvents"])
    _store(path, json.dumps(document))


def _unknown_keys(path: Path, dice: random.Random) -> None:
    document = _load(path)
    document["unknown"] = {"a": [value(dice)]}
    for event in document["traceEvents"]:
        if dice.random() < 0.3:
            event["unknown"] = value(dice)
    _store(path, json.dumps(document))


def _compression(path: Path, dice: random.Random) -> None:
    """Another level, in several members."""
    text = gzip.decompress(path.read_bytes())
    half = dice.randrange(len(text))
    path.write_bytes(b"".join(gzip.compress(part, dice.randrange(10)) for part in (text[:half], text[half:])))


def _key_order(path: Path, dice: random.Random) -> None:
    """Keys of some lines in another order, and blank lines."""
    out = []
    for line in path.read_text().splitlines():
        fields = list(ast.literal_eval(line).items())
        if dice.random() < 0.5:
            dice.shuffle(fields)
        out.append(repr(dict(fields)) + "\n" * dice.choice((1, 1, 2)))
    path.write_text("".join(out))


def _packing(path: Path, dice: random.Random) -> None:
    """Another method, order, and one more member that is no recording."""
    members = [*seeds._members(path.parent), ("run/more/readme.md", b"text")]
    dice.shuffle(members)
    method = dice.choice((zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    path.write_bytes(seeds.tar(members) if "tar" in path.name else seeds.zipped(members, method))


_RECORDING = (_vacuum, _unknown_table, _unknown_column, _unknown_index, _row_order)
NEUTRAL: dict[str, tuple[Change, ...]] = {
    "nsys": _RECORDING,
    "nvprof": _RECORDING,
    "capture": _RECORDING,
    "database": (_vacuum, _unknown_table, _unknown_column, _unknown_index),
    "kineto": (_spelling, _event_order, _unknown_keys),
    "kineto.gz": (_spelling, _event_order, _unknown_keys, _compression),
    "net.dict": (_key_order,),
    "tar.gz": (_packing,),
    "zip": (_packing,),
}
STRUCTURAL: dict[str, tuple[Change, ...]] = {
    **dict.fromkeys(SQLITE, (sqlite, sqlite, sqlite, page)),
    "kineto": (trace,),
    "kineto.gz": (trace, inside),
    "net.dict": (net_dict,),
    "tar.gz": (archive,),
    "zip": (archive,),
}


def changes(format_: str, dice: random.Random) -> tuple[Change, bool]:
    """A change of a file of a format: 10 % neutral, 55 % of its structure, the rest of its bytes."""
    share = dice.random()
    if share < 0.1:
        return dice.choice(NEUTRAL[format_]), True
    return dice.choice(STRUCTURAL[format_] if share < 0.65 else BYTES), False


assert NEUTRAL.keys() == STRUCTURAL.keys() == SEEDS.keys()
