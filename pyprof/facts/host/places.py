# SPDX-License-Identifier: Apache-2.0
"""Places of the host as texts: API call, range or function, operator, module, source line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pandas as pd

from pyprof.core.api_names import without_version
from pyprof.core.model import Stack
from pyprof.facts.host.operator_tree import operator_name
from pyprof.store import reads
from pyprof.store.files import Store

# Where the launching thread was, or whose kernel it is.
WHERE = ("in", "before", "kernel of")
# Files of installed packages and of Python; Kineto leaves out the folder in which torch is installed.
_LIBRARY = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python\d[^/\\]*[/\\]|^torch[/\\]")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of a bound method: another one in every process
PLACE_COLUMNS = ("call", "host", "where", "operator", "module", "line", "stack")


def place_texts(store: Store, stack_of: Callable[[int], Stack], table: pd.DataFrame) -> pd.DataFrame:
    """Return PLACE_COLUMNS as texts, None where there is none. `table`: their numbers, without module and line, which
    are those of `stack`, a number for `stack_of`, or of the operator."""
    names = reads.texts_of(store, table[["call", "host"]].to_numpy())
    operators = {
        number: cells
        for number, *cells in store.rows(
            """select o.id, case when o.unassociated = 1 then null else o.name end, o.module, nullif(k.frames, '')
               from operator o left join stack k on k.id = o.stack"""
        )
    }
    rows = []
    for call, host, where, operator, number in (
        table[["call", "host", "where", "operator", "stack"]].to_numpy().tolist()
    ):
        name, module, stack = operators.get(operator, [None] * 3)
        around = stack_of(number)
        stack = "\n".join(around.frames) or stack
        rows.append((
            without_version(names[call]) if call >= 0 else None,
            _ADDRESS.sub("", operator_name(names[host])) if host in names else None,
            WHERE[where] if where >= 0 and name else None, name, module or around.module,
            stack and stack.rpartition("\n")[2], stack,
        ))  # fmt: skip
    return pd.DataFrame(rows, columns=list(PLACE_COLUMNS), dtype=object)


def is_users(line: str) -> bool:
    """Return whether a line is outside installed packages."""
    return not _LIBRARY.search(line)


def user_line(stack: Any) -> str | None:
    r"""Return the innermost line of a stack outside installed packages; without one the innermost line.

    >>> user_line("train.py:9\nnet.py:30\n/env/lib/python3.11/site-packages/torchvision/models/resnet.py:132")
    'net.py:30'
    """
    frames = [frame for frame in stack.split("\n") if frame] if isinstance(stack, str) else []
    own = [frame for frame in frames if is_users(frame)]
    candidates = own or frames
    return candidates[-1] if candidates else None
