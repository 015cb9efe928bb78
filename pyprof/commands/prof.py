# SPDX-License-Identifier: Apache-2.0
"""`pyprof prof FILE`, `prof.py FILE`: the table of kernels.

The input is a net.dict that parse.py wrote (or stdin), or a recording itself: then parse runs in the same process.
The table goes to stdout, the coverage ledger to stderr.
"""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyprof.core.arguments import Parser, add_run
from pyprof.core.errors import FormatError, UsageError
from pyprof.core.registry import declared

if TYPE_CHECKING:
    from pyprof.core.model import Rows
    from pyprof.costs.hardware.machine import Hardware

_DEFAULT = "idx,dir,sub,mod,op,kernel,params,sil"
_COLUMN = r'@column\(\s*"(\w+)",\s*"([^"]+)"[^@]*?\).*?\n    """(.*?)"""'


def columns() -> list[tuple[str, str, str]]:
    """Return key, heading and first sentence of each column."""
    rows = declared("pyprof.costs.columns", _COLUMN)
    return [(key, heading, " ".join(text.split()).split(". ")[0]) for key, heading, text in rows]


def add_arguments(parser: Parser) -> None:
    """Describe the command line."""
    listed = "\n".join(f"  {key:<8} {heading:<11} {text}" for key, heading, text in columns())
    parser.description = (
        "Print the table of kernels, with the launching operator and the cost of each. "
        f"Example: {parser.prog} --csv -c kernel,op,sil,tc,flops net.dict > table.csv"
    )
    parser.epilog = f"columns:\n{listed}"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", nargs="?", help="net.dict or a recording; default, and -: net.dict from stdin")
    add_run(parser)
    parser.add_argument(
        "-c", metavar="COLUMNS", default=_DEFAULT, help="columns, comma-separated; default: %(default)s"
    )
    style = parser.add_mutually_exclusive_group()
    style.add_argument("--csv", action="store_true", help="comma-separated, every field quoted")
    parser.add_argument(
        "--raw",
        action="store_true",
        help="raw texts; default: control characters are escaped, and spreadsheet formulas disarmed in --csv",
    )
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
        "--costs", metavar="FILE.py", help="run this Python file first: your own formulas, @pyprof.cost(...)"
    )
    parser.add_argument(
        "--gpu",
        metavar="NAME",
        help="GPU to compare with (bound, roof, eff), as in docs/gpus.md: 'H100 SXM'; default: the recording's",
    )


def run(arguments: argparse.Namespace) -> None:
    """Print the table and the ledger."""
    from pyprof.core.frame import say
    from pyprof.core.model import OPERATOR
    from pyprof.core.terminal import visible
    from pyprof.costs import coverage, custom
    from pyprof.costs.columns import OF_HARDWARE, View
    from pyprof.costs.hardware import machine
    from pyprof.prof import table

    specs = table.select(arguments.c)
    if arguments.costs is not None:
        custom.load(arguments.costs)
    rows, name, gpus = _rows(arguments.file, arguments.memory, arguments.run)
    if arguments.gpu is not None:
        gpus = machine.named(arguments.gpu, gpus.facts)
        if not (rows.kind != OPERATOR).any():
            say(arguments.prog, f"--gpu has no effect: {name} has no GPU kernels, only operators.")
    view = View(rows, gpus)
    style = "csv" if arguments.csv else "width" if arguments.w is not None else "blank"
    if isinstance(sys.stdout, io.TextIOWrapper):  # names in a recording are in any language
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    for line in table.lines(view, specs, style, arguments.w or 0, arguments.raw):
        sys.stdout.write(line + "\n")
    sys.stdout.flush()
    lines = coverage.text(view, name).split("\n")
    if any(spec.key in OF_HARDWARE for spec in specs):
        notes = gpus.notes if (rows.kind != OPERATOR).any() else gpus.cpu_notes
        lines += [f"  peaks: {note}" for note in notes]
    print("\n".join(map(visible, lines)), file=sys.stderr)


def _is_text(path: Path) -> bool:
    """Return whether a file begins like a net.dict: with a dictionary that has the name of a kernel, or whose first key
    is quoted as in Python. JSON is a recording."""
    with path.open("rb") as stream:
        head = stream.read(4096).lstrip()
    return head.startswith(b"{") and (head[1:].lstrip().startswith(b"'") or b'"kShortName"' in head)


def _rows(file: str | None, memory: bool, run: str | None) -> tuple[Rows, str, Hardware]:
    """Return the rows of an input, its name, and its hardware."""
    from pyprof.core import inputs, netdict
    from pyprof.costs.hardware import machine

    if file is None or file == "-":
        if sys.stdin.isatty():
            raise UsageError("name a net.dict or a recording, or pipe a net.dict into the command.")
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
        return netdict.read(sys.stdin, "stdin"), "stdin", machine.NOTHING
    path = Path(file)
    inputs.check(path, "a net.dict or a recording; - is stdin")
    try:
        if not path.is_dir() and _is_text(path):
            with path.open(encoding="utf-8", errors="replace") as lines:
                return netdict.read(lines, file), file, machine.NOTHING
        from pyprof.parse import folder, loader
        from pyprof.profiles import Profile

        profile = Profile(loader.load(*folder.choose(path, run)), memory)
        return profile.rows, file, profile.hardware
    except OSError as error:
        raise FormatError(f"{file} cannot be read ({error.strerror}); expected a net.dict or a recording.") from None
