# SPDX-License-Identifier: Apache-2.0
"""The application: routes, errors as problems, the page, and the security layer around them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import compile_path
from starlette.types import ASGIApp

import pyprof
from pyprof.core.errors import PyProfError
from pyprof.server import (
    annotation_routes,
    compare_routes,
    event_routes,
    job_routes,
    memory,
    path_routes,
    profile_routes,
    rank_routes,
    report_routes,
    static_files,
    timeline_routes,
)
from pyprof.server.problems import body, of_error, status
from pyprof.server.request_context import DisconnectedError, Server
from pyprof.server.security import Guard, Security
from pyprof.views import models
from pyprof.views.problems import Trouble

_LOG = logging.getLogger("pyprof.server")
_PROBLEM: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": models.Problem, "description": "A problem."},
    "5XX": {"model": models.Problem, "description": "A problem of the server, or a temporary one."},
}
_MEDIA = "application/problem+json"


def create(server: Server, guard: Guard, static: Path = static_files.STATIC) -> ASGIApp:
    """Return the application with its security layer."""
    return Security(GZipMiddleware(build(server, static), 1400, 5), guard)


def build(server: Server, static: Path = static_files.STATIC) -> FastAPI:
    """Return the application without the security layer."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await server.jobs.close()
        await server.library.close()

    app = FastAPI(
        title="PyProf viewer",
        version=pyprof.__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=lifespan,
        responses=_PROBLEM,
        redirect_slashes=False,
    )
    app.state.server = server
    for module in (
        profile_routes, memory, report_routes, event_routes, rank_routes, timeline_routes, path_routes,
        annotation_routes, compare_routes, job_routes,
    ):  # fmt: skip
        app.include_router(module.router)
    app.add_exception_handler(PyProfError, _pyprof_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(DisconnectedError, _disconnected)
    app.add_exception_handler(Exception, _unexpected_error)
    static_files.add(app, static)
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        return _with_problems(generate())

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def _with_problems(schema: dict[str, Any]) -> dict[str, Any]:
    """Give problems their own media type, which FastAPI has no option for."""
    for operations in schema["paths"].values():
        for operation in operations.values():
            for code, answer in operation["responses"].items():
                if code in _PROBLEM and "application/json" in answer["content"]:
                    answer["content"] = {_MEDIA: answer["content"].pop("application/json")}
    return schema


def _problem(trouble: Trouble) -> Response:
    headers = {"retry-after": "1"} if trouble.type == "opening" else None
    return JSONResponse(body(trouble), status(trouble), headers, media_type=_MEDIA)


async def _pyprof_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, PyProfError)
    return _problem(of_error(error))


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    location = [str(part) for part in first["loc"] if part not in ("query", "path", "body")]
    name = location[0] if location else None
    return _problem(Trouble("parameter", f"{name or 'The body'}: {first['msg']}.", name))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return _problem(Trouble("missing", f"There is nothing at {request.url.path}."))
    trouble = Trouble("parameter", f"{error.detail}.")
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    if error.status_code == 405:
        headers["allow"] = _methods(request) or headers.get("allow", "")
    return JSONResponse(
        body(trouble) | {"status": error.status_code},
        error.status_code,
        headers,
        media_type=_MEDIA,
    )


def _methods(request: Request) -> str:
    """Return the methods of all routes of a path; the error contains only those of the first."""
    paths = request.app.openapi()["paths"].items()
    operations = [operation for template, operation in paths if compile_path(template)[0].match(request.url.path)]
    return ", ".join(sorted({method.upper() for operation in operations for method in operation}))


async def _disconnected(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # the client has disconnected


async def _unexpected_error(request: Request, error: Exception) -> Response:
    _LOG.error("%s %s", request.method, request.url.path, exc_info=error)
    return _problem(Trouble("internal", f"Internal error of the server ({type(error).__name__}); see its terminal."))
