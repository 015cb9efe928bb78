# SPDX-License-Identifier: Apache-2.0
"""Python stacks as rows of the file: PYPROF_STACK, each distinct stack once, a row per frame.

A frame is `path:line`, as in the stacks of recorded calls, with the function's name if it is known. PyProf's own
frames and those outside the script are left out; torch's stay.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from types import FrameType

from pyprof.capture.instrument import modules
from pyprof.capture.instrument.stacks import ENDS, OWN, Frame, Stacks
from pyprof.capture.output.capture_file import Recording, Table

_CREATE = """
-- A Python stack: depth 0 is the outermost frame. frameId is path:line, functionId the function (null: not known).
create table PYPROF_STACK (id integer, depth integer, frameId integer, functionId integer)
"""
_PACKAGE = os.path.join(os.path.dirname(OWN.rstrip(os.sep)), "")
_COPIED = {"sites", "record", "frame_of"}  # closure variables of a wrapper: `wrappers.recording`
Row = tuple[str, str | None]  # path:line, function


def whole_walk(frame: FrameType | None) -> tuple[Frame, ...]:
    """Return all frames of the program from the innermost outwards; empty for a thread inside a command of PyProf
    itself."""
    frames = []
    while frame is not None:
        code = frame.f_code
        if code in ENDS and code is not modules._call_module.__code__:
            break
        if code.co_filename.startswith(_PACKAGE) and not code.co_filename.startswith(OWN):
            return ()  # before the script starts or after it has ended
        # A wrapper of a builtin has the file of its caller.
        if not code.co_filename.startswith(OWN) and not ({*code.co_freevars} >= _COPIED):
            frames.append((code, frame.f_lasti))
        frame = frame.f_back
    return tuple(frames)


def site_frames(stacks: Stacks, site: int) -> tuple[Frame, ...]:
    """Return the frames of a site, innermost first, through the modules around it."""
    frames, context = stacks.sites[site]
    out = [*frames]
    while context:
        context, between, _ = stacks.contexts[context]
        out += between
    return tuple(out)


class StackRows:
    """Distinct stacks by number."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Row, ...], int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, rows: Sequence[Row]) -> int:
        """Return the number of a stack, outermost frame first."""
        return self._numbers.setdefault(tuple(rows), len(self._numbers))

    def of_frames(self, stacks: Stacks, frames: Iterable[Frame]) -> int:
        """Return the number of a stack, from its frames, innermost first."""
        rows = [(stacks.text(frame), getattr(frame[0], "co_qualname", frame[0].co_name)) for frame in frames]
        return self.number(rows[::-1])

    def clear(self) -> None:
        self._numbers.clear()

    def tables(self) -> list[Table]:
        def rows(recording: Recording, code: Callable[[str], int], process: int) -> Iterable[tuple[object, ...]]:
            for stack, number in self._numbers.items():
                for depth, (frame, function) in enumerate(stack):
                    yield number, depth, code(frame), None if function is None else code(function)

        return [Table(_CREATE, "insert into PYPROF_STACK values (?, ?, ?, ?)", rows)]
