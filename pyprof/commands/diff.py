# SPDX-License-Identifier: Apache-2.0
"""`pyprof diff BASE OTHER`: causes of a longer or shorter step in one run compared with another."""

from __future__ import annotations

import argparse

from pyprof.arguments import RECORDING, Parser, add_iterations, add_table_options, add_timeout, check_output
from pyprof.commands.report import check_format, open_profiles, render_report, write_stdout


def add_arguments(parser: Parser) -> None:
    """Describe the command line."""
    parser.description = (
        "Compare two runs: a step and its parts, or all operators or kernels. "
        "Example: pyprof diff before.sqlite after.sqlite"
    )
    parser.add_argument("base", help=RECORDING)
    parser.add_argument("other", help="run to compare with the base")
    parser.add_argument(
        "--by", choices=("step", "operator", "kernel"), default="step",
        help="subject of a row; default: %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--per", choices=("iteration", "run"), default="iteration",
        help="means per iteration, or sums over all of them; default: %(default)s",
    )  # fmt: skip
    for name in ("base", "other"):
        parser.add_argument(
            f"--{name}-worker", metavar="NAME", help=f"limit the {name} to one worker; default: all workers"
        )
    add_iterations(parser)
    add_timeout(parser)
    add_table_options(parser)


def run(arguments: argparse.Namespace) -> None:
    """Print the comparison."""
    from pyprof.frame import say
    from pyprof.reports.diff import cautions, diff

    check_output(arguments, arguments.base, arguments.other)
    with open_profiles(arguments, arguments.base, arguments.other) as (base_profile, other_profile):
        base = base_profile.source(arguments.base_worker)
        other = other_profile.source(arguments.other_worker)
        comparison = diff(base, arguments.by, arguments.per)
        check_format(comparison, arguments)
        for line in cautions(base, other, arguments.per):
            say(arguments.prog, line[0].lower() + line[1:])
        _, text = render_report(comparison, other, arguments)
    write_stdout(text)
