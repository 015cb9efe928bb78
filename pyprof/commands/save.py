# SPDX-License-Identifier: Apache-2.0
"""`pyprof save FILE -o DB`: the profile database of a recording."""

from __future__ import annotations

import argparse

from pyprof.arguments import (
    RECORDING,
    Parser,
    add_iterations,
    add_output_options,
    add_timeout,
    check_output,
    iteration_range,
)


def add_arguments(parser: Parser) -> None:
    """Describe the command line."""
    parser.description = (
        "Build a profile database from a recording. Example: pyprof save net.sqlite -o net_dldb.sqlite"
    )
    parser.add_argument("file", help=RECORDING)
    add_output_options(parser, "profile database to write", "DB", required=True)
    add_iterations(parser)
    add_timeout(parser)


def run(arguments: argparse.Namespace) -> None:
    """Write the database."""
    from pyprof.session import Profile, Selection
    from pyprof.stages import MINIMAL, Stages
    from pyprof.store.files import limited

    check_output(arguments)
    stages = Stages(MINIMAL, arguments.prog)
    with limited(arguments.timeout), stages.stage("aggregating"):
        profile = Profile.open(arguments.file, progress=stages.progress)
        check_output(arguments, *([] if profile.is_database else [arguments.file]))
        profile.save(arguments.output, Selection(*iteration_range(arguments)))
