# SPDX-License-Identifier: Apache-2.0
"""`pyprof top FILE`: a recording or a profile database on a terminal, with tabs and keys."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys

from pyprof.core.arguments import RECORDING, Parser, add_iterations, add_run, add_timeout, iteration_range
from pyprof.core.errors import WHERE, PyProfError, UsageError, install


def add_arguments(parser: Parser) -> None:
    """Describe the command line."""
    parser.description = (
        "Show a recording or a profile database on a terminal: overview, findings, operators, kernels, idle time and "
        "source lines, searched and sorted with keys; ? lists them. Example: pyprof top net.sqlite"
    )
    parser.add_argument("file", help=RECORDING)
    add_run(parser)
    add_iterations(parser)
    add_timeout(parser)
    parser.add_argument("--worker", metavar="NAME", help="limit to one worker; default: all workers")
    parser.add_argument(
        "--page",
        metavar="URL",
        default="http://localhost:8000",
        help="address at which `pyprof view` runs, for the key o; default: %(default)s",
    )


def run(arguments: argparse.Namespace) -> int:
    """Show the file until the user quits, then print the addresses that they asked for."""
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout)) or os.environ.get("TERM") == "dumb":
        raise UsageError("needs a terminal; `pyprof report FILE` prints the same figures to a pipe or a file.")
    if any(importlib.util.find_spec(name) is None for name in ("textual", "pydantic")):
        raise PyProfError(f"needs the packages textual and pydantic: {install('tui')} {WHERE}.")
    from pyprof.core.stages import MINIMAL, Stages
    from pyprof.profiles import Profile, Selection
    from pyprof.store.files import limited
    from pyprof.top.app import Top

    stages = Stages(MINIMAL, arguments.prog)
    with limited(arguments.timeout), stages.stage("reading"):
        profile = Profile.open(arguments.file, run=arguments.run, progress=stages.progress)
        profile.select(Selection(*iteration_range(arguments)))
    with profile.database.translate_errors():
        app = Top(profile.source(arguments.worker), arguments.file, arguments.page)
    app.run()
    for address in app.addresses:
        print(address)
    return app.return_code or 0
