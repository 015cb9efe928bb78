# SPDX-License-Identifier: Apache-2.0
"""Call stacks and module paths from the calls of Python functions (`with_stack=True`).

A function is `file.py(12): name`, a call of a module `nn.Module: Linear_0`; the functions around a moment on a
thread are its stack. Distinct stacks are numbered, and spelled out only if something was launched or executed in
them.
"""

from __future__ import annotations

import re

import numpy as np

from pyprof.core import arrow, intervals
from pyprof.core.model import Functions, Ints, Stack, Strings

_FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d+)\): ", re.S)
_MODULE = "nn.Module: "
_INTERNAL = ("torch/", "<")  # of torch itself, or without a file


class Stacks:
    """Stacks of a recording by thread and time. `entries` holds those that were looked up."""

    def __init__(self, functions: Functions, strings: Strings, slack: int):
        self._strings = strings
        self._threads: dict[int, tuple[intervals.Nesting, Ints]] = {}
        self._above, self._name = (
            [0],
            [-1],
        )  # of each distinct stack: the one around it, and what is innermost
        self.entries: list[Stack] = []
        self._numbers: dict[int, int] = {}
        self._spelled: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {0: ((), ())}
        numbers: dict[int, int] = {}
        for thread, rows in intervals.groups(functions.thread):
            order = rows[intervals.order_by(functions.start[rows], -functions.end[rows], functions.name[rows])]
            start, end = functions.start[order], functions.end[order]
            nesting, _ = intervals.nested(start, end, slack)
            self._threads[thread] = nesting, self._number(nesting, functions.name[order], numbers)

    def _number(self, nesting: intervals.Nesting, name: Ints, numbers: dict[int, int]) -> Ints:
        """Return the number of the distinct stack that each call of a function makes."""
        out = np.zeros(len(name), np.int64)
        width = len(self._strings) + 1
        for depth, members in enumerate(nesting.levels):
            above = out[nesting.parent[members]] if depth else np.zeros(len(members), np.int64)
            code, keys = arrow.factorize(above * width + name[members])
            fresh = []
            for key in keys.tolist():
                number = numbers.get(key)
                if number is None:
                    number = numbers[key] = len(self._above)
                    self._above.append(key // width)
                    self._name.append(key % width)
                fresh.append(number)
            out[members] = np.array(fresh or [0])[code]
        return out

    def at(self, thread: Ints, time: Ints) -> Ints:
        """Return the index in `entries` of the stack at each moment, -1 if there is none."""
        out = np.full(len(time), -1, np.int32)
        for thread_number, moments in intervals.groups(thread):
            if thread_number not in self._threads:
                continue
            nesting, stack = self._threads[thread_number]
            call = nesting.innermost(time[moments])
            stacks = np.where(call >= 0, stack[call], 0)
            distinct, code = np.unique(stacks, return_inverse=True)
            out[moments] = np.array([self._index(number) for number in distinct.tolist()], np.int32)[code]
        return out

    def _index(self, stack: int) -> int:
        index = self._numbers.get(stack)
        if index is None:
            frames, modules = self._spell(stack)
            index = self._numbers[stack] = len(self.entries) if frames or modules else -1
            if index >= 0:
                self.entries.append(Stack(frames, ".".join(modules) or None))
        return index

    def _spell(self, stack: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return frames and modules of a stack, outermost first."""
        chain = []
        while stack not in self._spelled:
            chain.append(stack)
            stack = self._above[stack]
        frames, modules = self._spelled[stack]
        for number in reversed(chain):
            name = self._strings[self._name[number]]
            if name.startswith(_MODULE):
                modules = (*modules, name[len(_MODULE) :])
            elif (line := frame(name)) is not None:
                frames = (*frames, line)
            self._spelled[number] = frames, modules
        return frames, modules


def frame(name: str) -> str | None:
    """Return a function of the program as `file:line`; None for one of torch itself, or without a file.

    >>> frame("train.py(12): main"), frame("torch/nn/modules/module.py(1518): _call_impl"), frame("<built-in method x>")
    ('train.py:12', None, None)
    """
    match = _FRAME.match(name)
    file = "" if match is None else match["file"].replace("\\", "/")
    if match is None or file.startswith(_INTERNAL) or "/site-packages/torch/" in file:
        return None
    return f"{match['file']}:{match['line']}"


def parse_text(text: str) -> Stack:
    """Parse the stack of a trace of 2021, which is a text at each operator, innermost first.

    >>> parse_text("/env/site-packages/torch/nn/functional.py(1690): linear;net.py(7): forward;train.py(3): <module>")
    Stack(frames=('train.py:3', 'net.py:7'), module=None)
    """
    frames = (frame(part) for part in reversed(text.split(";")))
    return Stack(tuple(line for line in frames if line is not None))
