# SPDX-License-Identifier: Apache-2.0
"""Names of notebook cells: `In [2]`, as the user sees it, for the file name under which Python has compiled the cell.

IPython in a terminal uses `<ipython-input-2-HASH>`; a Jupyter kernel uses a file name in the temporary folder, and
its compiler remembers the execution number. A cell that ran more than once has its last number.

>>> name("<ipython-input-2-5d41402abc>"), name("/home/user/train.py")
('In [2]', '/home/user/train.py')
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from pyprof.capture.core.internal_errors import internal

_TERMINAL = re.compile(r"<ipython-input-(\d+)-.*>\Z")


def name(file: str) -> str:
    """Return the name of a file in stacks: a cell by its number, any other file by its own name."""
    match = _TERMINAL.match(file)
    number = int(match[1]) if match is not None else _numbers().get(file)
    return f"In [{number}]" if type(number) is int and number > 0 else file


def _numbers() -> Mapping[str, Any]:
    """Return the execution number by file, as IPython keeps it; empty outside IPython, which is never imported here."""
    try:
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        numbers = getattr(getattr(shell, "compile", None), "_filename_map", None)
    except internal():  # a shell of another kind
        return {}
    return numbers if isinstance(numbers, Mapping) else {}
