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
import importlib
import inspect
import logging
import sys
from collections.abc import Callable
from contextlib import ExitStack
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from pyprof.capture import checkpoints, compiling, launches, targets, untraced
from pyprof.capture.callsites import callee_offsets, is_operator
from pyprof.capture.noting import noting
from pyprof.capture.private import is_tracing, part
from pyprof.capture.recorder import local, recorder
from pyprof.capture.wrappers import Function, emitting, leave_places, passed_over, placed, recording
from pyprof.errors import UsageError

log = logging.getLogger(__name__)
_getframe = sys._getframe
# torch.jit.trace writes the file and line of the innermost Python frame, and names of its variables, into the program
# that it makes: that frame must be the user's.
_tracing = is_tracing
_MISSING: Any = object()
# From 3.13 on the interpreter may read an attribute of any module straight from its dictionary, past a property,
# unless its class has a __getattribute__ of its own: that is one frame more between the property and who asks.
BYPASSED = sys.version_info >= (3, 13)
_ASKING = 2 if BYPASSED else 1


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
        replaced, self._replaced = self._replaced, []
        with ExitStack() as rest:  # each of them, whatever another one raises
            for item in replaced:
                rest.callback(self._put_back, *item)

    @staticmethod
    def _put_back(owner: Any, name: str, old: Any, new: Any) -> None:
        if vars(owner).get(name, _MISSING) is not new:
            log.warning("%s.%s was replaced by somebody else and is left as it is", owner.__name__, name)
        elif old is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, old)


_offsets: dict[int, frozenset[int]] = {}
_codes: list[CodeType] = []  # keeps their ids valid
# Where a call stands (code's id + instruction) -> that code, the function that is called, its wrapper. The code keeps
# its id from being given to another one.
_placed: dict[int, tuple[CodeType, Function, Function]] = {}


def _callees(code: CodeType) -> frozenset[int]:
    offsets = _offsets.get(id(code))
    if offsets is None:
        offsets = _offsets[id(code)] = callee_offsets(code)
        _codes.append(code)
    return offsets


class _Lookup(property):
    """The property of one function of a module: a wrapper for a callee, the function itself for everybody else.

    A class of its own also keeps Python 3.12 from the shortcut that it takes for a plain property: while that runs,
    `f_lasti` of the frame that asks is past the access.
    """

    def __init__(self, get: Callable[[Any], Any], name: str):
        super().__init__(get)
        self._name = name

    def __set__(self, module: ModuleType, value: Any) -> None:
        vars(module)[self._name] = value

    def __delete__(self, module: ModuleType) -> None:
        if self._name not in vars(module):
            raise AttributeError(self._name)
        del vars(module)[self._name]


def lookup(
    namespace: dict[str, Any],
    name: str,
    original: Function,
    wrapper: Function,
    by_place: bool = False,
) -> property:
    """The property of a function of a module, which gives its wrapper.

    `by_place`: `wrapper` makes one of the frame that asks, for each place.
    """
    absent = _MISSING if name in namespace else original  # torch._VF computes its attributes

    def get(module: ModuleType) -> Any:
        try:
            value = namespace[name]
        except KeyError:
            value = absent
        if local.state.busy or _tracing():  # inside a recorded call nothing is recorded
            return value if value is not _MISSING else _deleted(module, name)
        frame = _getframe(_ASKING)
        code = frame.f_code
        place = id(code) + frame.f_lasti
        found = _placed.get(place)
        if found is not None and found[0] is code and found[1] is value:
            return found[2]
        if value is original:
            try:
                if frame.f_lasti in _callees(code):
                    made: Function = wrapper(frame) if by_place else wrapper
                    _placed[place] = code, original, made
                    return made
            except Exception as error:  # never into the user's code
                recorder.drop(f"call not seen ({type(error).__name__})")
        return value if value is not _MISSING else _deleted(module, name)

    return _Lookup(get, name)


def _deleted(module: ModuleType, name: str) -> Any:
    """An attribute that the program took away: the module's own `__getattr__`, or the error of Python."""
    raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")


class Method:
    """A method of torch.Tensor: the original through the class, a bound wrapper through a tensor."""

    __slots__ = ("bind", "original", "wrapper")

    def __init__(self, original: Any, wrapper: Any):
        self.original, self.wrapper = original, wrapper
        self.bind = original.__get__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self.original
        if local.state.busy or _tracing():  # inside a recorded call nothing is recorded
            return self.bind(instance)
        return MethodType(self.wrapper, instance)


class _Placed(Method):
    """One whose wrapper is made for each place that asks, and when it is first wanted."""

    __slots__ = ("_at_places", "_builtin", "_make", "_number")

    def __init__(self, original: Any, number: int, make: Callable[[Function, int], Function]):
        super().__init__(original, None)
        self._number, self._make = number, make
        self._builtin = not isinstance(original, FunctionType)
        self._at_places: dict[int, tuple[CodeType, Function]] = {}  # as `_placed` of the functions

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self.original
        if local.state.busy or _tracing():
            return self.bind(instance)
        try:
            frame = _getframe(1)
        except ValueError:  # C code asks, on a thread that runs no Python
            return self.bind(instance)
        code = frame.f_code
        place = id(code) + frame.f_lasti
        found = self._at_places.get(place)
        if found is None or found[0] is not code:
            try:
                found = self._at_places[place] = code, self._at(frame)
            except Exception as error:  # never into the user's code
                recorder.drop(f"call not seen ({type(error).__name__})")
                return self.bind(instance)
        return MethodType(found[1], instance)

    def _at(self, frame: FrameType) -> Function:
        """For an operator and for a method that is called at once; a method that is kept equals itself anywhere."""
        code, instruction = frame.f_code, frame.f_lasti
        at_once = instruction in _callees(code) or is_operator(code, instruction)
        if at_once or (self._builtin and self.original.__name__.startswith("__")):
            wrapper = self._make(self.original, self._number)
            return placed(wrapper, frame, self._builtin, at_once)  # type: ignore[no-any-return]
        if self.wrapper is None:
            self.wrapper = self._make(self.original, self._number)
        kept: Function = self.wrapper
        return kept

    def clear(self) -> None:
        self._at_places.clear()


