# SPDX-License-Identifier: Apache-2.0
"""torch.compile leaves PyProf's own frames alone.

Between two graphs it runs the program as it is, and looks at each Python function that is called there: it would
compile our wrappers, count them, and compile them again when something that they look at differs. A mark on each code
object says that this one is not for it; what is called from there is looked at as ever.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

_done: set[str] = set()


def leave_alone() -> None:
    """Mark the functions of this package, of all its modules that are loaded."""
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{__package__}.") and name not in _done:
            _done.add(name)
            for code in _codes(module):
                mark(code)


def mark(code: CodeType) -> None:
    """Mark a code object, and those of the functions that it makes."""
    try:  # between two graphs torch.compile would compile `suppress`
        frames: Any = torch._C._dynamo.eval_frame
        action = frames._FrameAction
        strategy = frames._FrameExecStrategy(action.SKIP, action.DEFAULT)  # this one; not those that it calls
        for each in _with_inner(code):
            frames.set_code_exec_strategy(each, strategy)
    except AttributeError:  # names that torch does not promise: without them our frames are compiled
        pass


def _codes(module: ModuleType) -> Iterator[CodeType]:
    """Code of the functions and methods that a module defines."""
    for value in vars(module).values():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        for item in vars(value).values() if isinstance(value, type) else (value,):
            function = getattr(item, "__func__", None) or getattr(item, "fget", None) or item
            if isinstance(function, FunctionType):
                yield function.__code__


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)
