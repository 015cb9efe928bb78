# SPDX-License-Identifier: Apache-2.0
"""The coverage ledger below the table of `prof.py`, computed from its rows: the explained share of the time on the
device, and the rest. `facts.coverage` computes the same lines from a profile database.

Shares are of the sum of the rows' times. Each line's parts add up to 100 %. Then come the operators whose FLOPs or
bytes are not exact, with the reason, longest first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.core.marker import is_event
from pyprof.core.model import BASES, KERNEL, KERNELS, OPERATOR, Bools, Call
from pyprof.core.units import duration
from pyprof.costs import kernels
from pyprof.costs.attribution.attribute import family
from pyprof.costs.columns import View
from pyprof.costs.cost import tensors_of
from pyprof.costs.unknown_costs import Gap, gaps

SHOWN = 6  # gaps listed by name; the others are counted
EXACT, INEXACT, NOT_PRODUCT = "exact FLOPs", "no exact FLOPs", "no product"


class Entry(NamedTuple):
    """One line of the ledger: its subject, and by part the time in ns and the number of rows; the parts add up to the
    totals of the table."""

    what: str
    parts: dict[str, int]
    counts: dict[str, int]


def ledger(view: View) -> list[Entry]:
    """Return all lines. Without rows every part is 0."""
    rows, costs = view.rows, view.costs
    sites = rows.sites

    def by_site(marks: list[bool]) -> Bools:
        return np.array(marks or [False], bool)[rows.site]

    # The last entry is for rows without a call, whose index is -1.
    shapes = np.array([_has_shapes(call) for call in costs.calls] + [False], bool)[costs.call]
    product, exact = np.any(list(products(view).values()), axis=0), exact_flops(view)
    flops_basis = np.where(costs.flops.mask(), costs.basis, BASES.index("unknown"))
    of_bytes = np.where(costs.basis == BASES.index("recorded"), BASES.index("default"), costs.basis)
    bytes_basis = np.where(costs.bytes.mask(), of_bytes, BASES.index("unknown"))
    launched = rows.launch_start.mask() | (rows.kind == OPERATOR)
    return [
        _operators(view, by_site([bool(site.ops) for site in sites]), by_site([bool(s.layer) for s in sites])),
        _split(view, "shapes", shapes),
        _split(view, "source line", by_site([bool(site.trace) for site in sites])),
        _split(view, "module", by_site([bool(site.module) for site in sites])),
        _split(view, "launch record", launched),
        _entry(view, "FLOPs", {base: flops_basis == i for i, base in enumerate(BASES)}),
        _entry(view, "bytes", {base: bytes_basis == i for i, base in enumerate(BASES)}),
        _entry(view, "products", {EXACT: product & exact, INEXACT: product & ~exact, NOT_PRODUCT: ~product}),
    ]


def _has_shapes(call: Call | None) -> bool:
    return call is not None and any(tensors_of(arg.value) for arg in call.args)


def products(view: View) -> dict[str, Bools]:
    """Return the rows that are matrix products ("gemm"), convolutions and attention.

    The kind of a kernel follows from its name, or from its call if no row of the table matches the name; that of an
    operator event from its formula.
    """
    rows, costs = view.rows, view.costs
    named = np.array([kernels.kind(name) for name in rows.names] or ["other"], object)[rows.name]
    events = [site.calls[-1] if site.calls and is_event(site.calls[-1]) else None for site in rows.sites]
    of_event = np.array([_product_kind(event) for event in events] or [""], object)[rows.site]
    of_call = np.array([*map(_product_kind, costs.calls), ""], object)[costs.call]
    nameless = (named == "other") & costs.principal
    kind = np.where(rows.kind == OPERATOR, of_event, np.where(nameless, of_call, named))
    on_device = (rows.kind == KERNEL) | (rows.kind == OPERATOR)
    return {name: (kind == name) & on_device for name in sorted(kernels.PRODUCTS)}


def exact_flops(view: View) -> Bools:
    """Return the rows with FLOPs from a formula. GPU rows with 0 FLOPs are left out: for the kernel of a product, 0
    means that attribution failed."""
    rows, costs = view.rows, view.costs
    exact = costs.flops.mask() & (costs.basis == BASES.index("formula"))
    return np.asarray(exact & ((rows.kind == OPERATOR) | (costs.flops.values > 0)))


def _product_kind(call: Call | None) -> str:
    """Return the kind of product of an operator, "" for any other. A family that has no kernels of its own name, as
    contractions, runs as "gemm"."""
    name = family(call)
    fits = kernels.FITS.get(name, frozenset())
    if not fits or not fits <= kernels.PRODUCTS:
        return ""
    return name if name in fits else "gemm"


def _split(view: View, subject: str, known: Bools) -> Entry:
    return _entry(view, subject, {"known": known, "unknown": ~known})


def _operators(view: View, known: Bools, in_range: Bools) -> Entry:
    """Split by operator. Rows outside of every operator may be inside a range of the user."""
    only = ~known & in_range
    middle = {"range only": only} if only.any() else {}
    return _entry(view, "operator", {"known": known, **middle, "unknown": ~known & ~in_range})


def _entry(view: View, subject: str, parts: dict[str, Bools]) -> Entry:
    times = {part: int(view.rows.duration[rows].sum()) for part, rows in parts.items()}
    return Entry(subject, times, {part: int(rows.sum()) for part, rows in parts.items()})


def text(view: View, name: str) -> str:
    """Format the ledger for a terminal."""
    rows = view.rows
    total = int(rows.duration.sum())
    noun = "operator events" if len(rows) and (rows.kind == OPERATOR).all() else "kernels"
    if (~np.isin(rows.kind, KERNELS)).any() and noun == "kernels":
        noun = "GPU events"
    lines = [f"{name}: {len(rows)} {noun}, {duration(total)}; percent of that time"]
    for entry in ledger(view):
        parts = ", ".join(f"{part} {100 * ns / total if total else 0:.1f} %" for part, ns in entry.parts.items())
        unknown = entry.counts.get("unknown", 0)
        parts += f" ({unknown} row{'s' * (unknown != 1)})" if unknown else ""
        lines.append(f"  {entry.what:<13} {parts}")
    lines += _gap_lines(gaps(rows, view.costs), total)
    lines += [f"  lost: {count} {reason}" for reason, count in sorted(rows.lost.items())]
    return "\n".join(lines)


def _gap_lines(all_gaps: list[Gap], total: int) -> list[str]:
    def share(selection: list[Gap]) -> str:
        return f"{100 * sum(gap.time for gap in selection) / total if total else 0:.1f} %"

    lines = [f"  {gap.operator} {share([gap])}: {gap.basis}, {gap.lacks}; {gap.why}" for gap in all_gaps[:SHOWN]]
    if len(all_gaps) > SHOWN:
        lines.append(f"  and {len(all_gaps) - SHOWN} others {share(all_gaps[SHOWN:])}")
    return ["without exact figures:", *lines] if all_gaps else []
