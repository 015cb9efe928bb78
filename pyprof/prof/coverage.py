# SPDX-License-Identifier: Apache-2.0
"""The coverage ledger: of the time on the device, how much is explained, and what was left out.

Shares are of the sum of the rows' times. Each line's parts close to 100 %. Then the operators whose FLOPs or bytes are
not exact, with the reason: the longest first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.marker import is_event
from pyprof.model import BASES, KERNEL, OPERATOR, Bools, Call
from pyprof.prof import kernels
from pyprof.prof.attribution.attribute import family
from pyprof.prof.columns import View
from pyprof.prof.cost import tensors_of
from pyprof.prof.unknown_costs import Gap, gaps

SHOWN = 6  # gaps that the text names; the others are counted
EXACT, OPEN, OTHER = "exact FLOPs", "no exact FLOPs", "no product"


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
    product, exact = np.any(list(products(view).values()), axis=0), exact_flops(view)
    flops = np.where(costs.flops.mask(), costs.basis, BASES.index("unknown"))
    size = np.where(costs.bytes.mask(), costs.basis, BASES.index("unknown"))
    launched = rows.launch_start.mask() | (rows.kind == OPERATOR)
    return [
        _operators(
            view, by_site([bool(site.ops) for site in sites]), by_site([bool(s.layer) for s in sites])
        ),
        _split(view, "shapes", shapes),
        _split(view, "source line", by_site([bool(site.trace) for site in sites])),
        _split(view, "module", by_site([bool(site.module) for site in sites])),
        _split(view, "launch record", launched),
        _entry(view, "FLOPs", {base: flops == i for i, base in enumerate(BASES)}),
        _entry(view, "bytes", {base: size == i for i, base in enumerate(BASES)}),
        _entry(view, "products", {EXACT: product & exact, OPEN: product & ~exact, OTHER: ~product}),
    ]


def _has_shapes(call: Call | None) -> bool:
    return call is not None and any(tensors_of(arg.value) for arg in call.args)


def products(view: View) -> dict[str, Bools]:
    """The rows that are matrix products ("gemm"), convolutions and attention.

    A kernel is what its name says, or what its call is if no row of the table knows the name; an operator event is what
    its formula is.
    """
    rows, costs = view.rows, view.costs
    named = np.array([kernels.kind(name) for name in rows.names] or ["other"], object)[rows.name]
    events = [site.calls[-1] if site.calls and is_event(site.calls[-1]) else None for site in rows.sites]
    of_event = np.array([_kind(event) for event in events] or [""], object)[rows.site]
    of_call = np.array([*map(_kind, costs.calls), ""], object)[costs.call]
    nameless = (named == "other") & costs.principal
    kind = np.where(rows.kind == OPERATOR, of_event, np.where(nameless, of_call, named))
    on_device = (rows.kind == KERNEL) | (rows.kind == OPERATOR)
    return {name: (kind == name) & on_device for name in sorted(kernels.PRODUCTS)}


def exact_flops(view: View) -> Bools:
    """Rows whose FLOPs a formula gives; a product kernel with 0 FLOPs is a fault of attribution, not exact."""
    rows, costs = view.rows, view.costs
    known = costs.flops.mask() & (costs.basis == BASES.index("formula"))
    return np.asarray(known & ((rows.kind == OPERATOR) | (costs.flops.values > 0)))


def _kind(call: Call | None) -> str:
    """The kind of product that an operator is, "" for any other."""
    name = family(call)
    fits = kernels.FITS.get(name, frozenset())
    if not fits or not fits <= kernels.PRODUCTS:
        return ""
    return name if name in fits else "gemm"


def _split(view: View, what: str, known: Bools) -> Entry:
    return _entry(view, what, {"known": known, "unknown": ~known})


def _operators(view: View, known: Bools, in_range: Bools) -> Entry:
    """Rows outside of every operator may be inside a range of the user's."""
    only = ~known & in_range
    middle = {"range only": only} if only.any() else {}
    return _entry(view, "operator", {"known": known, **middle, "unknown": ~known & ~in_range})


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
    lines = [f"{name}: {len(rows)} {what}, {_span(total)}; percent of that time"]
    for entry in ledger(view):
        parts = ", ".join(
            f"{part} {100 * ns / total if total else 0:.1f} %" for part, ns in entry.parts.items()
        )
        unknown = entry.counts.get("unknown", 0)
        parts += f" ({unknown} row{'s' * (unknown != 1)})" if unknown else ""
        lines.append(f"  {entry.what:<13} {parts}")
    lines += _gap_lines(gaps(rows, view.costs), total)
    lines += [f"  lost: {count} {reason}" for reason, count in sorted(rows.lost.items())]
    return "\n".join(lines)


def _span(ns: int) -> str:
    """A time in the unit that suits it.

    >>> _span(66531854), _span(950), _span(0)
    ('66.5 ms', '950 ns', '0 ns')
    """
    units = (("s", 1e9), ("ms", 1e6), ("µs", 1e3))
    name, size = next((one for one in units if ns >= one[1]), ("ns", 1.0))
    return f"{ns / size:.3g} {name}"


def _gap_lines(found: list[Gap], total: int) -> list[str]:
    def share(some: list[Gap]) -> str:
        return f"{100 * sum(gap.time for gap in some) / total if total else 0:.1f} %"

    lines = [f"  {gap.operator} {share([gap])}: {gap.basis}, {gap.lacks}; {gap.why}" for gap in found[:SHOWN]]
    if len(found) > SHOWN:
        lines.append(f"  and {len(found) - SHOWN} others {share(found[SHOWN:])}")
    return ["without exact figures:", *lines] if found else []
