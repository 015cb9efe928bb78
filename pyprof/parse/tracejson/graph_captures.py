# SPDX-License-Identifier: Apache-2.0
"""Traces of a graph's capture beside the trace of its replay, as vLLM and SGLang write them: a folder `capture_traces`
with a trace per captured batch size, and a description of each in `execution_details.json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from pyprof.core.errors import FormatError
from pyprof.core.model import Trace
from pyprof.parse import graph_replays

FOLDER, DETAILS = "capture_traces", "execution_details.json"
_RANK = re.compile(r"rank_?(\d+)")


def join(trace: Trace, path: Path, read: Callable[[Path], Trace]) -> None:
    """Assign the operators of the captures to the kernels of graph replays, if there are any. Changes the trace. A
    capture that cannot be read is counted."""
    folder = path.parent / FOLDER
    if not folder.is_dir() or not _has_replays(trace):
        return
    batches, captures, sizes = _batches(folder), [], []
    for file in sorted(folder.iterdir()):
        if not file.name.endswith((".json", ".json.gz")) or file.name == DETAILS or _is_other_rank(file, trace):
            continue
        try:
            captures.append(read(file))
            sizes.append(batches.get(file.name))
        except FormatError:
            trace.drop("traces of a graph's capture that could not be read")
    graph_replays.attach(trace, captures, sizes)


def _has_replays(trace: Trace) -> bool:
    return any("GraphLaunch" in trace.strings[code] for code in set(trace.launches.name.tolist()))


def _is_other_rank(file: Path, trace: Trace) -> bool:
    """Return whether a capture is of another rank, if both record their rank."""
    match, own = _RANK.search(file.name), trace.processes[0].rank if trace.processes else None
    return match is not None and own is not None and int(match[1]) != own


def _batches(folder: Path) -> dict[str, int]:
    """Return the recorded batch size of each file."""
    try:
        details = json.loads((folder / DETAILS).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    rows = [row for row in details if isinstance(row, dict)] if isinstance(details, list) else []
    return {str(row["file"]): row["batch_size"] for row in rows if type(row.get("batch_size")) is int and "file" in row}
