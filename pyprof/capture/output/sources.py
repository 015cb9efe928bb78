# SPDX-License-Identifier: Apache-2.0
"""Source text of the program's own files in its stacks, so that a reader of the recording sees the line.

Files of torch and of PyProf are left out, and very large ones. The text is the one Python uses for tracebacks
(`linecache`, which has the cells of a notebook too), else the file at the time the recording is written.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

from pyprof.capture.core.internal_errors import internal
from pyprof.capture.instrument import notebook_cells
from pyprof.core.marker import user_frames

LARGEST, MOST = 1 << 20, 1 << 24  # characters of one file, and of all


class Source(NamedTuple):
    """One file under its name in the stacks; the hash is that of the text in UTF-8."""

    path: str
    sha256: str
    text: str


def read(paths: Iterable[str]) -> tuple[list[Source], int]:
    """Return the readable files, by path, and the number of files left out for their size."""
    out: list[Source] = []
    left_out = total = 0
    for path in sorted(set(paths)):
        if not user_frames((f"{path}:1",)):
            continue
        try:
            text = "".join(linecache.getlines(path))
            digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        except internal():  # a custom loader of the program, or not a path
            continue
        if not text.strip():  # Python 3.13 reads an empty file as one empty line
            continue
        if len(text) > LARGEST or total + len(text) > MOST:
            left_out += 1
            continue
        total += len(text)
        out.append(Source(notebook_cells.name(path), digest, text))
    return out, left_out
