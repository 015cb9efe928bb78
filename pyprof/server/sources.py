# SPDX-License-Identifier: Apache-2.0
"""Text of source files in call stacks: from the profile, else from below --source-root, else unavailable.

A name that is in no call stack of the profile is refused, whatever it points to. Below the root, a file is located
by its whole name: a relative name is resolved against the root, an absolute one must begin with it. No part of a
name is dropped to find a match, since a recording could otherwise point to unrelated files. Links are resolved
before the location is checked, and only text is shown: regular files of UTF-8 without NUL.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path

from pyprof.server.guarded_store import Guarded
from pyprof.views.details import frames
from pyprof.views.models import SourceText
from pyprof.views.problems import Trouble

LARGEST = 2 << 20  # bytes of a file
_AROUND = 200  # lines before and after


def files(store: Guarded) -> frozenset[str]:
    """Return the files named in the profile's call stacks."""
    return frozenset(
        frame.file for (text,) in store.rows("select frames from stack") if text for frame in frames(text) if frame.line
    )


def read(store: Guarded, names: frozenset[str], file: str, line: int, root: str | None) -> SourceText:
    """Return the lines around a line. Raises Trouble for a file that may not be read."""
    if file not in names:
        raise Trouble("missing", f"No call stack of this profile names {file}.", "file")
    text, origin = recorded(store, file), "recording"
    if text is None:
        if root is None:
            raise Trouble(
                "missing",
                f"The recording does not contain the text of {file}; start the viewer with --source-root DIR to read "
                "it from DIR.",
            )
        text, origin = below(root, file), "disk"
    lines = text.splitlines()
    first = max(line - _AROUND, 1)
    return SourceText.model_validate({
        "file": file, "line": line, "first": first, "lines": lines[first - 1 : line + _AROUND], "total": len(lines),
        "origin": origin,
    })  # fmt: skip


def available(store: Guarded, names: Collection[str], root: str | None) -> dict[str, bool]:
    """Return whether there is a text to show, by file."""
    recorded_files = {str(file) for (file,) in store.rows("select file from source")}
    return {name: name in recorded_files or (root is not None and _readable(root, name)) for name in names}


def _readable(root: str, name: str) -> bool:
    try:
        below(root, name)
    except Trouble:
        return False
    return True


def recorded(store: Guarded, file: str) -> str | None:
    """Return the text stored in the profile; None if there is none."""
    row = next(iter(store.rows("select text from source where file = ? limit 1", (file,))), None)
    return row[0] if row and isinstance(row[0], str) and len(row[0]) <= LARGEST else None


def below(root: str, file: str) -> str:
    """Return the text of a file below a folder. Raises Trouble if it is missing or not text.

    >>> import tempfile; top = tempfile.mkdtemp(); _ = Path(top, "net.py").write_text("x = 1")
    >>> below(top, "net.py"), below(top, top + "/net.py")
    ('x = 1', 'x = 1')
    """
    top = Path(root).resolve()
    missing = Trouble("missing", f"{file} is not below {top}.", "file")
    try:
        path = (top / file.replace("\\", "/")).resolve()
        if not path.is_relative_to(top):
            raise missing
        data = _content(path)
    except (OSError, ValueError, RuntimeError) as error:  # a name with NUL, circular links
        raise missing from error
    if data is None:
        raise missing
    if len(data) > LARGEST:
        raise Trouble("missing", f"{file} is larger than {LARGEST >> 20} MiB.", "file")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise Trouble("missing", f"{file} is not a source text.", "file")
    return text


def _content(path: Path) -> bytes | None:
    """Return the first bytes of a regular file, one more than the limit; None for a folder, a pipe or a device."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with open(os.open(path, flags), "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            return None
        return opened.read(LARGEST + 1)
