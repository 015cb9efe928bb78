# SPDX-License-Identifier: Apache-2.0
"""Recording formats. Open folder: a file in it defines `sniff` and `load` and registers them.

A format is recognised by content, never by name. `load` returns a `Trace` and does not modify the file. To add one:
a module with a class that has these two functions, decorated with `@FORMATS.register("name")`. A third, `head`, is
optional: it returns the facts that tell runs apart (`parse.heads`), without reading the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from pyprof.core.errors import FormatError
from pyprof.core.model import Trace
from pyprof.core.registry import Registry, load_folder
from pyprof.parse.heads import Head


class Format(Protocol):
    """The interface of a recording format."""

    @staticmethod
    def sniff(path: Path) -> bool:
        """Return whether this is a file of the format. Must not raise for a readable file."""

    @staticmethod
    def load(path: Path) -> Trace:
        """Read the file. Raises FormatError with a sentence that names it."""


FORMATS: Registry[type[Format]] = Registry("format")
NO_RECORDING = (
    "{}: this command needs the original recording, and this is a profile database made from it; "
    "use `pyprof report` for its figures."
)
EXPECTED = "an export of Nsight Systems, a trace of torch.profiler, a database of nvprof, or a file written by pyprof"


def is_recognised(path: Path) -> bool:
    """Return whether a file is of one of the formats. Raises FormatError for one that looks like it and is damaged."""
    return any(format_.sniff(path) for format_ in formats())


def head(path: Path) -> Head:
    """Return what a recording says about its run without being read; nothing for one that cannot say it."""
    try:
        for format_ in formats():
            if format_.sniff(path):
                read: Callable[[Path], Head] | None = getattr(format_, "head", None)
                return Head() if read is None else read(path)
    except (OSError, FormatError):  # its fault is reported when it is read
        pass
    return Head()


def formats() -> Iterable[type[Format]]:
    """Return every format, including those of other packages."""
    load_folder(__name__, "pyprof.formats")
    return FORMATS.values()
