# SPDX-License-Identifier: Apache-2.0
"""Tables as files to download: written whole into a temporary folder, then streamed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fastapi.responses import StreamingResponse

from pyprof import scratch
from pyprof.errors import UsageError
from pyprof.reports import Column, Report
from pyprof.reports.output import FORMATS
from pyprof.viewer.exports import MEDIA, sink
from pyprof.viewer.frames import Frame

if TYPE_CHECKING:
    import pandas as pd

    from pyprof.db.source import Source

_PIECE = 1 << 18
ANSWER: dict[int | str, dict[str, Any]] = {
    200: {"content": {media.partition(";")[0]: {} for media in MEDIA.values()}, "description": "The file."}
}


def as_report(name: str, title: str, columns: Sequence[Column]) -> Report:
    """A table that is no report, for writers of reports."""
    return Report(name, title, name, title, tuple(columns), _unmade, all_columns=tuple(columns))


def _unmade(source: Source) -> pd.DataFrame:
    raise UsageError("this table is one of the viewer")


async def answer(
    profile: str, made: Report, format: str, write: Callable[[str], Awaitable[None]]
) -> StreamingResponse:
    """What `write` puts into a file, as a download with the profile's name and the report's."""
    folder = scratch.Folder()
    target = os.path.join(folder.name, "export")
    try:
        await write(target)
        size = os.path.getsize(target)
    except BaseException:
        folder.cleanup()
        raise
    file = f"{profile}_{made.suffix}.{FORMATS[format].extension if format in FORMATS else format}"
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in file)
    return StreamingResponse(
        _pieces(target, folder),
        media_type=MEDIA[format],
        headers={
            "content-disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(file, safe='')}",
            "content-length": str(size),
        },
    )


async def of_frame(
    profile: str,
    made: Report,
    format: str,
    frame: Frame,
    sort: str | None,
    search: str,
    filters: Sequence[str],
) -> StreamingResponse:
    """A table in memory: the rows that pass, in order. Raises Trouble for columns that do not exist."""
    kept = await asyncio.to_thread(frame.select, search, filters, sort)

    async def write(target: str) -> None:
        await asyncio.to_thread(poured, made, target, format, profile, [frame.pandas(kept)])

    return await answer(profile, made, format, write)


def poured(made: Report, target: str, format: str, profile: str, parts: Iterable[pd.DataFrame]) -> None:
    """Write rows in parts."""
    with open(target, "wb") as file:
        writer = sink(format, made, file, profile)
        try:
            for part in parts:
                writer.part(part)
        finally:
            writer.close()


async def _pieces(target: str, folder: scratch.Folder) -> AsyncIterator[bytes]:
    try:
        with open(target, "rb") as file:
            while piece := await asyncio.to_thread(file.read, _PIECE):
                yield piece
    finally:
        folder.cleanup()
