# SPDX-License-Identifier: Apache-2.0
"""Formatting for findings: shares, times and sizes as text, cells as Python values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd


def plain(cell: Any) -> Any:
    """Return a cell as a Python value; missing is None."""
    if isinstance(cell, np.generic):
        cell = cell.item()
    if isinstance(cell, float):
        return None if np.isnan(cell) else int(cell) if cell.is_integer() and abs(cell) > 1 else cell
    return cell


def which(texts: pd.Series[Any], test: Callable[[str], bool]) -> pd.Series[bool]:
    """Return which texts pass a test; a missing text does not."""
    return pd.Series([isinstance(text, str) and test(text) for text in texts], index=texts.index, dtype=bool)


def percent(share: float) -> str:
    """Format a share as a percentage.

    >>> percent(0.123), percent(0.00042)
    ('12.3 %', '0.042 %')
    """
    return f"{100 * share:.1f} %" if share >= 0.01 or share == 0 else f"{100 * share:.2g} %"


def length(ns: float) -> str:
    """Format a time in ns.

    >>> length(1234567), length(4200), length(12)
    ('1.23 ms', '4.2 us', '12 ns')
    """
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if ns >= unit:
            return f"{ns / unit:.3g} {name}"
    return f"{ns:.0f} ns"


def size(count: float) -> str:
    """Format a number of bytes with decimal units.

    >>> size(1048576), size(12)
    ('1.05 MB', '12 B')
    """
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:.0f} B"
