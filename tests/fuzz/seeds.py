# SPDX-License-Identifier: Apache-2.0
"""Small intact files of every format that PyProf reads: what the fuzzer changes.

A format has one or more seeds. Add one: a function that writes it, in `SEEDS`.
"""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tests import build, kineto
from tests.build import recording
from tests.parse.test_invariance import OPERATORS, training

_THREAD = build._global(build.PROCESS, 1)
# What PyProf's own capture writes beyond what tests.build has: pauses, sources, allocations, kernels.
CAPTURED = f"""
create table PYPROF_PAUSE (start integer, end integer, globalTid integer, what text);
insert into PYPROF_PAUSE values (300, 340, {_THREAD}, 'reading');
create table PYPROF_KERNEL (kernelId integer, sharedMemory integer);
insert into PYPROF_KERNEL values (1, 2048);
create table PYPROF_SOURCE (path text, sha256 text);
create table PYPROF_SOURCE_TEXT (sha256 text, text text);
insert into PYPROF_SOURCE values ('train.py', '2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae');
insert into PYPROF_SOURCE_TEXT values ('2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae', 'foo');
create table PYPROF_MEMORY (
    time integer, globalTid integer, address integer, bytes integer, allocated integer, reserved integer,
    device text, deviceId integer, call integer, opNameId integer);
insert into PYPROF_MEMORY values (120, {_THREAD}, 4096, 512, 512, 1024, 'cuda:0', 0, null, null);
insert into PYPROF_MEMORY values (420, {_THREAD}, 4096, -512, 0, 1024, 'cuda:0', 0, null, null);
insert into PYPROF_LOST values ('operators over the limit', 3);
"""


def _capture(path: Path) -> None:
    what = recording(OPERATORS)
    gpu = training(True)
    what.ranges += gpu.ranges
    what.launches += gpu.launches
    what.kernels += gpu.kernels
    what.steps = [(0, 100, 400), (1, 400, 900)]
    build.write_capture(path, what)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(CAPTURED)


def _operators(path: Path) -> None:
    build.write_capture(path, recording(OPERATORS))


def _database(write: Callable[[Path], object]) -> Callable[[Path], None]:
    def made(path: Path) -> None:
        import pyprof

        source = path.with_suffix(".recording")
        write(source)
        profile = pyprof.load(source)
        profile.aggregate(0, 0)
        profile.save(path)
        profile.database.close()
        source.unlink()

    return made


def _kineto(path: Path) -> None:
    text = json.dumps(kineto.document(kineto.training(), baseTimeNanoseconds=1_700_000_000_000_000_000))
    path.write_text(text)


def _memory(path: Path) -> None:
    """A trace that lacks the head and has allocations, one event per line."""
    events = kineto.training()
    events += [
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": kineto.PID, "tid": kineto.TID, "ts": 3.5 + i,
         "s": "t", "args": {"Total Reserved": 0, "Total Allocated": 64 * i, "Bytes": 64, "Addr": 4096 * i,
                            "Device Id": -1, "Device Type": 0}}
        for i in range(3)
    ]  # fmt: skip
    path.write_text('{"traceEvents": [\n' + ",\n".join(map(json.dumps, events)) + "\n]}")


def _net_dict(path: Path) -> None:
    source = path.with_suffix(".recording")
    rows = build.read(build.write_nsys(source, training(True)), memory=True)
    source.unlink()
    path.write_text("".join(f"{row}\n" for row in rows))


def _members(folder: Path) -> list[tuple[str, bytes]]:
    """A run of two ranks, and a file that is no recording."""
    first, second = folder / ".0", folder / ".1"
    _kineto(first)
    build.write_nsys(second, training(True))
    out = [
        ("run/rank0.pt.trace.json.gz", gzip.compress(first.read_bytes(), mtime=0)),
        ("run/rank1.sqlite", second.read_bytes()),
        ("run/notes.txt", b"not a recording"),
    ]
    first.unlink()
    second.unlink()
    return out


def _gz(path: Path) -> None:
    _kineto(path)
    path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))


def tar(members: list[tuple[str, bytes]], compressed: bool = True) -> bytes:
    """The bytes of a .tar.gz."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as out:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            out.addfile(member, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0) if compressed else plain.getvalue()


def zipped(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """The bytes of a .zip."""
    plain = io.BytesIO()
    with zipfile.ZipFile(plain, "w", method) as out, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two of one name
        for name, content in members:
            out.writestr(zipfile.ZipInfo(name), content)
    return plain.getvalue()


def _nsys(registered: bool, lean: bool) -> Callable[[Path], None]:
    return lambda path: (build.write_nsys(path, training(True), registered, lean), None)[1]


def _nvprof(path: Path) -> None:
    build.write_nvprof(path, training(False))


# Name of the file, and what writes the seeds.
SEEDS: dict[str, tuple[str, tuple[Callable[[Path], None], ...]]] = {
    "nsys": ("net.sqlite", (_nsys(True, False), _nsys(False, True))),
    "nvprof": ("net.sql", (_nvprof,)),
    "capture": ("net.sqlite", (_capture, _operators)),
    "kineto": ("net.pt.trace.json", (_kineto, _memory)),
    "kineto.gz": ("net.pt.trace.json.gz", (_gz,)),
    "database": ("net_dldb.sqlite", (_database(_capture), _database(_nsys(True, False)), _database(_memory))),
    "net.dict": ("net.dict", (_net_dict,)),
    "tar.gz": ("run.tar.gz", (lambda path: (path.write_bytes(tar(_members(path.parent))), None)[1],)),
    "zip": ("run.zip", (lambda path: (path.write_bytes(zipped(_members(path.parent))), None)[1],)),
}
SQLITE = ("nsys", "nvprof", "capture", "database")
