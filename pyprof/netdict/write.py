# SPDX-License-Identifier: Apache-2.0
"""Writing net.dict: rows of one kernel and site share a template, only numbers are filled in per row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pyprof.marker import caller, is_event, with_call_id
from pyprof.model import BPROP, DIRECTIONS, FPROP, KINDS, OPERATOR, PHASES, Column, Ints, Rows
from pyprof.netdict.keys import KEYS
from pyprof.screen import json_text

_BLOCK = 32768  # rows formatted at a time: bounds the memory of a large file


class _Style(NamedTuple):
    """How the parts of a line are written."""

    text: Callable[[Any], str]  # constants
    none: str
    triple: str  # of grid and block


_LITERAL = _Style(repr, "None", "(%d, %d, %d)")
_JSON = _Style(json_text, "null", "[%d, %d, %d]")


def lines(rows: Rows) -> Iterator[str]:
    """The lines of net.dict, without line ends, in the order of the rows."""
    return _format(rows, _LITERAL)


def json_lines(rows: Rows) -> Iterator[str]:
    """The same rows as JSON, one object per line: tuples become lists, None becomes null."""
    return _format(rows, _JSON)


def _format(rows: Rows, style: _Style) -> Iterator[str]:
    """Rows of one kernel and site share a template; only numbers are filled in per row."""
    templates: dict[tuple[int, int, int], _Template] = {}
    for first in range(0, len(rows), _BLOCK):
        block = slice(first, min(first + _BLOCK, len(rows)))
        groups, order, bounds = _groups(rows, block)
        cells = _cells(rows, block, order, style)
        base = rows.seq.values[block][order]
        out = [""] * len(order)
        for number, key in enumerate(groups):
            template = templates.get(key)
            if template is None:
                template = templates[key] = _template(rows, *key, style)
            members = slice(bounds[number], bounds[number + 1])
            duration, sub, *rest = (column[members] for column in cells)
            before, after = ([(base[members] + n).tolist() for n in side] for side in template.offsets)
            inner = [
                column.values[block][order[members]].tolist() for column in rows.inner_calls[: template.inner]
            ]
            columns = (duration, *inner, *before, sub, *after, *rest)
            for place, line in zip(order[members].tolist(), map(template.text.__mod__, zip(*columns))):
                out[place] = line
        yield from out


def _groups(rows: Rows, block: slice) -> tuple[list[tuple[int, int, int]], Ints, list[int]]:
    """Distinct (name, site, kind) of some rows, an order that sorts by them, and where each begins in it."""
    n_names, n_kinds = len(rows.names), len(KINDS)
    key = (rows.site[block].astype(np.int64) * n_names + rows.name[block]) * n_kinds + rows.kind[block]
    code, keys = pd.factorize(key)
    order = np.argsort(code, kind="stable")
    bounds = np.searchsorted(code[order], np.arange(len(keys) + 1)).tolist()
    groups = [(k // n_kinds % n_names, k // n_kinds // n_names, k % n_kinds) for k in keys.tolist()]
    return groups, order, bounds


def _cells(rows: Rows, block: slice, order: Ints, style: _Style) -> list[list[Any]]:
    """The varying values of some rows, in the order of their keys, apart from sequence numbers."""

    def column(values: Column | Ints, absent: str = style.none) -> list[Any]:
        if not isinstance(values, Column):
            return list(values[block][order].tolist())
        out = values.values[block][order]
        if values.present is None or values.present[block].all():
            return list(out.tolist())
        boxed = out.astype(object)
        boxed[~values.present[block][order]] = absent
        return list(boxed.tolist())

    def triple(values: Column) -> list[str]:
        code, distinct = distinct_triples(values.values[block][order])
        texts = np.array([style.triple % tuple(row) for row in distinct.tolist()] + [style.none], object)
        return list(texts[np.where(values.mask()[block][order], code, len(distinct))].tolist())

    cpu = style.text("cpu") if (rows.kind[block] == OPERATOR).all() else style.none
    return [
        column(rows.duration), column(rows.sub), column(rows.tid), column(rows.device, cpu), column(rows.stream),
        triple(rows.grid), triple(rows.block), column(rows.start), column(rows.end), column(rows.launch_start),
        column(rows.launch_end), column(rows.correlation), column(rows.pid), column(rows.context),
        column(rows.registers), column(rows.shared_memory), column(rows.forward_thread), column(rows.graph),
        column(rows.call), column(rows.launcher),
    ]  # fmt: skip


def distinct_triples(values: Ints) -> tuple[Ints, Ints]:
    """A code per row of an (n, 3) array, and the distinct rows. x of a grid has 31 bits: 64 do not hold all three.

    >>> code, distinct = distinct_triples(np.array([[1, 1, 1], [2**22 + 1, 1, 1], [1, 1, 1]]))
    >>> code.tolist(), distinct.tolist()
    ([0, 1, 0], [[1, 1, 1], [4194305, 1, 1]])
    """
    wide = values.astype(np.int64)
    plane, planes = pd.factorize((wide[:, 1] << 31) + wide[:, 2])
    code, keys = pd.factorize(pd.factorize(wide[:, 0])[0] * max(len(planes), 1) + plane)
    place = np.zeros(len(keys), np.int64)
    place[code] = np.arange(len(code))
    return code, values[place]


class _Template(NamedTuple):
    """A line with %s where numbers go, the number of its inner calls, and the offsets of its sequence numbers before
    and after subSeqId."""

    text: str
    inner: int
    offsets: tuple[list[int], list[int]]


def _template(rows: Rows, name: int, site_code: int, kind: int, style: _Style) -> _Template:
    site = rows.sites[site_code]

    def constant(value: Any) -> str:
        return style.text(list(value) if isinstance(value, tuple) else value).replace("%", "%%")

    def numbers(offsets: Iterable[int]) -> str:
        return "[" + ", ".join("%s" for _ in offsets) + "]"

    # Calls inside the outermost one have no key of their own: their texts carry their numbers.
    inner = max(sum(not is_event(call) for call in site.calls) - 1, 0)
    inner = min(inner, len(rows.inner_calls))
    slot = "@callid@"  # where the number goes
    while any(slot in text for text in site.markers):
        slot += "@"
    markers = [with_call_id(text, slot) if 1 <= i <= inner else text for i, text in enumerate(site.markers)]
    inner = sum(slot in text for text in markers)
    marked = [(text, offset) for text, offset in site.seq_names if offset is not None]
    seq_markers = ", ".join(
        constant(text + ", seq = ")[:-1] + "%s" + constant(text + ", seq = ")[-1] for text, _ in marked
    )
    direction = constant(DIRECTIONS[site.direction]) if site.direction in (FPROP, BPROP) else style.none
    values = {
        "kShortName": constant(rows.short_names[name]), "layer": constant(site.layer), "trace": constant(site.trace),
        "reprMarkers": constant(site.reprs), "marker": constant(markers).replace(slot, "%s"),
        "seqMarker": f"[{seq_markers}]", "seqId": numbers(site.seq_ids), "altSeqId": numbers(site.alt_seq_ids),
        "dir": direction, "mod": constant(site.mods), "op": constant(site.ops), "kLongName": constant(rows.names[name]),
        "module": constant(site.module) if site.module else style.none, "phase": constant(PHASES[site.phase]),
        "kind": constant(KINDS[kind]),
        "caller": style.none if (line := caller(site.trace)) is None else constant(line),
    }  # fmt: skip
    offsets = [*(offset for _, offset in marked), *site.seq_ids], list(site.alt_seq_ids)
    return _Template(_frame(style) % values, inner, offsets)


@cache
def _frame(style: _Style) -> str:
    """A line with its constants by key, for one template after the other."""
    cells = (f"{style.text(key)}: " + (f"%({key})s" if key in _CONSTANTS else "%%s") for key in KEYS)
    return "{" + ", ".join(cells) + "}"


# Keys whose value is the same for all rows of a kernel and site, sequence numbers apart.
_CONSTANTS = {"kShortName", "layer", "trace", "reprMarkers", "marker", "seqMarker", "seqId", "altSeqId", "dir", "mod",
              "op", "kLongName", "module", "phase", "kind", "caller"}  # fmt: skip
