# SPDX-License-Identifier: Apache-2.0
"""Kinds of events and of ranges in a profile database: their numbers, and the conditions on them in SQL.

A condition begins with the column, so that the name of a table can stand before it.

>>> f"select id from event e where e.{ON_GPU}"
'select id from event e where e.kind <> 3'
>>> uses_tensor_cores("e")
'e.kind in (0, 4) and e.tc = 1'
"""

from __future__ import annotations

from pyprof.core.model import GRAPH, KERNEL, KERNELS, MARK, MEMCPY, MEMSET, OPERATOR, PUSH_POP

# Of a range, after those of core/model.py: a RecordFunction event of torch, a call of a Python function.
OPERATOR_EVENT, PYTHON_FUNCTION = 3, 4

# Conditions on the tables `event` and `op_kernel_stat`.
ON_GPU = f"kind <> {OPERATOR}"
IS_KERNEL = f"kind in {KERNELS}"
IS_GRAPH = f"kind = {GRAPH}"
IS_COPY = f"kind = {MEMCPY}"
IS_SET = f"kind = {MEMSET}"
ON_CPU = f"kind = {OPERATOR}"
COMPUTES = f"kind in ({KERNEL}, {OPERATOR}, {GRAPH})"  # no copies and sets; without a GPU, all operator events
MOVES_MEMORY = f"kind in ({MEMCPY}, {MEMSET})"

# Conditions on the table `range`.
HAS_LENGTH = f"kind < {MARK}"  # push/pop and start/end ranges
IS_MARK = f"kind = {MARK}"
NESTS = f"kind in ({PUSH_POP}, {OPERATOR_EVENT})"
IS_OPERATOR_EVENT = f"kind = {OPERATOR_EVENT}"
IS_FUNCTION = f"kind = {PYTHON_FUNCTION}"
IS_NO_FUNCTION = f"kind < {PYTHON_FUNCTION}"


def uses_tensor_cores(table: str = "") -> str:
    """Return the condition that an event, or a sum over events, is of kernels that used tensor cores."""
    of = f"{table}." if table else ""
    return f"{of}{IS_KERNEL} and {of}tc = 1"
