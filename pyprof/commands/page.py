# SPDX-License-Identifier: Apache-2.0
"""`pyprof page FILE -o OUT.html`: a recording or a profile database as one page that needs no server."""

from __future__ import annotations

import argparse

from pyprof.core.arguments import (
    RECORDING,
    Parser,
    add_iterations,
    add_output_options,
    add_run,
    add_timeout,
    check_output,
    iteration_range,
)


def add_arguments(parser: Parser) -> None:
    """Describe the command line."""
    parser.description = (
        "Write the page of a recording as one HTML file that opens without a server. "
        "Example: pyprof page net.sqlite -o net.html"
    )
    parser.add_argument("file", help=RECORDING)
    add_run(parser)
    add_output_options(parser, "page to write", "HTML", required=True)
    add_iterations(parser)
    parser.add_argument(
        "--anonymous",
        action="store_true",
        help="replace paths and names of files, hosts, users and modules by numbers",
    )
    add_timeout(parser)


def run(arguments: argparse.Namespace) -> None:
    """Write the page."""
    from pyprof.core.stages import MINIMAL, Stages
    from pyprof.profiles import Profile, Selection
    from pyprof.store.files import limited

    check_output(arguments, arguments.file)
    stages = Stages(MINIMAL, arguments.prog)
    with limited(arguments.timeout), stages.stage("writing the page"):
        profile = Profile.open(arguments.file, run=arguments.run, progress=stages.progress)
        profile.select(Selection(*iteration_range(arguments)))
        check_output(arguments)
        profile.page(arguments.output, arguments.anonymous)
