# SPDX-License-Identifier: Apache-2.0
"""The comparison of two profiles in memory: the step, figures, and sums of the table's rows by place in the model."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pandas as pd

from pyprof.core.model import NO_MODULE
from pyprof.metrics import METRICS, Value
from pyprof.reports.diff import REPORT
from pyprof.views import models
from pyprof.views.report_pages import Sheet

_IN_STEP = {"wall_time", "average_iteration", "profiler_overhead"}  # of the step's rows, or of no step
NOWHERE = f"{NO_MODULE}, or in several"


class Comparison:
    """Answer of the task `compare`."""

    def __init__(self, answer: tuple[dict[str, Any], Any]):
        self._info = answer[0]
        self.notes: list[str] = self._info["notes"]
        self.headline: str = self._info["headline"]
        self.sheet = Sheet(answer, REPORT)
        self.steps = [models.Change(**row) for row in self._info["steps"]]

    @property
    def nbytes(self) -> int:
        return self.sheet.nbytes

    @cached_property
    def figures(self) -> list[models.Delta]:
        """Figures of both: shares by the size of their change, then the others."""
        base, other = self._info["base"], self._info["other"]
        deltas = [_delta(name, base[name], other[name]) for name in METRICS if name not in _IN_STEP]
        return sorted(deltas, key=lambda one: (one.unit != "%", -abs(one.delta or 0) if one.unit == "%" else 0))

    def groups(self, at: list[str], figure: str) -> models.Groups:
        """Return sums of the rows below a place. `figure`: device_ns, host_ns or calls."""
        sums: dict[str, list[float]] = {}
        deeper: set[str] = set()
        values = self._rows[[f"base_{figure}", f"other_{figure}"]].fillna(0).to_numpy(float).tolist()
        for path, (base, other) in zip(self._paths, values):
            if len(path) <= len(at) or list(path[: len(at)]) != at:
                continue
            key = path[len(at)]
            both = sums.setdefault(key, [0.0, 0.0])
            both[0], both[1] = both[0] + base, both[1] + other
            if len(path) > len(at) + 1:
                deeper.add(key)
        groups = [
            models.Group(key=key, label=key[2:], base=base, other=other, deeper=key in deeper)
            for key, (base, other) in sorted(sums.items(), key=lambda item: (-max(item[1]), item[0]))
            if base or other
        ]
        return models.Groups(groups=groups, rows=len(self._paths), complete=self.sheet.complete)

    @cached_property
    def _rows(self) -> pd.DataFrame:
        frame = self.sheet.frame
        return frame.pandas(frame.select())

    @cached_property
    def _paths(self) -> list[tuple[str, ...]]:
        """The place of each row: modules, operator, kernel, shapes, direction. The first letter of a step says what it
        is, so that a module and an operator of one name stay apart. Without any modules, operators come first."""
        keys = ("module", "operator", "name", "shapes", "direction")
        rows = self._rows[list(keys)].astype(object)
        rows = rows.where(rows.notna(), None)
        any_module = rows["module"].notna().any()
        out = []
        for module, operator, name, shapes, direction in rows.itertuples(index=False):
            modules = [f"m:{part}" for part in module.split(".")] if module else [f"m:{NOWHERE}"] * bool(any_module)
            names = [f"o:{text}" for text in (operator, name) if text]
            more = [f"{mark}:{text}" for mark, text in (("s", shapes), ("d", direction)) if text]
            out.append((*modules, *names, *more))
        return out


def _delta(name: str, base: Value, other: Value) -> models.Delta:
    metric = METRICS[name]
    delta = None if base is None or other is None else float(other - base)
    return models.Delta(
        key=name, heading=metric.heading, unit=metric.unit, text=metric.text, base=base, other=other, delta=delta
    )
