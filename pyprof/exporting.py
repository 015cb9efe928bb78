# SPDX-License-Identifier: Apache-2.0
"""`pyprof export`: a recording or a profile database in the format of another tool."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from pyprof.arguments import Parser, timeout
from pyprof.commands import ended
from pyprof.errors import UsageError


def _parser() -> Parser:
    from pyprof.export import formats

    parser = Parser(
        prog="pyprof export",
        description="Write a recording in the format of another tool. "
        "Example: pyprof export --format=chrome -o net.json.gz net.sqlite",
    )
    parser.add_argument("file", help="recording, a folder of recordings, or a profile database")
    parser.add_argument(
        "--format", choices=formats(), default="chrome",
        help="chrome: trace JSON for Perfetto; collapsed, collapsed-cpu: stacks for flamegraph.pl, of GPU and of CPU "
        "time; nsys: SQLite as Nsight Systems exports it; speedscope: stacks of both; default: %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "-o",
        metavar="OUT",
        required=True,
        help="output file (written atomically); OUT.gz is compressed (not nsys)",
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace a file of that name")
    parser.add_argument(
        "--start",
        metavar="NS",
        type=int,
        help="export from this time on, counted from the first event; default: 0",
    )
    parser.add_argument("--end", metavar="NS", type=int, help="export up to this time; default: the end")
    timeout(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    arguments = _parser().parse_args(argv)
    return ended("pyprof export", lambda: _export(arguments))


def _export(arguments: argparse.Namespace) -> None:
    if os.path.lexists(arguments.o) and not arguments.force:
        raise UsageError(f"{arguments.o} exists: --force replaces it; or name another file with -o.")
    both = arguments.o, arguments.file
    if all(map(os.path.exists, both)) and os.path.samefile(*both):
        raise UsageError(f"{arguments.o}: is what is read, and would be replaced; name another file with -o.")
    from pyprof.db.store import limited
    from pyprof.session import load

    with limited(arguments.timeout):
        load(arguments.file).export(arguments.format, arguments.o, arguments.start, arguments.end)
