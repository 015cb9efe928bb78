# SPDX-License-Identifier: Apache-2.0
"""Formulas from the user's code: `pyprof.cost`.

A formula gets the recorded arguments: tensors as `pyprof.Tensor` (shape, dtype, numel, bytes), scalars as they are. It
returns a `pyprof.Cost`, or FLOPs and bytes as a pair. Its parameters have the names that the operator's schema, or the
function that `pyprof.wrap` named, gives them, and stand in that order, since recordings know the arguments of operators
by position. Those at the end that it does not need may be left out.

>>> @cost("doctest::scale")
... def scale(x, factor):
...     return x.numel, 2 * x.bytes
>>> lookup(Call("doctest", "doctest::scale", (Arg("", Tensor((4, 8), "float16")), Arg("", 2.0), Arg("", True))))
Cost(flops=32, bytes=128)
>>> forget("doctest::scale")
"""

from __future__ import annotations

import functools
import inspect
import logging
import runpy
from collections.abc import Callable
from typing import Any

from pyprof.errors import UsageError
from pyprof.model import Arg, Call, Cost, Tensor
from pyprof.prof import cost as costs
from pyprof.prof.cost import UNKNOWN, lookup

log = logging.getLogger(__name__)
Result = Cost | tuple[int | None, int | None]
_of_users: set[str] = set()


def cost(*names: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Decorator: the function computes the cost of the calls with these names, as `pyprof.cost("my::op")`.

    A name is an operator's (`my::op`) or a function's that `pyprof.wrap` got (`fused_op`, `my_extension.fused_op`).
    Registering a name again replaces the formula. Raises UsageError for a name of PyProf's own.
    """
    known = costs.formulas()
    if not names or not all(isinstance(name, str) and name for name in names):
        raise UsageError('pyprof.cost needs the names of operators: write @pyprof.cost("my::op").')
    for name in names:
        if name in known and name not in _of_users:
            raise UsageError(
                f"PyProf has a formula for {name!r}; a formula of yours needs a name of its own."
            )

    def add(function: Callable[..., Result]) -> Callable[..., Result]:
        forget(*names)
        costs.cost(*names)(_guarded(function, names[0]))
        _of_users.update(names)
        _clear()
        return function

    return add


def forget(*names: str) -> None:
    """Take formulas of the user's away; those of PyProf stay."""
    for name in names:
        if name in _of_users:
            _of_users.remove(name)
            costs.formulas().remove(name)
    _clear()


def _clear() -> None:
    costs.find.cache_clear()
    costs._lookup.cache_clear()


def _guarded(function: Callable[..., Result], name: str) -> Callable[..., Cost]:
    """What the table calls: surplus positional arguments are cut, an error is told once and leaves the cost unknown."""
    parameters = inspect.signature(function).parameters.values()
    count = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        count = -1
    told: set[str] = set()

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Cost:
        try:
            found = function(*(args if count < 0 else args[:count]), **kwargs)
            return found if isinstance(found, Cost) else Cost(*_pair(found))
        except Exception as error:  # the user's: one that fails must not end a report
            reason = f"{type(error).__name__}: {error}"
            if reason not in told:
                told.add(reason)
                log.warning("the formula of %s failed, its cost is unknown (%s)", name, reason)
            return UNKNOWN

    guarded.__module__ = __name__  # the family of the formula; a file of the user may be called gemm.py
    return guarded


def _pair(found: Any) -> tuple[int | None, int | None]:
    if not isinstance(found, tuple) or len(found) != 2:
        raise TypeError(f"it returned {found!r}; expected a pyprof.Cost, or FLOPs and bytes")
    return found


def load(path: str) -> None:
    """Run a file of formulas: Python code that the user has named. Raises UsageError."""
    try:
        runpy.run_path(path)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read ({error.strerror}); name a Python file of formulas."
        ) from error
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{path}: {type(error).__name__}: {error}") from error


__all__ = ["Arg", "Call", "Cost", "Tensor", "cost", "forget", "load", "lookup"]
