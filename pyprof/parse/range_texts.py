# SPDX-License-Identifier: Apache-2.0
"""Texts of ranges as columns: each distinct text is handled once.

A run of millions of ranges has a few hundred texts once the numbers that differ from call to call are cut off. The
cut is `marker.split`, done on Arrow arrays with the same patterns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof.core import arrow
from pyprof.core.marker import CALL_IDS, SEQ, SUFFIX, VARYING
from pyprof.core.model import Bools, Column, Ints, Strings

_PARTS = rf"(?s)\A(?P<head>[^{{].*?)(?P<tail>{SUFFIX})\z"
_NUMBER = rf"(?s){SEQ}(?:,.*)?\z"


class SplitTexts(NamedTuple):
    """Texts without their varying numbers: code in a `Strings`, sequence number, and a flag for texts of emit_nvtx."""

    code: Ints
    seq: Column
    operator: Bools

    def take(self, index: Ints) -> SplitTexts:
        return SplitTexts(self.code[index], self.seq.take(index), self.operator[index])


def intern(texts: pa.Array, strings: Strings) -> Ints:
    """Return the codes of unsplit texts."""
    encoded = texts.dictionary_encode()
    codes = np.array([strings.code(text) for text in encoded.dictionary.to_pylist()], np.int32)
    return codes[arrow.numbers(encoded.indices)] if len(codes) else np.empty(0, np.int32)


def split(texts: pa.Array, strings: Strings) -> SplitTexts:
    """Apply `marker.split` to every text and intern the results."""
    encoded = texts.dictionary_encode()
    parts = _split_distinct(encoded.dictionary, strings)
    return parts.take(arrow.numbers(encoded.indices))


def _split_distinct(values: pa.Array, strings: Strings) -> SplitTexts:
    """Split distinct texts. Those that torch itself writes are cut at plain substrings, at a tenth of the cost of a
    regular expression with groups; all others go through the patterns of `marker`."""
    n = len(values)
    code, seq = np.zeros(n, np.int32), np.zeros(n, np.int64)
    present, operator = np.zeros(n, bool), np.zeros(n, bool)
    starts = pc.starts_with(values, "{")
    is_literal = arrow.bools(starts)
    unquoted = np.flatnonzero(~is_literal)
    has_suffix = arrow.bools(pc.match_substring(values.take(arrow.array(unquoted)), " = "))
    plain, pending = unquoted[~has_suffix], unquoted[has_suffix]
    for first in ("seq", "op_id"):
        if not len(pending):
            break
        head, number, tail, usual = _split_usual(values.take(arrow.array(pending)), f", {first} = ")
        index, pending = pending[usual], pending[~usual]
        code[index], operator[index] = (
            intern(pc.binary_join_element_wise(head, tail, _EMPTY), strings),
            True,
        )
        if first == "seq":
            seq[index], present[index] = arrow.numbers(pc.cast(number, pa.int64())), True
    if len(pending):
        slow = _split_by_pattern(values.take(arrow.array(pending)), strings)
        code[pending], operator[pending], seq[pending], present[pending] = (
            slow.code,
            slow.operator,
            slow.seq.values,
            slow.seq.mask(),
        )
    code[plain] = intern(values.take(arrow.array(plain)), strings)
    literals = values.filter(starts)
    if pc.any(pc.match_substring(literals, "callid")).as_py():
        literals = pc.replace_substring_regex(literals, CALL_IDS, "")
    code[is_literal] = intern(literals, strings)
    return SplitTexts(code, Column(seq, present), operator)


# Scalars of Arrow: converting them from Python's would import pandas.
_EMPTY, _SIZES = arrow.texts(["", ", sizes = "])
_USUAL = r"\A[0-9]{1,18}(?:, op_id = [0-9]{1,18})?(?:, sizes = \[[^=]+\])?(?:, input_op_ids = \[[^=]*\])?\z"


def _split_usual(values: pa.Array, separator: str) -> tuple[pa.Array, pa.Array, pa.Array, Bools]:
    """Return the name, the number after the separator and ", sizes = .." of the texts in the form of torch's own code,
    and a mask of them."""
    head, remainder = _cut(values, separator)
    usual = pc.and_(pc.match_substring_regex(remainder, _USUAL), pc.invert(pc.match_substring(head, " = ")))
    usual = pc.and_(usual, pc.not_equal(head, _EMPTY))
    head, remainder = head.filter(usual), remainder.filter(usual)
    number, fields = _cut(remainder, ",")
    shapes, _ = _cut(_cut(fields, " sizes = ")[1], ", input_op_ids = ")
    tail = pc.if_else(pc.equal(shapes, _EMPTY), _EMPTY, pc.binary_join_element_wise(_SIZES, shapes, _EMPTY))
    return head, number, tail, arrow.bools(usual)


def _cut(values: pa.Array, separator: str) -> tuple[pa.Array, pa.Array]:
    """Return the text before and after the first separator; the whole text and "" if there is none."""
    parts = pc.split_pattern(values, separator, max_splits=1)
    size = arrow.numbers(pc.list_value_length(parts))
    flat, first = pc.list_flatten(parts), np.cumsum(size) - size
    flat = pa.concat_arrays([flat, arrow.texts([""])])  # the last, for what has no second part
    after = np.where(size < 2, len(flat) - 1, first + 1)
    return flat.take(arrow.array(first)), flat.take(arrow.array(after))


def _split_by_pattern(values: pa.Array, strings: Strings) -> SplitTexts:
    """Split texts with the patterns themselves: those whose keys have another order, or that only look alike."""
    n = len(values)
    parts = pc.extract_regex(values, _PARTS)
    operator, seq, base = arrow.bools(pc.is_valid(parts)), Column.missing(n), values
    if operator.any():
        tail = pc.struct_field(parts, "tail")
        cut = pc.replace_substring_regex(tail, VARYING, "")
        base = pc.coalesce(pc.binary_join_element_wise(pc.struct_field(parts, "head"), cut, _EMPTY), values)
        digits = pc.struct_field(pc.extract_regex(tail, _NUMBER), "seq")
        present = arrow.present(digits)
        seq = Column(np.where(present, arrow.numbers(pc.cast(digits, pa.int64())), 0), present)
    return SplitTexts(intern(base, strings), seq, operator)
