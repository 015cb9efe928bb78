# SPDX-License-Identifier: Apache-2.0
"""Completion of command lines by the shell, where argcomplete is installed.

    eval "$(register-python-argcomplete pyprof)"

The shell then runs `pyprof` with _ARGCOMPLETE set, and reads what may stand at the cursor. Nothing else runs.
"""

from __future__ import annotations

from collections.abc import Callable

from pyprof.commands import load, names
from pyprof.core.arguments import Parser


def complete(parser: Parser) -> None:
    """Answer the shell and exit, if argcomplete is installed. `parser` has an empty sub-parser for each command."""
    try:
        import argcomplete
    except ImportError:
        return
    (commands,) = (action.choices for action in parser._actions if isinstance(action.choices, dict))
    for name in names():
        load(name).add_arguments(commands[name])
        for action in commands[name]._actions:
            if (name, action.dest) in _VALUES:
                action.completer = _VALUES[name, action.dest]
    argcomplete.autocomplete(parser)


def _reports(**_: object) -> list[str]:
    from pyprof.commands.report import listed

    return list(listed())


def _formats(**_: object) -> list[str]:
    return ["csv", "json", "md", "parquet", "table"]


def _columns(prefix: str, **_: object) -> list[str]:
    """Return the columns that may follow those before the last comma."""
    from pyprof.commands.prof import columns

    before, comma, _last = prefix.rpartition(",")
    return [f"{before}{comma}{key}" for key, *_ in columns() if key not in before.split(",")]


_VALUES: dict[tuple[str, str], Callable[..., list[str]]] = {
    ("report", "name"): _reports,
    ("report", "format"): _formats,
    ("diff", "format"): _formats,
    ("prof", "c"): _columns,
}
