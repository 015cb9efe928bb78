# SPDX-License-Identifier: Apache-2.0
"""Load a recording: a file of a known format, a report of Nsight Systems, an archive, or a folder that is a run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pyprof.core import inputs, scratch
from pyprof.core.errors import FormatError
from pyprof.core.model import Device, Trace
from pyprof.core.sqlite_file import MAGIC, is_profile, is_sqlite, tables
from pyprof.parse import (
    archive,
    early_stop,
    folder,
    impossible_times,
    limits,
    missing_work,
    pool,
    reader_process,
)
from pyprof.parse.formats import EXPECTED, NO_RECORDING, formats

_Read = TypeVar("_Read")


def load(path: str | os.PathLike[str], files: Sequence[str] | None = None) -> Trace:
    """Read a recording of any known format, or a folder with all recordings of a run; `files`: the names of those that
    are of the run. Raises FormatError for anything else, and for times whose sum overflows."""
    trace = _load(Path(path)) if files is None else folder.load(Path(path), _read, files)
    trace.devices = [_sanitize_device(device) for device in trace.devices]
    for table in (trace.gpu, trace.launches, trace.ops):
        inputs.check_sum(str(path), table.end - table.start)
    ranges = trace.ranges
    inputs.check_sum(str(path), np.where(ranges.end.mask(), ranges.end.values - ranges.start, 0))
    return trace


class Request(NamedTuple):
    """A recording to read."""

    path: Path


def or_error(path: Path, read: Callable[[], _Read]) -> _Read | FormatError:
    """Return what `read` returns, or the error that says why the file cannot be read, without the frames that it came
    through: a caller that keeps it would keep itself."""
    try:
        return read()
    except FormatError as error:
        return error.with_traceback(None)
    except (MemoryError, OSError) as error:
        return FormatError(f"{path} cannot be read ({type(error).__name__}: {error}).")


def answer(request: Request) -> Trace | FormatError:
    return or_error(request.path, lambda: load(request.path))


def serve(descriptor: int) -> None:
    """Serve read requests in a child process until the pipe ends."""
    reader_process.answer(descriptor, answer)


def _read(paths: Sequence[Path]) -> list[Trace | FormatError]:
    return pool.read([Request(path) for path in paths], answer, serve)


def _sanitize_device(device: Device) -> Device:
    """Return a device without facts of the wrong type or range. These become unknown."""
    wrong: dict[str, Any] = {}
    if not isinstance(device.compute_capability, str):
        wrong["compute_capability"] = None
    for name in ("sm_count", "memory_bytes", "clock_hz", "bandwidth"):
        value = getattr(device, name)
        if not isinstance(value, int) or not -(2**63) <= value < 2**63:
            wrong[name] = None
    return device._replace(**wrong)


def _load(path: Path) -> Trace:
    inputs.check(path, EXPECTED)
    if path.is_dir():
        return folder.load(path, _read)
    _check_readable(path)
    if archive.is_archive(path):
        return folder.load_archive(path, _read)
    if path.suffix in (".nsys-rep", ".qdrep"):
        return _load_report(path)
    for format_ in formats():
        if format_.sniff(path):
            trace = limits.apply(format_.load(path))
            missing_work.note(trace)
            impossible_times.repair(trace)
            early_stop.note(trace)
            return trace
    if is_profile(path):
        raise FormatError(NO_RECORDING.format(path))
    if _is_dlprof_database(path):
        raise FormatError(
            f"{path} is a DLProf database, which lacks most of the recording; run dlprof --nsys_database on the nsys "
            "file beside it (nsys_profile.sqlite)."
        )
    raise FormatError(f"{path}: not a recording; expected {EXPECTED}.")


def _check_readable(path: Path) -> None:
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except OSError as error:
        raise FormatError(f"{path} cannot be read ({error.strerror}).") from error
    if not head:
        raise FormatError(f"{path} is empty; the recording was not written. Record again.")
    if head.startswith(MAGIC):
        page = int.from_bytes(head[16:18], "big")
        expected = int.from_bytes(head[28:32], "big") * (65536 if page == 1 else page)
        size = path.stat().st_size
        if size < expected:
            raise FormatError(f"{path} is cut off, {size} of {expected} bytes are there. Copy or export it again.")


def _is_dlprof_database(path: Path) -> bool:
    """Return whether a file is a database of DLProf (2019 to 2021). Its raw tables have their own names."""
    return is_sqlite(path) and any(name.startswith("read_only_") for name in tables(path))


def _load_report(path: Path) -> Trace:
    """Convert a report of Nsight Systems, whose format is closed, to SQLite with nsys, and load it."""
    nsys = shutil.which("nsys")
    command = "nsys export --type=sqlite --output FILE.sqlite"
    if nsys is None:
        raise FormatError(
            f"{path} is a report of Nsight Systems, and nsys is not installed; on a machine with nsys, export it with "
            f'"{command} {path.name}".'
        )
    with scratch.Folder() as folder:
        out = Path(folder) / "report.sqlite"
        arguments = [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={out}", str(path)]
        completed = subprocess.run(arguments, capture_output=True, text=True)
        if completed.returncode or not out.exists():
            last = (completed.stderr or completed.stdout).strip().splitlines()
            raise FormatError(
                f'{path}: nsys could not export it ({last[-1] if last else "no message"}); try "{command}".'
            )
        trace = load(out)
    trace.path = str(path)
    return trace
