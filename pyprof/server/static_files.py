# SPDX-License-Identifier: Apache-2.0
"""The page: files in `static` from the build of frontend/; any other path is the page, which does its own routing."""

from __future__ import annotations

import mimetypes
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, RedirectResponse, Response

from pyprof.server.security import plain_page
from pyprof.views.problems import Trouble

STATIC = Path(__file__).parent / "static"
_MISSING = (
    "<p>This installation contains only the server: when it was made, npm or Node.js could not be had. "
    "<code>pip install .[viewer]</code> in the source tree, where they can, builds the page.</p>"
    "<p>The API of the server is described at <a href=api/openapi.json>/api/openapi.json</a>.</p>"
)


def add(app: FastAPI, static: Path) -> None:
    """Add a route for everything that is not the API."""

    @app.get("/newest", include_in_schema=False)
    async def newest(request: Request) -> Response:
        """Redirect to the page with the run that was written last: its name stays in the address."""
        with suppress(Trouble):  # the page says it
            name = request.app.state.server.library.newest()
            return RedirectResponse(f"./#/overview?{urlencode({'run': name})}" if name else "./", 303)
        return RedirectResponse("./", 303)

    @app.api_route("/{path:path}", methods=["GET", "HEAD"], include_in_schema=False)
    async def page(request: Request, path: str) -> Response:
        if path == "api" or path.startswith("api/"):
            raise Trouble("missing", f"There is nothing at /{path[:200]}.")
        return answer(static, path)


def answer(static: Path, path: str) -> Response:
    """Return a file of the build, or the page."""
    root = static.resolve()
    try:
        file = (root / path).resolve()
        exists = bool(path) and file.is_relative_to(root) and file.is_file()
    except (OSError, ValueError):
        exists = False
    if exists:
        hashed = file.parent.name == "assets"  # file names contain a hash of the content
        cache_control = "public, max-age=31536000, immutable" if hashed else "no-cache"
        media = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        return FileResponse(file, media_type=media, headers={"cache-control": cache_control})
    if path.startswith("assets/"):
        raise Trouble("missing", f"There is nothing at /{path[:200]}.")
    index = root / "index.html"
    if not index.is_file():
        return plain_page("The page is not built", _MISSING, 503)
    return FileResponse(index, media_type="text/html", headers={"cache-control": "no-cache"})
