# SPDX-License-Identifier: Apache-2.0
"""The name of a notebook's cell: `In [2]`, as its user sees it, for the file name under which Python has compiled it.

IPython in a terminal calls it `<ipython-input-2-HASH>`; a Jupyter kernel names a file in the temporary folder, and its
compiler remembers the number of the execution. A cell that ran more than once has its last number.

>>> name("<ipython-input-2-5d41402abc>"), name("/home/user/train.py")
('In [2]', '/home/user/train.py')
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

_TERMINAL = re.compile(r"<ipython-input-(\d+)-.*>\Z")


def name(file: str) -> str:
    """What a file is called in stacks: a cell by its number, any other file by its own name."""
    found = _TERMINAL.match(file)
    number = int(found[1]) if found is not None else _numbers().get(file)
    return f"In [{number}]" if type(number) is int and number > 0 else file


def _numbers() -> Mapping[str, Any]:
    """Number of the execution by file, as IPython keeps it; empty outside of IPython, which is never imported here."""
    try:
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        numbers = getattr(getattr(shell, "compile", None), "_filename_map", None)
    except Exception:  # a shell of another kind
        return {}
    return numbers if isinstance(numbers, Mapping) else {}
