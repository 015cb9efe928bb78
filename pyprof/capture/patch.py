# SPDX-License-Identifier: Apache-2.0
"""How calls are seen: wrappers, and three ways to put one in the way of a call. All are undone exactly.

*Functions of a module* (`F.conv2d`, `torch.add`): nothing in the module is replaced. While a window is open the class
of the module object is a subclass of its own class with a property per function. The property looks at the
instruction that asks: if the value is called at once (`callsites.py`) it gets a wrapper that records, every other
access gets the function itself. So identity, `vars(F)`, pickling, handler tables, torch.jit and torch.compile
see what they always see, and outside a window not even the lookup differs.

*Methods of torch.Tensor*: a descriptor in the class, for the length of the window. `torch.Tensor.mul` gives the
original (torch hands that object to `__torch_function__`), `x.mul` a bound wrapper.

*Others* (`autograd.Function.apply`, what `wrap` names, hooks): an attribute is replaced, and `Registry` puts it back.

A call through a name that was imported earlier (`from torch import add`) is seen as an operator only (`resolve.py`).
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from time import time_ns
from types import CodeType, MethodType, ModuleType
from typing import Any

import torch

from pyprof.capture import targets
from pyprof.capture.callsites import callee_offsets
from pyprof.capture.describe import Traced, key_of
from pyprof.capture.recorder import local, recorder
from pyprof.errors import UsageError

log = logging.getLogger(__name__)
Function = Callable[..., Any]
_getframe = sys._getframe
_MISSING: Any = object()
# From 3.13 on the interpreter may read an attribute of any module straight from its dictionary, past a property,
# unless its class has a __getattribute__ of its own: that is one frame more between the property and who asks.
_BYPASSED = sys.version_info >= (3, 13)
_ASKING = 2 if _BYPASSED else 1


class Registry:
    """Attributes that were replaced, put back in reverse order. One that somebody replaced after us is left alone."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def replace(self, owner: Any, name: str, new: Any) -> None:
        """Set an attribute and remember what its own dictionary held."""
        old = vars(owner).get(name, _MISSING)
        setattr(owner, name, new)
        self._replaced.append((owner, name, old, new))

    def undo(self) -> None:
        """Put every attribute back."""
        for owner, name, old, new in reversed(self._replaced):
            if vars(owner).get(name, _MISSING) is not new:
                log.warning("%s.%s was replaced by somebody else and is left as it is", owner.__name__, name)
            elif old is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, old)
        self._replaced.clear()


def recording(original: Function, number: int) -> Function:
    """A function that calls `original` and records the call as `recorder.functions[number]`, if it is the outermost."""
    site_of = recorder.stacks.site
    keys = recorder.keys

    def call(*args: Any, **kwargs: Any) -> Any:
        state = local.state
        if state.busy or not recorder.active:
            if recorder.counting and not state.busy:
                recorder.excess += 1
            return original(*args, **kwargs)
        state.busy = True
        try:
            site = site_of(_getframe(1), state.context)
            key = key_of(args, kwargs)
            described = keys.get(key)
            if described is None:
                described = recorder.describe(key)
        except Traced:
            try:
                return original(*args, **kwargs)
            finally:
                state.busy = False
        except Exception as error:  # never into the user's code
            site = described = -1
            recorder.drop(f"call not described ({type(error).__name__})")
        start = time_ns()
        try:
            return original(*args, **kwargs)
        finally:
            calls = state.calls
            calls += (number, site, described, state.layer, start, time_ns())
            state.busy = False
            if len(calls) > recorder.limit:
                _full()

    return _named_like(call, original)


def emitting(original: Function, number: int) -> Function:
    """The same where calls are written as NVTX ranges: `recording` stays free of that, and as fast as it is."""
    site_of = recorder.stacks.site
    keys = recorder.keys

    def call(*args: Any, **kwargs: Any) -> Any:
        state = local.state
        writer = recorder.ranges
        if state.busy or not recorder.active or writer is None:
            return original(*args, **kwargs)
        state.busy = True
        key = None
        try:
            site = site_of(_getframe(1), state.context)
            key = key_of(args, kwargs)
            described = keys.get(key)
            if described is None:
                described = recorder.describe(key) if recorder.keeping or not writer.full else -1
        except Traced:
            try:
                return original(*args, **kwargs)
            finally:
                state.busy = False
        except Exception as error:  # never into the user's code
            site = described = -1
            recorder.drop(f"call not described ({type(error).__name__})")
        depth = start = 0
        try:
            depth = writer.push(state, number, site, described, key)
            start = time_ns()
            return original(*args, **kwargs)
        finally:
            end = time_ns()
            if depth:
                writer.pop(depth)
            if recorder.keeping:
                calls = state.calls
                calls += (number, site, described, state.layer, start or end, end)
                if len(calls) > recorder.limit:
                    _full()
            elif recorder.counting:
                recorder.excess += 1
            state.busy = False

    return _named_like(call, original)


def _named_like(call: Function, original: Function) -> Function:
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        with suppress(AttributeError, TypeError):  # builtins lack some of these
            setattr(call, name, getattr(original, name))
    return call


def _full() -> None:
    try:
        recorder.on_full()
    except Exception as error:  # never into the user's code
        recorder.drop(f"bound not checked ({type(error).__name__})")


_offsets: dict[int, frozenset[int]] = {}
_codes: list[CodeType] = []  # keeps the ids in _offsets valid


