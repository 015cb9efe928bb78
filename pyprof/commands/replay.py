# SPDX-License-Identifier: Apache-2.0
"""`pyprof replay FILE`: a script that runs one recorded operator again, with its shapes, types and strides."""

from __future__ import annotations

import argparse
import os
import sys

from pyprof.core.arguments import RECORDING, Parser, add_run, add_timeout
from pyprof.core.errors import UsageError


def add_arguments(parser: Parser) -> None:
    """Describe the command line."""
    parser.description = (
        "Print a script that runs one recorded operator again, on random data. Example: pyprof replay "
        "net.sqlite, then pyprof replay net.sqlite --row 0 > mm.py"
    )
    parser.add_argument("file", help=RECORDING)
    add_run(parser)
    parser.add_argument(
        "--row", metavar="N", type=int, help="print the script of this row; default: list the rows, by time"
    )
    parser.add_argument("--name", metavar="NAME", help="only operators of this name, such as aten::mm; default: all")
    add_timeout(parser)


def run(arguments: argparse.Namespace) -> None:
    """Print the list or a script."""
    from pyprof.facts.replayable import calls, listed
    from pyprof.prof.replay import script
    from pyprof.profiles import load
    from pyprof.store.files import limited

    with limited(arguments.timeout):
        profile = load(arguments.file, run=arguments.run)  # keeps the database alive
        source = profile.source()
        with source.store.translate_errors():
            rows = [row for row in calls(source) if arguments.name in (None, row.call.op)]
        on_gpu = source.gpu
    if not rows:
        what = f"no operator {arguments.name!r}" if arguments.name else "no operator"
        raise UsageError(f"{arguments.file}: {what} with recorded arguments; record shapes, or see `pyprof info`.")
    if arguments.row is None:
        print("\n".join(listed(rows, on_gpu)))
        return
    if not 0 <= arguments.row < len(rows):
        raise UsageError(f"--row {arguments.row} does not exist; there are 0 to {len(rows) - 1}.")
    row = rows[arguments.row]
    where = "on the device" if on_gpu else "on the CPU"
    mean = row.time / row.calls / 1000
    about = f"recorded {row.calls} times, {mean:.3f} us a call {where} without operators inside it"
    sys.stdout.write(script(row.call, f"{about}, in {os.path.basename(arguments.file)}"))
