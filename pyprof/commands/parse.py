# SPDX-License-Identifier: Apache-2.0
"""`pyprof parse FILE`, `parse.py FILE`: a recording as net.dict, one line per kernel. Only data goes to stdout."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from pyprof.core.arguments import Parser, add_output_options, add_run, check_output


def add_arguments(parser: Parser) -> None:
    """Describe the command line."""
    parser.description = (
        f"Convert a recording to net.dict, one line per kernel. Example: {parser.prog} net.sqlite > net.dict"
    )
    parser.add_argument(
        "file",
        help="recording: .sqlite of nsys or pyprof, .sql of nvprof, .nsys-rep where nsys is installed; or a folder",
    )
    add_run(parser)
    add_output_options(parser)
    parser.add_argument(
        "--format",
        choices=("dict", "jsonl"),
        default="dict",
        help="Python literals or JSON; default: %(default)s",
    )
    parser.add_argument("--memory", action="store_true", help="include memory copies and sets; default: kernels only")


def run(arguments: argparse.Namespace) -> None:
    """Write the lines."""
    from pyprof.core import netdict
    from pyprof.core.errors import FormatError
    from pyprof.core.frame import say
    from pyprof.parse import folder, loader
    from pyprof.parse.rows import rows

    check_output(arguments, arguments.file)
    trace = loader.load(*folder.choose(Path(arguments.file), arguments.run))
    pids = {process.pid for process in trace.processes}
    if Path(arguments.file).is_dir() and len(pids) < len(trace.processes):
        raise FormatError(
            f"{arguments.file}: processes of the run have the same pid, which a net.dict uses to tell them apart; "
            "parse its files one by one."
        )
    kernels = rows(trace, arguments.memory)
    blocks = netdict.blocks(kernels, arguments.format)
    if arguments.output:
        _write(arguments.output, blocks)
    else:
        sys.stdout.buffer.writelines(blocks)  # always UTF-8
        sys.stdout.buffer.flush()
    for reason, number in sorted(kernels.lost.items()):
        say(arguments.file, f"{number} {reason}")


def _write(path: str, blocks: Iterable[memoryview]) -> None:
    """Write a file completely or not at all. Raises FormatError."""
    from pyprof.core import atomic_file
    from pyprof.core.errors import FormatError

    try:
        with atomic_file.named(path) as name, open(name, "wb") as out:
            out.writelines(blocks)
    except OSError as error:
        raise FormatError(f"{path} cannot be written ({error.strerror or error}); choose another -o.") from error
