# SPDX-License-Identifier: Apache-2.0
"""Which attribute accesses in a code object are the function of a call: `F.conv2d` in `F.conv2d(x, w)`, and no other.

`act is F.gelu`, `table[F.gelu]`, `{F.gelu: 1}[act](x)` and `f = F.gelu` must get the function itself; an access whose
value is called at once, and reaches nothing else, may get something that records the call.

From Python 3.11 on each instruction knows the range of source text that it stands for. The access `F.conv2d` is a
callee when the smallest larger range that starts at the same place is first of all a call. Where the ranges are missing
(Python 3.10, `-X no_debug_ranges`) only the instruction made for method calls counts; the others are seen as
operators. A value that is stored first (pytest rewrites asserts that way) does not count.
"""

from __future__ import annotations

import dis
import sys
from types import CodeType
from typing import NamedTuple

_EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
_LOADS = {dis.opmap[name] for name in ("LOAD_ATTR", "LOAD_METHOD") if name in dis.opmap}
_METHOD = dis.opmap.get("LOAD_METHOD")
_CALLS = {code for name, code in dis.opmap.items() if name.startswith("CALL") and "INTRINSIC" not in name}
_ASIDE = {code for name, code in dis.opmap.items() if name.startswith(("PRECALL", "KW_NAMES", "CACHE"))}
_GATHERS = {
    code
    for name, code in dis.opmap.items()
    if name.startswith(("BUILD_", "LIST_", "DICT_", "PUSH_NULL", "LOAD_CONST"))
}
_STORES = {
    code for name, code in dis.opmap.items() if name.startswith(("STORE_", "COPY", "DUP_", "SWAP", "ROT_"))
}


_OPERATORS = {
    code
    for name, code in dis.opmap.items()
    if name.startswith(
        ("BINARY_", "INPLACE_", "UNARY_", "COMPARE_", "STORE_SUBSCR", "STORE_SLICE", "DELETE_SUBSCR")
    )
}


class _Instruction(NamedTuple):
    offset: int
    opcode: int
    argument: int
    start: tuple[int, int] | None
    end: tuple[int, int] | None


def callee_offsets(code: CodeType) -> frozenset[int]:
    """Offsets (as frames report them) of the attribute loads whose value is called at once and nothing else."""
    instructions = _instructions(code)
    by_start: dict[tuple[int, int], list[_Instruction]] = {}
    for instruction in instructions:
        if instruction.start is not None and instruction.opcode not in _ASIDE:
            by_start.setdefault(instruction.start, []).append(instruction)
    out = set()
    for load, following in zip(instructions, [*instructions[1:], None]):
        if load.opcode not in _LOADS or (following is not None and following.opcode in _STORES):
            continue
        if load.start is None or load.end is None:
            if _is_method_load(load):
                out.add(load.offset)
        elif _is_callee(load.end, by_start[load.start]):
            out.add(load.offset)
    return frozenset(out)


def is_operator(code: CodeType, offset: int) -> bool:
    """Whether the instruction is an operator, as in `x + y`: what it asks for is called at once, here."""
    return code.co_code[offset] in _OPERATORS


def _is_method_load(load: _Instruction) -> bool:
    if sys.version_info >= (3, 12):
        return bool(load.argument & 1)  # LOAD_ATTR with the bit "leave room for self"
    return load.opcode == _METHOD


def _is_callee(end: tuple[int, int], same_start: list[_Instruction]) -> bool:
    """The next larger range that starts where the load starts must be a call.

    What gathers its arguments (`f(*args, **kwargs)`) has the same range and comes before, what drops its result after.
    """
    after = (other for other in same_start if other.end is not None and other.end > end)
    larger = [(other.end, other.offset, other.opcode) for other in after if other.opcode not in _GATHERS]
    return bool(larger) and min(larger)[2] in _CALLS


def _instructions(code: CodeType) -> list[_Instruction]:
    raw = code.co_code
    if sys.version_info >= (3, 11):
        positions = list(code.co_positions())
    else:
        positions = []
    out = []
    argument = 0
    for offset in range(0, len(raw), 2):
        opcode = raw[offset]
        argument = argument << 8 | raw[offset + 1]
        if opcode == _EXTENDED_ARG:
            continue
        start = end = None
        if positions:
            line, end_line, column, end_column = positions[offset // 2]
            if line is not None and end_line is not None and column is not None and end_column is not None:
                start, end = (line, column), (end_line, end_column)
        if opcode not in _ASIDE:
            out.append(_Instruction(offset, opcode, argument, start, end))
        argument = 0
    return out
