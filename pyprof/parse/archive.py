# SPDX-License-Identifier: Apache-2.0
"""Archives of recordings (.tar, .tar.gz, .tgz, .zip): folders in one file. Unpacked beside nothing, into a folder that
is removed; names that lead out of it, links and devices are left out."""

from __future__ import annotations

import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from pyprof import inputs, scratch
from pyprof.errors import FormatError

_MOST = 10_000
_ENDINGS = (".tar", ".tar.gz", ".tgz", ".zip")
_FAULTS = (
    lzma.LZMAError,
    UnicodeError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    RuntimeError,
    NotImplementedError,
)


def is_archive(path: Path) -> bool:
    """Whether a file is called an archive and is one."""
    if not path.name.lower().endswith(_ENDINGS):
        return False
    try:
        return zipfile.is_zipfile(path) or tarfile.is_tarfile(path)
    except _FAULTS:
        return False


def names(path: Path) -> list[str]:
    """Names of the files in an archive. Raises FormatError."""
    with _opened(path) as archive:
        return [name for name, _, _ in _files(archive)]


@contextmanager
def unpacked(path: Path, wanted: Callable[[str], bool]) -> Iterator[Path]:
    """A folder with the files of an archive whose names are wanted, for a while. Raises FormatError, also for more than
    10,000."""
    with scratch.Folder() as name:
        folder = Path(name)
        with _opened(path) as archive:
            every = ((inside, size, file) for inside, size, file in _files(archive) if wanted(inside))
            files = [one for one in every if _safe(one[0])]
            if len(files) > _MOST:
                raise FormatError(
                    f"{path}: holds {len(files)} recordings, more than {_MOST}; unpack those that you want."
                )
            if isinstance(archive, zipfile.ZipFile):
                _check_ratio(path, files)
            needed, free = sum(size for _, size, _ in files), shutil.disk_usage(folder).free
            if needed > free:
                raise FormatError(
                    f"{path}: needs {needed} bytes to be unpacked, and {folder.parent} has {free}; set TMPDIR."
                )
            for inside, _, file in files:
                target = folder / inside
                target.parent.mkdir(parents=True, exist_ok=True)
                with _member(archive, file) as source, target.open("wb") as out:
                    shutil.copyfileobj(source, out, 1 << 20)
        yield folder


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with zipfile.ZipFile(path) if zipfile.is_zipfile(path) else tarfile.open(path) as archive:
            yield archive
    except _FAULTS as error:
        reason = str(error).partition("\n")[0][:200]  # a fault of its head quotes all of it
        raise FormatError(
            f"{path}: cannot be unpacked ({reason}). Copy it again, or unpack it yourself."
        ) from error


def _files(archive: Any) -> list[tuple[str, int, Any]]:
    """Name, size and member of each regular file."""
    if isinstance(archive, zipfile.ZipFile):
        return [(one.filename, one.file_size, one) for one in archive.infolist() if not one.is_dir()]
    return [(one.name, one.size, one) for one in archive.getmembers() if one.isreg()]


def _check_ratio(path: Path, files: list[tuple[str, int, Any]]) -> None:
    for inside, size, file in files:
        if size > inputs.largest(file.compress_size):
            raise FormatError(
                f"{path}: {inside} holds {size} bytes, which is too much for its size in the archive; if it is what "
                "you expect, unpack it first."
            )


def _member(archive: Any, file: Any) -> IO[bytes]:
    found: IO[bytes] = (
        archive.open(file) if isinstance(archive, zipfile.ZipFile) else archive.extractfile(file)
    )
    return found


def _safe(name: str) -> bool:
    """Whether a name stays in the folder.

    >>> [_safe(name) for name in ("a/b.json", "../b.json", "/etc/b.json", "a/../../b")]
    [True, False, False, False]
    """
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\\" not in name and "\0" not in name
