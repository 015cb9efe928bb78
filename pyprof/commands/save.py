# SPDX-License-Identifier: Apache-2.0
"""`pyprof save FILE -o DB`: the profile database of a recording; with --scheduler, those of many, by many machines."""

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
    parser.description = "Build a profile database from a recording. Example: pyprof save net.sqlite -o net_dldb.sqlite"
    parser.add_argument("file", help=RECORDING)
    add_run(parser)
    add_output_options(parser, "profile database to write", "DB", required=True)
    add_iterations(parser)
    add_timeout(parser)
    parser.add_argument(
        "--scheduler",
        metavar="WHERE",
        help="read a folder, or a URL of recordings, on the workers of a Dask scheduler, tcp://HOST:PORT, or in "
        "processes of this machine, local or local:N; DB is then a folder or its URL (docs/fleet.md)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the database; return the exit code."""
    if arguments.scheduler is not None:
        return _fleet(arguments)
    from pyprof.core.frame import say
    from pyprof.core.stages import MINIMAL, Stages
    from pyprof.profiles import Profile, Selection
    from pyprof.store import fleet_folder
    from pyprof.store.files import limited

    check_output(arguments)
    stages = Stages(MINIMAL, arguments.prog)
    with limited(arguments.timeout), stages.stage("aggregating"):
        profile = Profile.open(arguments.file, run=arguments.run, progress=stages.progress)
        check_output(arguments, *([] if profile.is_database else [arguments.file]))
        profile.save(arguments.output, Selection(*iteration_range(arguments)))
        failed = fleet_folder.failed(profile.database)
    for sentence in failed:
        say(arguments.prog, sentence)
    return 0


def _fleet(arguments: argparse.Namespace) -> int:
    """Write the databases of a fleet and its summary; return the exit code. Raises UsageError for iterations, of which
    ranks have different numbers."""
    from pyprof import fleet
    from pyprof.core.errors import UsageError
    from pyprof.core.frame import INTERRUPTED, say
    from pyprof.core.stages import MINIMAL, Stages
    from pyprof.fleet import cluster

    if arguments.iter_start is not None or arguments.iter_stop is not None:
        raise UsageError("--scheduler: takes no --iter-start and --iter-stop, all iterations are aggregated.")
    stages = Stages(MINIMAL, arguments.prog)
    try:
        with cluster.client_of(arguments.scheduler) as client, stages.stage("reading"):
            opened = fleet.open(arguments.file, client, arguments.output, arguments.key_op, stages.progress)
    except KeyboardInterrupt:
        say(
            arguments.prog,
            f"interrupted; what is done is in {arguments.output}, the same command goes on from there.",
        )
        return INTERRUPTED
    for sentence in opened.failed.values():
        say(arguments.prog, sentence)
    return 0