def _analyse(code: CodeType) -> frozenset[int]:
    offsets = _offsets[id(code)] = callee_offsets(code)
    _codes.append(code)
    return offsets


class _Lookup(property):
    """The property of one function of a module: a wrapper for a callee, the function itself for everybody else."""


def _lookup(namespace: dict[str, Any], name: str, original: Function, wrapper: Function) -> _Lookup:
    offsets_of = _offsets.get

    def get(module: ModuleType) -> Any:
        if local.state.busy:  # inside a recorded call nothing is recorded
            return namespace.get(name, original)
        frame = _getframe(_ASKING)
        code = frame.f_code
        offsets = offsets_of(id(code))
        if offsets is None:
            offsets = _analyse(code)
        value = namespace.get(name, original)
        if frame.f_lasti in offsets and value is original:
            return wrapper
        return value

    def put(module: ModuleType, value: Any) -> None:
        namespace[name] = value

    def delete(module: ModuleType) -> None:
        if name not in namespace:
            raise AttributeError(name)
        del namespace[name]

    return _Lookup(get, put, delete)


class _Method:
    """A method of torch.Tensor: the original through the class, a bound wrapper through a tensor."""

    __slots__ = ("bind", "original", "wrapper")

    def __init__(self, original: Any, wrapper: Function):
        self.original, self.wrapper = original, wrapper
        self.bind = original.__get__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self.original
        if local.state.busy:  # inside a recorded call nothing is recorded
            return self.bind(instance)
        return MethodType(self.wrapper, instance)


class Patches:
    """Everything that is in the way of calls while a window is open. `wrapper` makes a wrapper, as `recording` does."""

    def __init__(self, wrapper: Callable[[Function, int], Function] = recording) -> None:
        self._wrapper = wrapper
        self._classes: list[tuple[ModuleType, type, type]] | None = None
        self._methods: list[tuple[str, _Method]] = []
        self._registry = Registry()

    def install(self) -> None:
        """Put the wrappers in the way. They are made once and kept for the next window."""
        if self._classes is None:
            self._classes = [_module_class(namespace, self._wrapper) for namespace in targets.namespaces()]
            for name in targets.tensor_methods():
                original = getattr(torch.Tensor, name)
                wrapper = self._wrapper(original, recorder.function("Tensor", name))
                self._methods.append((name, _Method(original, wrapper)))
        for name, method in self._methods:
            if getattr(torch.Tensor, name) is method.original:
                self._registry.replace(torch.Tensor, name, method)
        function = torch.autograd.Function
        apply = _apply(vars(function)["apply"].__func__, self._wrapper)
        self._registry.replace(function, "apply", classmethod(apply))
        for module, plain, watched in self._classes:
            if type(module) is plain:
                module.__class__ = watched

    def remove(self) -> None:
        """Undo `install`."""
        _offsets.clear()
        _codes.clear()
        for module, plain, watched in self._classes or ():
            if type(module) is watched:
                module.__class__ = plain
        self._registry.undo()


def _module_class(
    namespace: targets.Namespace, make: Callable[[Function, int], Function]
) -> tuple[ModuleType, type, type]:
    module = namespace.module
    plain = type(module)
    body: dict[str, Any] = {}
    for attribute, op in targets.functions(namespace):
        original = getattr(module, attribute)
        wrapper = make(original, recorder.function(namespace.mod, op))
        body[attribute] = _lookup(vars(module), attribute, original, wrapper)
    if _BYPASSED:
        body["__getattribute__"] = lambda self, name: plain.__getattribute__(self, name)
    return module, plain, type(plain.__name__, (plain,), body)


def _apply(original: Function, make: Callable[[Function, int], Function]) -> Function:
    """`apply` of autograd.Function: the operator is the user's class."""
    numbers: dict[type, Function] = {}

    @functools.wraps(original)
    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling() or not recorder.active:
            return original(cls, *args, **kwargs)
        call = numbers.get(cls)
        if call is None:
            number = recorder.function("torch.autograd", f"{cls.__name__}.apply")
            call = numbers[cls] = make(functools.partial(original, cls), number)
        return call(*args, **kwargs)

    return apply


_wrapped = Registry()


def wrap(module: Any, name: str) -> None:
    """Record calls of `module.name` as an operator, for one that torch does not know: `wrap(my_extension, "fused_op")`.

    `module` is a module or a class. The attribute stays replaced until `shutdown`.
    """
    if isinstance(getattr(module, name), type):
        raise UsageError(
            f"{name} is a class: wrap a function, or a method with pyprof.wrap({name}, 'method')."
        )
    held = inspect.getattr_static(module, name)
    kind = type(held) if isinstance(held, (staticmethod, classmethod)) else None
    original = held.__func__ if kind is not None else getattr(module, name)
    if getattr(original, "_pyprof_wrapper", False):
        return
    mod = str(getattr(module, "__qualname__", None) or getattr(module, "__name__", type(module).__name__))
    number = recorder.function(mod, name)
    record, emit = recording(original, number), emitting(original, number)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling() or not recorder.active:
            return original(*args, **kwargs)
        return record(*args, **kwargs) if recorder.ranges is None else emit(*args, **kwargs)

    call.__dict__["_pyprof_wrapper"] = True
    _wrapped.replace(module, name, kind(call) if kind is not None else call)


def unwrap_all() -> None:
    """Undo every `wrap`."""
    _wrapped.undo()
