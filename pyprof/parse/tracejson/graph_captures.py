# SPDX-License-Identifier: Apache-2.0
"""Traces of a graph's capture beside the trace of its replay, as vLLM and SGLang write them: a folder `capture_traces`
with a trace per captured batch size, and what each is in `execution_details.json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from pyprof.errors import FormatError
from pyprof.model import Trace
from pyprof.parse import graph_replays

FOLDER, DETAILS = "capture_traces", "execution_details.json"
_RANK = re.compile(r"rank_?(\d+)")


def join(trace: Trace, path: Path, read: Callable[[Path], Trace]) -> None:
    """Give the kernels of graph replays the operators of the captures, if there are any. Changes the trace. A capture
    that cannot be read is counted."""
    folder = path.parent / FOLDER
    if not folder.is_dir() or not _has_replays(trace):
        return
    batches, found, sizes = _batches(folder), [], []
    for file in sorted(folder.iterdir()):
        if not file.name.endswith((".json", ".json.gz")) or file.name == DETAILS or _of_another(file, trace):
            continue
        try:
            found.append(read(file))
            sizes.append(batches.get(file.name))
        except FormatError:
            trace.drop("traces of a graph's capture that could not be read")
    graph_replays.attach(trace, found, sizes)


def _has_replays(trace: Trace) -> bool:
    return any("GraphLaunch" in trace.strings[code] for code in set(trace.launches.name.tolist()))


def _of_another(file: Path, trace: Trace) -> bool:
    """Whether a capture is of another rank, where both say which."""
    told, own = _RANK.search(file.name), trace.processes[0].rank if trace.processes else None
    return told is not None and own is not None and int(told[1]) != own


def _batches(folder: Path) -> dict[str, int]:
    """Batch size of each file, as far as it is told."""
    try:
        told = json.loads((folder / DETAILS).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    rows = [row for row in told if isinstance(row, dict)] if isinstance(told, list) else []
    return {
        str(row["file"]): row["batch_size"]
        for row in rows
        if type(row.get("batch_size")) is int and "file" in row
    }
