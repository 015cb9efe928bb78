# SPDX-License-Identifier: Apache-2.0
"""Files of a fleet by their URLs, on any store that fsspec knows: a folder of this machine, s3://, gs://, memory://."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyprof.core import atomic_file
from pyprof.core.errors import FormatError, PyProfError


class Place:
    """A file or a folder. Another process may have the same by its `url`."""

    def __init__(self, url: str):
        """Raises PyProfError for a store that is unknown, or whose package is not installed."""
        import fsspec

        try:
            self._fs: Any
            self._fs, self._path = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise PyProfError(f"{url}: this store cannot be used ({error}).") from error
        self.url = url

    @property
    def local(self) -> Path | None:
        """Path on this machine; None for another store."""
        return Path(self._path) if "file" in _protocols(self._fs) else None

    def __truediv__(self, name: str) -> Place:
        return Place(f"{self.url.rstrip('/')}/{name}")

    def version(self) -> str:
        """Return what changes when the file does. Raises FormatError for one that cannot be read."""
        with self._errors():
            info = self._fs.info(self._path)
            stamps = [info.get(name) for name in ("size", "ETag", "etag", "mtime", "LastModified", "last_modified")]
        return repr(stamps)

    def files(self) -> list[str]:
        """Return the URLs of the files of a folder, or of those that a pattern names. Raises FormatError."""
        with self._errors():
            self._fs.invalidate_cache()
            paths = self._fs.glob(self._path) if "*" in self._path else self._fs.ls(self._path, detail=False)
            return [self._fs.unstrip_protocol(path) for path in sorted(paths) if self._fs.isfile(path)]

    def is_folder(self) -> bool:
        """Return whether this is a folder."""
        with self._errors():
            return bool(self._fs.isdir(self._path))

    def read(self) -> bytes | None:
        """Return the content; None without such a file. Raises FormatError."""
        with self._errors():
            try:
                self._fs.invalidate_cache()
                return bytes(self._fs.cat_file(self._path))
            except FileNotFoundError:
                return None

    def write(self, source: str | bytes) -> None:
        """Write a file's content, or bytes, completely or not at all. Raises FormatError."""
        with self._errors():
            if self.local is None:  # an object is there when all of it is
                if isinstance(source, str):
                    self._fs.put_file(source, self._path)
                else:
                    self._fs.pipe_file(self._path, source)
                return
            self.local.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file.named(os.fspath(self.local)) as name:
                if isinstance(source, str):
                    shutil.copyfile(source, name)
                else:
                    Path(name).write_bytes(source)

    def fetch(self, folder: str) -> Path:
        """Return the file on this machine, a copy in `folder` if it is elsewhere. Raises FormatError."""
        if self.local is not None:
            return self.local
        target = os.path.join(folder, os.path.basename(self._path))
        with self._errors():
            self._fs.get_file(self._path, target)
        return Path(target)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of a store into one sentence."""
        try:
            yield
        except Exception as error:  # each store raises its own
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise FormatError(f"{self.url} cannot be read or written ({reason}).") from error


def digest(*parts: str) -> str:
    """Return 16 digits that stand for texts."""
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)
