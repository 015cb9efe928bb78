#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print the table of kernels: python prof.py --csv -c kernel,op,sil,tc,flops net.dict

The input is a net.dict that parse.py wrote (or stdin), or a recording itself: then parse runs in the same process.
The table goes to stdout, the coverage ledger to stderr.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # run by path: the repository's root takes the place of this file's folder
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    __package__ = "pyprof.prof"

from pyprof import netdict
from pyprof.arguments import Parser
from pyprof.errors import FormatError, PyProfError, UsageError
from pyprof.model import OPERATOR, Rows
from pyprof.prof import custom, hardware, ledger, table
from pyprof.prof.columns import COLUMNS, OF_HARDWARE, View
from pyprof.prof.hardware import Hardware


def _parser(prog: str) -> Parser:
    columns = "\n".join(f"  {c.key:<8} {c.heading:<11} {c.doc.split('. ')[0]}" for c in COLUMNS.values())
    parser = Parser(
        prog=prog,
        description="Print the table of kernels: what launched each, and what it needed. "
        f"Example: {prog} --csv -c kernel,op,sil,tc,flops net.dict > table.csv",
        epilog=f"columns:\n{columns}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="?", help="net.dict or a recording; default: net.dict from stdin")
    parser.add_argument(
        "-c",
        metavar="COLUMNS",
        default=",".join(table.DEFAULT),
        help="columns, comma-separated; default: %(default)s",
    )
    style = parser.add_mutually_exclusive_group()
    style.add_argument("--csv", action="store_true", help="comma-separated, every field quoted")
    style.add_argument(
        "-w",
        metavar="N",
        type=int,
        help="fixed width of N characters; default: fields separated by one blank",
    )
    parser.add_argument(
        "--memory", action="store_true", help="include memory copies and sets; for a recording as input"
    )
    parser.add_argument(
        "--costs", metavar="FILE.py", help="run this Python file first: formulas of yours, @pyprof.cost(...)"
    )
    parser.add_argument(
        "--gpu",
        metavar="NAME",
        help="GPU to compare with (bound, roof, eff), as in docs/gpus.md: 'H100 SXM'; default: the recording's",
    )
    return parser


def main(argv: Sequence[str] | None = None, prog: str = "prof.py") -> int:
    """Run the command, which was typed as `prog`; returns the exit code."""
    arguments = _parser(prog).parse_args(argv)
    try:
        specs = table.select(arguments.c)
        if arguments.costs is not None:
            custom.load(arguments.costs)
        rows, name, found = _rows(arguments.file, arguments.memory)
        if arguments.gpu is not None:
            found = hardware.named(arguments.gpu, found.facts)
            if not (rows.kind != OPERATOR).any():
                print(
                    f"{prog}: --gpu has no effect: {name} has no GPU kernels, only operators.",
                    file=sys.stderr,
                )
        view = View(rows, found)
        style = "csv" if arguments.csv else "width" if arguments.w is not None else "blank"
        if isinstance(sys.stdout, io.TextIOWrapper):  # names in a recording are in any language
            sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
        for line in table.lines(view, specs, style, arguments.w or 0):
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
        print(ledger.text(view, name), file=sys.stderr)
        if any(spec.key in OF_HARDWARE for spec in specs):
            notes = found.notes if (rows.kind != OPERATOR).any() else found.cpu_notes
            print("".join(f"  peaks: {note}\n" for note in notes), end="", file=sys.stderr)
    except PyProfError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered goes nowhere
    return 0


def _is_text(path: Path) -> bool:
    """Whether a file begins as a net.dict does."""
    with path.open("rb") as stream:
        return stream.read(1) in (b"{", b" ", b"\n", b"\r", b"\t")


def _rows(file: str | None, memory: bool) -> tuple[Rows, str, Hardware]:
    if file is None:
        if sys.stdin.isatty():
            raise UsageError("name a net.dict or a recording, or pipe a net.dict into the command.")
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
        return netdict.read(sys.stdin, "stdin"), "stdin", hardware.NOTHING
    path = Path(file)
    try:
        if not path.is_dir() and _is_text(path):
            with path.open(encoding="utf-8", errors="replace") as lines:
                return netdict.read(lines, file), file, hardware.NOTHING
        from pyprof import needed  # noqa: F401
        from pyprof.session import load

        profile = load(path, memory=memory)
        return profile.rows, file, profile.hardware
    except OSError as error:
        raise FormatError(
            f"{file}: cannot be read ({error.strerror}); give a net.dict or a recording."
        ) from None


if __name__ == "__main__":
    sys.exit(main())
