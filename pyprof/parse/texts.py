# SPDX-License-Identifier: Apache-2.0
"""Texts of ranges as columns: each distinct text is handled once.

A run of millions of ranges has some hundred texts once the numbers that differ from call to call are cut off. The cut
is `marker.split`, done here on Arrow arrays with the same patterns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof.marker import CALL_IDS, SEQ, SUFFIX, VARYING
from pyprof.model import Bools, Column, Ints, Strings

_PARTS = rf"(?s)\A(?P<head>[^{{].*?)(?P<tail>{SUFFIX})\z"
_NUMBER = rf"(?s){SEQ}(?:,.*)?\z"


class SplitTexts(NamedTuple):
    """Texts without their varying numbers: code in a `Strings`, sequence number, whether emit_nvtx wrote it."""

    code: Ints
    seq: Column
    operator: Bools

    def take(self, index: Ints) -> SplitTexts:
        return SplitTexts(self.code[index], self.seq.take(index), self.operator[index])


def intern(texts: pa.Array, strings: Strings) -> Ints:
    """Codes of the texts as they stand."""
    encoded = texts.dictionary_encode()
    codes = np.array([strings.code(text) for text in encoded.dictionary.to_pylist()], np.int32)
    return codes[encoded.indices.to_numpy(zero_copy_only=False)] if len(codes) else np.empty(0, np.int32)


def split(texts: pa.Array, strings: Strings) -> SplitTexts:
    """`marker.split` of every text, interned."""
    encoded = texts.dictionary_encode()
    parts = _split_distinct(encoded.dictionary, strings)
    return parts.take(encoded.indices.to_numpy(zero_copy_only=False))


def _split_distinct(values: pa.Array, strings: Strings) -> SplitTexts:
    n = len(values)
    parts = pc.extract_regex(values, _PARTS)
    operator = pc.is_valid(parts).to_numpy(zero_copy_only=False)
    seq = Column.missing(n)
    base = values
    if operator.any():
        tail = pc.struct_field(parts, "tail")
        cut = pc.replace_substring_regex(tail, VARYING, "")
        base = pc.coalesce(pc.binary_join_element_wise(pc.struct_field(parts, "head"), cut, ""), values)
        digits = pc.struct_field(pc.extract_regex(tail, _NUMBER), "seq")
        present = pc.is_valid(digits).to_numpy(zero_copy_only=False)
        numbers = pc.fill_null(pc.cast(digits, pa.int64()), 0).to_numpy(zero_copy_only=False)
        seq = Column(numbers, present)
    if pc.any(pc.match_substring(values, "callid")).as_py():
        literal = pc.starts_with(values, "{")
        base = pc.if_else(literal, pc.replace_substring_regex(base, CALL_IDS, ""), base)
    return SplitTexts(intern(base, strings), seq, operator)
