# SPDX-License-Identifier: Apache-2.0
"""Where a call stands: the Python frames above it, without walking the whole stack each time.

The stack above a call inside a module is the stack above the module's call plus the few frames in between. So a
*context* is a chain of module calls, each with the frames that led to it, and a *site* is (code, instruction, the same
of its caller, context): a dictionary hit. Only a new key walks frames, up to the innermost module call. Two calls that
agree in two frames and the context but differ further out (a function of a function, called from two lines outside of
any module) are told apart by a third frame only as far as the walk that made the key.

Frames are kept as (code object, instruction); file and line are looked up when the file is written. PyProf's own
frames are left out, torch's stay: the reader filters.
"""

from __future__ import annotations

import os
from types import CodeType, FrameType
from typing import NamedTuple

Frame = tuple[CodeType, int]
# Frames outside of these are not the program's: the window's end of a stack, set by `run`.
OUTERMOST: list[CodeType] = []
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Context(NamedTuple):
    """A module call: the context it was made in, the frames between, the module's dotted path."""

    parent: int
    frames: tuple[Frame, ...]
    path: str


class Stacks:
    """Sites and contexts by number. Context 0 is the world outside any module."""

    def __init__(self) -> None:
        self.contexts: list[Context] = [Context(0, (), "")]
        self.sites: list[tuple[tuple[Frame, ...], int]] = []
        self.by_key: dict[tuple[int, ...], int] = {}
        self._lines: dict[CodeType, list[tuple[int, int, int | None]]] = {}
        self._texts: dict[Frame, str] = {}

    def add_site(self, key: tuple[int, ...], frame: FrameType, context: int) -> int:
        """Walk the frames of a new site. The code objects are kept, so the ids in `key` stay theirs."""
        self.sites.append((walk(frame), context))
        self.by_key[key] = len(self.sites) - 1
        return len(self.sites) - 1

    def add_context(self, parent: int, frame: FrameType, path: str) -> int:
        """A module that is called for the first time from here."""
        self.contexts.append(Context(parent, walk(frame), path))
        return len(self.contexts) - 1

    def trace(self, site: int) -> list[str]:
        """The frames of a site as `path:line`, outermost first."""
        if site < 0:
            return []
        frames, context = self.sites[site]
        return [*self.context_trace(context), *(self.text(frame) for frame in reversed(frames))]

    def context_trace(self, context: int) -> list[str]:
        """The frames that lead to a module call, outermost first."""
        parts: list[list[str]] = []
        while context:
            parent, frames, _ = self.contexts[context]
            parts.append([self.text(frame) for frame in reversed(frames)])
            context = parent
        return [text for part in reversed(parts) for text in part]

    def text(self, frame: Frame) -> str:
        """`path:line` of the instruction that the frame was executing."""
        text = self._texts.get(frame)
        if text is None:
            code, instruction = frame
            text = self._texts[frame] = f"{code.co_filename}:{_line(code, instruction)}"
        return text


def walk(frame: FrameType | None) -> tuple[Frame, ...]:
    """Frames from the innermost outwards, up to the innermost module call or the end."""
    from pyprof.capture.modules import BOUNDARY

    frames = []
    while frame is not None:
        code = frame.f_code
        if code is BOUNDARY or code in OUTERMOST:
            break
        if not code.co_filename.startswith(_OWN):
            frames.append((code, frame.f_lasti))
        frame = frame.f_back
    return tuple(frames)


def _line(code: CodeType, instruction: int) -> int:
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return line
    return code.co_firstlineno
