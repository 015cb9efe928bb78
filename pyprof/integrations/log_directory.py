# SPDX-License-Identifier: Apache-2.0
"""Profiles in a log directory of TensorBoard, by the names of files alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

TRACES = (".pt.trace.json", ".pt.trace.json.gz")
_DATABASE = ".sqlite"


def recordings(logdir: Path) -> Iterator[Path]:
    """Yield profile databases, and folders with traces or recordings, by their names alone: nothing is opened."""
    for name, below, files in os.walk(logdir):
        below[:] = sorted(child for child in below if not child.startswith("."))
        traces = False
        for file in sorted(files):
            if file.startswith("."):
                continue
            if file.endswith(_DATABASE):
                yield Path(name) / file
            traces = traces or file.endswith(TRACES)
        if traces:
            yield Path(name)
