# SPDX-License-Identifier: Apache-2.0
"""Output for people: the width of a terminal, and text without effects on a terminal or a spreadsheet."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from typing import Any, TextIO

_FORMULA = re.compile(r"[\s\ufeff]*[=+\-@\uff0b\uff0d\uff1d\uff20]")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")


def columns(stream: TextIO) -> int:
    """Return the width of a stream's terminal, from COLUMNS or the terminal itself; 80 for a file."""
    variable = os.environ.get("COLUMNS", "")
    if variable.isascii() and variable.isdecimal() and int(variable):
        return int(variable)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return 80


def visible(text: str, encoding: str = "utf-8") -> str:
    r"""Return the text in one line, with escapes for control and invisible characters, and for characters that the
    encoding lacks. All texts of a recording, a file name or an error pass through here before a person sees them.

    >>> visible("a\x1b[31mb\u202ec\n"), visible("naïve", "ascii")
    ('a\\x1b[31mb\\u202ec\\n', 'na\\xefve')
    """
    if not text.isprintable():
        text = "".join(
            char.encode("unicode_escape").decode()
            if unicodedata.category(char)[0] == "C" or char in "\u2028\u2029"
            else char
            for char in text
        )
    return text.encode(encoding, "backslashreplace").decode(encoding)


def json_text(value: Any) -> str:
    r"""Return the JSON of a value; control characters are escaped.

    >>> print(json_text("ü\x9b\u202e"), json_text(["ü", 1]))
    "\u00fc\u009b\u202e" ["ü", 1]
    """
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)


def cell(text: str) -> str:
    r"""Return a text for a CSV file: its lines have no effect on a terminal or in a spreadsheet.

    >>> cell("=1\nx\x1b[31m"), cell("a\r\nb")
    ("'=1\nx\\x1b[31m", 'a\\r\nb')
    """
    return disarmed("\n".join(map(visible, text.split("\n"))))


def disarmed(text: str) -> str:
    """Return the text with a leading ' if a spreadsheet would read it as a formula: it begins with = + - @ and is not a
    number.

    >>> disarmed("=cmd|x"), disarmed("-1.5"), disarmed("-")
    ("'=cmd|x", '-1.5', '-')
    """
    return f"'{text}" if len(text) > 1 and _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text
