# SPDX-License-Identifier: Apache-2.0
"""Atomic file creation: a file appears under its name only when it is complete.

A recording is first a database without a name: SQLite fills a scratch file whose name is removed as soon as it is
open. Its content is then copied into a second file without a name (O_TMPFILE), which is linked under the final name.
So a killed process leaves nothing behind: the kernel frees files without a name. Needs twice the size of the file
for a moment.

A file with its final name survives a power failure: file and folder are synchronized with the disk (fsync). A
replaced file passes on its permissions.

A temporary name exists for an instant when the scratch file is created and when an older file is replaced, and
during the copy on file systems without O_TMPFILE (NFS, some network and FUSE ones). It is `.pyprof-*.part`; its
owner holds a lock on it (flock), and the next recording into that folder removes those that are not locked.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote

from pyprof.core.errors import CaptureError

fcntl: Any
try:
    import fcntl
except ImportError:  # no Unix
    fcntl = None

_PROBE = 4096  # bytes, a block: a full disk refuses it
_PREFIX, _SUFFIX, _JOURNAL = ".pyprof-", ".part", "-journal"


def check(path: str) -> None:
    """Raise CaptureError with the reason if the file cannot be written: better known before the training."""
    try:
        _check_target(path)
        folder = _folder(path)
        file = _unnamed(folder)
        if file is None:
            name, file = _scratch(folder)
            os.unlink(name)
        try:
            if os.write(file, bytes(_PROBE)) < _PROBE:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)
    except OSError as error:
        raise CaptureError(f"cannot be written ({_reason(error)}). Choose another file.") from error


@contextmanager
def database(path: str, before: Callable[[str], object] | None = None) -> Iterator[sqlite3.Connection]:
    """Create an empty database that becomes the file `path` at the end, or nothing. Raises CaptureError on failure.

    `before` is called with the full name just before the file gets it.
    """
    try:
        with _database(path, before) as connection:
            yield connection
    except (OSError, sqlite3.Error) as error:
        raise CaptureError(f"the recording could not be written ({_reason(error)}).") from error


@contextmanager
def _database(path: str, before: Callable[[str], object] | None) -> Iterator[sqlite3.Connection]:
    _check_target(path)
    folder = _folder(path)
    _remove_abandoned(folder)
    name, file = _scratch(folder)
    with open(file, "rb") as content:
        try:
            # No locks, since no other process opens the file; as a URI, since a name may be any bytes.
            uri = f"file:{quote(os.fsencode(name))}?nolock=1"
            connection = sqlite3.connect(uri, uri=True, isolation_level=None)
        finally:
            os.unlink(name)
        try:
            connection.executescript("pragma journal_mode = off; pragma synchronous = off;")
            yield connection
        finally:
            connection.close()
        target = os.path.realpath(path)  # keep a symbolic link, replace its target
        with exclusive(folder):
            if before is not None:
                before(target)
            _publish_link(content, target) or _publish_rename(content, target)


@contextmanager
def exclusive(folder: str) -> Iterator[None]:
    """Keep others from publishing in a folder: two that end at the same time would not see each other. Raises OSError.

    A lock of the folder. If its owner is stopped, others wait for five seconds at most.
    """
    file = os.open(folder, os.O_RDONLY)
    try:
        for _ in range(100 if fcntl is not None else 0):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.05)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(file)


@contextmanager
def named(path: str) -> Iterator[str]:
    """Yield the name of an empty file that becomes `path` at the end, or nothing: for writers that need a name.

    Raises OSError. Leftovers of a killed process are removed by the next one that writes into the folder.
    """
    _check_target(path)
    _remove_abandoned(_folder(path))
    name, descriptor = _scratch(_folder(path))
    try:
        yield name
        target = os.path.realpath(path)
        with open(name, "rb") as content:
            _finish(content.fileno(), target)
        os.replace(name, target)
        _sync_folder(_folder(path))
    except BaseException:
        for leftover in (name + _JOURNAL, name):
            with suppress(FileNotFoundError):
                os.unlink(leftover)
        raise
    finally:
        os.close(descriptor)


def _folder(path: str) -> str:
    return os.path.dirname(os.path.realpath(path))


def _check_target(path: str) -> None:
    """Refuse a target that cannot or must not be replaced: a folder, a device, a write-protected file."""
    if not os.path.basename(path):
        raise OSError("it is the name of a folder")
    if not os.path.isdir(_folder(path)):
        raise OSError("the folder does not exist")
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise OSError("it is a folder" if stat.S_ISDIR(mode) else "it is not a file")
    os.close(os.open(path, os.O_WRONLY))  # raises if it is write-protected, which renaming does not check


def _reason(error: Exception) -> str:
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else str(error)


def _scratch(folder: str) -> tuple[str, int]:
    """Create a new locked file; return its name and descriptor."""
    while True:
        name = os.path.join(folder, f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}")
        file = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_CLOEXEC", 0), 0o666)
        if _lock(file) and os.fstat(file).st_nlink:
            return name, file
        os.close(file)  # another process removed it as abandoned before it was locked


def _lock(file: int) -> bool:
    """Lock a file until it is closed; return False if another process holds the lock. Without lock support, succeed."""
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True
    return True


def _remove_abandoned(folder: str) -> None:
    """Remove files of killed processes, if locks can tell them from those in use."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIX):
                with suppress(OSError):
                    _remove_if_abandoned(entry.path)


