# SPDX-License-Identifier: Apache-2.0
"""`pyprof estimate SCRIPT`: the cost of a script, by module, without a recording."""

from __future__ import annotations

import argparse

from pyprof.core.arguments import Parser, positive_int


def add_arguments(parser: Parser) -> None:
    """Describe the command line."""
    parser.description = (
        "Run a script once and print the cost of its calls, by module. Example: pyprof estimate --depth 2 model.py"
    )
    parser.add_argument(
        "--depth", metavar="N", type=positive_int, default=3,
        help="levels of modules to print, 1: the outermost; default: %(default)s",
    )  # fmt: skip
    parser.add_argument("--csv", action="store_true", help="exact numbers, comma-separated")
    parser.add_argument("script", help="Python script, - for stdin")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments passed to the script")


def run(arguments: argparse.Namespace) -> int:
    """Run the script and print its totals; returns its exit code."""
    from pyprof.estimation.module_totals import run as estimate

    return estimate(arguments.script, arguments.arguments, arguments.depth, arguments.csv)
