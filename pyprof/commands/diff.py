# SPDX-License-Identifier: Apache-2.0
"""`pyprof diff BASE OTHER`: what made a step of one run longer or shorter than one of another."""

from __future__ import annotations

import argparse

from pyprof.arguments import RECORDING, Parser, check_output, iterations, table_format, timeout
from pyprof.commands.report import check_format, opened, shown, write_stdout


def add_arguments(parser: Parser) -> None:
    """Describe the command line."""
    parser.description = (
        "Compare two runs: a step and what it consists of, or all operators or kernels. "
        "Example: pyprof diff before.sqlite after.sqlite"
    )
    parser.add_argument("base", help=RECORDING)
    parser.add_argument("other", help="the one that is compared with it")
    parser.add_argument(
        "--by", choices=("step", "operator", "kernel"), default="step",
        help="what a row is of; default: %(default)s",
    )  # fmt: skip
    for name in ("base", "other"):
        parser.add_argument(
            f"--{name}-worker", metavar="NAME", help=f"limit the {name} to one worker; default: all workers"
        )
    iterations(parser)
    timeout(parser)
    table_format(parser)


def run(arguments: argparse.Namespace) -> None:
    """Print the comparison."""
    from pyprof.frame import say
    from pyprof.reports.diff import diff

    check_output(arguments, arguments.base, arguments.other)
    with opened(arguments, arguments.base, arguments.other) as (base_profile, other_profile):
        base = base_profile.source(arguments.base_worker)
        other = other_profile.source(arguments.other_worker)
        comparison = diff(base, arguments.by)
        check_format(comparison, arguments)
        counts = [source.aggregation.last - source.aggregation.first + 1 for source in (base, other)]
        if counts[0] != counts[1] and arguments.by != "step":
            say(
                arguments.prog,
                f"the base has {counts[0]} iterations, the other {counts[1]}: sums are of as many; choose equal ranges "
                "with --iter-start and --iter-stop.",
            )
        _, text = shown(comparison, other, arguments)
    write_stdout(text)
