# SPDX-License-Identifier: Apache-2.0
"""Command lines of `pyprof`: the parser, with both spellings of options and hints for unknown ones, and the options
that several commands share.

An option is documented with hyphens, `--iter-start`, and may be typed with underscores, as DLProf spells it.

>>> parser = Parser(prog="pyprof x")
>>> _ = parser.add_argument("--iter-start")
>>> parser.parse_args(["--iter_start=3"]), parser.parse_args(["--iter-st", "3"])
(Namespace(iter_start='3'), Namespace(iter_start='3'))
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import stat
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from pyprof.core.errors import CaptureError, UsageError

TIMEOUT = 600.0  # seconds that a query of a profile database may take
RECORDING = "recording, a folder of recordings, or a profile database"


def nearest(name: str, names: Iterable[str]) -> str:
    """Return " Did you mean ...?", or "" if no name is near.

    >>> nearest("op_typ", ["summary", "op_type"]), nearest("x", ["summary"])
    (' Did you mean op_type?', '')
    """
    near = difflib.get_close_matches(name, list(names), 1, 0.6)
    return f" Did you mean {near[0]}?" if near else ""


def positive_int(text: str) -> int:
    """Read a number of 1 or more. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"invalid number {text!r}: expected 1 or more")
    return int(text)


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """Add the option that limits the time of a query of a profile database."""
    parser.add_argument(
        "--timeout", metavar="S", type=_seconds, default=TIMEOUT,
        help="end a query of a profile database after S seconds; default: %(default)g",
    )  # fmt: skip


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not number > 0:  # nan is not
        raise argparse.ArgumentTypeError(f"invalid timeout {text!r}: expected a positive number of seconds")
    return number


def add_output_options(
    parser: argparse.ArgumentParser, what: str = "output file", metavar: str = "FILE", required: bool = False
) -> None:
    """Add the options for the output file, and for replacing an existing one."""
    default = "" if required else "; default: stdout"
    parser.add_argument(
        "-o", "--output", metavar=metavar, required=required, help=f"{what} (written atomically){default}"
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace an existing file")


def check_output(arguments: argparse.Namespace, *inputs: str) -> None:
    """Raise UsageError if the output cannot be written, would replace a file without --force, or one of the inputs."""
    path = arguments.output
    if path is None:
        return
    if any(os.path.exists(path) and os.path.exists(source) and os.path.samefile(path, source) for source in inputs):
        raise UsageError(f"{path} is an input and would be replaced; name another file.")
    if _is_stream(path):
        return
    if os.path.lexists(path) and not arguments.force:
        raise UsageError(f"{path} exists: use --force to replace it, or name another file.")
    refuse_unwritable(path)


def refuse_unwritable(path: str) -> None:
    """Raise UsageError if a file cannot be written: better known before long work than after it."""
    from pyprof.core import atomic_file  # with SQLite, which help texts do not need

    try:
        atomic_file.check(path)
    except CaptureError as error:
        raise UsageError(f"{path or 'an output without a name'} {error}") from error


def _is_stream(path: str) -> bool:
    """Return whether a path is a device or a pipe, such as /dev/null and /dev/stdout, which nothing replaces."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses among the runs of a folder."""
    parser.add_argument(
        "--run",
        metavar="NAME",
        help="of a folder with several runs: the one of this name, or with such a file",
    )


def add_iterations(parser: argparse.ArgumentParser) -> None:
    """Add the options that select the iterations to aggregate."""
    parser.add_argument("--iter-start", metavar="N", help="first iteration to aggregate; default: 0")
    parser.add_argument("--iter-stop", metavar="N", help="last iteration, inclusive; default: the last")
    parser.add_argument(
        "--key-op",
        metavar="NAME",
        help="iterations end where this operator ends; default: steps marked by the program, else what repeats",
    )


def iteration_range(arguments: argparse.Namespace) -> tuple[int | None, int | None, str | None]:
    """Return the first and the last selected iteration, and the operator that ends them. Raises UsageError."""
    numbers = []
    for name in ("iter_start", "iter_stop"):
        text = getattr(arguments, name)
        if text is not None and not (text.isascii() and text.isdecimal()):
            raise UsageError(f"--{name.replace('_', '-')}={text}: expected the number of an iteration, 0 or more.")
        numbers.append(None if text is None else int(text))
    return numbers[0], numbers[1], arguments.key_op


def add_table_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the format of a report."""
    parser.add_argument("--format", default="table", help="csv, json, md, parquet or table; default: %(default)s")
    parser.add_argument(
        "--wide",
        action="store_true",
        help="whole table on a terminal too; default: what fits its width, in suitable units",
    )
    parser.add_argument(
        "--raw",
        action="store_true",
        help="raw texts in csv; default: control characters are escaped and spreadsheet formulas disarmed",
    )
    add_output_options(parser)


class Parser(argparse.ArgumentParser):
    """Argument parser with both spellings of options and a hint for a misspelled name."""

    intermixed = False  # True: options may appear between positional arguments

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, with the second spelling of each option."""
        actions = self._option_string_actions  # argparse's own, as _get_option_tuples below: the tests cover both
        for name in [name for name in actions if name.startswith("--")]:
            actions.setdefault("--" + name[2:].replace("-", "_"), actions[name])
        return super().parse_known_args(args, namespace)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does; the error for an unknown option suggests the nearest one."""
        parse = self.parse_known_intermixed_args if self.intermixed else self.parse_known_args
        parsed, rest = parse(args, namespace)
        if rest:
            hint = nearest(rest[0].partition("=")[0].replace("_", "-"), self._documented())
            self.error(f"unrecognized arguments: {' '.join(rest)}.{hint}")
        return parsed

    def error(self, message: str) -> NoReturn:
        """Exit as argparse does; the error for an unknown choice suggests the nearest one."""
        wrong = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        hint = nearest(wrong[1], re.findall(r"[\w-]+", wrong[2])) if wrong else ""
        super().error(f"{message}.{hint}" if hint else message)

    def _get_option_tuples(self, option_string: str) -> Any:
        """Return the matches of an abbreviation; both spellings of one option are one match."""
        matches: Sequence[Any] = super()._get_option_tuples(option_string)
        return list({id(match[0]): match for match in matches}.values())

    def _documented(self) -> list[str]:
        return [name for action in self._actions for name in action.option_strings if name.startswith("--")]
