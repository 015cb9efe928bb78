# SPDX-License-Identifier: Apache-2.0
"""Tracking of the running module: its dotted path in the model, and the frames that led to its call.

`torch.nn.Module.__call__` is replaced for the length of a window (global hooks would take torch's slow path for each
module). The first module called on a thread is the root; the others have the path that `named_modules` of the root
gives them (`encoder.layers.0.linear1`, a shared module its first one). The root, and a module outside any root, is
identified by its class. Modules are held by weak reference only.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from time import time_ns
from types import CodeType, FrameType
from typing import Any

import torch

from pyprof.capture.core.internal_errors import internal
from pyprof.capture.core.state import Until, owned
from pyprof.capture.instrument import checkpoints, compilation, parameters, seen_objects
from pyprof.capture.instrument.attribute_registry import Registry
from pyprof.capture.instrument.recorder import ThreadState, local, recorder
from pyprof.capture.instrument.stacks import ENDS
from pyprof.capture.instrument.wrappers import at_bound, hide_from_warnings

_getframe = sys._getframe
_NO_ROOM = "module not named (RecursionError)"
_Entry = tuple[int, weakref.ref[torch.nn.Module]]
# id of a module -> itself, its path
_paths: dict[int, tuple[weakref.ref[torch.nn.Module], str]] = owned({}, Until.WRITTEN)
_contexts: dict[tuple[int, ...], _Entry] = owned({}, Until.WRITTEN)
# class and place of modules created while a model runs
_transient: dict[tuple[type, int, int], _Transient] = owned({}, Until.WRITTEN)
_original: Callable[..., Any] = torch.nn.Module.__call__  # a global: it is read at every module call


class _Transient:
    """Modules of one class that are created and called at one place. Searching the whole model for each of them takes
    as long as the model is large: the search is repeated only when their number has doubled."""

    def __init__(self, code: CodeType):
        self.code = code  # kept, so that its id is not reused
        self.calls, self.next_look = 1, 2
        self.contexts: dict[int, int] = {}  # outer context -> that of the module

    def to_look(self) -> bool:
        """Return whether it is time to search the model again."""
        self.calls += 1
        if self.calls < self.next_look:
            return False
        self.next_look *= 2
        return True


def _call_module(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Run a module call: the replacement of `Module.__call__` during a window."""
    if torch.compiler.is_dynamo_compiling():
        return _original(self, *args, **kwargs)
    state = local.state
    if state.busy or not recorder.active:
        return _original(self, *args, **kwargs)
    outside, root = state.context, state.root
    context, start = -1, 0
    try:  # around everything: ctrl-C may come at any call below, and the context must not stay
        try:
            frame = _getframe(1)
            key = (id(self), id(frame.f_code), frame.f_lasti, outside)
            entry = _contexts.get(key)
            if entry is None or entry[1]() is not self:
                entry = _enter(self, state, frame, key)
            if not outside:
                state.root = entry[1]
            context = entry[0]
            start = time_ns()
            state.context = context
        except RecursionError:  # no Python call here: the stack may be full
            context = -1
            recorder.lost[_NO_ROOM] = recorder.lost.get(_NO_ROOM, 0) + 1
        except internal() as error:  # never into the user's code
            context = -1
            recorder.drop(f"module not named ({type(error).__name__})")
        finally:
            frame = None  # type: ignore[assignment]
        return _original(self, *args, **kwargs)
    finally:
        state.context, state.root = outside, root
        if context >= 0 and recorder.keeping:
            state.modules += (context, start, time_ns())
            if not recorder.limit:  # a reading of torch's records, or a restart, is pending
                at_bound()


_call_module.__annotations__.clear()  # torch's own has none: inspect.signature says the same in a window
_call_module.__code__ = hide_from_warnings(_call_module.__code__)
ENDS.append(_call_module.__code__)  # the frames outside are those of the module's context


def _enter(module: torch.nn.Module, state: ThreadState, frame: FrameType, key: tuple[int, ...]) -> _Entry:
    """Register the first call of a module from this place in this context."""
    reference = weakref.ref(module)
    place = type(module), id(frame.f_code), frame.f_lasti
    transient = _transient.get(place)
    if transient is not None and state.context and not transient.to_look() and _known_path(module) is None:
        return _transient_context(transient, module, state, frame), reference
    _notify(compilation.install)  # torch imports its compiler on first use
    _notify(seen_objects.note_autocast)
    if not state.context:
        _notify(seen_objects.note_model, module)
    path = _known_path(module)
    if path is None and not state.context:
        _name_children(module)
        path = _known_path(module)
    elif path is None and state.root is not None:
        root = state.root()
        if root is not None:  # a module that was added to the model after its first call
            _name_children(root)
        path = _known_path(module)
        if path is None:
            transient = _transient.setdefault(place, _Transient(frame.f_code))
            return _transient_context(transient, module, state, frame), reference
    if not state.context and recorder.keeping:
        _notify(parameters.follow, module, _known_path)
    if not state.context and recorder.observer is not None:
        _notify(recorder.observer.add_model, module, _known_path)
    if path is None:
        path = f"{recorder.stacks.contexts[state.context].path}.{_class(module)}"
        _paths[id(module)] = reference, path
    context = recorder.stacks.add_context(state.context, frame, path)
    entry = _contexts[key] = context, reference
    return entry


def _transient_context(transient: _Transient, module: torch.nn.Module, state: ThreadState, frame: FrameType) -> int:
    context = transient.contexts.get(state.context)
    if context is None:
        path = f"{recorder.stacks.contexts[state.context].path}.{_class(module)}"
        context = transient.contexts[state.context] = recorder.stacks.add_context(state.context, frame, path)
    return context


def _notify(note: Callable[..., None], *args: Any) -> None:
    """Call a secondary hook; the module's path does not depend on it."""
    try:
        note(*args)
    except internal() as error:  # never into the user's code
        recorder.drop(f"{note.__qualname__} failed ({type(error).__name__})")


def _known_path(module: torch.nn.Module) -> str | None:
    entry = _paths.get(id(module))
    return entry[1] if entry is not None and entry[0]() is module else None


def _class(module: torch.nn.Module) -> str:
    """Return the class name; for a scripted module that of the original class."""
    original = getattr(module, "original_name", None)
    return original if isinstance(original, str) else type(module).__name__


def _name_children(root: torch.nn.Module) -> None:
    """Give every module of a model its path. A larger model overrides earlier paths of its parts."""
    for name, child in root.named_modules():
        _paths[id(child)] = weakref.ref(child), name or _known_path(root) or _class(root)


def install(registry: Registry) -> None:
    """Follow module calls until the registry is undone."""
    checkpoints.install(registry)
    global _original
    if torch.nn.Module.__call__ is _call_module:  # an earlier window could not put it back
        return
    _original = torch.nn.Module.__call__
    registry.replace(torch.nn.Module, "__call__", _call_module)
