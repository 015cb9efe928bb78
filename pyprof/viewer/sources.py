# SPDX-License-Identifier: Apache-2.0
"""Text of source files that call stacks name: from the profile, else from below --source-root, else not at all.

A name that no call stack of the profile has is refused, whatever it points to. Below the root a file is found by the
longest end of its name that exists there, links followed before it is looked where it is: nothing outside is read.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path, PurePosixPath

from pyprof.viewer.details import frames
from pyprof.viewer.guarded import Guarded
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
        text, origin = _below(root, file), "disk"
    lines = text.splitlines()
    first = max(line - _AROUND, 1)
    return SourceText.model_validate({
        "file": file, "line": line, "first": first, "lines": lines[first - 1 : line + _AROUND], "total": len(lines),
        "origin": origin,
    })  # fmt: skip


def available(store: Guarded, names: Collection[str], root: str | None) -> dict[str, bool]:
    """Whether there is a text to show, by file."""
    kept = {str(file) for (file,) in store.rows("select file from source")}
    top = None if root is None else Path(root).resolve()
    return {name: name in kept or (top is not None and found(top, name) is not None) for name in names}


def recorded(store: Guarded, file: str) -> str | None:
    """The text as the profile has it; None if it does not."""
    row = next(iter(store.rows("select text from source where file = ? limit 1", (file,))), None)
    return row[0] if row and isinstance(row[0], str) and len(row[0]) <= LARGEST else None


def _below(root: str | None, file: str) -> str:
    if root is None:
        raise Trouble(
            "missing",
            f"The recording has no text of {file}; start the viewer with --source-root DIR to read it below DIR.",
        )
    top = Path(root).resolve()
    path = found(top, file)
    if path is None:
        raise Trouble("missing", f"{file} is not below {top}.")
    try:
        if path.stat().st_size > LARGEST:
            raise Trouble("missing", f"{file} is larger than {LARGEST >> 20} MiB.")
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise Trouble("missing", f"{file}: cannot be read ({error.strerror}).") from error


def found(top: Path, file: str) -> Path | None:
    """The file below a folder that the longest end of a name leads to.

    >>> import tempfile; top = Path(tempfile.mkdtemp()).resolve(); _ = (top / "net.py").write_text("")
    >>> found(top, "/home/user/net.py") == top / "net.py", found(top, "/etc/passwd"), found(top, "../../etc/passwd")
    (True, None, None)
    """
    parts = [part for part in PurePosixPath(file.replace("\\", "/")).parts if part not in ("/", "..", ".")]
    for start in range(len(parts)):
        try:
            path = top.joinpath(*parts[start:]).resolve()
            if path.is_relative_to(top) and path.is_file():
                return path
        except (OSError, ValueError):
            continue
    return None
