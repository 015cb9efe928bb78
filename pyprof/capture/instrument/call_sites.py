# SPDX-License-Identifier: Apache-2.0
"""Attribute accesses in a code object that load the function of a call: `F.conv2d` in `F.conv2d(x, w)`, and no other.

`act is F.gelu`, `table[F.gelu]`, `{F.gelu: 1}[act](x)` and `f = F.gelu` must get the function itself; an access
whose value is called immediately, and is used for nothing else, may get a wrapper that records the call.

From Python 3.13 on the instructions show it: a callee is loaded as a method, or PUSH_NULL directly follows it
(CPython's codegen.c, `codegen_call` and `maybe_optimize_method_call`; the same in 3.14).

Before, PUSH_NULL preceded the callee, and the source ranges of the instructions show it instead. The access
`F.conv2d` is a callee when the smallest larger range that starts at the same position is a call. A value that is
stored first (pytest rewrites asserts that way) does not count. Without the ranges (`-X no_debug_ranges`) only values
loaded as a method count: no function of a module imported at the top of a file.
"""

from __future__ import annotations

import dis
import sys
from itertools import pairwise
from types import CodeType
from typing import NamedTuple


def _codes(*prefixes: str) -> frozenset[int]:
    """Return the instructions whose names begin with one of the prefixes; each Python version has only some of them."""
    return frozenset(code for name, code in dis.opmap.items() if name.startswith(prefixes))


_EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
_PUSH_NULL = dis.opmap["PUSH_NULL"]
_LOADS = _codes("LOAD_ATTR", "LOAD_METHOD")
_METHODS = _codes("LOAD_METHOD") if sys.version_info < (3, 12) else ()  # later a bit of LOAD_ATTR's argument
_CALLS = _codes("CALL") - _codes("CALL_INTRINSIC")
_SKIPPED = _codes("PRECALL", "KW_NAMES", "CACHE")
# Instructions that build a tuple and a dictionary from `*args` and `**kwargs`.
_GATHERS = _codes("BUILD_", "LIST_", "DICT_", "MAP_", "CALL_INTRINSIC", "PUSH_NULL", "LOAD_CONST")
_STORES = _codes("STORE_", "COPY", "SWAP")
_OPERATORS = _codes("BINARY_", "UNARY_", "COMPARE_", "STORE_SUBSCR", "STORE_SLICE", "DELETE_SUBSCR")
_ORDERED = sys.version_info >= (3, 13)  # PUSH_NULL follows the callee


class _Instruction(NamedTuple):
    offset: int
    opcode: int
    argument: int
    start: tuple[int, int] | None
    end: tuple[int, int] | None


def complete() -> bool:
    """Return whether all such accesses can be recognized in code that this Python compiles: see the module
    docstring."""
    return _ORDERED or any(column is not None for *_, column in compile("m.f", "", "eval").co_positions())


def callee_offsets(code: CodeType) -> frozenset[int]:
    """Return the offsets (as frames report them) of the attribute loads whose value is only called, and immediately."""
    instructions = _instructions(code)
    if _ORDERED:
        return frozenset(
            load.offset
            for load, following in pairwise(instructions)
            if load.opcode in _LOADS and (_is_method(load) or following.opcode == _PUSH_NULL)
        )
    by_start: dict[tuple[int, int], list[_Instruction]] = {}
    starts: dict[tuple[int, int], tuple[int, int]] = {}  # of callees, by their end
    for instruction in instructions:
        if instruction.start is not None and instruction.end is not None:
            by_start.setdefault(instruction.start, []).append(instruction)
            if instruction.opcode == _PUSH_NULL:
                starts[instruction.end] = instruction.start
    out = set()
    for load, following in pairwise(instructions):
        if load.opcode not in _LOADS or following.opcode in _STORES:
            continue
        if load.start is None or load.end is None:
            if _is_method(load):
                out.add(load.offset)
        # The range of an attribute on a line of its own begins there, not at the start of the expression.
        elif _is_callee(load.end, by_start[starts.get(load.end, load.start)]):
            out.add(load.offset)
    return frozenset(out)


def is_operator(code: CodeType, offset: int) -> bool:
    """Return whether the instruction is an operator, as in `x + y`: the method that it loads is called immediately."""
    return code.co_code[offset] in _OPERATORS


def _is_method(load: _Instruction) -> bool:
    return load.opcode in _METHODS if _METHODS else bool(load.argument & 1)


def _is_callee(end: tuple[int, int], same_start: list[_Instruction]) -> bool:
    """Return whether the next larger range that starts where the load starts is a call.

    Instructions that collect its arguments (`f(*args, **kwargs)`) have the same range and come before, those that
    drop its result after.
    """
    after = (other for other in same_start if other.end is not None and other.end > end)
    larger = [(other.end, other.offset, other.opcode) for other in after if other.opcode not in _GATHERS]
    return bool(larger) and min(larger)[2] in _CALLS


def _instructions(code: CodeType) -> list[_Instruction]:
    raw = code.co_code
    positions = list(code.co_positions())
    out = []
    argument = 0
    for offset in range(0, len(raw), 2):
        opcode = raw[offset]
        argument = argument << 8 | raw[offset + 1]
        if opcode == _EXTENDED_ARG:
            continue
        start = end = None
        line, end_line, column, end_column = positions[offset // 2]
        if line is not None and end_line is not None and column is not None and end_column is not None:
            start, end = (line, column), (end_line, end_column)
        if opcode not in _SKIPPED:
            out.append(_Instruction(offset, opcode, argument, start, end))
        argument = 0
    return out
