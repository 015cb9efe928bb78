# SPDX-License-Identifier: Apache-2.0
"""Tables as downloads: written completely to a temporary folder by separate processes, then streamed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import quote

from fastapi.responses import StreamingResponse

from pyprof.core import scratch
from pyprof.render.writers import FORMATS
from pyprof.reports import Report
from pyprof.server.request_context import HOUR, Context, wait_for_child
from pyprof.views.column_table import Frame, arrow, stream
from pyprof.views.exports import MEDIA, outline
from pyprof.views.queries import RowQuery

_PIECE = 1 << 18
_TRACE = ".pt.trace.json.gz"
ANSWER: dict[int | str, dict[str, Any]] = {
    200: {"content": {media.partition(";")[0]: {} for media in MEDIA.values()}, "description": "The file."}
}


async def of_frame(
    context: Context, spec: Report, format: str, frame: Frame, query: RowQuery, title: str = ""
) -> StreamingResponse:
    """Return a table in memory as a download: the rows that pass, in order; `title` replaces the profile's name. Raises
    Trouble for unknown columns."""

    def make_body() -> bytes:
        rows = frame.select(query.search, query.filters, query.sort)
        return stream(arrow(frame.pandas(rows), spec.columns))

    return await of_task(context, spec, format, "rows", make_body, title, report=outline(spec))


async def of_task(
    context: Context,
    spec: Report,
    format: str,
    task: str,
    make_body: Callable[[], bytes] = bytes,
    title: str = "",
    **args: Any,
) -> StreamingResponse:
    """Return the output of a child's task as a download."""
    title = title or context.opened.name
    name = f"{title}_{spec.suffix}.{FORMATS[format].extension if format in FORMATS else format}"
    return await _download(context, name, MEDIA[format], "export", task, make_body, format=format, title=title, **args)


async def of_trace(context: Context, start: int, end: int) -> StreamingResponse:
    """Return what is in progress between two times as a Chrome trace."""
    name = f"{context.opened.name}_{start}_{end}{_TRACE}"
    # The file's own name says that it is compressed.
    return await _download(context, name, "application/gzip", f"export{_TRACE}", "trace", start=start, end=end)


async def _download(
    context: Context,
    name: str,
    media: str,
    file: str,
    task: str,
    make_body: Callable[[], bytes] = bytes,
    /,  # a task may have arguments of these names
    **args: Any,
) -> StreamingResponse:
    """Return the file that a child's task writes. It ends, or never starts, if the client disconnects."""
    folder = scratch.Folder()
    target = os.path.join(folder.name, file)
    try:
        work = context.opened.exports.once(task, make_body, target=target, **args)
        await wait_for_child(context.request, work, HOUR)
        size = os.path.getsize(target)
    except BaseException:
        folder.cleanup()
        raise
    ascii_name = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in name)
    return StreamingResponse(
        _pieces(target, folder),
        media_type=media,
        headers={
            "content-disposition": f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(name, safe='')}",
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
