# SPDX-License-Identifier: Apache-2.0
"""The functions that take the place of others while a window is open: they record a call, or write it as NVTX ranges.

Warnings are told with the file and line of a frame, and filtered by its module. So that a wrapper's frame is not the
one: `warnings` passes over frames whose file is of Python's own import system, by name, when it counts outwards
(`stacklevel=2`): a wrapper of a Python function has such a name. A warning that torch raises in C++ belongs to the
innermost frame: a wrapper of a builtin is copied for each place that it is called from, and has that place's file, line
and globals (`placed`). Hence the copied functions use no global name, only what they close over.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import time_ns
from types import CellType, CodeType, FrameType, FunctionType
from typing import Any

from pyprof.capture.instrument import dynamo
from pyprof.capture.instrument.arguments import Key, Traced, key_of, symbolic
from pyprof.capture.instrument.recorder import local, recorder
from pyprof.capture.instrument.stacks import Known

Function = Callable[..., Any]
_getframe = sys._getframe
_NO_ROOM = "call not described (RecursionError)"


def recording(original: Function, number: int) -> Function:
    """A function that calls `original` and records the call as `recorder.functions[number]`, if it is the outermost."""
    record, thread, frame_of, now = recorder, local, _getframe, time_ns
    site_of, keys, make_key, undescribed, full = (
        recorder.stacks.site_at,
        recorder.keys,
        key_of,
        _undescribed,
        at_bound,
    )
    traced, no_room, any_error, reason, length = Traced, RecursionError, Exception, _NO_ROOM, len
    here: Known | None = None  # `placed` gives a copy one of its own

    def call(*args: Any, **kwargs: Any) -> Any:
        state = thread.state
        if state.busy or not record.active:
            if record.counting and not state.busy:
                record.excess += 1
            return original(*args, **kwargs)
        site = described = start = -1
        key: Key = ()
        try:  # around everything: ctrl-C may come at any call below, and `busy` must not stay set
            state.busy = True
            try:
                site = site_of(here, frame_of(1), state.context)
                key = make_key(args, kwargs)
                described = keys.get(key, -1)
                if described < 0:
                    described = record.describe(key)
            except traced:  # the call is made further down, or this would be the context of what it raises
                start = 0
            except no_room:  # the stack is full, no call of ours has room; the operator's still has
                site = described = -1
                record.lost[reason] = record.lost.get(reason, 0) + 1
            except any_error as error:  # never into the user's code
                site = described = -1
                start = undescribed(error, key)
            if start:
                start = now()
            return original(*args, **kwargs) if kwargs else original(*args)
        finally:
            state.busy = False
            if start > 0:
                calls = state.calls
                calls += (number, site, described, state.layer, start, now())
                if length(calls) > record.limit:
                    full()

    return named_like(call, original)


def emitting(original: Function, number: int) -> Function:
    """The same where calls are written as NVTX ranges: `recording` stays free of that, and as fast as it is."""
    record, thread, frame_of, now = recorder, local, _getframe, time_ns
    site_of, keys, make_key, undescribed, full = (
        recorder.stacks.site_at,
        recorder.keys,
        key_of,
        _undescribed,
        at_bound,
    )
    traced, no_room, any_error, reason, length = Traced, RecursionError, Exception, _NO_ROOM, len
    here: Known | None = None  # `placed` gives a copy one of its own

    def call(*args: Any, **kwargs: Any) -> Any:
        state = thread.state
        writer = record.ranges
        if state.busy or not record.active or writer is None:
            return original(*args, **kwargs)
        site = described = start = -1
        key: Key | None = None
        depth = 0
        try:
            state.busy = True
            try:
                site = site_of(here, frame_of(1), state.context)
                key = make_key(args, kwargs)
                described = keys.get(key, -1)
                if described < 0:
                    described = record.describe(key) if record.keeping or not writer.full else -1
            except traced:
                start = 0
            except no_room:  # the stack is full, no call of ours has room; the operator's still has
                site = described = -1
                record.lost[reason] = record.lost.get(reason, 0) + 1
            except any_error as error:  # never into the user's code
                site = described = -1
                start = undescribed(error, key)
            if start:
                depth = writer.push(state, number, site, described, key)
                start = now()
            return original(*args, **kwargs) if kwargs else original(*args)
        finally:
            state.busy = False
            end = now()
            if depth:
                writer.pop(depth)
            if start > 0 and record.keeping:
                calls = state.calls
                calls += (number, site, described, state.layer, start, end)
                if length(calls) > record.limit:
                    full()
            elif start > 0 and record.counting:
                record.excess += 1

    return named_like(call, original)


def _undescribed(error: Exception, key: Key | None) -> int:
    """Count a call whose place or arguments could not be noted: -1; or 0, it computes nothing and is not recorded."""
    if symbolic(key):
        return 0
    recorder.drop(f"call not described ({type(error).__name__})")
    return -1


def named_like(call: Any, original: Function) -> Function:
    """A wrapper that is finished: with the original's names, passed over by warnings and by torch's compiler."""
    call.__code__ = passed_over(call.__code__)
    call._torchdynamo_disable = (
        True  # a bound method that the program kept is no more to be traced than a builtin
    )
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        try:  # noqa: SIM105  # between two graphs torch.compile would compile `suppress`
            setattr(call, name, getattr(original, name))
        except (AttributeError, TypeError):  # builtins lack some of these
            pass
    return call  # type: ignore[no-any-return]


def at_bound() -> None:
    """Ask whether the recording goes on."""
    try:
        recorder.on_full()
    except Exception as error:  # never into the user's code
        recorder.drop(f"bound not checked ({type(error).__name__})")


_passed_over: dict[int, tuple[CodeType, CodeType]] = {}


def passed_over(code: CodeType) -> CodeType:
    """The same code under a file name that `warnings` does not count as a frame; tracebacks still tell where it is."""
    known = _passed_over.get(id(code))
    if known is None:
        other = code.replace(co_filename=f"{code.co_filename} (importlib._bootstrap)")
        dynamo.mark(other)
        known = _passed_over[id(code)] = code, other
    return known[1]


_here: list[CellType] = []  # of all copies


def placed(wrapper: Any, frame: FrameType, builtin: bool, at_once: bool = True) -> Any:
    """A copy of the wrapper for the place where `frame` stands: it knows the sites of that place.

    That of a builtin is as if it stood there: with the file, the line that runs, and the globals of the place. If it
    is not certain to be called at once, it knows no sites: the program may keep it and call it elsewhere.
    """
    code, names = wrapper.__code__, wrapper.__globals__
    if builtin:
        code = code.replace(
            co_filename=frame.f_code.co_filename, co_firstlineno=frame.f_lineno, co_name=wrapper.__name__,
            co_linetable=_one_line(len(code.co_code) // 2),
        )  # fmt: skip
        dynamo.mark(code)
        names = frame.f_globals
    cell = CellType({} if at_once else None)
    closure = tuple(
        cell if name == "here" else old for name, old in zip(code.co_freevars, wrapper.__closure__ or ())
    )
    copy: Any = FunctionType(code, names, wrapper.__name__, None, closure)
    copy._torchdynamo_disable = True
    copy.__qualname__, copy.__doc__, copy.__module__ = (
        wrapper.__qualname__,
        wrapper.__doc__,
        wrapper.__module__,
    )
    _here.append(cell)
    return copy


def leave_places() -> None:
    """Sites are no longer those that the copies know; the program may have kept some."""
    for cell in _here:
        cell.cell_contents = None
    _here.clear()


def _one_line(units: int) -> bytes:
    """A table of lines (Objects/locations.md of CPython) for code that is all on its first line, without columns."""
    whole, rest = divmod(units, 8)
    entries = [8] * whole + [rest] * (rest > 0)
    return b"".join(bytes((0x80 | 13 << 3 | count - 1, 0)) for count in entries)
