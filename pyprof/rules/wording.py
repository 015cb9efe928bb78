# SPDX-License-Identifier: Apache-2.0
"""Cells of tables as Python values, and tests of texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd


def plain(cell: Any) -> Any:
    """Return a cell as a Python value; missing is None."""
    if cell is pd.NA:
        return None
    if isinstance(cell, np.generic):
        cell = cell.item()
    if isinstance(cell, float):
        return None if np.isnan(cell) else int(cell) if cell.is_integer() and abs(cell) > 1 else cell
    return cell


def which(texts: pd.Series[Any], test: Callable[[str], bool]) -> pd.Series[bool]:
    """Return which texts pass a test; a missing text does not."""
    return pd.Series([isinstance(text, str) and test(text) for text in texts], index=texts.index, dtype=bool)


def located(name: object, line: object) -> str:
    """Return a name with its source line, if that is known.

    >>> located("Adam", "train.py:7"), located("Adam", None)
    ('Adam (train.py:7)', 'Adam')
    """
    return f"{name} ({line})" if isinstance(line, str) and line else str(name)
