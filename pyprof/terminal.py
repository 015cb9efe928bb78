# SPDX-License-Identifier: Apache-2.0
"""What a person sees: the width of a terminal, and text that does nothing but appear, there and in a spreadsheet."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from typing import Any, TextIO

_FORMULA = re.compile(r"[\s\ufeff]*[=+\-@\uff0b\uff0d\uff1d\uff20]")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")


def columns(stream: TextIO) -> int:
    """The width of the terminal that a stream is, as COLUMNS or the terminal itself says; 80 for a file."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isascii() and asked.isdecimal() and int(asked):
        return int(asked)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return 80


def visible(text: str, encoding: str = "utf-8") -> str:
    """In one line, with escapes for what a terminal obeys or does not show, and for what the encoding lacks. Whatever a
    recording, a file name or an error holds passes through here before a person sees it.

    >>> visible("a\\x1b[31mb\\u202ec\\n"), visible("naïve", "ascii")
    ('a\\\\x1b[31mb\\\\u202ec\\\\n', 'na\\\\xefve')
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
    """JSON of a value; what a terminal obeys is escaped.

    >>> print(json_text("ü\\x9b\\u202e"), json_text(["ü", 1]))
    "\\u00fc\\u009b\\u202e" ["ü", 1]
    """
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)


def cell(text: str) -> str:
    """Of a CSV file: lines that do nothing but appear, in a spreadsheet too.

    >>> cell("=1\\nx\\x1b[31m"), cell("a\\r\\nb")
    ("'=1\\nx\\\\x1b[31m", 'a\\\\r\\nb')
    """
    return disarmed("\n".join(map(visible, text.split("\n"))))


def disarmed(text: str) -> str:
    """With a ' before what a spreadsheet would take for a formula: it begins with = + - @ and is no number.

    >>> disarmed("=cmd|x"), disarmed("-1.5"), disarmed("-")
    ("'=cmd|x", '-1.5', '-')
    """
    return f"'{text}" if len(text) > 1 and _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text
