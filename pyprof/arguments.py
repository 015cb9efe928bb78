# SPDX-License-Identifier: Apache-2.0
"""The command lines of `pyprof`: options in both spellings, and the nearest name for one that does not exist.

An option is documented with hyphens, `--iter-start`, and may be typed with underscores, as DLProf spells it.

>>> parser = Parser(prog="pyprof x")
>>> _ = parser.add_argument("--iter-start")
>>> parser.parse_args(["--iter_start=3"]), parser.parse_args(["--iter-st", "3"])
(Namespace(iter_start='3'), Namespace(iter_start='3'))
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

TIMEOUT = 600.0  # seconds that a query of a profile database may take


def nearest(name: str, names: Iterable[str]) -> str:
    """ " Did you mean ...?", or nothing if no name is near.

    >>> nearest("op_typ", ["summary", "op_type"]), nearest("x", ["summary"])
    (' Did you mean op_type?', '')
    """
    near = difflib.get_close_matches(name, list(names), 1, 0.6)
    return f" Did you mean {near[0]}?" if near else ""


def timeout(parser: argparse.ArgumentParser) -> None:
    """Add the option that ends what a profile database makes take too long."""
    parser.add_argument(
        "--timeout", metavar="S", type=_seconds, default=TIMEOUT,
        help="end a query of a profile database after so many seconds; default: %(default)g",
    )  # fmt: skip


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not number > 0:
        raise argparse.ArgumentTypeError(f"expected seconds, more than 0, not {text}")
    return number


class Parser(argparse.ArgumentParser):
    """argparse's parser, with both spellings of options and a hint where a name is misspelt."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's; the second spelling of each option is added first."""
        known = self._option_string_actions
        for name in [name for name in known if name.startswith("--")]:
            known.setdefault("--" + name[2:].replace("-", "_"), known[name])
        return super().parse_known_args(args, namespace)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's; an unknown option names the nearest one."""
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            hint = nearest(rest[0].partition("=")[0].replace("_", "-"), self._documented())
            self.error(f"unrecognized arguments: {' '.join(rest)}.{hint}")
        return found

    def error(self, message: str) -> NoReturn:
        """As argparse's; an unknown choice names the nearest one."""
        wrong = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        hint = nearest(wrong[1], re.findall(r"[\w-]+", wrong[2])) if wrong else ""
        super().error(f"{message}.{hint}" if hint else message)

    def _get_option_tuples(self, option_string: str) -> Any:
        """Both spellings of one option are one match of an abbreviation."""
        found: Sequence[Any] = super()._get_option_tuples(option_string)
        return list({id(one[0]): one for one in found}.values())

    def _documented(self) -> list[str]:
        return [name for action in self._actions for name in action.option_strings if name.startswith("--")]
