# SPDX-License-Identifier: Apache-2.0
"""`pyprof export FILE -o OUT`: a recording or a profile database in the format of another tool."""

from __future__ import annotations

import argparse

from pyprof.core.arguments import RECORDING, Parser, add_output_options, add_run, add_timeout, check_output
from pyprof.core.registry import declared

_EXPORTER = r'@exporter\(\s*"([\w-]+)"'


def formats() -> list[str]:
    """Return the names of the formats."""
    return sorted(name for (name,) in declared("pyprof.export", _EXPORTER))


def add_arguments(parser: Parser) -> None:
    """Describe the command line."""
    parser.description = (
        "Write a recording in the format of another tool. "
        "Example: pyprof export --format=chrome -o net.json.gz net.sqlite"
    )
    parser.add_argument("file", help=RECORDING)
    add_run(parser)
    parser.add_argument(
        "--format",
        choices=formats(),
        default="chrome",
        help="chrome: trace JSON for Perfetto; collapsed: stacks of GPU time for flamegraph.pl; speedscope: stacks of "
        "GPU and of CPU time; default: %(default)s",
    )
    add_output_options(parser, "file to write; OUT.gz is compressed", "OUT", required=True)
    parser.add_argument(
        "--start",
        metavar="NS",
        type=int,
        help="export from this time on, counted from the first event; default: 0",
    )
    parser.add_argument("--end", metavar="NS", type=int, help="export up to this time; default: the end")
    add_timeout(parser)


def run(arguments: argparse.Namespace) -> None:
    """Write the file."""
    from pyprof.profiles import load
    from pyprof.store.files import limited

    check_output(arguments, arguments.file)
    with limited(arguments.timeout):
        profile = load(arguments.file, run=arguments.run)
        profile.export(arguments.format, arguments.output, arguments.start, arguments.end)
