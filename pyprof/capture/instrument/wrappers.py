# SPDX-License-Identifier: Apache-2.0
"""Wrappers of functions while a window is open: they record a call, or write it as NVTX ranges.

Warnings are reported with the file and line of a frame, and filtered by its module. A wrapper must not be that
frame: `warnings` skips frames whose file belongs to Python's import system, by name, when it counts outwards
(`stacklevel=2`), so a wrapper of a Python function has such a name. A warning that torch raises in C++ belongs to
the innermost frame: a wrapper of a builtin is copied for each place that calls it, and has that place's file, line
and globals (`placed`). Hence the copied functions use no global name, only their closure.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import time_ns
from types import CellType, CodeType, FrameType, FunctionType
from typing import Any

from pyprof.capture.core.internal_errors import internal
from pyprof.capture.core.state import Until, owned
from pyprof.capture.instrument import dynamo
from pyprof.capture.instrument.arguments import Key, Traced, key_of, symbolic
from pyprof.capture.instrument.recorder import local, recorder
from pyprof.capture.instrument.stacks import SiteCache

Function = Callable[..., Any]
_getframe = sys._getframe
_NO_ROOM = "call not described (RecursionError)"


def recording(original: Function, number: int) -> Function:
    """Return a wrapper that calls `original` and records the call as `recorder.functions[number]`, if it is the
    outermost."""
    record, thread, frame_of, now = recorder, local, _getframe, time_ns
    site_of, keys, make_key, count_undescribed, full = (
        recorder.stacks.site_at,
        recorder.keys,
        key_of,
        _count_undescribed,
        at_bound,
    )
    traced, no_room, own_errors, reason, length = Traced, RecursionError, internal, _NO_ROOM, len
    sites: SiteCache | None = None  # set by `placed`, one per copy

    def call(*args: Any, **kwargs: Any) -> Any:
        state = thread.state
        if state.busy or not record.active:
            if record.counting and not state.busy:
                record.excess += 1
            return original(*args, **kwargs)
        site = args_id = start = -1
        key: Key = ()
        try:  # around everything: ctrl-C may come at any call below, and `busy` must not stay set
            state.busy = True
            try:
                site = site_of(sites, frame_of(1), state.context)
                key = make_key(args, kwargs)
                args_id = keys.get(key, -1)
                if args_id < 0:
                    args_id = record.describe(key)
            except traced:  # the original is called further down, or this would become the context of its exceptions
                start = 0
            except no_room:  # the stack is full for PyProf's calls, but not yet for the operator's
                site = args_id = -1
                record.lost[reason] = record.lost.get(reason, 0) + 1
            except own_errors() as error:  # never into the user's code
                site = args_id = -1
                start = count_undescribed(error, key)
            if start:
                start = now()
            return original(*args, **kwargs) if kwargs else original(*args)
        finally:
            state.busy = False
            if start > 0:
                calls = state.calls
                calls += (number, site, args_id, state.layer, start, now())
                if length(calls) > record.limit:
                    full()

    return named_like(call, original)


def emitting(original: Function, number: int) -> Function:
    """Return the same wrapper for calls that are written as NVTX ranges; separate, to keep `recording` fast."""
    record, thread, frame_of, now = recorder, local, _getframe, time_ns
    site_of, keys, make_key, count_undescribed, full = (
        recorder.stacks.site_at,
        recorder.keys,
        key_of,
        _count_undescribed,
        at_bound,
    )
    traced, no_room, own_errors, reason, length = Traced, RecursionError, internal, _NO_ROOM, len
    sites: SiteCache | None = None  # set by `placed`, one per copy

    def call(*args: Any, **kwargs: Any) -> Any:
        state = thread.state
        writer = record.ranges
        if state.busy or not record.active or writer is None:
            return original(*args, **kwargs)
        site = args_id = start = -1
        key: Key | None = None
        depth = 0
        try:
            state.busy = True
            try:
                site = site_of(sites, frame_of(1), state.context)
                key = make_key(args, kwargs)
                args_id = keys.get(key, -1)
                if args_id < 0:
                    args_id = record.describe(key) if record.keeping or not writer.full else -1
            except traced:
                start = 0
            except no_room:  # the stack is full for PyProf's calls, but not yet for the operator's
                site = args_id = -1
                record.lost[reason] = record.lost.get(reason, 0) + 1
            except own_errors() as error:  # never into the user's code
                site = args_id = -1
                start = count_undescribed(error, key)
            if start:
                depth = writer.push(state, number, site, args_id, key)
                start = now()
            return original(*args, **kwargs) if kwargs else original(*args)
        finally:
            state.busy = False
            end = now()
            if depth:
                writer.pop(depth)
            if start > 0 and record.keeping:
                calls = state.calls
                calls += (number, site, args_id, state.layer, start, end)
                if length(calls) > record.limit:
                    full()
            elif start > 0 and record.counting:
                record.excess += 1

    return named_like(call, original)


def _count_undescribed(error: Exception, key: Key | None) -> int:
    """Count a call whose site or arguments could not be recorded: -1; or return 0 if it computes nothing and is not
    recorded."""
    if symbolic(key):
        return 0
    recorder.drop(f"call not described ({type(error).__name__})")
    return -1


def named_like(call: Any, original: Function) -> Function:
    """Finish a wrapper: give it the original's names, and hide it from warnings and torch's compiler."""
    call.__code__ = hide_from_warnings(call.__code__)
    call._torchdynamo_disable = True  # a bound method kept by the program must not be traced, like a builtin
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        try:  # noqa: SIM105  # between two graphs torch.compile would compile `suppress`
            setattr(call, name, getattr(original, name))
        except (AttributeError, TypeError):  # builtins lack some of these
            pass
    return call  # type: ignore[no-any-return]


def at_bound() -> None:
    """Let the session decide whether the recording goes on."""
    try:
        recorder.on_full()
    except internal() as error:  # never into the user's code
        recorder.drop(f"bound not checked ({type(error).__name__})")


_hidden: dict[int, tuple[CodeType, CodeType]] = {}  # of PyProf's own functions, for good


def hide_from_warnings(code: CodeType) -> CodeType:
    """Return the same code under a file name that `warnings` does not count as a frame; tracebacks still show its
    place."""
    entry = _hidden.get(id(code))
    if entry is None:
        renamed = code.replace(co_filename=f"{code.co_filename} (importlib._bootstrap)")
        dynamo.mark(renamed)
        entry = _hidden[id(code)] = code, renamed
    return entry[1]


_caches: list[CellType] = owned([], Until.WRITTEN, lambda _: leave_places())  # site caches of all copies


def placed(wrapper: Any, frame: FrameType, builtin: bool, at_once: bool = True) -> Any:
    """Return a copy of the wrapper for the place of `frame`, with a site cache of its own.

    The copy of a builtin's wrapper appears to be at that place: it has the file, the current line and the globals of
    the place. If it is not certain to be called immediately it has no cache: the program may keep it and call it
    elsewhere.
    """
    code, names = wrapper.__code__, wrapper.__globals__
    if builtin:
        code = code.replace(
            co_filename=frame.f_code.co_filename,
            co_firstlineno=frame.f_lineno,
            co_name=wrapper.__name__,
            co_linetable=_one_line(len(code.co_code) // 2),
        )
        dynamo.mark(code)
        names = frame.f_globals
    cell = CellType({} if at_once else None)
    closure = tuple(cell if name == "sites" else old for name, old in zip(code.co_freevars, wrapper.__closure__ or ()))
    copy: Any = FunctionType(code, names, wrapper.__name__, None, closure)
    copy._torchdynamo_disable = True
    copy.__qualname__, copy.__doc__, copy.__module__ = (
        wrapper.__qualname__,
        wrapper.__doc__,
        wrapper.__module__,
    )
    _caches.append(cell)
    return copy


def leave_places() -> None:
    """Invalidate the site caches of the copies; the program may have kept some."""
    for cell in _caches:
        cell.cell_contents = None
    _caches.clear()


def _one_line(units: int) -> bytes:
    """Return a line table (Objects/locations.md of CPython) for code that is all on its first line, without columns."""
    full, rest = divmod(units, 8)
    entries = [8] * full + [rest] * (rest > 0)
    return b"".join(bytes((0x80 | 13 << 3 | count - 1, 0)) for count in entries)
