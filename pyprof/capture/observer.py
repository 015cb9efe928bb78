# SPDX-License-Identifier: Apache-2.0
"""Observation of calls without recording: wrappers and module paths as in a window, and a dispatch mode below.

Without torch's profiler, without times and without a file. Under a dispatch mode torch runs compiled code as
originally written, so that its calls are visible. Everything is undone at the end, also after an exception, which is
the program's own.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F

from pyprof.capture import controller
from pyprof.capture.core import torch_internals
from pyprof.capture.core.state import Until, end
from pyprof.capture.core.torch_internals import look_up, part
from pyprof.capture.instrument import arguments, modules, targets
from pyprof.capture.instrument.attribute_registry import Registry
from pyprof.capture.instrument.call_log import Notes, noting
from pyprof.capture.instrument.patch import Patches
from pyprof.capture.instrument.recorder import local, recorder
from pyprof.capture.process.faults import guarded
from pyprof.core.errors import CaptureError

_patches = Patches(noting)
_Mode: Any = look_up(
    "torch.utils._python_dispatch.TorchDispatchMode",
    "operators outside of calls, in estimates",
    nullcontext,
    check=lambda mode: issubclass(mode, object),
)
# Not a call itself, since it runs several products; and its functions for projections.
_ATTENTION, _PARTS = "multi_head_attention_forward", ("_in_projection", "_in_projection_packed")


_HigherOrder: Any = look_up(
    "torch._ops.HigherOrderOperator",
    "torch.cond and its like, in estimates",
    type(None),
    check=lambda value: issubclass(value, object),
)


_FLEX, _UNCOMPILED = "torch.nn.attention.flex_attention", "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"


class _Operators(_Mode):  # type: ignore[misc]
    """Dispatch mode that passes each operator to the notes."""

    supports_higher_order_operators = True

    def __init__(self, notes: Notes):
        super().__init__()
        self._notes = notes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, _HigherOrder):
            return self._notes.higher_order(func, args, kwargs or {}, self._wrap)
        return self._notes.operator(func, args, kwargs or {})

    def _wrap(self, function: Any) -> Any:
        """Wrap a function so that its operators are noted: torch disables this mode until the surrounding operator
        returns."""

        def run(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return run


@contextmanager
def observing() -> Iterator[Notes]:
    """Note the calls of this thread in the block; the rows are available after it.

    Raises CaptureError while a recording is open, and if this torch is too old.
    """
    if reason := torch_internals.unsupported():
        raise CaptureError(reason)
    outer = recorder.observer
    notes = Notes()
    with ExitStack() as undo:
        if outer is None:
            _install(undo)
        elif not isinstance(outer, Notes) or not outer.of_this_thread():
            raise CaptureError("another thread is making an estimate: one at a time.")
        state = local.state
        undo.callback(setattr, recorder, "observer", outer)
        undo.callback(setattr, state, "busy", state.busy)
        undo.callback(notes.close)
        recorder.observer, state.busy = notes, False
        with _Operators(notes):
            yield notes
    if isinstance(outer, Notes):
        outer.absorb(notes)


def named(fn: Callable[..., object]) -> Callable[..., object]:
    """Wrap a function of torch that was passed in, so that it is a call; return anything else unchanged.

    >>> import torch
    >>> named(torch.mm) is torch.mm, named(print) is print
    (False, True)
    """
    if isinstance(fn, functools.partial):
        return functools.partial(named(fn.func), *fn.args, **fn.keywords)
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, torch.Tensor):  # x.mul: of the class, as for any tensor
        method = getattr(torch.Tensor, getattr(fn, "__name__", ""), None)
        number = None if method is None else _function_number(method)
        return fn if method is None or number is None else functools.partial(noting(method, number), owner)
    number = _function_number(fn)
    return fn if number is None else noting(fn, number)


def _function_number(fn: Callable[..., object]) -> int | None:
    """Return the number of a function of torch."""
    for namespace in targets.namespaces():
        for attribute, op in targets.functions(namespace):
            if vars(namespace.module).get(attribute) is fn:
                return recorder.function(namespace.mod, op)
    name = getattr(fn, "__name__", "")
    if name in targets.tensor_methods() and getattr(torch.Tensor, name) is fn:
        return recorder.function("Tensor", name)
    return None


def _install(undo: ExitStack) -> None:
    control = controller.control
    if control.session is not None and not control.background():
        raise CaptureError(
            "PyProf is recording: an estimate would become part of that recording. End the window first, "
            "or call pyprof.estimate() in a program that is not recorded."
        )
    control.interrupt()
    undo.callback(control.resume)
    undo.callback(_forget)
    undo.enter_context(arguments.fake_tensors())
    registry = Registry()
    undo.callback(_remove, registry)
    _patches.install()
    modules.install(registry)
    with part(f"torch.nn.functional.{_ATTENTION}", "calls inside of attention modules, in estimates"):
        registry.replace(F, _ATTENTION, _with_calls(getattr(F, _ATTENTION)))
    flex = sys.modules.get(_FLEX)
    if flex is not None and hasattr(flex, _UNCOMPILED):
        # It compiles itself, which torch refuses under a dispatch mode.
        registry.replace(flex, _UNCOMPILED, True)
    recorder.active = True


def _with_calls(function: Any) -> FunctionType:
    """Return a copy of a function of torch.nn.functional in which the functions of that module are calls.

    It accesses them as its globals, which bypasses the properties of the module.
    """
    names: dict[str, Any] = dict(vars(F))
    namespace = next(space for space in targets.namespaces() if space.module is F)
    for attribute, op in targets.functions(namespace):
        names[attribute] = noting(names[attribute], recorder.function(namespace.mod, op))

    def copy(original: Any) -> FunctionType:
        copied = FunctionType(original.__code__, names, original.__name__, original.__defaults__)
        copied.__kwdefaults__ = original.__kwdefaults__
        return copied

    for name in _PARTS:
        if name in names:
            names[name] = copy(names[name])
    return copy(function)


def _remove(registry: Registry) -> None:
    recorder.active = False
    registry.undo()
    _patches.remove()


def _forget() -> None:
    recorder.clear()
    end(Until.WRITTEN, guarded)
