# SPDX-License-Identifier: Apache-2.0
"""The application."""

from __future__ import annotations

from fastapi import FastAPI

import pyprof
from pyprof.viewer.routes import router


def create() -> FastAPI:
    """The application."""
    app = FastAPI(
        title="PyProf viewer",
        version=pyprof.__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    app.include_router(router)
    return app
