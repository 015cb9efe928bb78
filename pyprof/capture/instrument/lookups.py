# SPDX-License-Identifier: Apache-2.0
"""Lookups of functions and methods that return a wrapper only where the result is called immediately.

`function` creates the property of a function of a module, `Method` the descriptor of a method. Both examine the
instruction that does the lookup, once per place, and cache the result for that place. `_compiled.c` has the same in
C.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from pyprof.capture.core.internal_errors import internal
from pyprof.capture.core.state import Until, owned
from pyprof.capture.core.torch_internals import is_tracing
from pyprof.capture.instrument import compiled
from pyprof.capture.instrument.call_sites import callee_offsets, is_operator
from pyprof.capture.instrument.recorder import local, recorder
from pyprof.capture.instrument.wrappers import Function, placed, recording

_getframe = sys._getframe
# torch.jit.trace writes the file and line of the innermost Python frame, and names of its variables, into the traced
# program: that frame must be the user's.
_tracing = is_tracing
_MISSING: Any = object()
# From 3.13 on the interpreter may read an attribute of any module straight from its dictionary, past a property,
# unless its class has a __getattribute__ of its own: one more Python frame between the property and the lookup.
_BYPASSED = sys.version_info >= (3, 13)
_CALLER_DEPTH = 2 if _BYPASSED else 1

Make = Callable[[FrameType], Function | None]
# by id of a code object, which is kept, so that its id is not reused
_offsets: dict[int, tuple[CodeType, frozenset[int]]] = owned({}, Until.WRITTEN)


def is_called(frame: FrameType) -> bool:
    """Return whether the attribute that the frame looks up is called immediately, and is used for nothing else."""
    code = frame.f_code
    entry = _offsets.get(id(code))
    if entry is None:
        entry = _offsets[id(code)] = code, callee_offsets(code)
    return frame.f_lasti in entry[1]


def forget() -> None:
    """Release all code objects that were examined."""
    _offsets.clear()


def always(wrapper: Function) -> Make:
    """Return a maker that gives every place this wrapper."""
    return lambda frame: wrapper


def where_called(wrapper: Function) -> Make:
    """Return a maker that gives this wrapper to places that call immediately."""
    return lambda frame: wrapper if is_called(frame) else None


def at_place(
    make: Callable[[Function, int], Function],
    original: Function,
    number: int,
    frame: FrameType,
    at_once: bool = True,
) -> Function:
    """Return the wrapper of a function for the place of `frame`; `make` creates one, as `recording` does."""
    if at_once and make is recording and compiled.WATCH is not None:
        return compiled.call(original, number)
    builtin = not isinstance(original, FunctionType)  # a warning of one has no frame of its own
    return placed(make(original, number), frame, builtin, at_once)  # type: ignore[no-any-return]


class Lookup(property):
    """The property of one function of a module: a wrapper for a callee, the function itself otherwise.

    A class of its own also keeps Python 3.12 from its shortcut for a plain property: while that runs,
    `f_lasti` of the accessing frame is past the access.
    """

    def __init__(self, get: Callable[[Any], Any], name: str, clear: Callable[[], None]):
        super().__init__(get)
        self._name, self.clear = name, clear

    def __set__(self, module: ModuleType, value: Any) -> None:
        vars(module)[self._name] = value

    def __delete__(self, module: ModuleType) -> None:
        if self._name not in vars(module):
            raise AttributeError(self._name)
        del vars(module)[self._name]


def function(names: dict[str, Any], name: str, original: Function, make: Make) -> Lookup:
    """Return the property of a module's function. `names` is the module's namespace; `make` returns the wrapper for a
    place, or None for the function itself."""
    absent = _MISSING if name in names else original  # torch._VF computes its attributes
    if compiled.WATCH is not None:
        getter = compiled.function(names, name, original, None if absent is _MISSING else absent, make)
        return Lookup(getter, name, getter.clear)
    # Place of the lookup (id of the code + instruction) -> the code, its wrapper. Holding the code keeps its id unique.
    places: dict[int, tuple[CodeType, Function | None]] = {}

    def get(module: ModuleType) -> Any:
        try:
            value = names[name]
        except KeyError:
            value = absent
        if value is original and not (local.state.busy or _tracing()):  # nothing is recorded inside a recorded call
            frame = _getframe(_CALLER_DEPTH)
            code = frame.f_code
            place = id(code) + frame.f_lasti
            entry = places.get(place)
            if entry is None or entry[0] is not code:
                try:
                    entry = places[place] = code, make(frame)
                except internal() as error:  # never into the user's code
                    recorder.drop(f"call not seen ({type(error).__name__})")
                    return value
            return value if entry[1] is None else entry[1]
        if value is _MISSING:  # the program deleted it
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        return value

    return Lookup(get, name, places.clear)


def getattribute(plain: Any) -> dict[str, Any]:
    """Return the additional entries for the class of a module whose class was `plain`, so that its properties are
    used."""
    if not _BYPASSED:
        return {}
    if compiled.WATCH is not None and plain.__getattribute__ is ModuleType.__getattribute__:
        return {"__getattribute__": compiled.getattribute()}
    return {"__getattribute__": lambda self, name: plain.__getattribute__(self, name)}


class Method:
    """A method of a class: the original through the class, a bound wrapper through an instance."""

    __slots__ = ("_make", "_places", "bind", "original")

    def __init__(self, original: Any, make: Make):
        """Create the descriptor. `make` returns the wrapper for a place, or None for the method itself."""
        self.original, self._make = original, make
        self.bind = original.__get__
        self._places: dict[int, tuple[CodeType, Function | None]] = {}  # as in `function`

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self.original
        if local.state.busy or _tracing():  # nothing is recorded inside a recorded call
            return self.bind(instance)
        try:
            frame = _getframe(1)
        except ValueError:  # a lookup from C, on a thread that runs no Python
            return self.bind(instance)
        code = frame.f_code
        place = id(code) + frame.f_lasti
        entry = self._places.get(place)
        if entry is None or entry[0] is not code:
            try:
                entry = self._places[place] = code, self._make(frame)
            except internal() as error:  # never into the user's code
                recorder.drop(f"call not seen ({type(error).__name__})")
                return self.bind(instance)
        return self.bind(instance) if entry[1] is None else MethodType(entry[1], instance)

    def clear(self) -> None:
        """Forget all places."""
        self._places.clear()


def method(original: Any, make: Make) -> Any:
    """Return a `Method`, compiled if possible."""
    return Method(original, make) if compiled.WATCH is None else compiled.method(original, make)


class Recorded:
    """Maker of wrappers for the places that look up a method of a tensor."""

    def __init__(self, original: Any, number: int, make: Callable[[Function, int], Function]):
        self._original, self._number, self._make = original, number, make
        self._unbound: Function | None = None

    def __call__(self, frame: FrameType) -> Function:
        """Return the wrapper for an operator or a method called immediately; a method that is stored equals itself
        anywhere."""
        original = self._original
        at_once = is_called(frame) or is_operator(frame.f_code, frame.f_lasti)
        if at_once or (not isinstance(original, FunctionType) and original.__name__.startswith("__")):
            return at_place(self._make, original, self._number, frame, at_once)
        if self._unbound is None:
            self._unbound = self._make(original, self._number)
        return self._unbound
