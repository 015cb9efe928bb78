# SPDX-License-Identifier: Apache-2.0
"""Command lines: the word after `pyprof` names a command; `parse.py` and `prof.py` are aliases of two of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from pyprof import __version__
from pyprof.commands import load, names
from pyprof.core.arguments import Parser
from pyprof.core.errors import PyProfError
from pyprof.core.frame import run_command, say
from pyprof.core.scratch import removed_by_signals

_SCRIPTS = ("run", "estimate")  # these run a script, whose exceptions and signals are its own


def main(argv: Sequence[str] | None = None) -> int:
    """Run `pyprof`; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if "_ARGCOMPLETE" in os.environ:
        from pyprof.commands.completion import complete

        complete(_parser())
    if words and words[0] in names():
        return start(words[0], words[1:])
    parser = _parser()
    if words:
        parser.parse_args(words)  # --help, --version, or an error that names the nearest command
    parser.print_help()
    return 0


def start(name: str, words: Sequence[str] | None = None, prog: str = "") -> int:
    """Run a command, typed as `prog`, with the words of its command line; return the exit code."""
    prog = prog or f"pyprof {name}"

    def work() -> int | None:
        command = load(name)
        parser = Parser(prog=prog)
        parser.set_defaults(prog=prog)
        command.add_arguments(parser)
        code: int | None = command.run(parser.parse_args(words))
        return code

    if name not in _SCRIPTS:
        with removed_by_signals():
            return run_command(prog, work)
    try:
        return work() or 0
    except PyProfError as error:
        say(prog, str(error))
        return error.exit_code


def prof() -> int:
    """Run `prof.py`; return the exit code."""
    return start("prof", prog="prof.py")


def _parser() -> Parser:
    parser = Parser(
        prog="pyprof",
        description="Profile PyTorch programs. Example: pyprof run train.py, then pyprof view net.sqlite",
        epilog="Use pyprof COMMAND --help for the options of a command.",
    )
    parser.add_argument("--version", action="version", version=f"pyprof {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, text in names().items():
        commands.add_parser(name, help=text, add_help=False)
    return parser
