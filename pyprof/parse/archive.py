# SPDX-License-Identifier: Apache-2.0
"""Archives of recordings (.tar, .tar.gz, .tgz, .zip): folders in one file. They are unpacked into a temporary folder,
which is removed afterwards; members whose names lead out of it, links and devices are skipped.
"""

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

from pyprof.core import inputs, scratch
from pyprof.core.errors import FormatError

_MAX_FILES = 10_000
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
    """Return whether a file has an archive's name and is an archive."""
    if not path.name.lower().endswith(_ENDINGS):
        return False
    try:
        return zipfile.is_zipfile(path) or tarfile.is_tarfile(path)
    except _FAULTS:
        return False


def names(path: Path) -> list[str]:
    """Return the names of the files in an archive. Raises FormatError."""
    with _open(path) as archive:
        return [name for name, _, _ in _files(archive)]


@contextmanager
def unpacked(path: Path, select: Callable[[str], bool]) -> Iterator[Path]:
    """Yield a temporary folder with the files of an archive whose names `select` accepts. Raises FormatError, also for
    more than 10,000."""
    with scratch.Folder() as temporary:
        folder = Path(temporary)
        with _open(path) as archive:
            selected = ((name, size, file) for name, size, file in _files(archive) if select(name))
            files = [member for member in selected if _safe(member[0])]
            if len(files) > _MAX_FILES:
                raise FormatError(
                    f"{path} holds {len(files)} recordings, more than {_MAX_FILES}; unpack the ones that you need."
                )
            if isinstance(archive, zipfile.ZipFile):
                _check_ratio(path, files)
            needed, free = sum(size for _, size, _ in files), shutil.disk_usage(folder).free
            if needed > free:
                raise FormatError(
                    f"{path} needs {needed} bytes to be unpacked, and {folder.parent} has {free}; set TMPDIR."
                )
            for name, _, file in files:
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with _member(archive, file) as source, target.open("wb") as out:
                    shutil.copyfileobj(source, out, 1 << 20)
        yield folder


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    try:
        with zipfile.ZipFile(path) if zipfile.is_zipfile(path) else tarfile.open(path) as archive:
            yield archive
    except _FAULTS as error:
        reason = str(error).partition("\n")[0][:200]  # an error in the header quotes all of it
        raise FormatError(f"{path} cannot be unpacked ({reason}). Copy it again, or unpack it yourself.") from error


def _files(archive: Any) -> list[tuple[str, int, Any]]:
    """Return name, size and member of each regular file."""
    if isinstance(archive, zipfile.ZipFile):
        return [(member.filename, member.file_size, member) for member in archive.infolist() if not member.is_dir()]
    return [(member.name, member.size, member) for member in archive.getmembers() if member.isreg()]


def _check_ratio(path: Path, files: list[tuple[str, int, Any]]) -> None:
    for name, size, file in files:
        if size > inputs.largest(file.compress_size):
            raise FormatError(
                f"{path}: {name} holds {size} bytes, which is too much for its size in the archive; if this is "
                "expected, unpack it first."
            )


def _member(archive: Any, file: Any) -> IO[bytes]:
    stream: IO[bytes] = archive.open(file) if isinstance(archive, zipfile.ZipFile) else archive.extractfile(file)
    return stream


def _safe(name: str) -> bool:
    """Return whether a name stays inside the folder.

    >>> [_safe(name) for name in ("a/b.json", "../b.json", "/etc/b.json", "a/../../b")]
    [True, False, False, False]
    """
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\\" not in name and "\0" not in name
