# SPDX-License-Identifier: Apache-2.0
"""Tables as files to download: written whole into a temporary folder by processes of their own, then streamed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import StreamingResponse

from pyprof import scratch
from pyprof.render.writers import FORMATS
from pyprof.reports import Report
from pyprof.viewer.column_table import Frame, arrow, stream
from pyprof.viewer.exports import MEDIA, outline
from pyprof.viewer.library import Opened
from pyprof.viewer.request_context import HOUR, patiently

_PIECE = 1 << 18
ANSWER: dict[int | str, dict[str, Any]] = {
    200: {"content": {media.partition(";")[0]: {} for media in MEDIA.values()}, "description": "The file."}
}


async def of_frame(
    request: Request,
    opened: Opened,
    made: Report,
    format: str,
    frame: Frame,
    sort: str | None,
    search: str,
    filters: Sequence[str],
    title: str = "",
) -> StreamingResponse:
    """A table in memory: the rows that pass, in order; `title`: if it is not the profile's name. Raises Trouble for
    columns that do not exist."""

    def give() -> bytes:
        return stream(arrow(frame.pandas(frame.select(search, filters, sort)), made.columns))

    return await of_task(request, opened, made, format, "rows", give, title, report=outline(made))


async def of_task(
    request: Request,
    opened: Opened,
    made: Report,
    format: str,
    task: str,
    give: Callable[[], bytes] = bytes,
    title: str = "",
    **args: Any,
) -> StreamingResponse:
    """What a task of a child process writes, as a download. It is ended, or never begun, when the client leaves."""
    title = title or opened.name
    folder = scratch.Folder()
    target = os.path.join(folder.name, "export")
    try:
        work = opened.exports.once(task, give, target=target, format=format, title=title, **args)
        await patiently(request, work, HOUR)
        size = os.path.getsize(target)
    except BaseException:
        folder.cleanup()
        raise
    file = f"{title}_{made.suffix}.{FORMATS[format].extension if format in FORMATS else format}"
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in file)
    return StreamingResponse(
        _pieces(target, folder),
        media_type=MEDIA[format],
        headers={
            "content-disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(file, safe='')}",
            "content-length": str(size),
        },
    )


async def _pieces(target: str, folder: scratch.Folder) -> AsyncIterator[bytes]:
    try:
        with open(target, "rb") as file:
            while piece := await asyncio.to_thread(file.read, _PIECE):
                yield piece
    finally:
        folder.cleanup()