def _remove_if_abandoned(name: str) -> None:
    if fcntl is None:
        return
    file = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with suppress(FileNotFoundError):
            os.unlink(name + _JOURNAL)  # SQLite's; removed before the file, or it would never be found
        os.unlink(name)
    finally:
        os.close(file)


def _copy(content: Any, file: int) -> None:
    """Copy the scratch file; the descriptor stays open."""
    content.seek(0)
    with open(file, "wb", closefd=False) as copy:
        shutil.copyfileobj(content, copy, 1 << 20)


def _finish(file: int, target: str) -> None:
    """Prepare a complete file for its name: copy the permissions of the old file, then sync to disk."""
    with suppress(FileNotFoundError):
        mode = stat.S_IMODE(os.stat(target).st_mode)
        with suppress(OSError, AttributeError):  # a system without permissions
            os.fchmod(file, mode)
    _sync(file)


def _sync(file: int) -> None:
    """Sync a file to disk. Raises OSError if the disk rejects the data."""
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in (
            errno.EBADF,
            errno.EINVAL,
            errno.ENOTSUP,
            errno.EROFS,
        ):  # no support for syncing
            raise


def _sync_folder(folder: str) -> None:
    try:
        file = os.open(folder, os.O_RDONLY)
    except OSError:  # writable but not readable; Windows
        return
    try:
        _sync(file)
    finally:
        os.close(file)


def _unnamed(folder: str) -> int | None:
    """Create a file without a name; return None if the file system does not support it, or the folder is not
    writable."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    except (OSError, AttributeError):
        return None


def _publish_link(content: Any, path: str) -> bool:
    """Publish through a file without a name; return False if the file system does not support it."""
    folder, base = os.path.split(path)
    try:
        directory = os.open(folder, os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, AttributeError):
        return False
    try:
        file = _unnamed(folder)
        if file is None:
            return False
        try:
            if not os.path.exists(f"/proc/self/fd/{file}"):
                return False
            _lock(file)
            _copy(content, file)
            _finish(file, path)
            if not _link(file, directory, base):
                return False
            _sync(directory)
            return True
        finally:
            os.close(file)
    finally:
        os.close(directory)


def _link(file: int, directory: int, base: str) -> bool:
    """Link a file without a name under a name, replacing an existing file."""
    source = f"/proc/self/fd/{file}"  # followed because a directory is passed: os.link uses linkat then
    try:
        os.link(source, base, src_dir_fd=directory, dst_dir_fd=directory)
        return True
    except FileExistsError:
        pass
    except OSError:
        return False
    name = f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}"
    os.link(source, name, src_dir_fd=directory, dst_dir_fd=directory)
    try:
        os.replace(name, base, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        os.unlink(name, dir_fd=directory)
        raise
    return True


def _publish_rename(content: Any, path: str) -> bool:
    """Publish through a temporary name."""
    name, file = _scratch(os.path.dirname(path))
    try:
        try:
            _copy(content, file)
            _finish(file, path)
        finally:
            os.close(file)
        os.replace(name, path)
        _sync_folder(os.path.dirname(path))
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name)
        raise
    return True
