# SPDX-License-Identifier: Apache-2.0
"""Interception of calls: wrappers, and three ways to insert one into a call. All are undone exactly.

*Functions of a module* (`F.conv2d`, `torch.add`): nothing in the module is replaced. While a window is open the
class of the module object is a subclass of its own class with a property per function. The property examines the
instruction that does the lookup (`lookups.py`): if the value is called immediately it gets a wrapper that records,
every other access gets the function itself. So identity, `vars(F)`, pickling, handler tables, torch.jit and
torch.compile behave as always, and outside a window not even the lookup differs.

*Methods of torch.Tensor*: a descriptor in the class, for the length of the window. `torch.Tensor.mul` gives the
original (torch hands that object to `__torch_function__`), `x.mul` a bound wrapper.

*Others* (`autograd.Function.apply`, `CUDAGraph.replay`, the argument of `wrap`, hooks): an attribute is replaced, and
`Registry` restores it.

A call through a name that was imported earlier (`from torch import add`) appears only as an operator:
`merge_calls.py`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType, ModuleType
from typing import Any

import torch

from pyprof.capture.core.state import Until, owned
from pyprof.capture.core.torch_internals import is_tracing, part
from pyprof.capture.instrument import checkpoints, compilation, compiled, dynamo, lookups, targets, triton
from pyprof.capture.instrument.attribute_registry import Registry
from pyprof.capture.instrument.call_log import noting
from pyprof.capture.instrument.recorder import recorder
from pyprof.capture.instrument.wrappers import Function, emitting, hide_from_warnings, leave_places, recording
from pyprof.core.errors import UsageError
from pyprof.core.marker import is_compiled

log = logging.getLogger(__name__)
_tracing = is_tracing


class Patches:
    """All interceptions of calls while a window is open. `wrapper` creates a wrapper, as `recording` does."""

    def __init__(self, wrapper: Callable[[Function, int], Function] = recording) -> None:
        self._wrapper = wrapper
        self._classes: list[tuple[ModuleType, type, type]] | None = None
        self._methods: list[tuple[str, Any]] = []  # `lookups.method`
        self._lookups: list[lookups.Lookup] = []
        self._registry = Registry()

    def install(self) -> None:
        """Install the wrappers. They are created once and reused in the next window."""
        with part("torch._C._dynamo.eval_frame", "compiled code without frames of PyProf in between"):
            dynamo.leave_alone()
        if self._classes is None:
            self._make_wrappers()
        # First all reads, then all writes: Python 3.13 has a thousand versions per class, one for each lookup
        # after a change, and stops caching its attributes when they are used up.
        ours = [item for item in self._methods if getattr(torch.Tensor, item[0]) is item[1].original]
        for name, method in ours:
            with part(f"torch.Tensor.{name}", f"calls of Tensor.{name}"):
                self._registry.replace(torch.Tensor, name, method)
        with part("triton.runtime.jit.KernelInterface", "names of Triton kernels at their launch"):
            triton.install(self._registry, self._wrapper)
        with part("torch.autograd.Function.apply", "calls of autograd Functions"):
            function = torch.autograd.Function
            apply = _apply(_unbound(vars(function)["apply"]), self._wrapper)
            self._registry.replace(function, "apply", classmethod(apply))
        with part("torch.cuda.CUDAGraph.replay", "calls of CUDAGraph.replay"):
            graph: Any = torch.cuda.CUDAGraph
            number = recorder.function("torch.cuda", "CUDAGraph.replay")
            self._registry.replace(graph, "replay", self._wrapper(graph.replay, number))
        for module, plain, watched in self._classes or ():
            with part(module.__name__, f"calls of {module.__name__}"):
                if type(module) is plain:
                    module.__class__ = watched

    def _make_wrappers(self) -> None:
        self._classes = []
        for namespace in targets.namespaces():
            with part(f"{namespace.module.__name__}, its functions", f"calls of {namespace.mod}"):
                self._classes.append(self._module_class(namespace))
        with part("torch.Tensor, its methods", "calls of methods of tensors"):
            for name in targets.tensor_methods():
                original = getattr(torch.Tensor, name)
                make = lookups.Recorded(original, recorder.function("Tensor", name), self._wrapper)
                self._methods.append((name, lookups.method(original, make)))

    def _module_class(self, namespace: targets.Namespace) -> tuple[ModuleType, type, type]:
        module = namespace.module
        plain = type(module)
        properties: dict[str, lookups.Lookup] = {}
        for name, op in targets.functions(namespace):
            original = getattr(module, name)
            make = functools.partial(_recorded, self._wrapper, original, recorder.function(namespace.mod, op))
            properties[name] = lookups.function(vars(module), name, original, make)
        if module is torch:
            following = lookups.where_called(compilation.following(torch.compile))
            properties["compile"] = lookups.function(vars(torch), "compile", torch.compile, following)
        self._lookups += properties.values()
        # Code that pickles functions by value (Dask, Ray, joblib) checks the exact type of the modules that they use.
        by_name = {"__reduce_ex__": lambda self, protocol: (importlib.import_module, (self.__name__,))}
        body = {**properties, **by_name, **lookups.getattribute(plain)}
        return module, plain, type(plain.__name__, (plain,), body)

    def remove(self) -> None:
        """Undo `install`."""
        with ExitStack() as callbacks:  # all of it, even if a part raises; the last first
            for clear in (lookups.forget, leave_places, compiled.forget):
                callbacks.callback(clear)
            for lookup in self._lookups:
                callbacks.callback(lookup.clear)
            for _, method in self._methods:
                callbacks.callback(method.clear)
            callbacks.callback(self._registry.undo)
            for module, plain, watched in self._classes or ():
                if type(module) is watched:
                    callbacks.callback(setattr, module, "__class__", plain)


def _recorded(
    make: Callable[[Function, int], Function], original: Function, number: int, frame: FrameType
) -> Function | None:
    """Return the wrapper for a place that looks up a function, None for the function itself."""
    return lookups.at_place(make, original, number, frame) if lookups.is_called(frame) else None


def _unbound(method: Any) -> Function:
    """Return a class method as a function of the class. Since torch 2.14 `Function.apply` is not written in Python."""
    if hasattr(method, "__func__"):
        return method.__func__  # type: ignore[no-any-return]

    @functools.wraps(method)
    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return method.__get__(None, cls)(*args, **kwargs)

    function: Any = apply
    function.__code__ = hide_from_warnings(function.__code__)
    return function  # type: ignore[no-any-return]


def _apply(original: Function, make: Callable[[Function, int], Function]) -> Function:
    """Return the replacement of autograd.Function's `apply`: the operator is the user's class."""
    numbers: dict[type, Function] = {}

    @functools.wraps(original)
    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling() or not recorder.active or _tracing():
            return original(cls, *args, **kwargs)
        if cls is checkpoints.REENTRANT and args:
            return original(cls, checkpoints.resumed(args[0]), *args[1:], **kwargs)
        if is_compiled(cls.__name__):  # the operators in it are calls, as in code compiled before the window
            return original(cls, *args, **kwargs)
        call = numbers.get(cls)
        if call is None:
            number = recorder.function("torch.autograd", f"{cls.__name__}.apply")
            call = numbers[cls] = make(functools.partial(original, cls), number)
        return call(*args, **kwargs)

    function: Any = apply
    function.__code__ = hide_from_warnings(function.__code__)
    return function  # type: ignore[no-any-return]


_wrapped = owned(Registry(), Until.SHUTDOWN, Registry.undo)


def wrap(module: Any, name: str) -> None:
    """Record calls of `module.name` as an operator, for one that torch does not know: `wrap(my_extension, "fused_op")`.

    `module` is a module or a class. The attribute stays replaced until `shutdown`.
    """
    if isinstance(getattr(module, name), type):
        raise UsageError(f"{name} is a class: wrap a function, or a method with pyprof.wrap({name}, 'method').")
    attribute = inspect.getattr_static(module, name)
    kind = type(attribute) if isinstance(attribute, (staticmethod, classmethod)) else None
    original = attribute.__func__ if kind is not None else getattr(module, name)
    if getattr(original, "_pyprof_wrapper", False):
        return
    mod = str(getattr(module, "__qualname__", None) or getattr(module, "__name__", type(module).__name__))
    number = recorder.function(mod, name)
    record, emit, note = recording(original, number), emitting(original, number), noting(original, number)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling() or not recorder.active or _tracing():
            return original(*args, **kwargs)
        if recorder.observer is not None:
            return note(*args, **kwargs)
        return record(*args, **kwargs) if recorder.ranges is None else emit(*args, **kwargs)

    call.__dict__["_pyprof_wrapper"] = True
    _wrapped.replace(module, name, kind(call) if kind is not None else call)
