# SPDX-License-Identifier: Apache-2.0
"""The coverage ledger: of the time on the device, how much is explained, and what was left out.

Shares are of the sum of the rows' times. Each line's parts close to 100 %.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.model import KERNEL, OPERATOR, Bools
from pyprof.prof.attribute import BASES
from pyprof.prof.columns import View
from pyprof.prof.ops.shapes import tensors_in


class Entry(NamedTuple):
    """One line: what is covered; by part the time in ns and the number of rows. Both add up to those of the table."""

    what: str
    parts: dict[str, int]
    counts: dict[str, int]


def ledger(view: View) -> list[Entry]:
    """All lines. Without rows every part is 0."""
    rows, costs = view.rows, view.costs
    sites = rows.sites

    def by_site(marks: list[bool]) -> Bools:
        return np.array(marks or [False], bool)[rows.site]

    shapes = np.array([_has_shapes(call) for call in costs.calls] + [False], bool)[costs.call]
    flops = np.where(costs.flops.mask(), costs.basis, BASES.index("unknown"))
    size = np.where(costs.bytes.mask(), costs.basis, BASES.index("unknown"))
    launched = rows.launch_start.mask() | (rows.kind == OPERATOR)
    return [
        _split(view, "operator", by_site([bool(site.ops) for site in sites])),
        _split(view, "shapes", shapes),
        _split(view, "source line", by_site([bool(site.trace) for site in sites])),
        _split(view, "module", by_site([bool(site.module) for site in sites])),
        _split(view, "launch record", launched),
        _entry(view, "FLOPs", {base: flops == i for i, base in enumerate(BASES)}),
        _entry(view, "bytes", {base: size == i for i, base in enumerate(BASES)}),
    ]


def _has_shapes(call: object) -> bool:
    return bool(tensors_in(arg.value for arg in getattr(call, "args", ())))


def _split(view: View, what: str, known: Bools) -> Entry:
    return _entry(view, what, {"known": known, "unknown": ~known})


def _entry(view: View, what: str, parts: dict[str, Bools]) -> Entry:
    times = {part: int(view.rows.duration[rows].sum()) for part, rows in parts.items()}
    return Entry(what, times, {part: int(rows.sum()) for part, rows in parts.items()})


def text(view: View, name: str) -> str:
    """The ledger for a terminal."""
    rows = view.rows
    total = int(rows.duration.sum())
    what = "operator events" if len(rows) and (rows.kind == OPERATOR).all() else "kernels"
    if (rows.kind != KERNEL).any() and what == "kernels":
        what = "GPU events"
    lines = [f"{name}: {len(rows)} {what}, {total} ns; share of that time"]
    for entry in ledger(view):
        parts = ", ".join(
            f"{part} {100 * ns / total if total else 0:.1f} %" for part, ns in entry.parts.items()
        )
        unknown = entry.counts["unknown"]
        parts += f" ({unknown} row{'s' * (unknown != 1)})" if unknown else ""
        lines.append(f"  {entry.what:<13} {parts}")
    lines += [f"  lost: {count} {reason}" for reason, count in sorted(rows.lost.items())]
    return "\n".join(lines)
