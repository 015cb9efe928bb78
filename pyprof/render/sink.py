# SPDX-License-Identifier: Apache-2.0
"""Output of a report's rows: base class of all formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import BinaryIO

import pandas as pd
import pyarrow as pa

from pyprof.render import text_cells
from pyprof.render.text_cells import Spelling
from pyprof.reports import Column, Report

_LINES = 1 << 13  # lines joined at a time


class Sink(ABC):
    """Writer of a report's rows to a file: `part` is called any number of times, then `close`."""

    def __init__(self, report: Report, file: BinaryIO):
        self.report, self.file = report, file
        self.columns: tuple[Column, ...] = report.columns

    @abstractmethod
    def part(self, frame: pd.DataFrame) -> None:
        """Write some rows."""

    def close(self) -> None:  # noqa: B027 (most formats need nothing)
        """Write what follows the rows."""

    def put(self, text: str) -> None:
        self.file.write(text.encode("utf-8", "backslashreplace"))

    def texts(self, frame: pd.DataFrame, spelling: Spelling) -> list[pa.Array]:
        """Return the cells of all columns as text."""
        return [text_cells.column(column, frame[column.key], spelling) for column in self.columns]

    def lines(self, rows: pa.Array, separator: str) -> None:
        """Write rows with a separator between them."""
        for low in range(0, len(rows), _LINES):
            text = separator.join(rows.slice(low, _LINES).to_pylist())
            self.put(separator + text if low else text)


def numeric(column: Column) -> bool:
    """Return whether a column contains numbers."""
    return column.kind in (int, float)
