# SPDX-License-Identifier: Apache-2.0
"""Text of source files that call stacks name: from the profile, else from below --source-root, else not at all.

A name that no call stack of the profile has is refused, whatever it points to. Below the root a file is found by its
whole name: a relative one is looked for in the root, an absolute one has to begin with it. No part of a name is left
out until something fits: a recording could lead to files that it does not know. Links are followed before it is
looked where the file is, and only text is shown: regular files of UTF-8 without NUL.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path

from pyprof.viewer.details import frames
from pyprof.viewer.guarded_store import Guarded
from pyprof.viewer.models import SourceText
from pyprof.viewer.problems import Trouble

LARGEST = 2 << 20  # bytes of a file
_AROUND = 200  # lines before and behind


def files(store: Guarded) -> frozenset[str]:
    """The files that the profile's call stacks name."""
    return frozenset(
        frame.file
        for (text,) in store.rows("select frames from stack")
        if text
        for frame in frames(text)
        if frame.line
    )


def read(store: Guarded, known: frozenset[str], file: str, line: int, root: str | None) -> SourceText:
    """Lines around a line. Raises Trouble for what is not to be read."""
    if file not in known:
        raise Trouble("missing", f"No call stack of this profile names {file}.", "file")
    text, origin = recorded(store, file), "recording"
    if text is None:
        if root is None:
            raise Trouble(
                "missing",
                f"The recording has no text of {file}; start the viewer with --source-root DIR to read it below DIR.",
            )
        text, origin = below(root, file), "disk"
    lines = text.splitlines()
    first = max(line - _AROUND, 1)
    return SourceText.model_validate({
        "file": file, "line": line, "first": first, "lines": lines[first - 1 : line + _AROUND], "total": len(lines),
        "origin": origin,
    })  # fmt: skip


def available(store: Guarded, names: Collection[str], root: str | None) -> dict[str, bool]:
    """Whether there is a text to show, by file."""
    kept = {str(file) for (file,) in store.rows("select file from source")}
    return {name: name in kept or (root is not None and _readable(root, name)) for name in names}


def _readable(root: str, name: str) -> bool:
    try:
        below(root, name)
    except Trouble:
        return False
    return True


def recorded(store: Guarded, file: str) -> str | None:
    """The text as the profile has it; None if it does not."""
    row = next(iter(store.rows("select text from source where file = ? limit 1", (file,))), None)
    return row[0] if row and isinstance(row[0], str) and len(row[0]) <= LARGEST else None


def below(root: str, file: str) -> str:
    """The text of a file below a folder. Raises Trouble for what is not there or is no text.

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
    except (OSError, ValueError, RuntimeError) as error:  # a name with NUL, links in a circle
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
        raise Trouble("missing", f"{file} is no source text.", "file")
    return text


def _content(path: Path) -> bytes | None:
    """The first bytes of a regular file, one more than may be shown; None of a folder, a pipe or a device."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with open(os.open(path, flags), "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            return None
        return opened.read(LARGEST + 1)
