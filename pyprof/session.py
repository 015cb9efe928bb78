# SPDX-License-Identifier: Apache-2.0
"""A recording as Python objects: what the commands and, later, the page stand on.

prof = pyprof.load("net.sqlite")
prof.kernels.groupby("op")["sil"].sum()
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING

from pyprof.model import Rows, Trace
from pyprof.parse import formats
from pyprof.parse.rows import rows

if TYPE_CHECKING:
    import pandas as pd

    from pyprof.prof.hardware import Hardware


class Profile:
    """A recording with its kernels; everything is computed when it is first asked for."""

    def __init__(self, trace: Trace, memory: bool = False):
        self.trace = trace
        self._memory = memory

    @cached_property
    def rows(self) -> Rows:
        """One row per kernel, or per operator event without a GPU. Raises FormatError if nothing was recorded."""
        return rows(self.trace, self._memory)

    @cached_property
    def hardware(self) -> Hardware:
        """The GPUs that were recorded, with their peaks."""
        from pyprof.prof import hardware

        return hardware.recorded(self.trace.devices, self.trace.meta)

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """The table of `prof.py` with all its columns; unknown is missing."""
        from pyprof.prof import table
        from pyprof.prof.columns import COLUMNS, View

        return table.frame(View(self.rows, self.hardware), list(COLUMNS.values()))


def load(path: str | os.PathLike[str], memory: bool = False) -> Profile:
    """Read a recording of any known format. `memory`: with copies and sets. Raises FormatError."""
    return Profile(formats.load(path), memory)
