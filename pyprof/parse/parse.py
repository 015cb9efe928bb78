#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turn a recording into net.dict, one line per kernel: python parse.py net.sqlite > net.dict

Reads exports of Nsight Systems, databases of nvprof and files of pyprof. Only data goes to stdout.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

if not __package__:  # run by path: the repository's root takes the place of this file's folder
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from pyprof.commands import imported

    sys.exit(imported("parse.py", "pyprof.parse.parse"))

from pyprof import needed, netdict, place  # noqa: F401
from pyprof.arguments import Parser
from pyprof.commands import ended, say
from pyprof.errors import FormatError
from pyprof.parse import formats
from pyprof.parse.rows import rows

_FORMATS = {"dict": netdict.lines, "jsonl": netdict.json_lines}


def _parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog,
        description="Convert a recording to net.dict, one line per kernel. "
        f"Example: {prog} net.sqlite > net.dict",
    )
    parser.add_argument(
        "file",
        help="recording: .sqlite of nsys or pyprof, .sql of nvprof, .nsys-rep where nsys is installed; or a folder",
    )
    parser.add_argument("-o", metavar="FILE", help="output file (written atomically); default: stdout")
    parser.add_argument(
        "--format",
        choices=tuple(_FORMATS),
        default="dict",
        help="Python literals or JSON; default: %(default)s",
    )
    parser.add_argument(
        "--memory", action="store_true", help="include memory copies and sets; default: kernels only"
    )
    return parser


def main(argv: Sequence[str] | None = None, prog: str = "parse.py") -> int:
    """Run the command, which was typed as `prog`; returns the exit code."""
    arguments = _parser(prog).parse_args(argv)
    return ended(prog, lambda: _parse(arguments))


def _parse(arguments: argparse.Namespace) -> None:
    trace = formats.load(arguments.file)
    pids = {process.pid for process in trace.processes}
    if Path(arguments.file).is_dir() and len(pids) < len(trace.processes):
        raise FormatError(
            f"{arguments.file}: processes of the run have the same pid, by which a net.dict tells them apart; "
            "parse its files one by one."
        )
    found = rows(trace, arguments.memory)
    lines = _FORMATS[arguments.format](found)
    if arguments.o:
        _write(arguments.o, lines)
    else:
        # Data is UTF-8 wherever it goes; a file name that is none stands in a stack as half a character.
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
        sys.stdout.writelines(line + "\n" for line in lines)
        sys.stdout.flush()
    for reason, count in sorted(found.lost.items()):
        say(arguments.file, f"{count} {reason}")


def _write(path: str, lines: Iterator[str]) -> None:
    """Whole or not at all."""
    try:
        with place.named(path) as name, open(name, "w", encoding="utf-8", errors="backslashreplace") as out:
            out.writelines(line + "\n" for line in lines)
    except OSError as error:
        raise FormatError(
            f"{path}: cannot be written ({error.strerror or error}); give another -o."
        ) from error


if __name__ == "__main__":
    sys.exit(main())