class Patches:
    """Everything that is in the way of calls while a window is open. `wrapper` makes a wrapper, as `recording` does."""

    def __init__(self, wrapper: Callable[[Function, int], Function] = recording) -> None:
        self._wrapper = wrapper
        self._classes: list[tuple[ModuleType, type, type]] | None = None
        self._methods: list[tuple[str, _Placed]] = []
        self._registry = Registry()

    def install(self) -> None:
        """Put the wrappers in the way. They are made once and kept for the next window."""
        with part("torch._C._dynamo.eval_frame", "compiled code without frames of PyProf in between"):
            untraced.leave_alone()
        if self._classes is None:
            self._make_wrappers()
        # First all the looking, then all the setting: Python 3.13 gives a class a thousand versions, one for each look
        # after a change, and does not speed up its attributes any more when they are used up.
        ours = [item for item in self._methods if getattr(torch.Tensor, item[0]) is item[1].original]
        for name, method in ours:
            with part(f"torch.Tensor.{name}", f"calls of Tensor.{name}"):
                self._registry.replace(torch.Tensor, name, method)
        with part("triton.runtime.jit.KernelInterface", "names of Triton kernels at their launch"):
            launches.install(self._registry, self._wrapper)
        with part("torch.autograd.Function.apply", "calls of autograd Functions"):
            function = torch.autograd.Function
            apply = _apply(_unbound(vars(function)["apply"]), self._wrapper)
            self._registry.replace(function, "apply", classmethod(apply))
        for module, plain, watched in self._classes or ():
            with part(module.__name__, f"calls of {module.__name__}"):
                if type(module) is plain:
                    module.__class__ = watched

    def _make_wrappers(self) -> None:
        self._classes = []
        for namespace in targets.namespaces():
            with part(f"{namespace.module.__name__}, its functions", f"calls of {namespace.mod}"):
                self._classes.append(_module_class(namespace, self._wrapper))
        with part("torch.Tensor, its methods", "calls of methods of tensors"):
            for name in targets.tensor_methods():
                original = getattr(torch.Tensor, name)
                method = _Placed(original, recorder.function("Tensor", name), self._wrapper)
                self._methods.append((name, method))

    def remove(self) -> None:
        """Undo `install`."""
        with ExitStack() as rest:  # all of it, whatever a part raises; the last first
            for clear in (_codes.clear, leave_places, _placed.clear, _offsets.clear):
                rest.callback(clear)
            for _, method in self._methods:
                rest.callback(method.clear)
            rest.callback(self._registry.undo)
            for module, plain, watched in self._classes or ():
                if type(module) is watched:
                    rest.callback(setattr, module, "__class__", plain)


def _module_class(
    namespace: targets.Namespace, make: Callable[[Function, int], Function]
) -> tuple[ModuleType, type, type]:
    module = namespace.module
    plain = type(module)
    body: dict[str, Any] = {}
    for attribute, op in targets.functions(namespace):
        original = getattr(module, attribute)
        at_place = functools.partial(_at_place, make, original, recorder.function(namespace.mod, op))
        body[attribute] = lookup(vars(module), attribute, original, at_place, by_place=True)
    if module is torch:
        body["compile"] = lookup(vars(torch), "compile", torch.compile, compiling.following(torch.compile))
    # What pickles functions by value (Dask, Ray, joblib) goes by the exact type of the modules that they use.
    body["__reduce_ex__"] = lambda self, protocol: (importlib.import_module, (self.__name__,))
    if BYPASSED:
        body["__getattribute__"] = lambda self, name: plain.__getattribute__(self, name)
    return module, plain, type(plain.__name__, (plain,), body)


def _at_place(
    make: Callable[[Function, int], Function], original: Function, number: int, frame: FrameType
) -> Function:
    builtin = not isinstance(original, FunctionType)  # a warning of one has no frame of its own
    return placed(make(original, number), frame, builtin)  # type: ignore[no-any-return]


def _unbound(method: Any) -> Function:
    """A class method as a function of the class. Since torch 2.14 `Function.apply` is not written in Python."""
    if hasattr(method, "__func__"):
        return method.__func__  # type: ignore[no-any-return]

    @functools.wraps(method)
    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return method.__get__(None, cls)(*args, **kwargs)

    made: Any = apply
    made.__code__ = passed_over(made.__code__)
    return made  # type: ignore[no-any-return]


def _apply(original: Function, make: Callable[[Function, int], Function]) -> Function:
    """`apply` of autograd.Function: the operator is the user's class."""
    numbers: dict[type, Function] = {}

    @functools.wraps(original)
    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling() or not recorder.active or _tracing():
            return original(cls, *args, **kwargs)
        if cls is checkpoints.REENTRANT and args:
            return original(cls, checkpoints.resumed(args[0]), *args[1:], **kwargs)
        call = numbers.get(cls)
        if call is None:
            number = recorder.function("torch.autograd", f"{cls.__name__}.apply")
            call = numbers[cls] = make(functools.partial(original, cls), number)
        return call(*args, **kwargs)

    made: Any = apply
    made.__code__ = passed_over(made.__code__)
    return made  # type: ignore[no-any-return]


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


def unwrap_all() -> None:
    """Undo every `wrap`."""
    _wrapped.undo()
