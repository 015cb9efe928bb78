# SPDX-License-Identifier: Apache-2.0
"""Call sites: the Python frames above a call, without walking the whole stack each time.

The stack above a call inside a module is the stack above the module's call plus the few frames in between. So a
*context* is a chain of module calls, each with the frames that led to it, and the key of a *site* is its context and
(code, instruction) of the frames in between, of four at most: a dictionary hit. Only a new key walks further.
Outside of modules, two calls that agree in four frames and differ only further out count as one site.

Frames are kept as (code object, instruction); file and line are looked up when the file is written. PyProf's own
frames are left out, torch's stay: the reader filters.
"""

from __future__ import annotations

import os
import threading
from types import CodeType, FrameType
from typing import Any, NamedTuple

from pyprof.capture.core.torch_internals import look_up, never
from pyprof.capture.instrument import notebook_cells

Frame = tuple[CodeType, int]
Key = tuple[int, ...]
# Sites of one place: by context if there is no outer frame within that context; else by context and instruction of
# the second frame, the latest one: the second frame's code, (code, instruction) of two more (None: no more), the site.
SiteCache = dict[Any, Any]
CALL_IMPL = look_up("torch.nn.Module._call_impl.__code__", "", never.__code__)
# A walk stops at these, since frames further out are not the program's: modules.py and run.py add their own.
ENDS: list[CodeType] = []
OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Context(NamedTuple):
    """One module call: the context around it, the frames in between, the module's dotted path."""

    parent: int
    frames: tuple[Frame, ...]
    path: str


class Stacks:
    """Sites and contexts by number. Context 0 is outside any module."""

    def __init__(self) -> None:
        self.contexts: list[Context] = [Context(0, (), "")]
        self.sites: list[tuple[tuple[Frame, ...], int]] = []
        self.by_key: dict[Key, int] = {}
        # By identity: code objects that differ in nothing but their file are equal. Frames keep them alive.
        self._texts: dict[tuple[int, int], str] = {}
        self._files: set[str] = set()
        self.lock = threading.RLock()  # for new entries; a signal handler may run in between

    def site_at(self, cache: SiteCache | None, frame: FrameType, context: int) -> int:
        """Return the same as `site`, for a place with a cache of its sites: the innermost frame need not be checked.

        Comparing with the frames of the last call takes half the time of looking up their key: a tenth of a recorded
        call.
        """
        if cache is None:
            return self.site(frame, context)
        second = frame.f_back
        if second is None or (code2 := second.f_code) is CALL_IMPL:
            site: int | None = cache.get(context)
            if site is None:
                site = cache[context] = self.site(frame, context)
            return site
        at2 = second.f_lasti
        entry = cache.get((context, at2))
        if entry is not None:
            code, code3, at3, code4, at4, site = entry
            if code is code2:
                third = second.f_back
                if third is None or (code := third.f_code) is CALL_IMPL:
                    if code3 is None:
                        return site
                elif code is code3 and third.f_lasti == at3:
                    fourth = third.f_back
                    if fourth is None or (code := fourth.f_code) is CALL_IMPL:
                        if code4 is None:
                            return site
                    elif code is code4 and fourth.f_lasti == at4:
                        return site
        site = self.site(frame, context)
        cache[context, at2] = (code2, *_outer(second), site)
        return site

    def site(self, frame: FrameType, context: int) -> int:
        """Return the number of the place of `frame`. The code objects are kept, so their ids stay valid.

        The key is built inline, four frames at most: a function or a loop would cost half as much again.
        """
        code = frame.f_code
        second = frame.f_back
        place: Key
        if second is None or (code2 := second.f_code) is CALL_IMPL:
            place = (context, id(code), frame.f_lasti)
        else:
            third = second.f_back
            if third is None or (code3 := third.f_code) is CALL_IMPL:
                place = (context, id(code), frame.f_lasti, id(code2), second.f_lasti)
            else:
                fourth = third.f_back
                if fourth is None or (code4 := fourth.f_code) is CALL_IMPL:
                    place = (
                        context, id(code), frame.f_lasti, id(code2), second.f_lasti, id(code3), third.f_lasti,
                    )  # fmt: skip
                else:
                    place = (
                        context, id(code), frame.f_lasti, id(code2), second.f_lasti, id(code3), third.f_lasti,
                        id(code4), fourth.f_lasti,
                    )  # fmt: skip
        site = self.by_key.get(place)
        if site is None:
            frames = walk(frame)
            with self.lock:
                self.sites.append((frames, context))
                site = self.by_key[place] = len(self.sites) - 1
        return site

    def clear(self) -> None:
        """Forget all sites, and release their code objects."""
        del self.contexts[1:]
        self.sites.clear()
        self.by_key.clear()
        self._texts.clear()
        self._files.clear()

    def add_context(self, parent: int, frame: FrameType, path: str) -> int:
        """Add a module that is called for the first time from this place; return its number."""
        frames = walk(frame)
        with self.lock:
            self.contexts.append(Context(parent, frames, path))
            return len(self.contexts) - 1

    def trace(self, site: int) -> list[str]:
        """Return the frames of a site as `path:line`, outermost first."""
        if site < 0:
            return []
        frames, context = self.sites[site]
        return [*self.context_trace(context), *(self.text(frame) for frame in reversed(frames))]

    def files(self) -> set[str]:
        """Return the files named by the traces so far, as Python knows them."""
        return set(self._files)

    def context_trace(self, context: int) -> list[str]:
        """Return the frames that lead to a module call, outermost first."""
        parts: list[list[str]] = []
        while context:
            parent, frames, _ = self.contexts[context]
            parts.append([self.text(frame) for frame in reversed(frames)])
            context = parent
        return [text for part in reversed(parts) for text in part]

    def text(self, frame: Frame) -> str:
        """Return `path:line` of the instruction that the frame was executing; `In [2]:1` in a notebook cell."""
        code, instruction = frame
        text = self._texts.get((id(code), instruction))
        if text is None:
            text = self._texts[id(code), instruction] = (
                f"{notebook_cells.name(code.co_filename)}:{_line(code, instruction)}"
            )
            self._files.add(code.co_filename)
        return text


def _outer(frame: FrameType) -> tuple[CodeType | None, int, CodeType | None, int]:
    """Return (code, instruction) of the two frames outside of this one, up to a module call."""
    third = frame.f_back
    if third is None or third.f_code is CALL_IMPL:
        return None, -1, None, -1
    fourth = third.f_back
    if fourth is None or fourth.f_code is CALL_IMPL:
        return third.f_code, third.f_lasti, None, -1
    return third.f_code, third.f_lasti, fourth.f_code, fourth.f_lasti


def walk(frame: FrameType | None) -> tuple[Frame, ...]:
    """Return the frames from the innermost outwards, up to the innermost module call or the end."""
    frames: list[Frame] = []
    while frame is not None:
        code = frame.f_code
        # By identity: on a full stack code objects compare as unequal, and leave an error behind.
        for end in ENDS:
            if code is end:
                return tuple(frames)
        if not code.co_filename.startswith(OWN):
            frames.append((code, frame.f_lasti))
        frame = frame.f_back
    return tuple(frames)


def _line(code: CodeType, instruction: int) -> int:
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return line
    return code.co_firstlineno
