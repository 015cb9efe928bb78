# SPDX-License-Identifier: Apache-2.0
"""`pyprof disable`: remove the file that `pyprof enable` wrote."""

from __future__ import annotations

import argparse
import os

from pyprof.commands import enable
from pyprof.core.arguments import Parser
from pyprof.core.errors import CaptureError


def add_arguments(parser: Parser) -> None:
    """Describe the command line."""
    parser.description = "Undo pyprof enable."


def run(arguments: argparse.Namespace) -> None:
    """Remove the file."""
    path = enable.file_of_environment()
    try:
        if not enable.is_ours(path):
            print(f"{path} does not exist, nothing to undo.")
            return
        os.unlink(path)
    except OSError as error:
        raise CaptureError(f"{path} cannot be removed ({error.strerror or error}).") from error
    print(f"{path}: removed.")
