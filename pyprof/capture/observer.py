# SPDX-License-Identifier: Apache-2.0
"""Run something and note its calls: wrappers and module paths as in a window, a dispatch mode underneath.

Without torch's profiler, without times and without a file. Under a dispatch mode torch runs what it has compiled as
it was written, so that its calls are seen. Everything is undone at the end, also after an error, which is the
program's own.
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
from pyprof.capture.core.torch_internals import look_up, part
from pyprof.capture.instrument import arguments, modules, targets
from pyprof.capture.instrument.call_log import Notes, noting
from pyprof.capture.instrument.patch import Patches, Registry
from pyprof.capture.instrument.recorder import local, recorder
from pyprof.capture.session import Session
from pyprof.errors import CaptureError

_patches = Patches(noting)
_Mode: Any = look_up(
    "torch.utils._python_dispatch.TorchDispatchMode",
    "operators outside of calls, in estimates",
    nullcontext,
    check=lambda mode: issubclass(mode, object),
)
# No call by itself, since it runs several products, and what it runs for its projections.
_ATTENTION, _PARTS = "multi_head_attention_forward", ("_in_projection", "_in_projection_packed")


_HigherOrder: Any = look_up(
    "torch._ops.HigherOrderOperator",
    "torch.cond and its like, in estimates",
    type(None),
    check=lambda one: issubclass(one, object),
)


_FLEX, _UNCOMPILED = "torch.nn.attention.flex_attention", "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"


class _Operators(_Mode):  # type: ignore[misc]
    """Shows each operator to the notes."""

    supports_higher_order_operators = True

    def __init__(self, notes: Notes):
        super().__init__()
        self._notes = notes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, _HigherOrder):
            return self._notes.higher_order(func, args, kwargs or {}, self._seen)
        return self._notes.operator(func, args, kwargs or {})

    def _seen(self, function: Any) -> Any:
        """The function with its operators shown: torch has taken this mode away until the operator around returns."""

        def run(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return run


@contextmanager
def observing() -> Iterator[Notes]:
    """Note what this thread calls in the block; the rows are there after it.

    Raises CaptureError while a recording is open, and where this torch is too old.
    """
    if reason := torch_internals.unsupported():
        raise CaptureError(reason)
    outer = recorder.observer
    notes = Notes()
    with ExitStack() as undo:
        if outer is None:
            _install(undo)
        elif not isinstance(outer, Notes) or not outer.here():
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
    """A function of torch that was handed over is a call like any other; anything else is what it was.

    >>> import torch
    >>> named(torch.mm) is torch.mm, named(print) is print
    (False, True)
    """
    if isinstance(fn, functools.partial):
        return functools.partial(named(fn.func), *fn.args, **fn.keywords)
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, torch.Tensor):  # x.mul: of the class, as for any tensor
        method = getattr(torch.Tensor, getattr(fn, "__name__", ""), None)
        known = None if method is None else _known(method)
        return fn if method is None or known is None else functools.partial(noting(method, known), owner)
    known = _known(fn)
    return fn if known is None else noting(fn, known)


def _known(fn: Callable[..., object]) -> int | None:
    """The number of a function of torch."""
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
            "PyProf is recording: an estimate would stand in that recording. End the window first, "
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
        registry.replace(
            flex, _UNCOMPILED, True
        )  # it compiles itself, which torch refuses under a dispatch mode
    recorder.active = True


def _with_calls(function: Any) -> FunctionType:
    """A copy of a function of torch.nn.functional in which the functions that it finds there are calls.

    It reaches them as its globals, which no property of the module is asked for.
    """
    names: dict[str, Any] = dict(vars(F))
    namespace = next(each for each in targets.namespaces() if each.module is F)
    for attribute, op in targets.functions(namespace):
        names[attribute] = noting(names[attribute], recorder.function(namespace.mod, op))

    def copy(original: Any) -> FunctionType:
        made = FunctionType(original.__code__, names, original.__name__, original.__defaults__)
        made.__kwdefaults__ = original.__kwdefaults__
        return made

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
    Session(None).forget()
