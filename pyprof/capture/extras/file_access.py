# SPDX-License-Identifier: Apache-2.0
"""`io=True`: opening, reading and writing of files as ranges, for the share of time that a program spends on I/O.

`open` is replaced for the length of the window by an object that calls it (not a function: one would become a method
where a class body says `open = open`) and returns the original file object. Functions of modules are intercepted
like those of torch: the module keeps them, a call gets a wrapper (`patch.py`). One row per outermost call, table
PYPROF_IO.

Not recorded: reads and writes through a file object (its class is built in and cannot be watched without
substituting the object), memory maps, C++ readers, and other processes, such as the workers of a DataLoader. Time in
those shows as the wait for the next batch, a range of torch (`enumerate(DataLoader)#...`) that is recorded anyway.

To add a function: a row in `ACCESSES`.
"""

from __future__ import annotations

import builtins
import inspect
import io
import os
import pathlib
import stat
import sys
import threading
from array import array
from collections.abc import Callable, Iterable
from time import time_ns
from types import ModuleType
from typing import Any, NamedTuple

from pyprof.capture.core.internal_errors import tolerated
from pyprof.capture.extras.patch_target import Watched
from pyprof.capture.instrument.attribute_registry import Registry
from pyprof.capture.instrument.lookups import always, method
from pyprof.capture.instrument.recorder import Recorder
from pyprof.capture.output.capture_file import Recording, Table

_CREATE = """
-- One access to a file: open, a read, a write. fileId is the file's own name without its folder, null where unknown;
-- bytes is null where the function does not tell.
create table PYPROF_IO (
    start integer, end integer, globalTid integer, nameId integer, fileId integer, bytes integer)
"""
_FIELDS = 6  # start, end, thread, function, file, bytes; -1: not known
_LONGEST = 200  # characters of a file's name


class Access(NamedTuple):
    """Function that reads or writes a file: its module and name, the argument that is the file, and its number of
    bytes."""

    module: str
    function: str
    place: int = 0
    keyword: str = "file"
    size: Callable[[Any, Any], int | None] = lambda result, file: None


def _length(result: Any, file: Any) -> int | None:
    return len(result) if isinstance(result, bytes) else None


def _number(result: Any, file: Any) -> int | None:
    return result if isinstance(result, int) else None


def _array(result: Any, file: Any) -> int | None:
    size = getattr(result, "nbytes", None)
    return size if isinstance(size, int) else None


def _written(result: Any, file: Any) -> int | None:
    """Return the size of a file that was written as a whole."""
    try:
        return os.stat(file).st_size if isinstance(file, (str, os.PathLike)) else None
    except OSError:
        return None


ACCESSES = (
    Access("os", "read", 0, "fd", _length),
    Access("os", "pread", 0, "fd", _length),
    Access("os", "readv", 0, "fd", _number),
    Access("os", "preadv", 0, "fd", _number),
    Access("os", "write", 0, "fd", _number),
    Access("os", "pwrite", 0, "fd", _number),
    Access("os", "writev", 0, "fd", _number),
    Access("os", "pwritev", 0, "fd", _number),
    Access("os", "fsync", 0, "fd"),
    Access("shutil", "copyfile", 1, "dst", _written),
    Access("shutil", "copy", 1, "dst"),
    Access("shutil", "copy2", 1, "dst"),
    Access("shutil", "copytree", 1, "dst"),
    Access("json", "load", 0, "fp"),
    Access("json", "dump", 1, "fp"),
    Access("pickle", "load", 0, "file"),
    Access("pickle", "dump", 1, "file"),
    Access("torch", "load", 0, "f"),
    Access("torch", "save", 1, "f", _written),
    Access("torch.jit", "load", 0, "f"),
    Access("torch.jit", "save", 1, "f", _written),
    Access("numpy", "load", 0, "file"),
    Access("numpy", "save", 0, "file", _written),
    Access("numpy", "savez", 0, "file", _written),
    Access("numpy", "savez_compressed", 0, "file", _written),
    Access("numpy", "fromfile", 0, "file", _array),
    Access("numpy", "loadtxt", 0, "fname"),
    Access("numpy", "savetxt", 0, "fname", _written),
    Access("PIL.Image", "open", 0, "fp"),
    Access("cv2", "imread", 0, "filename"),
    Access("cv2", "imwrite", 0, "filename", _written),
    Access("pandas", "read_csv", 0, "filepath_or_buffer"),
    Access("pandas", "read_parquet", 0, "path"),
    Access("pandas", "read_pickle", 0, "filepath_or_buffer"),
    Access("safetensors.torch", "load_file", 0, "filename"),
    Access("safetensors.torch", "save_file", 1, "filename", _written),
    Access("torchvision.io", "read_image", 0, "path"),
    Access("torchvision.io", "read_file", 0, "path"),
    Access("torchvision.io", "write_file", 0, "filename", _written),
    Access("torchaudio", "load", 0, "uri"),
    Access("torchaudio", "save", 0, "uri", _written),
)
_OPEN = Access("builtins", "open")
_PATH = (
    Access("pathlib.Path", "read_bytes", 0, "self", _length),
    Access("pathlib.Path", "read_text", 0, "self"),
    Access("pathlib.Path", "write_bytes", 0, "self", _number),
    Access("pathlib.Path", "write_text", 0, "self", _written),
)
_NAMES = [f"{access.module}.{access.function}".removeprefix("builtins.") for access in (*ACCESSES, *_PATH, _OPEN)]


