# SPDX-License-Identifier: Apache-2.0
"""Commands as functions of the words after their name; they return exit codes."""

from __future__ import annotations

from functools import partial

from pyprof.commands.main import main, start

parse = partial(start, "parse", prog="parse.py")
prof = partial(start, "prof", prog="prof.py")
report = partial(start, "report")
__all__ = ["main", "parse", "prof", "report", "start"]
