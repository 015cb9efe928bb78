# SPDX-License-Identifier: Apache-2.0
"""Conditions on the texts of a table: which of its numbers pass, so that rows of the large tables compare numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pyprof.core.model import Bools
from pyprof.store.files import Store
from pyprof.views.filters import Condition


def text_mask(store: Store, query: str, test: Callable[[str], bool], unknown: bool = False) -> Bools:
    """Return by number which texts of a query pass; `unknown`: whether NULL does."""
    numbers, passed = [], []
    for number, text in store.each(query):
        numbers.append(number)
        passed.append(unknown if text is None else test(text))
    out = np.zeros(max(numbers, default=-1) + 1, bool)
    out[numbers] = passed
    return out


def known_test(condition: Condition) -> tuple[Callable[[str], bool], bool]:
    """Return the test of known texts, and whether unknown ones pass."""
    if condition.known is not None:
        known = condition.known
        return (lambda text: known), not known
    assert condition.text is not None
    return condition.text, False


def texts_pass(store: Store, table: str, column: str, condition: Condition) -> Bools:
    """Return by number which texts of a table pass a condition."""
    test, unknown = known_test(condition)
    return text_mask(store, f"select id, {column} from {table}", test, unknown)
