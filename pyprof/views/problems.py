# SPDX-License-Identifier: Apache-2.0
"""Reasons for which a view cannot be given."""

from __future__ import annotations

from pyprof.core.errors import PyProfError


class Trouble(PyProfError):
    """Problem that is told to the reader. `type_`: a key of `pyprof.server.problems.TITLES`."""

    def __init__(self, type_: str, detail: str, parameter: str | None = None, progress: float | None = None):
        super().__init__(detail)
        self.type, self.parameter, self.progress = type_, parameter, progress
        self.recording: str | None = None