class _Busy(threading.local):
    """Flag per thread: set inside a recorded access."""

    inside = False


class _Open:
    """Replacement of `open` during a window. If the program keeps it in a variable, it only calls `open` afterwards."""

    def __init__(self, original: Callable[..., Any], timed: Callable[..., Any]):
        self._original, self._timed = original, timed
        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(self, name, getattr(original, name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._timed(*args, **kwargs)

    def __reduce__(self) -> str:
        return "open"  # pickled by name, as the original

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._original)


class FileAccess:
    """File accesses so far."""

    def __init__(self, options: object, max_events: int, stacks: object):
        self._max_events = max_events
        self._active = False
        self._busy = _Busy()
        self._watched: list[Watched] = []
        self.clear()

    def __len__(self) -> int:
        return len(self._events) // _FIELDS

    def start(self, registry: Registry) -> None:
        self._watched = list(self._modules())
        for watched in self._watched:
            watched.install()
        for access in _PATH:
            # Some Python versions define it in a base class.
            original = inspect.getattr_static(pathlib.Path, access.function)
            timed = self._timed(original, access)
            registry.replace(pathlib.Path, access.function, method(original, always(timed)))
        replaced = _Open(open, self._timed(open, _OPEN))
        # pickle looks it up in the last one: `io`, or `_io` from Python 3.12 on.
        for module in dict.fromkeys((builtins, io, sys.modules[open.__module__])):
            registry.replace(module, "open", replaced)
        self._active = True

    def stop(self) -> None:
        self._active = False
        for watched in reversed(self._watched):
            watched.remove()
        self._watched = []  # a module that the program imports later is watched in the next window

    def take(self, recorder: Recorder) -> None:
        """Do nothing: rows are complete when they are added."""

    def clear(self) -> None:
        self._events = array("q")
        self._files: dict[str, int] = {}
        self._reason = f"file accesses after the first {self._max_events}"
        self.lost: dict[str, int] = {self._reason: 0}

    def _modules(self) -> Iterable[Watched]:
        """Yield the modules of the table that the program has imported."""
        of_module: dict[str, list[Access]] = {}
        for access in ACCESSES:
            of_module.setdefault(access.module, []).append(access)
        for name, accesses in of_module.items():
            module = sys.modules.get(name)
            if isinstance(module, ModuleType):
                functions = ((access, vars(module).get(access.function)) for access in accesses)
                wrappers = {a.function: self._timed(value, a) for a, value in functions if callable(value)}
                yield Watched(module, wrappers)

    def _timed(self, original: Callable[..., Any], access: Access) -> Callable[..., Any]:
        number = _NAMES.index(f"{access.module}.{access.function}".removeprefix("builtins."))
        busy, place, keyword = self._busy, access.place, access.keyword

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._active or busy.inside:
                return original(*args, **kwargs)
            result = None
            start = time_ns()
            try:
                busy.inside = True
                result = original(*args, **kwargs)
                return result
            finally:
                busy.inside = False  # before any call that ctrl-C may interrupt
                end = time_ns()
                with tolerated():  # never into the user's code
                    file = args[place] if len(args) > place else kwargs.get(keyword)
                    if _is_file(file):
                        self._add(start, end, number, _name(file), access.size(result, file))

        return call

    def _add(self, start: int, end: int, number: int, name: str | None, size: int | None) -> None:
        if len(self) >= self._max_events:
            self.lost[self._reason] += 1
            return
        file = -1 if name is None else self._files.setdefault(name, len(self._files))
        tid = threading.get_native_id()
        self._events.extend((start, end, tid, number, file, -1 if size is None else size))

    def facts(self) -> dict[str, str]:
        return {"io.accesses": str(len(self))}

    def tables(self) -> list[Table]:
        return [Table(_CREATE, "insert into PYPROF_IO values (?, ?, ?, ?, ?, ?)", self._rows)]

    def _rows(self, recording: Recording, code: Callable[[str], int], process: int) -> Iterable[tuple[object, ...]]:
        files = list(self._files)
        columns = [self._events[index::_FIELDS] for index in range(_FIELDS)]
        for start, end, tid, function, file, size in sorted(zip(*columns)):
            yield (
                start - recording.start, end - recording.start, process | tid, code(_NAMES[function]),
                code(files[file]) if file >= 0 else None, size if size >= 0 else None,
            )  # fmt: skip


def _is_file(file: Any) -> bool:
    """Return whether an argument names a file of a file system: a pipe, a socket or a buffer in memory does not."""
    if isinstance(file, int):
        return stat.S_ISREG(os.fstat(file).st_mode)
    return file is not None and not isinstance(file, (io.BytesIO, io.StringIO))


def _name(file: Any) -> str | None:
    """Return the file's name without its folder, which may reveal more than the recording should.

    >>> _name("/home/user/secret/net.pt"), _name(7)
    ('net.pt', None)
    """
    if isinstance(file, io.IOBase):
        file = getattr(file, "name", None)
    if not isinstance(file, (str, bytes, os.PathLike)):
        return None
    return os.path.basename(os.fsdecode(file))[:_LONGEST]
