# SPDX-License-Identifier: Apache-2.0
"""What a terminal shows: how wide it is, and text that does nothing but appear."""

from __future__ import annotations

import os
import unicodedata
from typing import TextIO


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
    """In one line, with escapes for what a terminal obeys or does not show, and for what the encoding lacks.

    >>> visible("a\\x1b[31mb\\u202ec\\n"), visible("naïve", "ascii")
    ('a\\\\x1b[31mb\\\\u202ec\\\\n', 'na\\\\xefve')
    """
    shown = "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char)[0] in "C" or char in "\u2028\u2029"
        else char for char in text
    )  # fmt: skip
    return shown.encode(encoding, "backslashreplace").decode(encoding)
