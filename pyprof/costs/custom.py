# SPDX-License-Identifier: Apache-2.0
"""Formulas from the user's code: `pyprof.cost`.

A formula gets the recorded arguments: tensors as `pyprof.Tensor` (shape, dtype, numel, bytes), scalars unchanged. It
returns a `pyprof.Cost`, or FLOPs and bytes as a pair. Its parameters have the names and the order of the operator's
schema, or of the function passed to `pyprof.wrap`, because recordings have the arguments of operators by position.
Trailing parameters that it does not need may be left out.

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

from pyprof.core.errors import UsageError
from pyprof.core.model import Arg, Call, Cost, Tensor
from pyprof.costs import cost as costs
from pyprof.costs.cost import UNKNOWN, lookup

log = logging.getLogger(__name__)
Result = Cost | tuple[int | None, int | None]
_user_names: set[str] = set()


def cost(*names: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Register the decorated function as the cost of the calls with these names, as `pyprof.cost("my::op")`.

    A name is an operator's (`my::op`) or that of a function passed to `pyprof.wrap` (`fused_op`,
    `my_extension.fused_op`). Registering a name again replaces the formula. Raises UsageError for a name of PyProf's
    own.
    """
    registry = costs.formulas()
    if not names or not all(isinstance(name, str) and name for name in names):
        raise UsageError('pyprof.cost needs the names of operators: write @pyprof.cost("my::op").')
    for name in names:
        if name in registry and name not in _user_names:
            raise UsageError(f"PyProf already has a formula for {name!r}; choose another name for yours.")

    def add(function: Callable[..., Result]) -> Callable[..., Result]:
        forget(*names)
        costs.cost(*names)(_guard(function, names[0]))
        _user_names.update(names)
        _clear()
        return function

    return add


def forget(*names: str) -> None:
    """Remove formulas of the user; PyProf's own stay."""
    for name in names:
        if name in _user_names:
            _user_names.remove(name)
            costs.formulas().remove(name)
    _clear()


def _clear() -> None:
    costs.find.cache_clear()
    costs._lookup.cache_clear()


def _guard(function: Callable[..., Result], name: str) -> Callable[..., Cost]:
    """Wrap a formula for the table: surplus positional arguments are cut; an error is logged once and leaves the cost
    unknown."""
    parameters = inspect.signature(function).parameters.values()
    count = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        count = -1
    reported: set[str] = set()

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Cost:
        try:
            result = function(*(args if count < 0 else args[:count]), **kwargs)
            return result if isinstance(result, Cost) else Cost(*_pair(result))
        except Exception as error:  # user code: a failing formula must not end a report
            reason = f"{type(error).__name__}: {error}"
            if reason not in reported:
                reported.add(reason)
                log.warning("the formula of %s failed, its cost is unknown (%s)", name, reason)
            return UNKNOWN

    guarded.__module__ = __name__  # the family of the formula; a file of the user may be called gemm.py
    return guarded


def _pair(result: Any) -> tuple[int | None, int | None]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(f"it returned {result!r}; expected a pyprof.Cost, or FLOPs and bytes")
    return result


def load(path: str) -> None:
    """Run a file of formulas: Python code named by the user. Raises UsageError."""
    try:
        runpy.run_path(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); name a Python file of formulas.") from error
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{path}: {type(error).__name__}: {error}") from error


__all__ = ["Arg", "Call", "Cost", "Tensor", "cost", "forget", "load", "lookup"]
