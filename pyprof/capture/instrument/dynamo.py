# SPDX-License-Identifier: Apache-2.0
"""Exclusion of PyProf's own frames from torch.compile.

Between two graphs it runs the program as it is, and examines each Python function that is called there: it would
compile PyProf's wrappers, count them, and recompile them when a guarded value differs. A mark on each code object
excludes it; functions called from there are examined as usual.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from pyprof.capture.core.torch_internals import look_up

_done: set[str] = set()


def leave_alone() -> None:
    """Mark the functions of this package, of all its modules that are loaded."""
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{__package__}.") and name not in _done:
            _done.add(name)
            for code in _codes(module):
                mark(code)


def mark(code: CodeType) -> None:
    """Mark a code object, and those of the functions defined in it."""
    if _skip is not None:
        for inner in _with_inner(code):
            _skip(inner)


def _skipping() -> Callable[[CodeType], object] | None:
    """Return what marks one code object, but not those that it calls."""
    frames = "torch._C._dynamo.eval_frame"
    older = look_up(f"{frames}.skip_code", "")  # the only way before torch 2.7
    without = "" if older is not None else "compiled code without frames of PyProf in between"
    action = look_up(f"{frames}._FrameAction", without)
    strategy = look_up(f"{frames}._FrameExecStrategy", without)

    def mark_one(set_strategy: Any, code: CodeType) -> None:
        set_strategy(code, strategy(action.SKIP, action.DEFAULT))

    newer = look_up(
        f"{frames}.set_code_exec_strategy", without, check=lambda value: mark_one(value, _skipping.__code__)
    )
    return older if newer is None else functools.partial(mark_one, newer)


_skip = _skipping()


def _codes(module: ModuleType) -> Iterator[CodeType]:
    """Yield the code of the functions and methods that a module defines."""
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
